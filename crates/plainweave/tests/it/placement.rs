//! Where fibers that stay where they start come to live.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::policy::{
    Cx, Effort, Load, Policy, Ready, Task, Topology, Wake, WorkStealing, WorkStealingLocal,
    WorkStealingParams, WorkerId,
};
use plainweave::{FiberTask, JoinHandle, Movement, Runtime, RuntimeBuilder};

/// The thread under the fiber.
fn os_thread() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// As many fibers as asked for that say where they run and wait; their handles.
fn settlers(count: usize, started: &Arc<AtomicUsize>) -> Vec<JoinHandle<i32>> {
    let settler = |_| {
        let started = started.clone();
        plainweave::spawn(move || {
            started.fetch_add(1, Ordering::AcqRel);
            plainweave::park().expect("not cancelled");
            os_thread()
        })
    };
    (0..count).map(settler).collect()
}

/// How many of them ran on this thread.
fn here(settlers: Vec<JoinHandle<i32>>) -> usize {
    settlers.iter().for_each(|settler| settler.fiber().unpark());
    let me = os_thread();
    settlers
        .into_iter()
        .map(|settler| settler.join().expect("no panic"))
        .filter(|thread| *thread == me)
        .count()
}

/// Holds up its worker until as many have started, for 20 s at most. How many have.
fn compute_until(started: &AtomicUsize, count: usize) -> usize {
    let limit = Instant::now() + Duration::from_secs(20);
    while started.load(Ordering::Acquire) < count && Instant::now() < limit {
        std::hint::spin_loop();
    }
    started.load(Ordering::Acquire)
}

/// Started fibers stay where they are.
fn staying(workers: usize) -> RuntimeBuilder {
    Runtime::builder()
        .workers(workers)
        .movement(Movement::BeforeStart)
}

#[test]
fn fibers_that_stay_are_spread_over_the_workers() {
    unless_it_hangs("spread", || {
        let runtime = staying(2).build().expect("a runtime");
        // A worker whose thread has no processor for a while is as good as held up: another time,
        // then.
        let mut seen = Vec::new();
        while seen.len() < 20 && !seen.iter().any(|here| (60..=340).contains(here)) {
            seen.push(runtime.run(|| {
                // Until the other worker waits for something to do.
                plainweave::time::sleep(Duration::from_millis(20)).expect("not cancelled");
                let started = Arc::default();
                let settlers = settlers(400, &started);
                while started.load(Ordering::Acquire) < 400 {
                    plainweave::time::sleep(Duration::from_millis(1)).expect("not cancelled");
                }
                here(settlers)
            }));
        }

        assert!(
            (60..=340).contains(seen.last().unwrap_or(&0)),
            "{seen:?} of 400 with the worker that spawned them"
        );
    });
}

#[test]
fn a_policy_that_is_about_places_decides_alone() {
    unless_it_hangs("own places", || {
        let runtime = staying(2).policy("local-fifo").build().expect("a runtime");
        runtime.run(|| {
            let started = Arc::default();
            let settlers = settlers(400, &started);
            while started.load(Ordering::Acquire) < 400 {
                plainweave::yield_now();
            }
            assert_eq!(here(settlers), 400);
        });
    });
}

#[test]
fn fibers_begin_on_the_workers_in_turn() {
    unless_it_hangs("in turn", || {
        let movements = [Movement::BeforeStart, Movement::Never];
        for (movement, workers) in movements
            .into_iter()
            .flat_map(|movement| [(movement, 2), (movement, 3)])
        {
            // Nobody steals, so each begins where it was queued.
            let builder = Runtime::builder()
                .workers(workers)
                .movement(movement)
                .policy("local-fifo");
            let runtime = builder.build().expect("a runtime");
            let in_turn = || plainweave::Builder::new().in_turn();
            let place = || plainweave::worker_index().expect("on a worker");
            let from_a_thread = |_| runtime.spawn_with(in_turn(), place).expect("spawned");
            let from_a_fiber = |_| in_turn().spawn(place).expect("spawned");
            let mut handles: Vec<_> = (0..30).map(from_a_thread).collect();

            handles.extend(runtime.run(|| (0..30).map(from_a_fiber).collect::<Vec<_>>()));
            let mut at = vec![0; workers];
            handles
                .into_iter()
                .for_each(|handle| at[handle.join().expect("no panic")] += 1);

            // `run` may have had a turn for its own fiber.
            let part = 60 / workers;
            assert!(
                at.iter().all(|count| (part - 1..=part + 1).contains(count)),
                "{at:?} with {movement:?}"
            );
        }
    });
}

#[test]
fn what_is_handed_to_a_worker_that_is_held_up_begins_elsewhere() {
    unless_it_hangs("handed over", || {
        for movement in [Movement::BeforeStart, Movement::Anytime] {
            let builder = Runtime::builder().workers(2).movement(movement);
            let runtime = builder
                .stall_after(Some(Duration::from_millis(2)))
                .build()
                .expect("a runtime");
            let held_up = runtime.spawn(|| {
                let started = Arc::new(AtomicUsize::new(0));
                for _ in 0..8 {
                    let started = started.clone();
                    let fiber = move || started.fetch_add(1, Ordering::AcqRel);
                    plainweave::Builder::new()
                        .in_turn()
                        .spawn(fiber)
                        .expect("spawned");
                }
                // The turn of this worker itself came too: its fibers are stolen.
                compute_until(&started, 8)
            });

            assert_eq!(held_up.join().expect("no panic"), 8, "{movement:?}");
            // And those that another fiber hands to the one that is held up.
            let busy = Arc::new(AtomicBool::new(false));
            let over = Arc::new(AtomicUsize::new(0));
            let at_work = busy.clone();
            let seen = over.clone();
            let holder = runtime.spawn(move || {
                at_work.store(true, Ordering::Release);
                compute_until(&seen, 8)
            });

            while !busy.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for _ in 0..8 {
                let over = over.clone();
                let fiber = move || over.fetch_add(1, Ordering::AcqRel);
                runtime
                    .spawn_with(plainweave::Builder::new().in_turn(), fiber)
                    .expect("spawned");
            }

            assert_eq!(
                holder.join().expect("no panic"),
                8,
                "some wait behind the one that computes: {movement:?}"
            );
        }
    });
}

#[test]
fn a_worker_that_is_held_up_is_sent_no_fibers() {
    unless_it_hangs("held up", || {
        let runtime = staying(2).build().expect("a runtime");
        runtime.run(|| {
            let busy = Arc::new(AtomicBool::new(false));
            let started = Arc::new(AtomicUsize::new(0));
            let at_work = busy.clone();
            let all = started.clone();

            // Holds up the other worker, since this one does not switch until it has begun, and
            // until all have started.
            let holder = plainweave::spawn(move || {
                at_work.store(true, Ordering::Release);
                compute_until(&all, 300)
            });

            while !busy.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            let settlers = settlers(300, &started);
            while started.load(Ordering::Acquire) < 300 && !holder.is_finished() {
                plainweave::yield_now();
            }
            assert_eq!(
                holder.join().expect("no panic"),
                300,
                "some wait behind the one that computes"
            );
            here(settlers);
        });
    });
}

/// The default policy, but tasks start on one worker.
struct StartOn<T> {
    policy: WorkStealing<T>,
    worker: WorkerId,
}

impl<T: Task + 'static> Policy<T> for StartOn<T> {
    type Params = WorkerId;
    type Local = WorkStealingLocal<T>;

    fn new(worker: WorkerId, topology: &Topology) -> Self {
        Self {
            policy: WorkStealing::new(WorkStealingParams::default(), topology),
            worker,
        }
    }
    fn attach(&self, worker: WorkerId) -> Self::Local {
        self.policy.attach(worker)
    }
    fn push(&self, cx: &mut Cx, local: Option<&mut Self::Local>, task: T, why: Ready) -> Wake {
        self.policy.push(cx, local, task, why)
    }
    fn pop(&self, cx: &mut Cx, local: &mut Self::Local, effort: Effort) -> Option<T> {
        self.policy.pop(cx, local, effort)
    }
    fn place(&self, _: &mut Cx, task: &impl Task, load: &impl Load) -> Option<WorkerId> {
        assert!(
            task.last_worker().is_none() && task.pinned().is_none(),
            "asked before it starts"
        );
        assert!(load.me() < load.workers() && load.live(load.me()) == load.mine());
        Some(self.worker)
    }
    fn maybe_ready(&self, worker: WorkerId) -> bool {
        self.policy.maybe_ready(worker)
    }
    fn drain(&self, local: Self::Local, sink: &mut dyn FnMut(T)) {
        self.policy.drain(local, sink);
    }
}

#[test]
fn a_policys_own_place_is_obeyed() {
    unless_it_hangs("a place", || {
        let runtime = staying(3)
            .build_with::<StartOn<FiberTask>>(2)
            .expect("a runtime");
        let threads = runtime.run(|| {
            let started = Arc::default();
            let settlers = settlers(300, &started);
            while started.load(Ordering::Acquire) < 300 {
                plainweave::yield_now();
            }
            settlers.iter().for_each(|settler| settler.fiber().unpark());
            let threads = settlers
                .into_iter()
                .map(|settler| settler.join().expect("no panic"));

            threads
                .chain([os_thread()])
                .collect::<std::collections::BTreeSet<_>>()
        });

        assert_eq!(
            threads.len(),
            1,
            "the fiber that spawned them is placed as well"
        );
    });
}

#[test]
fn a_place_that_is_no_worker_means_here() {
    unless_it_hangs("no worker", || {
        let runtime = staying(2)
            .build_with::<StartOn<FiberTask>>(2)
            .expect("a runtime");
        runtime.run(|| {
            let started = Arc::default();
            let settlers = settlers(300, &started);
            while started.load(Ordering::Acquire) < 300 {
                plainweave::yield_now();
            }
            here(settlers);
        });
    });
}

/// A policy that sends a task to worker 1 once that worker has left.
struct SendsLate<T>(StartOn<T>, Arc<Late>);

#[derive(Default)]
struct Late {
    /// Worker 0 has a task to send.
    sending: AtomicBool,
    /// Worker 1 has left.
    left: AtomicBool,
}

impl<T: Task + 'static> Policy<T> for SendsLate<T> {
    type Params = Arc<Late>;
    type Local = (WorkerId, WorkStealingLocal<T>);

    fn new(late: Arc<Late>, topology: &Topology) -> Self {
        Self(StartOn::new(1, topology), late)
    }
    fn attach(&self, worker: WorkerId) -> Self::Local {
        (worker, self.0.attach(worker))
    }
    fn push(&self, cx: &mut Cx, local: Option<&mut Self::Local>, task: T, why: Ready) -> Wake {
        self.0.push(cx, local.map(|local| &mut local.1), task, why)
    }
    fn pop(&self, cx: &mut Cx, local: &mut Self::Local, effort: Effort) -> Option<T> {
        // Worker 1 runs nothing.
        if local.0 == 0 {
            self.0.pop(cx, &mut local.1, effort)
        } else {
            None
        }
    }
    fn place(&self, cx: &mut Cx, task: &impl Task, load: &impl Load) -> Option<WorkerId> {
        self.1.sending.store(true, Ordering::Release);
        let limit = Instant::now() + Duration::from_secs(5);
        while !self.1.left.load(Ordering::Acquire) && Instant::now() < limit {
            std::thread::yield_now();
        }

        // What that worker still does before its thread ends takes no time.
        std::thread::sleep(Duration::from_millis(10));
        self.0.place(cx, task, load)
    }
    fn maybe_ready(&self, worker: WorkerId) -> bool {
        worker == 0 && self.0.maybe_ready(worker)
    }
    fn drain(&self, local: Self::Local, sink: &mut dyn FnMut(T)) {
        if local.0 == 1 {
            self.1.left.store(true, Ordering::Release);
        }
        self.0.drain(local.1, sink);
    }
}

#[test]
fn a_fiber_that_is_sent_to_a_worker_that_has_left_is_refused() {
    unless_it_hangs("sent late", || {
        // A machine under load may leave a worker behind: then nobody can say what becomes of the
        // fiber.
        let joined = (0..20).find_map(|_| {
            let late = Arc::new(Late::default());
            let runtime = staying(2)
                .build_with::<SendsLate<FiberTask>>(late.clone())
                .expect("a runtime");
            let fiber = runtime.spawn(|| ());
            eventually("a task to send", || late.sending.load(Ordering::Acquire));
            let left = runtime.shutdown(Duration::ZERO);

            (left.leaked_workers == 0).then(|| fiber.join())
        });

        let error = joined
            .expect("no worker left behind")
            .expect_err("it never ran");
        assert!(
            error.to_string().contains("the runtime is shutting down"),
            "{error:?}"
        );
    });
}
