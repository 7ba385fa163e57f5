//! Fibers that go on with one another directly: the order that this leaves, whose thread-locals a
//! policy sees meanwhile, and what is left to the worker's loop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::policy::{Cx, DirectSwitch, Effort, Policy, Ready, Topology, Wake, WorkerId};
use plainweave::sync::channel;
use plainweave::{Builder, FiberTask, Runtime};

const FIBERS: usize = 7;
const TURNS: usize = 200;

/// One worker in the default mode.
fn one_worker() -> Runtime {
    let builder = Runtime::builder().workers(1).max_workers(1);
    builder.report_stalls(false).build().expect("a runtime")
}

#[test]
fn fibers_that_yield_take_turns() {
    unless_it_hangs("fibers_that_yield_take_turns", || {
        let order = one_worker().run(|| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let fibers: Vec<_> = (0..FIBERS)
                .map(|me| {
                    let order = order.clone();
                    plainweave::spawn(move || {
                        for _ in 0..TURNS {
                            order.lock().expect("no panic").push(me);
                            plainweave::yield_now();
                        }
                    })
                })
                .collect();

            fibers
                .into_iter()
                .for_each(|fiber| fiber.join().expect("no panic"));
            Arc::into_inner(order).expect("ended")
        });

        let order = order.into_inner().expect("no panic");
        assert_eq!(order.len(), FIBERS * TURNS);
        let turns = order.chunks(FIBERS);
        assert!(
            turns.into_iter().all(|turn| *turn == order[..FIBERS]),
            "{order:?}"
        );
    });
}

/// A fiber that has the worker to itself leaves room for timers, threads and the end.
#[test]
fn a_fiber_that_yields_alone_keeps_nothing_out() {
    unless_it_hangs("a_fiber_that_yields_alone_keeps_nothing_out", || {
        let runtime = one_worker();
        let flag = Arc::new(AtomicUsize::new(0));
        let spins = |until: usize| {
            let flag = flag.clone();
            move || {
                while flag.load(Ordering::Acquire) < until {
                    plainweave::yield_now();
                }
            }
        };

        let spinner = runtime.spawn(spins(2));
        let add = || {
            let flag = flag.clone();
            move || flag.fetch_add(1, Ordering::Release)
        };
        let adds = add();
        let sleeper = runtime.spawn(move || {
            plainweave::time::sleep(Duration::from_millis(5)).expect("not cancelled");
            adds()
        });
        sleeper.join().expect("no panic");
        runtime.spawn(add()).join().expect("no panic");
        spinner.join().expect("no panic");

        drop(runtime.spawn(spins(3)));
        let left = runtime.shutdown(Duration::from_millis(50));
        assert_eq!(
            left.leaked_fibers, 1,
            "it spins, and the end comes all the same"
        );
    });
}

/// A fiber that yields to one that computes goes on elsewhere, although nothing else was ready when
/// it yielded: a worker that sleeps is woken for it.
#[test]
fn one_that_yields_does_not_wait_for_the_next_to_end() {
    unless_it_hangs("one_that_yields_does_not_wait_for_the_next_to_end", || {
        // No spare worker helps.
        let builder = Runtime::builder().workers(2).max_workers(2);
        let runtime = builder.report_stalls(false).build().expect("a runtime");
        runtime.run(|| {
            for round in 0..200 {
                let holds = Arc::new(AtomicUsize::new(0));
                let ran = Arc::new(AtomicUsize::new(0));
                let yields = plainweave::spawn({
                    let (holds, ran) = (holds.clone(), ran.clone());
                    move || {
                        while holds.load(Ordering::Acquire) == 0 {
                            plainweave::yield_now();
                        }
                        ran.store(1, Ordering::Release);
                    }
                });

                let computes = plainweave::spawn(move || {
                    // Long enough for the other worker to look round and fall asleep.
                    (0..round * 20).for_each(|_| plainweave::yield_now());
                    holds.store(1, Ordering::Release);
                    let start = Instant::now();
                    while ran.load(Ordering::Acquire) == 0 {
                        assert!(start.elapsed() < Duration::from_secs(20), "round {round}");
                    }
                });
                computes.join().expect("the other runs meanwhile");
                yields.join().expect("no panic");
            }
        });
    });
}

/// Each wakes the next and waits; they also end in turn, while the others go on.
#[test]
fn a_chain_of_wakes_and_ends_comes_to_its_end() {
    unless_it_hangs("a_chain_of_wakes_and_ends_comes_to_its_end", || {
        let sum = one_worker().run(|| {
            let (first, mut from) = channel::bounded::<usize>(1);
            let mut fibers = Vec::new();
            for lasts in 1..=50 {
                let (to, next) = channel::bounded(1);
                let from = std::mem::replace(&mut from, next);
                fibers.push(plainweave::spawn(move || {
                    for _ in 0..lasts {
                        let Ok(token) = from.recv() else { return };
                        if to.send(token + 1).is_err() {
                            return;
                        }
                    }
                }));
            }

            first.send(0).expect("there is a reader");
            let got = from.recv().expect("each passes one on");
            drop((first, from));
            fibers
                .into_iter()
                .for_each(|fiber| fiber.join().expect("no panic"));
            got
        });
        assert_eq!(sum, 50);
    });
}

/// First in, first out, and counts its calls in a thread-local of the storage that it is called on.
struct Counting(Arc<Counts>, Mutex<VecDeque<FiberTask>>);

#[derive(Default)]
struct Counts {
    /// Thread-locals that it has made, and that were destroyed.
    made: AtomicUsize,
    destroyed: AtomicUsize,
}

struct Mark(Arc<Counts>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.destroyed.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local!(static MARK: RefCell<Option<Mark>> = const { RefCell::new(None) });

impl Counting {
    /// Where a fiber that ends wakes its joiner, its thread-locals are destroyed already.
    fn mark(&self) {
        let _ = MARK.try_with(|mark| {
            mark.borrow_mut().get_or_insert_with(|| {
                self.0.made.fetch_add(1, Ordering::SeqCst);
                Mark(self.0.clone())
            });
        });
    }
}

impl Policy<FiberTask> for Counting {
    type Params = Arc<Counts>;
    type Local = ();

    const DIRECT: DirectSwitch = DirectSwitch::Always;

    fn new(counts: Arc<Counts>, _: &Topology) -> Self {
        Self(counts, Mutex::default())
    }

    fn attach(&self, _: WorkerId) {}

    fn push(&self, _: &mut Cx, _: Option<&mut ()>, task: FiberTask, _: Ready) -> Wake {
        self.mark();
        self.1.lock().expect("no panic").push_back(task);
        Wake::Any
    }

    fn pop(&self, _: &mut Cx, (): &mut (), _: Effort) -> Option<FiberTask> {
        self.mark();
        self.1.lock().expect("no panic").pop_front()
    }

    fn maybe_ready(&self, _: WorkerId) -> bool {
        !self.1.lock().expect("no panic").is_empty()
    }

    fn drain(&self, (): (), sink: &mut dyn FnMut(FiberTask)) {
        self.1.lock().expect("no panic").drain(..).for_each(sink);
    }
}

/// Also where a fiber's end is what calls it: nobody would destroy what it made there.
#[test]
fn a_policy_s_thread_locals_are_destroyed() {
    unless_it_hangs("a_policy_s_thread_locals_are_destroyed", || {
        let counts = Arc::new(Counts::default());
        let builder = Runtime::builder().workers(1).max_workers(1);
        let runtime = builder
            .report_stalls(false)
            .build_with::<Counting>(counts.clone())
            .expect("a runtime");

        let run = |turns: fn(usize) -> usize| {
            let fibers = (0..300).map(|i| {
                plainweave::spawn(move || (0..turns(i)).for_each(|_| plainweave::yield_now()))
            });
            let fibers: Vec<_> = fibers.collect();
            fibers
                .into_iter()
                .for_each(|fiber| fiber.join().expect("no panic"));
        };

        // The next fiber pushes one that yields. None pushes one that ends: these call the policy
        // only when they have ended.
        runtime.run(move || run(|i| 1 + i % 3));
        let made = counts.made.load(Ordering::SeqCst);
        assert!(made > 150, "the policy is called on fibers: {made}");
        runtime.run(move || run(|_| 0));

        drop(runtime);
        // A child's thread-locals are destroyed when its join returns; those of this thread and of
        // the runtime's, at their ends.
        eventually("all but this thread's to be destroyed", || {
            counts.destroyed.load(Ordering::SeqCst) + 1 >= counts.made.load(Ordering::SeqCst)
        });
    });
}

/// The stacks run out where one fiber goes on with the next: the loop refuses that one, and drops
/// what it has captured.
#[test]
fn fibers_that_cannot_start_are_refused_by_the_loop() {
    unless_it_hangs("fibers_that_cannot_start_are_refused_by_the_loop", || {
        let builder = Runtime::builder().workers(1).max_workers(1).max_fibers(64);
        let runtime = builder.report_stalls(false).build().expect("a runtime");
        let dropped = Arc::new(());
        let (ran, refused) = runtime.run(|| {
            let fibers: Vec<_> = (0..1_000)
                .map(|_| {
                    let captured = dropped.clone();
                    plainweave::spawn(move || {
                        plainweave::yield_now();
                        drop(captured);
                    })
                })
                .collect();
            let ended: Vec<_> = fibers
                .into_iter()
                .map(|fiber| fiber.join().is_ok())
                .collect();
            let ran = ended.iter().filter(|ran| **ran).count();
            (ran, ended.len() - ran)
        });

        assert!(
            ran >= 60 && refused > 0,
            "{ran} ran, {refused} were refused"
        );
        assert_eq!(Arc::strong_count(&dropped), 1);
    });
}

/// Sizes of stacks that a worker does not keep are fetched by its loop.
#[test]
fn stacks_of_other_sizes_are_the_loop_s() {
    unless_it_hangs("stacks_of_other_sizes_are_the_loop_s", || {
        let sum = one_worker().run(|| {
            let fibers: Vec<_> = (0..200_usize)
                .map(|i| {
                    let size = if i.is_multiple_of(3) {
                        1 << 20
                    } else {
                        64 << 10
                    };
                    let spec = Builder::new().stack_size(size);
                    let run = move || {
                        plainweave::yield_now();
                        i
                    };
                    spec.spawn(run).expect("valid")
                })
                .collect();
            let results = fibers
                .into_iter()
                .map(|fiber| fiber.join().expect("no panic"));
            results.sum::<usize>()
        });
        assert_eq!(sum, 19_900);
    });
}
