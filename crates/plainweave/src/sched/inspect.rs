//! What every fiber of a pool does, asked by any thread while they run.
//!
//! Nothing stops. Fibers are described a few at a time, each as it is at that moment, and no fiber pays for it that
//! nobody asks about:
//! 1. *Fibers that may move* are on their pool's lists. The asker takes references to some of them under the list's
//!    lock, then *claims* each that is suspended (`State::claim`): for about a microsecond it owns the fiber like a
//!    worker, so it may read what belongs to the fiber, its stack and the object that it waits for. Then it suspends
//!    the fiber again. If a wake-up came meanwhile it queues the fiber. Of one that is awake it reads what never
//!    changes.
//! 2. *Pinned fibers* are known to their worker alone, which describes some of them at each of its regular looks
//!    (`Worker::close_if_requested`), between two fibers; asleep, it is woken for it. One that a fiber holds up does
//!    not answer, and the asker gives up at its deadline.
//! 3. *Fibers that have not started* are in policies' queues, on no record. They can be counted.
//!
//! # Rejected
//! * *A record of all fibers from their spawn on*: an insertion under a lock per spawn.
//! * *Fibers that write down when they were suspended*: a reading of the clock per suspension.
//! * *Reading without owning*: the words of a fiber that runs change at any moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::pool::PoolShared;
use super::wait;
use super::wake::schedule;
use super::worker::{Worker, current_worker};
use crate::fiber::note::Object;
use crate::fiber::saved::SavedStack;
use crate::fiber::{FiberHandle, FiberTask, Header, Movement, Reason, Switch};
use crate::policy::{Policy, Ready, WorkerId};
use crate::stack;

/// Fibers that are described at a time.
const SLICE: usize = 64;
/// Entries of a list that are looked at under its lock.
const MOST_ENTRIES: usize = 1024;
/// Limit on the words that are copied of a stack, 16 KiB.
const MOST_STACK: usize = 2048;
/// How long an asker on a plain thread waits before it looks at the pool again.
const PAUSE: Duration = Duration::from_millis(20);

/// A fiber, as it was when it was looked at.
#[derive(Debug)]
pub(crate) struct View {
    /// The address of its header; the fiber may have ended.
    pub(crate) address: usize,
    pub(crate) id: u64,
    pub(crate) name: Option<String>,
    /// Where it runs, or ran last.
    pub(crate) worker: Option<WorkerId>,
    /// When it started, in nanoseconds since the pool's epoch.
    pub(crate) born: u64,
    pub(crate) cancelled: bool,
    pub(crate) does: Does,
}

/// What a fiber does.
#[derive(Debug)]
pub(crate) enum Does {
    /// It runs, or is ready.
    Awake,
    Waits(Wait),
    Ended,
}

/// How a fiber waits.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) reason: Reason,
    /// Whether a timer ends the wait.
    pub(crate) timed: bool,
    pub(crate) object: Option<Object>,
    pub(crate) stack: Option<SavedStack>,
}

/// Askers that wait for workers.
#[derive(Debug, Default)]
pub(crate) struct Inspections {
    /// Their number.
    count: AtomicUsize,
    all: Mutex<Vec<Arc<Inspection>>>,
}

/// One asker's questions to workers.
#[derive(Debug)]
struct Inspection {
    stacks: bool,
    /// By worker.
    answers: Box<[Mutex<Answer>]>,
    /// Workers that have not finished.
    left: AtomicUsize,
    answered: (Mutex<()>, Condvar),
    /// The asker has gone.
    over: AtomicBool,
}

#[derive(Debug, Default)]
struct Answer {
    asked: bool,
    finished: bool,
    /// The key at which the next slice begins.
    cursor: usize,
    views: Vec<View>,
}

/// What came of an inspection.
#[derive(Debug, Default)]
pub(crate) struct Inspected {
    /// Workers that have not described their fibers in time, and how many they have.
    pub(crate) silent: Vec<(WorkerId, usize)>,
    /// Time was up before all lists were read.
    pub(crate) cut: bool,
}

impl Wait {
    /// # Safety
    /// The caller owns the fiber, which is suspended.
    unsafe fn of(header: &Header, stacks: bool) -> Self {
        // SAFETY: the caller's promise.
        let stack = if stacks { unsafe { header.saved_stack(MOST_STACK) } } else { None };
        // SAFETY: the caller's promise.
        let object = unsafe { header.awaited() };
        Self { reason: header.own.waits.reason(), timed: header.own.waits.is_timed(), object, stack }
    }
}

impl View {
    fn new(header: &Header, does: Does) -> Self {
        Self {
            address: std::ptr::from_ref(header).addr(),
            id: header.id(),
            name: header.name().map(str::to_owned),
            worker: header.pinned_to().or_else(|| header.last_worker()),
            born: header.own.born.get(),
            cancelled: header.cancel.get().is_some(),
            does,
        }
    }

    /// Describes a fiber that may move, and has been on record.
    fn of_movable(header: &Header, stacks: bool) -> Self {
        if !header.state.claim() {
            let does = if header.state.is_finished() { Does::Ended } else { Does::Awake };
            return Self::new(header, does);
        }
        // SAFETY: claimed, so it is suspended and belongs to this call.
        let wait = unsafe { Wait::of(header, stacks) };
        let view = Self::new(header, Does::Waits(wait));
        if !header.state.suspend() {
            // SAFETY: a wake-up came, and left the fiber to this call, which owns it.
            schedule(unsafe { FiberTask::new(header.into()) }, Ready::Woken, current_worker());
        }
        view
    }
}

impl Inspections {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Inspection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inspection {
    fn answer(&self, worker: WorkerId) -> MutexGuard<'_, Answer> {
        self.answers[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolShared {
    /// Describes the pool's fibers to `sink`, those that have started; gives up at `deadline`, or when `sink` returns
    /// false.
    ///
    /// Context: any thread or fiber. A fiber yields meanwhile.
    pub(crate) fn inspect(&self, stacks: bool, deadline: Instant, mut sink: impl FnMut(View) -> bool) -> Inspected {
        let asked = self.ask_workers(stacks);
        let mut inspected = Inspected::default();
        'lists: for worker in 0..self.workers.len() {
            let mut cursor = 0;
            while let Some(some) = self.some_movable(worker, &mut cursor) {
                if Instant::now() >= deadline {
                    inspected.cut = true;
                    break 'lists;
                }
                if !some.iter().all(|fiber| sink(View::of_movable(fiber.header(), stacks))) {
                    inspected.cut = true;
                    break 'lists;
                }
                // Dropped outside the list's lock: the last reference frees the fiber.
                drop(some);
                pause(None);
            }
        }
        if let Some(asked) = asked {
            let deadline = if inspected.cut { Instant::now() } else { deadline };
            inspected.silent = self.await_answers(&asked, deadline, &mut sink);
        }
        inspected
    }

    /// Takes references to the next fibers of a worker's list. `None` at its end.
    fn some_movable(&self, worker: WorkerId, cursor: &mut usize) -> Option<Vec<FiberHandle>> {
        let list = self.workers[worker].movable();
        let end = list.capacity().min(*cursor + MOST_ENTRIES);
        let mut some = Vec::new();
        while *cursor < end && some.len() < SLICE {
            // SAFETY: a fiber leaves the list, under this lock, before it gives up its own reference.
            some.extend(list.get(*cursor).map(|f| FiberHandle::from_ref(unsafe { f.0.as_ref() })));
            *cursor += 1;
        }
        (*cursor < list.capacity() || !some.is_empty()).then_some(some)
    }

    /// Asks the workers that have pinned fibers.
    fn ask_workers(&self, stacks: bool) -> Option<Arc<Inspection>> {
        let has_pinned = |worker: &WorkerId| self.workers[*worker].live.load(Ordering::Acquire) > 0;
        let with_pinned: Vec<WorkerId> = (0..self.regular()).filter(has_pinned).collect();
        if with_pinned.is_empty() {
            return None;
        }
        let inspection = Arc::new(Inspection {
            stacks,
            answers: (0..self.regular()).map(|_| Mutex::default()).collect(),
            left: AtomicUsize::new(with_pinned.len()),
            answered: Default::default(),
            over: AtomicBool::new(false),
        });
        with_pinned.iter().for_each(|worker| inspection.answer(*worker).asked = true);
        let mut all = self.inspections.all();
        all.push(inspection.clone());
        self.inspections.count.store(all.len(), Ordering::SeqCst);
        drop(all);
        with_pinned.iter().for_each(|worker| self.workers[*worker].signal());
        Some(inspection)
    }

    /// Waits for the answers, and returns whose are not complete.
    fn await_answers(
        &self,
        asked: &Arc<Inspection>,
        deadline: Instant,
        sink: &mut impl FnMut(View) -> bool,
    ) -> Vec<(WorkerId, usize)> {
        while asked.left.load(Ordering::Acquire) > 0 && !self.is_stopping() && Instant::now() < deadline {
            pause(Some(asked));
        }
        asked.over.store(true, Ordering::Relaxed);
        let mut all = self.inspections.all();
        all.retain(|other| !Arc::ptr_eq(other, asked));
        self.inspections.count.store(all.len(), Ordering::SeqCst);
        drop(all);
        let mut silent = Vec::new();
        for worker in 0..asked.answers.len() {
            let mut answer = asked.answer(worker);
            let views = std::mem::take(&mut answer.views);
            if answer.asked && !answer.finished {
                let known = self.workers[worker].live.load(Ordering::Relaxed);
                silent.push((worker, known.saturating_sub(views.len())));
            }
            drop(answer);
            views.into_iter().all(&mut *sink);
        }
        silent
    }

    /// Returns how many fibers have started and not ended.
    pub(crate) fn started(&self) -> usize {
        self.workers.iter().map(|worker| worker.movable().len() + worker.live.load(Ordering::Relaxed)).sum()
    }
}

/// Lets others run: on a fiber, those behind it; on a plain thread that waits for answers, whoever answers.
fn pause(asked: Option<&Inspection>) {
    if let Some(me) = wait::suspendable() {
        return me.switch(Switch::Yield);
    }
    if let Some(asked) = asked {
        let guard = asked.answered.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.left.load(Ordering::Acquire) > 0 {
            drop(asked.answered.1.wait_timeout(guard, PAUSE));
        }
    }
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Describes some of the fibers that are pinned here, if somebody has asked. Returns whether it did.
    #[inline]
    pub(super) fn answer_if_asked(&self) -> bool {
        self.ctx.pool().inspections.count.load(Ordering::Relaxed) > 0 && self.answer()
    }

    #[cold]
    fn answer(&self) -> bool {
        let all = self.ctx.pool().inspections.all().clone();
        // Not `any`, which stops at the first.
        all.iter().filter(|inspection| self.answer_one(inspection)).count() > 0
    }

    fn answer_one(&self, inspection: &Inspection) -> bool {
        let id = self.ctx.id();
        if id >= inspection.answers.len() || inspection.over.load(Ordering::Relaxed) {
            return false;
        }
        let mut answer = inspection.answer(id);
        if !answer.asked || answer.finished {
            return false;
        }
        let pinned = self.ctx.pinned.borrow();
        let (end, mut found) = (pinned.capacity().min(answer.cursor + MOST_ENTRIES), 0);
        while answer.cursor < end && found < SLICE {
            if let Some(header) = pinned.get(answer.cursor) {
                // SAFETY: on the worker's own record, so not retired.
                let view = view_of_pinned(unsafe { header.as_ref() }, inspection.stacks);
                answer.views.push(view);
                found += 1;
            }
            answer.cursor += 1;
        }
        if answer.cursor >= pinned.capacity() {
            answer.finished = true;
            drop(answer);
            inspection.left.fetch_sub(1, Ordering::AcqRel);
            drop(inspection.answered.0.lock());
            inspection.answered.1.notify_all();
        }
        true
    }
}

/// Describes a fiber that is pinned to the calling worker, which runs none now.
fn view_of_pinned(header: &Header, stacks: bool) -> View {
    debug_assert!(header.movement() != Movement::Anytime);
    let does = if header.own.pinned.is_suspended() {
        // SAFETY: only this worker resumes it.
        Does::Waits(unsafe { Wait::of(header, stacks) })
    } else if header.state.is_finished() {
        Does::Ended
    } else {
        Does::Awake
    };
    View::new(header, does)
}

/// Finds the holder of a lock among the fibers whose headers are known, by the address at which it took it.
pub(crate) fn name_holder(object: &mut Object, header: impl Fn(usize) -> Option<u64>) {
    let Some(address) = object.taken_at else { return };
    let within = address / align_of::<Header>() * align_of::<Header>();
    let handed = (0..size_of::<Header>()).step_by(align_of::<Header>());
    let handed = handed.filter_map(|back| header(within.wrapping_sub(back))).next();
    let holder = handed.or_else(|| header(stack::owner_at(address).addr()));
    match holder {
        Some(fiber) => {
            object.fibers = vec![fiber];
            object.unknown = 0;
        }
        None if stack::owner_at(address).is_null() => object.about = "held by a plain thread".to_owned(),
        None => object.about = "held by a fiber that is not in the dump".to_owned(),
    }
}
