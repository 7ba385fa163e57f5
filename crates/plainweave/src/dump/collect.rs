//! How a dump is put together: fibers as `sched/inspect` has them, what workers run as they say by
//! a signal, and the names of functions.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Activity, Dump, FiberState, Frame, Options, WorkerState};
use crate::fiber;
use crate::policy::WorkerId;
use crate::sched::inspect::{Ask, Does, Inspected, Stacks, View, name_holder};
use crate::sched::pool::PoolShared;
use crate::sched::worker::current_worker;
use crate::sys;
use crate::time::saturating_add;
use crate::timer::Nanos;
use crate::watchdog::{self, Sample, Tables};

/// How long to wait for the answer of a worker.
const ANSWER_WAIT: Duration = Duration::from_millis(20);

/// Where functions are, and what they are called; each is looked up once a dump.
#[derive(Default)]
struct Names {
    tables: Tables,
    known: HashMap<(usize, bool), Vec<Frame>>,
}

impl Names {
    fn of(&mut self, sample: &Sample) -> Vec<Frame> {
        let addresses = self.tables.addresses(sample);
        let resolve = |(at, address): (usize, &usize)| {
            let first = at == 0;
            let named = || watchdog::frames(&[*address], first);
            self.known
                .entry((*address, first))
                .or_insert_with(named)
                .clone()
        };

        let mut frames: Vec<_> = addresses.iter().enumerate().flat_map(resolve).collect();
        watchdog::cut_nameless_end(&mut frames);
        frames
    }
}

/// A dump in the making.
struct Collector<'a> {
    pool: &'a PoolShared,
    options: &'a Options,
    /// When the dump began, by the pool's clock.
    now: Nanos,
    names: Names,
    /// Fibers by the lower half of their numbers, to find the holders of locks.
    numbers: HashMap<u32, u64>,
    fibers: Vec<FiberState>,
    missing: Vec<String>,
    /// Given up when there is no more memory, for what is left to be said then.
    reserve: Option<Vec<u8>>,
}

/// Memory for the description of one fiber, 16 KiB of it for the copy of its stack.
const ONE: usize = 64 << 10;
/// Memory for a dump of workers alone.
const LEAST: usize = 256 << 10;
/// In place of a limit that no clock can show.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Limit on the children of a scope that are named.
const MOST_CHILDREN: usize = 1000;

impl Dump {
    pub(crate) fn of(pool: &PoolShared, options: &Options) -> Self {
        let start = Instant::now();
        if !sys::has_memory(LEAST) {
            return Self::without_memory(start);
        }
        let numbers = HashMap::new();
        let fibers = Vec::new();
        let missing = Vec::new();
        let now = pool.clock();
        let mut collector = Collector {
            pool,
            options,
            now,
            names: Names::default(),
            numbers,
            fibers,
            missing,
            reserve: Some(Vec::with_capacity(ONE)),
        };

        let deadline = saturating_add(start, options.limit);
        let stacks = if options.stacks {
            Stacks::Everybodys
        } else {
            Stacks::Nobodys
        };

        let ask = Ask {
            stacks,
            children: MOST_CHILDREN,
            deadline,
            patience: NO_LIMIT,
        };

        let inspected = pool.inspect(&ask, |view| {
            let has_memory = sys::has_memory(ONE);
            if has_memory {
                collector.add(view);
            } else {
                collector.reserve = None;
            }
            has_memory
        });

        let workers = collector.ask_workers();
        let started = pool.started() as u64;
        let not_started = pool.live().saturating_sub(started);
        collector.name_holders();
        collector.tell_what_is_missing(&inspected, &workers);
        let Collector {
            mut fibers,
            missing,
            ..
        } = collector;

        fibers.sort_by_key(|fiber| fiber.id);
        fibers.dedup_by_key(|fiber| fiber.id);
        Self {
            fibers,
            workers,
            not_started,
            missing,
            took: start.elapsed(),
        }
    }
}

impl Dump {
    /// Says so if even that can be said.
    fn without_memory(start: Instant) -> Self {
        let mut missing = Vec::new();
        let mut all = String::new();
        const WHY: &str = "everything, because no memory is left";
        if missing.try_reserve_exact(1).is_ok() && all.try_reserve_exact(WHY.len()).is_ok() {
            all.push_str(WHY);
            missing.push(all);
        }

        Self {
            fibers: Vec::new(),
            workers: Vec::new(),
            not_started: 0,
            missing,
            took: start.elapsed(),
        }
    }
}

impl Collector<'_> {
    fn add(&mut self, view: View) {
        self.numbers.insert(view.id as u32, view.id);
        let mut frames = Vec::new();
        let activity = match view.does {
            Does::Awake => Activity::Ready,
            Does::Ended => Activity::Ended,
            Does::Waits(wait) => {
                if let Some(stack) = wait.stack {
                    let instruction = stack.instruction;
                    let frame = stack.frame;
                    let sample = Sample {
                        fiber: None,
                        instruction,
                        stack: stack.stack,
                        frame,
                        copy: stack.copy,
                    };

                    frames = self.names.of(&sample);
                }

                Activity::Waiting {
                    reason: wait.reason,
                    timed: wait.timed,
                    object: wait.object,
                }
            }
        };

        self.fibers.push(FiberState {
            id: view.id,
            name: view.name,
            activity,
            worker: view.worker,
            age: Duration::from_nanos(self.now.saturating_sub(view.born)),
            cancelled: view.cancelled,
            frames,
        });
    }

    /// Finds out what each worker does.
    fn ask_workers(&mut self) -> Vec<WorkerState> {
        let mut asks = self.options.signals;
        if asks && let Err(error) = watchdog::install() {
            self.missing.push(format!("which fibers run: {error}"));
            asks = false;
        }

        let here = current_worker()
            .filter(|ctx| std::ptr::eq(ctx.pool(), self.pool))
            .map(|ctx| ctx.id());
        let take_part = self
            .pool
            .workers
            .iter()
            .enumerate()
            .filter(|(_, worker)| worker.role.takes_part());
        let all: Vec<WorkerId> = take_part.map(|(id, _)| id).collect();
        all.into_iter()
            .map(|id| self.ask_worker(id, here == Some(id), asks))
            .collect()
    }

    fn ask_worker(&mut self, id: WorkerId, is_here: bool, asks: bool) -> WorkerState {
        let worker = &self.pool.workers[id];
        let since = worker.held_since.load(Ordering::Relaxed);
        let held = || Duration::from_nanos(self.pool.nanos(Instant::now()).saturating_sub(since));
        let held = (since != 0).then(held);
        let asleep = self.pool.is_asleep(id);
        let mut state = WorkerState {
            id,
            asleep,
            runs: None,
            held: held.filter(|_| !asleep),
        };

        if is_here {
            let me = fiber::current().map(|me| (me.id(), me.name().map(str::to_owned)));
            state.runs = me.map(|(fiber, name)| self.runs(id, fiber, name, Vec::new()));
        } else if !asleep && asks {
            match watchdog::ask(worker.thread(), ANSWER_WAIT) {
                Some(mut sample) => {
                    let frames = if self.options.stacks {
                        self.names.of(&sample)
                    } else {
                        Vec::new()
                    };

                    // A number of 0: the stack of a fiber that has not begun, or has ended.
                    let fiber = sample.fiber.take().filter(|(fiber, _)| *fiber != 0);
                    state.runs = fiber.map(|(fiber, name)| self.runs(id, fiber, name, frames));
                }
                None => self.missing.push(format!(
                    "what worker {id} runs: it does not answer a signal"
                )),
            }
        }

        state
    }

    /// Notes that a worker runs a fiber, which may be pinned there and not described.
    fn runs(&mut self, worker: WorkerId, id: u64, name: Option<String>, frames: Vec<Frame>) -> u64 {
        match self.fibers.iter_mut().find(|fiber| fiber.id == id) {
            Some(fiber) => {
                (fiber.activity, fiber.worker, fiber.frames) =
                    (Activity::Running, Some(worker), frames);
            }
            None => {
                let activity = Activity::Running;
                let worker = Some(worker);
                let age = Duration::ZERO;
                self.fibers.push(FiberState {
                    id,
                    name,
                    activity,
                    worker,
                    age,
                    cancelled: false,
                    frames,
                });
            }
        }
        id
    }

    /// Completes the numbers of those that hold locks.
    fn name_holders(&mut self) {
        let numbers = &self.numbers;
        for fiber in &mut self.fibers {
            if let Activity::Waiting {
                object: Some(object),
                ..
            } = &mut fiber.activity
            {
                name_holder(object, |half| numbers.get(&half).copied());
            }
        }
    }

    fn tell_what_is_missing(&mut self, inspected: &Inspected, workers: &[WorkerState]) {
        if self.reserve.is_none() {
            let count = self.fibers.len();
            self.missing.push(format!(
                "fibers, because no memory was left after {count} of them"
            ));
        } else if inspected.cut {
            let limit = self.options.limit;
            let count = self.fibers.len();
            self.missing.push(format!(
                "fibers, because time ({limit:?}) was up after {count} of them"
            ));
        }

        for (worker, unknown) in &inspected.silent {
            let why = match workers.iter().find(|state| state.id == *worker) {
                _ if self.pool.is_stopping() => "the runtime ends".to_owned(),
                Some(WorkerState {
                    runs: Some(fiber),
                    held: Some(held),
                    ..
                }) => {
                    format!("held up by fiber #{fiber} for {held:.1?}")
                }
                Some(WorkerState {
                    runs: Some(fiber), ..
                }) => format!("busy; it runs fiber #{fiber}"),
                _ => "busy".to_owned(),
            };

            self.missing.push(format!(
                "{unknown} fibers that are pinned to worker {worker}, which did not answer in time: {why}"
            ));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::fiber::Movement;
    use crate::runtime::Runtime;
    use crate::thread::park;

    /// One worker, to which these many fibers are pinned that wait.
    fn pinned(fibers: usize) -> Runtime {
        let builder = Runtime::builder()
            .workers(1)
            .max_workers(1)
            .movement(Movement::BeforeStart);
        let runtime = builder
            .report_stalls(false)
            .stack_size(32 << 10)
            .build()
            .unwrap();
        (0..fibers).for_each(|_| drop(runtime.spawn(park)));
        while runtime.pool.started() < fibers || !runtime.pool.is_asleep(0) {
            std::thread::sleep(Duration::from_millis(1));
        }

        runtime
    }

    fn ask(limit: Duration, patience: Duration) -> Ask {
        Ask {
            stacks: Stacks::Nobodys,
            children: 0,
            deadline: Instant::now() + limit,
            patience,
        }
    }

    const HANG: Duration = Duration::from_secs(60);

    #[test]
    fn fibers_are_taken_while_others_are_described_and_none_when_time_is_up() {
        const MANY: usize = 3000;
        let runtime = pinned(MANY);
        let mut seen = 0;
        let inspected = runtime.pool.inspect(&ask(HANG, HANG), |_| {
            seen += 1;
            true
        });

        assert!(
            (seen, inspected.cut, inspected.silent.len()) == (MANY, false, 0),
            "{seen} {inspected:?}"
        );
        let ask = ask(Duration::from_millis(100), HANG);
        let mut late = 0;
        let inspected = runtime.pool.inspect(&ask, |_| {
            late += usize::from(Instant::now() >= ask.deadline);
            std::thread::sleep(Duration::from_millis(1));
            true
        });

        // The time may be up between the last look at the clock and this one.
        assert!(
            inspected.cut && inspected.silent.is_empty() && late <= 1,
            "{late} {inspected:?}"
        );
    }

    #[test]
    fn whoever_has_little_patience_does_not_wait_for_a_busy_worker() {
        let runtime = pinned(10);
        let busy = Arc::new(AtomicBool::new(false));
        let over = Arc::new(AtomicBool::new(false));
        let theirs = busy.clone();
        let done = over.clone();
        let holder = runtime.spawn(move || {
            theirs.store(true, Ordering::SeqCst);
            let start = Instant::now();
            while !done.load(Ordering::SeqCst) && start.elapsed() < HANG {
                std::thread::yield_now();
            }
            start.elapsed() < HANG
        });

        while !busy.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let inspected = runtime
            .pool
            .inspect(&ask(2 * HANG, Duration::from_millis(20)), |_| true);
        over.store(true, Ordering::SeqCst);
        assert!(holder.join().unwrap(), "the worker was waited for");

        assert_eq!(
            (inspected.cut, &inspected.silent[..]),
            (false, &[(0, 11)][..])
        );
    }
}
