//! Policies that break their contract: fibers that have not started are refused, all else ends the
//! process with a message. Nothing hangs, and no fiber runs where it must not.

#![allow(clippy::print_stderr, reason = "a child process tells its parent")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::*;
use plainweave::policy::{
    Cx, DirectSwitch, Effort, Load, Policy, Ready, Task, Topology, Wake, WorkerId,
};
use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::{FiberTask, JoinHandle, Movement, Runtime, RuntimeBuilder};

/// What is wrong with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Gives pinned tasks to other workers alone.
    ForgetsPins,
    /// Drops every second task that is new.
    DropsNew,
    /// Drops tasks that have run.
    DropsOld,
    /// Keeps new tasks, past `drain`, where the test can reach them.
    Keeps,
    /// Panics before it keeps the task, or after.
    PanicsInPush,
    PanicsInPushLate,
    PanicsInPop,
    PanicsInMaybeReady,
    PanicsInPlace,
    PanicsInAttach,
    PanicsInDrain,
    /// Wakes a worker that there is not.
    WakesNobody,
}

#[derive(Clone)]
struct Params {
    wrong: Wrong,
    /// It behaves until then.
    armed: Arc<AtomicBool>,
    tasks: Tasks,
}

type Tasks = Arc<Mutex<VecDeque<FiberTask>>>;

fn params(wrong: Wrong) -> Params {
    Params {
        wrong,
        armed: Arc::default(),
        tasks: Tasks::default(),
    }
}

/// One queue for all workers, and a lane of each worker's for the tasks that are pinned there.
struct Faulty {
    params: Params,
    lanes: Vec<Tasks>,
    pushes: AtomicUsize,
}

fn lock(tasks: &Tasks) -> MutexGuard<'_, VecDeque<FiberTask>> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faulty {
    fn is(&self, wrong: Wrong) -> bool {
        self.params.wrong == wrong && self.params.armed.load(Ordering::SeqCst)
    }

    fn panics_if(&self, wrong: Wrong) {
        assert!(!self.is(wrong), "the policy's own panic");
    }
}

impl Policy<FiberTask> for Faulty {
    type Params = Params;
    type Local = WorkerId;

    /// What is wrong is so on fibers' stacks too.
    const DIRECT: DirectSwitch = DirectSwitch::Always;

    fn new(params: Params, topology: &Topology) -> Self {
        let lanes = (0..topology.workers).map(|_| Tasks::default()).collect();
        Self {
            params,
            lanes,
            pushes: AtomicUsize::new(0),
        }
    }

    fn attach(&self, worker: WorkerId) -> WorkerId {
        self.panics_if(Wrong::PanicsInAttach);
        worker
    }

    fn push(&self, _: &mut Cx, _: Option<&mut WorkerId>, task: FiberTask, _: Ready) -> Wake {
        self.panics_if(Wrong::PanicsInPush);
        let turn = self.pushes.fetch_add(1, Ordering::SeqCst);
        // An pinned one that was spawned elsewhere comes as one that was woken.
        let new = task.last_worker().is_none();
        if self.is(Wrong::DropsNew) && new && turn.is_multiple_of(2)
            || self.is(Wrong::DropsOld) && !new
        {
            return Wake::None;
        }
        let lane = match task.pinned() {
            Some(worker) if !self.is(Wrong::ForgetsPins) => &self.lanes[worker],
            _ => &self.params.tasks,
        };

        lock(lane).push_back(task);
        self.panics_if(Wrong::PanicsInPushLate);
        if self.is(Wrong::WakesNobody) {
            Wake::Worker(1_000_000)
        } else {
            Wake::Any
        }
    }

    fn pop(&self, _: &mut Cx, worker: &mut WorkerId, _: Effort) -> Option<FiberTask> {
        self.panics_if(Wrong::PanicsInPop);
        if let Some(task) = lock(&self.lanes[*worker]).pop_front() {
            return Some(task);
        }
        if self.is(Wrong::Keeps) {
            return None;
        }
        let mut tasks = lock(&self.params.tasks);
        let at = tasks
            .iter()
            .position(|task| task.pinned() != Some(*worker))?;

        tasks.remove(at)
    }

    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.panics_if(Wrong::PanicsInMaybeReady);
        !lock(&self.lanes[worker]).is_empty()
            || !self.is(Wrong::Keeps) && !lock(&self.params.tasks).is_empty()
    }

    fn place(&self, _: &mut Cx, _: &impl Task, _: &impl Load) -> Option<WorkerId> {
        self.panics_if(Wrong::PanicsInPlace);
        None
    }

    fn drain(&self, worker: WorkerId, sink: &mut dyn FnMut(FiberTask)) {
        lock(&self.lanes[worker]).drain(..).for_each(&mut *sink);
        self.panics_if(Wrong::PanicsInDrain);
        if !self.is(Wrong::Keeps) {
            lock(&self.params.tasks).drain(..).for_each(sink);
        }
    }
}

fn builder(workers: usize) -> RuntimeBuilder {
    Runtime::builder()
        .workers(workers)
        .movement(Movement::BeforeStart)
        .shutdown_timeout(ms(100))
}

fn runtime(workers: usize, params: &Params) -> Runtime {
    builder(workers)
        .build_with::<Faulty>(params.clone())
        .expect("a runtime")
}

/// Two pools, the first with the faulty policy and room for 8 fibers.
fn pools(params: &Params) -> (Pools, Pool, Pool) {
    let faulty = PoolSpec::new("faulty")
        .runtime(builder(2))
        .policy_type::<Faulty>(params.clone())
        .max_fibers(8);
    let pools = Pools::build([faulty, PoolSpec::new("sound").runtime(builder(1))]).expect("pools");
    let [faulty, sound] = ["faulty", "sound"].map(|name| pools.get(name).expect("built").clone());
    (pools, faulty, sound)
}

/// Joins on a thread of its own, so that a join that never ends is a failure and no hang.
fn refused(fiber: JoinHandle<()>) -> bool {
    unless_it_hangs("a join", || {
        fiber.join().is_err_and(|error| error.is_refused())
    })
}

#[test]
fn without_a_fault_it_works() {
    unless_it_hangs("without_a_fault_it_works", || {
        for movement in [Movement::Never, Movement::BeforeStart, Movement::Anytime] {
            let runtime = builder(2)
                .movement(movement)
                .build_with::<Faulty>(params(Wrong::Nothing))
                .expect("a runtime");
            runtime.run(|| {
                let yields =
                    |n| plainweave::spawn(move || (0..n).for_each(|_| plainweave::yield_now()));
                let fibers: Vec<_> = (0..100).map(yields).collect();
                fibers
                    .into_iter()
                    .for_each(|fiber| fiber.join().expect("no panic"));
            });
            assert_eq!(runtime.shutdown(HANG), plainweave::Shutdown::default());
        }
    });
}

#[test]
fn new_fibers_that_it_drops_are_refused() {
    unless_it_hangs("new_fibers_that_it_drops_are_refused", || {
        for movement in [Movement::Never, Movement::BeforeStart, Movement::Anytime] {
            let params = params(Wrong::DropsNew);
            let runtime = builder(2)
                .movement(movement)
                .build_with::<Faulty>(params.clone())
                .expect("a runtime");
            let counts = Arc::new(Counts::default());

            // From outside, where a plain thread joins, and from a fiber.
            let spawn = || {
                let value = Counted::new(&counts);
                move || drop(value)
            };

            runtime.run(|| params.armed.store(true, Ordering::SeqCst));
            let fibers: Vec<_> = (0..100).map(|_| runtime.spawn(spawn())).collect();
            let outside = fibers
                .into_iter()
                .map(refused)
                .filter(|refused| *refused)
                .count();
            assert_eq!(outside, 50, "{movement:?}");
            params.armed.store(false, Ordering::SeqCst);
            let inside = runtime.run(|| {
                params.armed.store(true, Ordering::SeqCst);
                let fibers: Vec<_> = (0..100).map(|_| plainweave::spawn(spawn())).collect();
                let errors = fibers.into_iter().filter_map(|fiber| fiber.join().err());
                let count = errors
                    .inspect(|error| assert!(error.is_refused(), "{error}"))
                    .count();
                params.armed.store(false, Ordering::SeqCst);
                count
            });

            assert!((49..=51).contains(&inside), "{movement:?}: {inside}");
            assert!(counts.balanced(), "closures are dropped");
            assert_eq!(runtime.shutdown(HANG), plainweave::Shutdown::default());
        }
    });
}

/// In a pool as well; what was refused leaves its place to others, and the other pool does not
/// notice.
#[test]
fn new_fibers_that_a_pool_drops_are_refused() {
    unless_it_hangs("new_fibers_that_a_pool_drops_are_refused", || {
        let params = params(Wrong::DropsNew);
        let (pools, faulty, sound) = pools(&params);
        params.armed.store(true, Ordering::SeqCst);
        let refused = sound.call(|| {
            let spawned = (0..100).map(|_| faulty.spawn(|| ()).expect("open").join());
            spawned
                .filter_map(|joined| {
                    joined
                        .err()
                        .map(|error| assert!(error.is_refused(), "{error}"))
                })
                .count()
        });

        assert_eq!(refused.expect("open"), 50);
        // A call that is dropped fails as well, from a fiber and from a thread.
        let calls = || (0..10).filter(|_| faulty.call(|| ()).is_err()).count();
        assert_eq!((sound.call(calls).expect("open"), calls()), (5, 5));
        params.armed.store(false, Ordering::SeqCst);
        let fibers: Vec<_> = (0..8)
            .map(|n| faulty.try_spawn(move || n).expect("every place is free"))
            .collect();

        assert_eq!(
            fibers
                .into_iter()
                .map(|fiber| fiber.join().expect("no panic"))
                .sum::<i32>(),
            28
        );
        assert_eq!(pools.shutdown(HANG), [plainweave::Shutdown::default(); 2]);
    });
}

#[test]
fn what_it_keeps_past_the_end_is_refused_when_dropped() {
    let params = params(Wrong::Keeps);
    let runtime = runtime(2, &params);
    params.armed.store(true, Ordering::SeqCst);
    let fibers: Vec<_> = (0..10).map(|_| runtime.spawn(|| ())).collect();
    assert_eq!(runtime.shutdown(ms(50)).leaked_fibers, 10);
    assert!(fibers.iter().all(|fiber| !fiber.is_finished()));
    let kept = std::mem::take(&mut *lock(&params.tasks));

    // On another thread.
    std::thread::spawn(move || drop(kept))
        .join()
        .expect("no panic");
    assert!(fibers.into_iter().all(refused));
}

#[test]
fn what_another_thread_drops_is_refused() {
    unless_it_hangs("what_another_thread_drops_is_refused", || {
        for movement in [Movement::Never, Movement::BeforeStart, Movement::Anytime] {
            let params = params(Wrong::Keeps);
            let runtime = builder(2)
                .movement(movement)
                .build_with::<Faulty>(params.clone())
                .expect("a runtime");
            params.armed.store(true, Ordering::SeqCst);
            let fibers: Vec<_> = (0..100)
                .map(|_| runtime.spawn(plainweave::yield_now))
                .collect();
            let kept = std::mem::take(&mut *lock(&params.tasks));
            let expected = kept.len();

            std::thread::spawn(move || drop(kept))
                .join()
                .expect("no panic");
            let refused = fibers
                .into_iter()
                .map(refused)
                .filter(|refused| *refused)
                .count();
            assert_eq!(refused, expected, "{movement:?}");
            assert_eq!(runtime.shutdown(HANG), plainweave::Shutdown::default());
        }
    });
}

#[test]
fn fibers_that_have_not_started_at_the_end_are_refused() {
    let params = params(Wrong::PanicsInDrain);
    for wrong in [Wrong::Nothing, Wrong::PanicsInDrain] {
        let params = Params {
            wrong,
            ..params.clone()
        };

        let runtime = runtime(1, &params);
        let hold = Arc::new(AtomicBool::new(true));
        let held = hold.clone();
        let busy = runtime.spawn(move || {
            while held.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });

        eventually("it runs", || lock(&params.tasks).is_empty());
        let behind: Vec<_> = (0..5).map(|_| runtime.spawn(|| ())).collect();
        params.armed.store(true, Ordering::SeqCst);
        let left = runtime.shutdown(Duration::ZERO);
        assert_eq!((left.leaked_fibers, left.leaked_workers), (6, 1));

        // The worker leaves its loop when its fiber has ended.
        hold.store(false, Ordering::SeqCst);
        if wrong == Wrong::PanicsInDrain {
            // They were not given up, but dropped.
            busy.join().expect("no panic");
            lock(&params.tasks).clear();
        }

        assert!(behind.into_iter().all(refused), "{wrong:?}");
        params.armed.store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_panic_in_attach_is_an_error_of_build() {
    unless_it_hangs("a_panic_in_attach_is_an_error_of_build", || {
        let params = params(Wrong::PanicsInAttach);
        params.armed.store(true, Ordering::SeqCst);
        let error = builder(3)
            .build_with::<Faulty>(params)
            .expect_err("no worker");
        assert!(error.to_string().contains("attach"), "{error}");
    });
}

#[test]
fn a_worker_that_there_is_not_stands_for_any() {
    unless_it_hangs("a_worker_that_there_is_not_stands_for_any", || {
        let params = params(Wrong::WakesNobody);
        params.armed.store(true, Ordering::SeqCst);
        let runtime = runtime(2, &params);
        assert_eq!(
            runtime.run(|| plainweave::spawn(|| 3).join().expect("no panic")),
            3
        );
    });
}

/// What a child does with a policy that the process has to end for; the message's part.
const FATAL: &[(Wrong, &str, &str)] = &[
    (Wrong::ForgetsPins, "ForgetsPins", "is pinned elsewhere"),
    (
        Wrong::DropsOld,
        "DropsOld",
        "which has started and cannot be ended",
    ),
    // With the task that it had.
    (
        Wrong::PanicsInPush,
        "PanicsInPush",
        "a scheduling policy has",
    ),
    (
        Wrong::PanicsInPushLate,
        "PanicsInPushLate",
        "a scheduling policy has panicked",
    ),
    (
        Wrong::PanicsInPop,
        "PanicsInPop",
        "a scheduling policy has panicked",
    ),
    (
        Wrong::PanicsInMaybeReady,
        "PanicsInMaybeReady",
        "a scheduling policy has panicked",
    ),
    (
        Wrong::PanicsInPlace,
        "PanicsInPlace",
        "a scheduling policy has panicked",
    ),
];

#[test]
fn what_cannot_be_made_good_ends_the_process() {
    let name = "what_cannot_be_made_good_ends_the_process";
    for (wrong, part, _) in FATAL {
        if is_child(part) {
            fatal(*wrong);
        }
        if is_child(&format!("{part} outside")) {
            fatal_outside(*wrong);
        }
        if is_child(&format!("{part} pool")) {
            fatal_in_a_pool(*wrong);
        }
    }

    if is_child("another runtime") {
        another_runtime();
    }
    unless_it_hangs(name, || {
        for (_, part, message) in FATAL {
            ends_with(name, part, message);
            ends_with(name, &format!("{part} outside"), message);
            ends_with(name, &format!("{part} pool"), message);
        }
        ends_with(name, "another runtime", "is another runtime's");
    });
}

fn ends_with(name: &str, part: &str, message: &str) {
    let text = dies_of(name, part, libc::SIGABRT);
    assert!(
        text.contains("plainweave: ") && text.contains(message),
        "{part}: {text}"
    );
    assert!(!text.contains("survived"), "{part}: {text}");
}

/// The policy goes wrong while fibers run, park, and wake each other; what `run` lends is freed
/// when it unwinds.
fn fatal(wrong: Wrong) -> ! {
    unless_it_hangs("fatal", || {
        let params = params(wrong);
        let runtime = runtime(2, &params);
        let fibers: Vec<_> = (0..20)
            .map(|_| {
                runtime.spawn(|| {
                    loop {
                        pause();
                        plainweave::yield_now();
                    }
                })
            })
            .collect();
        eventually("they run", || runtime.metrics().live_fibers == 20);
        params.armed.store(true, Ordering::SeqCst);

        // Some faults are in what is done with new ones.
        let _new = runtime.spawn(plainweave::yield_now);
        let _: Vec<Result<(), _>> = fibers.into_iter().map(|fiber| fiber.join()).collect();
    });
    panic!("survived");
}

/// It goes wrong before a thread outside calls `run`, which lends what is on its stack.
fn fatal_outside(wrong: Wrong) -> ! {
    unless_it_hangs("fatal_outside", || {
        let params = params(wrong);
        let runtime = runtime(2, &params);
        params.armed.store(true, Ordering::SeqCst);
        let mut lent = [0_u8; 64];
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.run(|| {
                (0..1000).for_each(|_| plainweave::yield_now());
                lent.fill(1);
            });
        }));

        // `run` may be through before a worker first goes to sleep, and asks whether anything is
        // ready.
        std::thread::sleep(HANG / 3);
        eprintln!("survived: {outcome:?} {lent:?}");
    });
    panic!("survived");
}

/// It goes wrong in a pool while fibers of another call into it.
fn fatal_in_a_pool(wrong: Wrong) -> ! {
    unless_it_hangs("fatal_in_a_pool", || {
        let params = params(wrong);
        let (_pools, faulty, sound) = pools(&params);
        let calls = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                let faulty = faulty.clone();
                let calls = calls.clone();
                let call = move || {
                    loop {
                        let called = faulty.call(|| {
                            plainweave::yield_now();
                            pause();
                            plainweave::spawn(plainweave::yield_now).join()
                        });

                        called.expect("open").expect("no panic");
                        calls.fetch_add(1, Ordering::SeqCst);
                    }
                };
                sound.spawn(call).expect("open")
            })
            .collect();
        eventually("they call", || calls.load(Ordering::SeqCst) >= 8);
        params.armed.store(true, Ordering::SeqCst);
        let _: Vec<Result<(), _>> = fibers.into_iter().map(|fiber| fiber.join()).collect();
    });
    panic!("survived");
}

/// Two runtimes on the same tasks: one keeps them, the other takes them.
fn another_runtime() -> ! {
    unless_it_hangs("another_runtime", || {
        let keeps = params(Wrong::Keeps);
        keeps.armed.store(true, Ordering::SeqCst);
        let takes = Params {
            wrong: Wrong::Nothing,
            ..keeps.clone()
        };

        let one = runtime(1, &keeps);
        let other = runtime(1, &takes);
        let fiber = one.spawn(|| ());

        // It is first in the queue.
        other.run(|| ());
        drop(fiber);
    });
    panic!("survived");
}
