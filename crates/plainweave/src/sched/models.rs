//! A loom model of how pushing, waking and sleeping compose: the sleepers' words, a worker's inbox and the default
//! policy, with the steps of [`super::sleep`] and [`super::wake`] around them and a stub for the driver.
//!
//! Loom holds two workers and one thread outside the pool, two tasks and two preemptions. What the model leaves out
//! has models of its own: the state words (`atomics`), grants by message (`queue/mpsc`), the watchdog's bell.

use loom::sync::{Arc, Condvar, Mutex};

use crate::atomics::sleepers::{Sleepers, Slept};
use crate::policy::{Cx, Effort, Policy, Ready, Task, Topology, Wake, WorkStealing, WorkStealingParams, WorkerId};
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

    /// Takes note of a signal without sleeping, as a worker's turn does.
    fn poll(&self) {
        *self.0.lock().unwrap() = false;
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
        let params = WorkStealingParams { capacity: 2, poll: 61 };
        let topology = Topology { spares: spares > 0, ..Topology::flat(2 - spares) };
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
        let woken = match wake {
            Wake::None => None,
            Wake::Any => self.sleepers.wake_any(),
            Wake::Worker(worker) => self.sleepers.wake_worker(worker).then_some(worker),
        };
        woken.into_iter().for_each(|worker| self.drivers[worker].signal());
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

/// A worker's loop, step by step as `Worker::run` and `sched/sleep`.
fn work(pool: &Pool, me: WorkerId) {
    let (mut local, mut cx) = (pool.policy.attach(me), Cx::new(me as u64));
    let mut searching = false;
    let others_see_work = || match pool.regular {
        1 => pool.policy.maybe_ready_spare(),
        _ => pool.policy.maybe_ready(1 - me),
    };
    let found = |searching: &mut bool, task| {
        *searching = false;
        if pool.sleepers.end_search() && (pool.policy.maybe_ready(me) || others_see_work()) {
            pool.act_on(Wake::Any);
        }
        pool.run(task);
    };
    while !pool.stopping.load(Ordering::Acquire) {
        for _ in pool.inboxes[me].take_all() {
            let wake = pool.policy.push(&mut cx, Some(&mut local), Probe, Ready::Woken);
            pool.act_on(wake);
        }
        if let Some(task) = pool.policy.pop(&mut cx, &mut local, Effort::Quick) {
            if searching {
                found(&mut searching, task)
            } else {
                pool.run(task)
            }
            continue;
        }
        let search = searching || (pool.regular > 1 && pool.sleepers.begin_search());
        searching = false;
        if search
            && pool.regular > 1
            && let Some(task) = pool.policy.pop(&mut cx, &mut local, Effort::Search)
        {
            found(&mut searching, task);
            continue;
        }
        pool.sleepers.begin_sleep(me, search);
        if !pool.inboxes[me].is_empty() || pool.policy.maybe_ready(me) || pool.stopping.load(Ordering::Acquire) {
            pool.sleepers.cancel_sleep(me);
            searching = true;
            loom::thread::yield_now();
            continue;
        }
        pool.drivers[me].sleep();
        searching = pool.sleepers.end_sleep(me) == Slept::Woken;
    }
}

fn check(tasks: usize, push: impl Fn(&Pool) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let pool = Pool::new(tasks, 0);
        let (here, there) = (pool.clone(), pool.clone());
        let workers = [loom::thread::spawn(move || work(&here, 0)), loom::thread::spawn(move || work(&there, 1))];
        push(&pool);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(pool.left.load(Ordering::Acquire), 0);
    });
}

/// Both workers may be asleep, searching or about to sleep when a thread outside pushes: the task runs. (Loom reports a
/// deadlock if nobody is woken for it.)
#[test]
fn loom_a_push_from_outside_is_run() {
    check(1, Pool::schedule_outside);
}

/// The same for a fiber that is sent to one worker's inbox.
#[test]
fn loom_a_fiber_sent_to_a_worker_is_run() {
    check(1, |pool| pool.send_to(1));
}

/// A spare worker's loop until it rests, as `sched/spare`.
fn work_as_spare(pool: &Pool, me: WorkerId) {
    let (mut cx, mut searching) = (Cx::new(me as u64), false);
    while !pool.stopping.load(Ordering::Acquire) {
        if pool.released.load(Ordering::Acquire) {
            if searching {
                let _ = pool.sleepers.end_search();
                pool.act_on(Wake::Any);
            }
            return;
        }
        pool.drivers[me].poll();
        if let Some(task) = pool.policy.pop_spare(&mut cx) {
            if std::mem::take(&mut searching) && pool.sleepers.end_search() && pool.policy.maybe_ready_spare() {
                pool.act_on(Wake::Any);
            }
            pool.run(task);
            continue;
        }
        pool.sleepers.begin_sleep(me, std::mem::take(&mut searching));
        let ends = || pool.stopping.load(Ordering::Acquire) || pool.released.load(Ordering::Acquire);
        if pool.policy.maybe_ready_spare() || ends() {
            pool.sleepers.cancel_sleep(me);
            searching = true;
            loom::thread::yield_now();
            continue;
        }
        pool.drivers[me].sleep();
        searching = pool.sleepers.end_sleep(me) == Slept::Woken;
    }
}

/// A spare worker is released while a thread outside pushes, perhaps after that thread has chosen it: the regular
/// worker runs the task if the spare one does not.
#[test]
fn loom_a_push_to_a_spare_worker_that_leaves_is_run() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let pool = Pool::new(1, 1);
        let (regular, spare) = (pool.clone(), pool.clone());
        let workers =
            [loom::thread::spawn(move || work(&regular, 0)), loom::thread::spawn(move || work_as_spare(&spare, 1))];
        pool.schedule_outside();
        pool.released.store(true, Ordering::Release);
        pool.drivers[1].signal();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(pool.left.load(Ordering::Acquire), 0);
    });
}

/// A spare worker joins while a thread outside pushes.
#[test]
fn loom_a_push_beside_a_spare_worker_that_joins_is_run() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let pool = Pool::new(1, 1);
        let (regular, spare) = (pool.clone(), pool.clone());
        let regular = loom::thread::spawn(move || work(&regular, 0));
        let spare = loom::thread::spawn(move || work_as_spare(&spare, 1));
        pool.schedule_outside();
        regular.join().unwrap();
        spare.join().unwrap();
    });
}

/// Two tasks wait for each other, so both workers must come: one that has taken both wakes the other.
fn check_together(spares: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if spares > 0 { 2 } else { 1 });
    builder.check(move || {
        let pool = Pool::of(2, spares, true);
        let (first, second) = (pool.clone(), pool.clone());
        let first = loom::thread::spawn(move || work(&first, 0));
        let second = loom::thread::spawn(move || if spares > 0 { work_as_spare(&second, 1) } else { work(&second, 1) });
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
