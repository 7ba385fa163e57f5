//! A loom model of how pushing, waking and sleeping compose: the sleepers' words, a worker's inbox,
//! the default policy and the steps of [`super::idle`], as they run; around them a stub for the
//! driver, and the worker's step and the spare worker's life as `sched/worker` and `sched/spare`
//! have them.
//!
//! Loom holds two workers and one thread outside the pool, two tasks and two preemptions; a
//! worker's share of two tasks is one, so rings stay empty (with a larger share, paths are longer
//! than loom's limit). What the model leaves out has models of its own: the state words
//! (`atomics`), grants by message (`queue/mpsc`), the wake-up of a driver (`atomics/wake_flag`),
//! the watchdog's bell.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::cell::{Cell, RefCell};

use loom::sync::{Arc, Condvar, Mutex};

use super::idle::{self, Idler};
use super::worker_io::OwedWakeup;
use crate::atomics::biased_lock::BiasedLock;
use crate::atomics::sleepers::{Sleepers, Slept};
use crate::io::driver::Wait;
use crate::policy::{
    Cx, Effort, Policy, Ready, Task, Topology, Wake, WorkStealing, WorkStealingParams, WorkerId,
};
use crate::queue::inbox::Inbox;
use crate::queue::inbox::tests::Boxed;
use crate::shim::atomic::{AtomicBool, AtomicUsize, Ordering};

struct Probe;

impl Task for Probe {
    fn pinned(&self) -> Option<WorkerId> {
        None
    }
    fn last_worker(&self) -> Option<WorkerId> {
        None
    }
    fn stamp(&self) -> u64 {
        0
    }
    fn set_stamp(&self, _: u64) {}
}

/// What ends a worker's sleep: it stays set until the worker has seen it, as an eventfd does.
#[derive(Default)]
struct StubDriver(Mutex<bool>, Condvar);

impl StubDriver {
    fn signal(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    /// Takes note of a signal without sleeping, as a worker's turn does. Returns whether there was
    /// one.
    fn poll(&self) -> bool {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn sleep(&self) {
        let mut signalled = self.0.lock().unwrap();
        while !*signalled {
            signalled = self.1.wait(signalled).unwrap();
        }
        *signalled = false;
    }
}

struct Pool {
    policy: WorkStealing<Probe>,
    sleepers: Sleepers,
    inboxes: [Inbox<Boxed<u32>>; 2],
    drivers: [StubDriver; 2],
    left: AtomicUsize,
    stopping: AtomicBool,
    /// Whether the spare worker is to rest.
    released: AtomicBool,
    regular: usize,
    /// Where each task waits for the others, if they do.
    together: Option<(Mutex<usize>, Condvar)>,
}

impl Pool {
    /// Two workers, `spares` of which are spare ones.
    fn new(tasks: usize, spares: usize) -> Arc<Self> {
        Self::of(tasks, spares, false)
    }

    /// `together`: each task holds up its worker until all of them run.
    fn of(tasks: usize, spares: usize, together: bool) -> Arc<Self> {
        let params = WorkStealingParams {
            capacity: 2,
            poll: 61,
        };

        let topology = Topology {
            spares: spares > 0,
            ..Topology::flat(2 - spares)
        };

        Arc::new(Self {
            policy: WorkStealing::new(params, &topology),
            sleepers: Sleepers::new(2 - spares, spares),
            inboxes: [Inbox::new(), Inbox::new()],
            drivers: Default::default(),
            left: AtomicUsize::new(tasks),
            stopping: AtomicBool::new(false),
            released: AtomicBool::new(false),
            regular: 2 - spares,
            together: together.then(|| (Mutex::new(tasks), Condvar::new())),
        })
    }

    /// As `PoolShared::act_on`.
    fn act_on(&self, wake: Wake) {
        let woken = idle::chosen(&self.sleepers, self.drivers.len(), wake);
        woken
            .into_iter()
            .for_each(|worker| self.drivers[worker].signal());
    }

    /// As `wake::schedule` from a thread outside the pool.
    fn schedule_outside(&self) {
        let wake = self.policy.push(&mut Cx::new(1), None, Probe, Ready::Woken);
        self.act_on(wake);
    }

    /// As `wake::send_to`.
    fn send_to(&self, worker: WorkerId) {
        if self.inboxes[worker].push(Boxed::new(1)) && self.sleepers.wake_worker(worker) {
            self.drivers[worker].signal();
        }
    }

    /// Runs a task; the last one ends the pool.
    fn run(&self, _: Probe) {
        if let Some((missing, all_are_here)) = &self.together {
            let mut missing = missing.lock().unwrap();
            *missing -= 1;
            all_are_here.notify_all();
            while *missing > 0 {
                missing = all_are_here.wait(missing).unwrap();
            }
        }

        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stopping.store(true, Ordering::SeqCst);
            self.drivers.iter().for_each(StubDriver::signal);
        }
    }
}

/// A worker. A spare one has no half of the policy.
struct ModelWorker<'a> {
    pool: &'a Pool,
    id: WorkerId,
    half: Option<RefCell<<WorkStealing<Probe> as Policy<Probe>>::Local>>,
    cx: RefCell<Cx>,
    searching: Cell<bool>,
}

impl Idler for ModelWorker<'_> {
    type Task = Probe;

    fn id(&self) -> WorkerId {
        self.id
    }

    fn regular(&self) -> usize {
        self.pool.regular
    }

    fn sleepers(&self) -> &Sleepers {
        &self.pool.sleepers
    }

    fn searching(&self) -> &Cell<bool> {
        &self.searching
    }

    fn has_mail(&self) -> bool {
        !self.pool.inboxes[self.id].is_empty()
    }

    fn read_mail(&self) {
        for _ in self.pool.inboxes[self.id].take_all() {
            let mut half = self.half.as_ref().map(|half| half.borrow_mut());
            let wake = self.pool.policy.push(
                &mut self.cx.borrow_mut(),
                half.as_deref_mut(),
                Probe,
                Ready::Woken,
            );
            self.pool.act_on(wake);
        }
    }

    fn pop(&self, effort: Effort) -> Option<Probe> {
        match &self.half {
            Some(half) => {
                self.pool
                    .policy
                    .pop(&mut self.cx.borrow_mut(), &mut half.borrow_mut(), effort)
            }
            None => self.pool.policy.pop_spare(&mut self.cx.borrow_mut()),
        }
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        match self.half {
            Some(_) => self.pool.policy.maybe_ready(worker),
            None => self.pool.policy.maybe_ready_spare(),
        }
    }

    fn maybe_ready_spare(&self) -> bool {
        self.pool.policy.maybe_ready_spare()
    }

    fn publish(&self) {}

    fn doze(&self) -> bool {
        true
    }

    fn is_called(&self) -> bool {
        self.pool.stopping.load(Ordering::Acquire) || self.is_released()
    }

    fn rouse(&self) {}

    fn fall_asleep(&self, awake: impl FnOnce()) {
        self.pool.drivers[self.id].sleep();
        awake();
    }

    fn wake_another(&self) {
        self.pool.act_on(Wake::Any);
    }

    fn run_found(&self, task: Probe) {
        self.pool.run(task);
    }
}

impl<'a> ModelWorker<'a> {
    fn new(pool: &'a Pool, id: WorkerId) -> Self {
        let half = (id < pool.regular).then(|| RefCell::new(pool.policy.attach(id)));
        Self {
            pool,
            id,
            half,
            cx: RefCell::new(Cx::new(id as u64)),
            searching: Cell::new(false),
        }
    }

    /// Only the spare worker is ever released.
    fn is_released(&self) -> bool {
        self.half.is_none() && self.pool.released.load(Ordering::Acquire)
    }

    /// As `Worker::step`.
    fn step(&self) {
        if self.has_mail() {
            self.read_mail();
        }
        match self.pop(Effort::Quick) {
            Some(task) if self.searching.take() => idle::found(self, task),
            Some(task) => self.pool.run(task),
            None => idle::idle(self),
        }
    }
}

/// A regular worker's loop.
fn work(pool: &Pool, me: WorkerId) {
    let worker = ModelWorker::new(pool, me);
    while !pool.stopping.load(Ordering::Acquire) {
        worker.step();
    }
}

fn check(tasks: usize, push: impl Fn(&Pool) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let pool = Pool::new(tasks, 0);
        let here = pool.clone();
        let there = pool.clone();
        let workers = [
            loom::thread::spawn(move || work(&here, 0)),
            loom::thread::spawn(move || work(&there, 1)),
        ];
        push(&pool);
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        assert_eq!(pool.left.load(Ordering::Acquire), 0);
    });
}

/// Both workers may be asleep, searching or about to sleep when a thread outside pushes: the task
/// runs. (Loom reports a deadlock if nobody is woken for it.)
#[test]
fn loom_a_push_from_outside_is_run() {
    check(1, Pool::schedule_outside);
}

/// The same for a fiber that is sent to one worker's inbox.
#[test]
fn loom_a_fiber_sent_to_a_worker_is_run() {
    check(1, |pool| pool.send_to(1));
}

/// A spare worker's loop until it rests. Its turns may swallow a signal.
fn work_as_spare(pool: &Pool, me: WorkerId) {
    let worker = ModelWorker::new(pool, me);
    while !pool.stopping.load(Ordering::Acquire) && !worker.is_released() {
        pool.drivers[me].poll();
        worker.step();
    }
    idle::leave(&worker);
}

/// A regular worker and a spare one, whose life is `spare`, run a task that `outside` pushes.
fn check_with_spare(spare: fn(&Pool), outside: fn(&Pool)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let pool = Pool::new(1, 1);
        let here = pool.clone();
        let there = pool.clone();
        let workers = [
            loom::thread::spawn(move || work(&here, 0)),
            loom::thread::spawn(move || spare(&there)),
        ];
        outside(&pool);
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        assert_eq!(pool.left.load(Ordering::Acquire), 0);
    });
}

/// As the watchdog does.
fn release(pool: &Pool) {
    pool.released.store(true, Ordering::Release);
    pool.drivers[1].signal();
}

/// A spare worker is released while a thread outside pushes, perhaps after that thread has chosen
/// it: the regular worker runs the task if the spare one does not.
#[test]
fn loom_a_push_to_a_spare_worker_that_leaves_is_run() {
    let push_and_release = |pool: &Pool| {
        pool.schedule_outside();
        release(pool);
    };
    check_with_spare(|pool| work_as_spare(pool, 1), push_and_release);
}

/// A spare worker without a driver ends and a new thread starts in its place, while a thread
/// outside pushes: the task runs, though the number that was chosen may be that of the earlier
/// life.
#[test]
fn loom_a_push_beside_a_spare_worker_that_ends_and_starts_is_run() {
    // One life after another, on one thread: loom has three.
    let two_lives = |pool: &Pool| {
        work_as_spare(pool, 1);
        pool.released.store(false, Ordering::Release);
        work_as_spare(pool, 1);
    };

    let release_and_push = |pool: &Pool| {
        release(pool);
        pool.schedule_outside();
    };

    check_with_spare(two_lives, release_and_push);
}

/// A spare worker joins while a thread outside pushes.
#[test]
fn loom_a_push_beside_a_spare_worker_that_joins_is_run() {
    check_with_spare(|pool| work_as_spare(pool, 1), Pool::schedule_outside);
}

/// Two tasks wait for each other, so both workers must come: one that has taken both wakes the
/// other.
fn check_together(spares: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if spares > 0 { 2 } else { 1 });
    builder.check(move || {
        let pool = Pool::of(2, spares, true);
        let first = pool.clone();
        let second = pool.clone();
        let first = loom::thread::spawn(move || work(&first, 0));
        let second = loom::thread::spawn(move || {
            if spares > 0 {
                work_as_spare(&second, 1)
            } else {
                work(&second, 1)
            }
        });

        (0..2).for_each(|_| pool.schedule_outside());
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn loom_tasks_that_wait_for_each_other_are_run() {
    check_together(0);
}

#[test]
fn loom_tasks_that_wait_for_each_other_are_run_with_a_spare_worker() {
    check_together(1);
}

/// A worker falls asleep while a thread outside pushes and the watchdog polls the worker's driver
/// in its place, because a fiber had held it up: the task runs, though the watchdog may have the
/// signal. (Loom reports a deadlock if the worker sleeps for ever.)
#[test]
fn loom_a_wake_up_that_the_watchdog_has_is_owed() {
    struct Held {
        sleepers: Sleepers,
        driver: StubDriver,
        tasks: AtomicUsize,
        lock: BiasedLock,
        owed: OwedWakeup,
    }
    // SAFETY: the cell in `owed` is reached with the lock only, which has a model of its own.
    unsafe impl Sync for Held {}
    // SAFETY: as above.
    unsafe impl Send for Held {}

    loom::model(|| {
        let held = Arc::new(Held {
            sleepers: Sleepers::new(1, 0),
            driver: StubDriver::default(),
            tasks: AtomicUsize::new(0),
            lock: BiasedLock::new(),
            owed: OwedWakeup::default(),
        });

        let pusher = held.clone();
        let watchdog = held.clone();
        let pusher = loom::thread::spawn(move || {
            pusher.tasks.fetch_add(1, Ordering::Release);
            if pusher.sleepers.wake_any().is_some() {
                pusher.driver.signal();
            }
        });

        let watchdog = loom::thread::spawn(move || {
            if let Some(_held) = watchdog.lock.try_lock_remote() {
                watchdog.owed.note(watchdog.driver.poll());
            }
        });

        while held.tasks.load(Ordering::Acquire) == 0 {
            held.sleepers.begin_sleep(0, false);
            if held.tasks.load(Ordering::Acquire) > 0 {
                break;
            }
            // As `WorkerCtx::turn`.
            {
                let _held = held.lock.lock();
                if held.owed.settle(Wait::Forever) == Wait::Forever {
                    held.driver.sleep();
                }
            }
            if held.sleepers.end_sleep(0) == Slept::Woken {
                let _ = held.sleepers.end_search();
            }
        }

        pusher.join().unwrap();
        watchdog.join().unwrap();
    });
}
