//! How a dump is put together: fibers as `sched/inspect` has them, what workers run as they say by a signal, and the
//! names of functions.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Activity, Dump, FiberState, Frame, Options, WorkerState};
use crate::fiber;
use crate::policy::WorkerId;
use crate::sched::inspect::{Does, Inspected, View, name_holder};
use crate::sched::pool::PoolShared;
use crate::sched::worker::current_worker;
use crate::watchdog::{self, Sample, Tables};

/// How long to wait for the answer of a worker.
const PATIENCE: Duration = Duration::from_millis(20);

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
            self.known.entry((*address, first)).or_insert_with(named).clone()
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
    names: Names,
    /// Headers by address, to find the holders of locks.
    headers: HashMap<usize, u64>,
    fibers: Vec<FiberState>,
    missing: Vec<String>,
}

/// In place of a limit that no clock can show.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

impl Dump {
    pub(crate) fn of(pool: &PoolShared, options: &Options) -> Self {
        let start = Instant::now();
        let (headers, fibers, missing) = (HashMap::new(), Vec::new(), Vec::new());
        let mut collector = Collector { pool, options, names: Names::default(), headers, fibers, missing };
        let end = start.checked_add(options.limit).unwrap_or(start + NO_LIMIT);
        let inspected = pool.inspect(options.stacks, end, |view| {
            collector.add(view);
            true
        });
        let workers = collector.ask_workers();
        let started = pool.started() as u64;
        let not_started = pool.live().saturating_sub(started);
        collector.name_holders();
        collector.tell_what_is_missing(&inspected, &workers);
        let Collector { mut fibers, missing, .. } = collector;
        fibers.sort_by_key(|fiber| fiber.id);
        fibers.dedup_by_key(|fiber| fiber.id);
        Self { fibers, workers, not_started, missing, took: start.elapsed() }
    }
}

impl Collector<'_> {
    fn add(&mut self, view: View) {
        self.headers.insert(view.address, view.id);
        let now = self.pool.nanos(Instant::now());
        let mut frames = Vec::new();
        let activity = match view.does {
            Does::Awake => Activity::Ready,
            Does::Ended => Activity::Ended,
            Does::Waits(wait) => {
                if let Some(stack) = wait.stack {
                    let (instruction, frame) = (stack.instruction, stack.frame);
                    let sample = Sample { fiber: None, instruction, stack: stack.stack, frame, copy: stack.copy };
                    frames = self.names.of(&sample);
                }
                Activity::Waiting { reason: wait.reason, timed: wait.timed, object: wait.object }
            }
        };
        self.fibers.push(FiberState {
            id: view.id,
            name: view.name,
            activity,
            worker: view.worker,
            age: Duration::from_nanos(now.saturating_sub(view.born)),
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
        let here = current_worker().filter(|ctx| std::ptr::eq(ctx.pool(), self.pool)).map(|ctx| ctx.id());
        let take_part = self.pool.workers.iter().enumerate().filter(|(_, worker)| worker.role.takes_part());
        let all: Vec<WorkerId> = take_part.map(|(id, _)| id).collect();
        all.into_iter().map(|id| self.ask_worker(id, here == Some(id), asks)).collect()
    }

    fn ask_worker(&mut self, id: WorkerId, is_here: bool, asks: bool) -> WorkerState {
        let worker = &self.pool.workers[id];
        let since = worker.held_since.load(Ordering::Relaxed);
        let held = || Duration::from_nanos(self.pool.nanos(Instant::now()).saturating_sub(since));
        let held = (since != 0).then(held);
        let asleep = self.pool.is_asleep(id);
        let mut state = WorkerState { id, asleep, runs: None, held: held.filter(|_| !asleep) };
        if is_here {
            let me = fiber::current().map(|me| (me.id(), me.name().map(str::to_owned)));
            state.runs = me.map(|(fiber, name)| self.runs(id, fiber, name, Vec::new()));
        } else if !asleep && asks {
            match watchdog::ask(worker.thread(), PATIENCE) {
                Some(mut sample) => {
                    let frames = if self.options.stacks { self.names.of(&sample) } else { Vec::new() };
                    // A number of 0: the stack of a fiber that has not begun, or has ended.
                    let fiber = sample.fiber.take().filter(|(fiber, _)| *fiber != 0);
                    state.runs = fiber.map(|(fiber, name)| self.runs(id, fiber, name, frames));
                }
                None => self.missing.push(format!("what worker {id} runs: it does not answer a signal")),
            }
        }
        state
    }

    /// Notes that a worker runs a fiber, which may be pinned there and not described.
    fn runs(&mut self, worker: WorkerId, id: u64, name: Option<String>, frames: Vec<Frame>) -> u64 {
        match self.fibers.iter_mut().find(|fiber| fiber.id == id) {
            Some(fiber) => {
                (fiber.activity, fiber.worker, fiber.frames) = (Activity::Running, Some(worker), frames);
            }
            None => {
                let (activity, worker, age) = (Activity::Running, Some(worker), Duration::ZERO);
                self.fibers.push(FiberState { id, name, activity, worker, age, cancelled: false, frames });
            }
        }
        id
    }

    /// Turns the addresses at which locks were taken into the numbers of fibers.
    fn name_holders(&mut self) {
        let headers = &self.headers;
        for fiber in &mut self.fibers {
            if let Activity::Waiting { object: Some(object), .. } = &mut fiber.activity {
                name_holder(object, |address| headers.get(&address).copied());
            }
        }
    }

    fn tell_what_is_missing(&mut self, inspected: &Inspected, workers: &[WorkerState]) {
        if inspected.cut {
            let (limit, count) = (self.options.limit, self.fibers.len());
            self.missing.push(format!("fibers, because time ({limit:?}) was up after {count} of them"));
        }
        for (worker, unknown) in &inspected.silent {
            let why = match workers.iter().find(|state| state.id == *worker) {
                _ if self.pool.is_stopping() => "the runtime ends".to_owned(),
                Some(WorkerState { runs: Some(fiber), held: Some(held), .. }) => {
                    format!("held up by fiber #{fiber} for {held:.1?}")
                }
                Some(WorkerState { runs: Some(fiber), .. }) => format!("busy; it runs fiber #{fiber}"),
                _ => "busy".to_owned(),
            };
            self.missing.push(format!(
                "{unknown} fibers that are pinned to worker {worker}, which did not answer in time: {why}"
            ));
        }
    }
}
