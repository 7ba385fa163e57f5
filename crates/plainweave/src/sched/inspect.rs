//! What every fiber of a pool does, asked by any thread while they run.
//!
//! Nothing stops. Fibers are described a few at a time, each as it is at that moment, and no fiber
//! pays for it that nobody asks about:
//! 1. *Fibers that may move* are on their pool's lists. The asker takes references to some of them
//!    under the list's lock, then *claims* each that is suspended (`State::claim`): for about a
//!    microsecond it owns the fiber like a worker, so it may read what belongs to the fiber, its
//!    stack and the object that it waits for. Then it suspends the fiber again. If a wake-up came
//!    meanwhile it queues the fiber. Of one that is awake it reads what never changes.
//! 2. *Pinned fibers* are known to their worker alone, which describes some of them at each of its
//!    regular looks (`Worker::close_if_requested`), between two fibers; asleep, it is woken for it.
//!    The asker takes what there is in the meantime, and a worker that is ahead of it pauses. One
//!    that a fiber holds up does not answer, and the asker gives up at its deadline, or when it has
//!    heard nothing for as long as it has patience.
//! 3. *Fibers that have not started* are in policies' queues, on no record. They can be counted.
//!
//! # Rejected
//! * *A record of all fibers from their spawn on*: an insertion under a lock per spawn.
//! * *Fibers that write down when they were suspended*: a reading of the clock per suspension.
//! * *Reading without owning*: the words of a fiber that runs change at any moment.

#![expect(
    unsafe_code,
    reason = "claims fibers for a dump, and reads what belongs to them"
)]

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
use crate::timer::Nanos;

/// Fibers that are described at a time.
pub(super) const SLICE: usize = 64;
/// Entries of a list that are looked at under its lock.
pub(super) const MOST_ENTRIES: usize = 1024;
/// Limit on the words that are copied of a stack, 16 KiB.
const MOST_STACK: usize = 2048;
/// Descriptions that a worker is ahead of its asker.
const MOST_AHEAD: usize = 256;
/// How long an asker on a plain thread waits before it looks at the pool again.
const PAUSE: Duration = Duration::from_millis(20);

/// Whose stacks are copied.
#[derive(Clone, Debug)]
pub(crate) enum Stacks {
    Nobodys,
    Everybodys,
    /// Those of these fibers, by number.
    Of(Vec<u64>),
}

/// What is asked of each fiber, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) stacks: Stacks,
    /// The most children of a scope that are named.
    pub(crate) children: usize,
    pub(crate) deadline: Instant,
    /// How long to wait for workers none of which says anything.
    pub(crate) patience: Duration,
}

/// A fiber, as it was when it was looked at.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) id: u64,
    pub(crate) name: Option<String>,
    /// Where it runs, or ran last.
    pub(crate) worker: Option<WorkerId>,
    /// When it started, in nanoseconds since the pool's epoch.
    pub(crate) born: Nanos,
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
    ask: Ask,
    /// By worker.
    answers: Box<[Mutex<Answer>]>,
    /// Workers that have not finished.
    left: AtomicUsize,
    /// A worker waits for the asker to take its descriptions.
    full: AtomicBool,
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
    /// Descriptions that the asker has not taken.
    views: Vec<View>,
    /// How many it has taken.
    taken: usize,
}

/// What came of an inspection.
#[derive(Debug, Default)]
pub(crate) struct Inspected {
    /// Workers that have not described their fibers in time, and how many they have.
    pub(crate) silent: Vec<(WorkerId, usize)>,
    /// Time was up before all lists were read.
    pub(crate) cut: bool,
}

impl Stacks {
    fn wants(&self, fiber: &Header) -> bool {
        match self {
            Stacks::Nobodys => false,
            Stacks::Everybodys => true,
            Stacks::Of(fibers) => fibers.contains(&fiber.id()),
        }
    }
}

impl Wait {
    /// # Safety
    /// The caller owns the fiber, which is suspended.
    unsafe fn of(header: &Header, ask: &Ask) -> Self {
        let stack = if ask.stacks.wants(header) {
            // SAFETY: the caller's promise.
            unsafe { header.saved_stack(MOST_STACK) }
        } else {
            None
        };

        // SAFETY: the caller's promise.
        let object = unsafe { header.awaited(ask.children) };
        Self {
            reason: header.own.waits.reason(),
            timed: header.own.waits.is_timed(),
            object,
            stack,
        }
    }
}

impl View {
    fn new(header: &Header, does: Does) -> Self {
        Self {
            id: header.id(),
            name: header.name().map(str::to_owned),
            worker: header.pinned_to().or_else(|| header.last_worker()),
            born: header.own.born.get(),
            cancelled: header.cancel.get().is_some(),
            does,
        }
    }

    /// Describes a fiber that may move, and has been on record.
    fn of_movable(header: &Header, ask: &Ask) -> Self {
        // SAFETY: claimed, so it is suspended and belongs to this call.
        let waits = claimed(header, |header| unsafe {
            Self::new(header, Does::Waits(Wait::of(header, ask)))
        });
        waits.unwrap_or_else(|| {
            let does = if header.state.is_finished() {
                Does::Ended
            } else {
                Does::Awake
            };
            Self::new(header, does)
        })
    }
}

/// Calls `f` while the caller owns a fiber that may move and is suspended; then suspends it again,
/// or queues it, if a wake-up has come meanwhile. Returns `None` if the fiber is not suspended.
pub(super) fn claimed<R>(header: &Header, f: impl FnOnce(&Header) -> R) -> Option<R> {
    if !header.state.claim() {
        return None;
    }
    let result = f(header);
    if !header.state.suspend() {
        // SAFETY: the wake-up left the fiber to this call, which owns it.
        schedule(
            unsafe { FiberTask::new(header.into()) },
            Ready::Woken,
            current_worker(),
        );
    }

    Some(result)
}

impl Inspections {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Inspection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inspection {
    fn answer(&self, worker: WorkerId) -> MutexGuard<'_, Answer> {
        self.answers[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolShared {
    /// Describes the pool's fibers to `sink`, those that have started; gives up at the deadline,
    /// when workers do not answer, or when `sink` returns false.
    ///
    /// Context: any thread or fiber. A fiber yields meanwhile.
    pub(crate) fn inspect(&self, ask: &Ask, mut sink: impl FnMut(View) -> bool) -> Inspected {
        let asked = self.ask_workers(ask);
        let mut inspected = Inspected::default();
        // Before each, because to resolve the names of a stack takes long.
        let mut pass_on = |view: View| Instant::now() < ask.deadline && sink(view);
        'lists: for worker in 0..self.workers.first().len() {
            let mut cursor = 0;
            while let Some(some) = self.some_movable(worker, &mut cursor) {
                if !some
                    .iter()
                    .all(|fiber| pass_on(View::of_movable(fiber.header(), ask)))
                {
                    inspected.cut = true;
                    break 'lists;
                }
                // Dropped outside the list's lock: the last reference frees the fiber.
                drop(some);
                pause(None);
            }
        }
        if let Some(asked) = asked {
            self.take_answers(&asked, &mut inspected, &mut pass_on);
        }

        inspected
    }

    /// Takes references to the next fibers of a worker's list. `None` at its end.
    pub(super) fn some_movable(
        &self,
        worker: WorkerId,
        cursor: &mut usize,
    ) -> Option<Vec<FiberHandle>> {
        let list = self.workers[worker].movable();
        let end = list.capacity().min(*cursor + MOST_ENTRIES);

        let mut some = Vec::new();
        while *cursor < end && some.len() < SLICE {
            // SAFETY: a fiber leaves the list, under this lock, before it gives up its own
            // reference.
            some.extend(
                list.get(*cursor)
                    .map(|f| FiberHandle::from_ref(unsafe { f.0.as_ref() })),
            );
            *cursor += 1;
        }

        (*cursor < list.capacity() || !some.is_empty()).then_some(some)
    }

    /// Asks the workers that have pinned fibers.
    fn ask_workers(&self, ask: &Ask) -> Option<Arc<Inspection>> {
        let has_pinned = |worker: &WorkerId| self.workers[*worker].live.load(Ordering::Acquire) > 0;
        let with_pinned: Vec<WorkerId> = (0..self.regular()).filter(has_pinned).collect();
        if with_pinned.is_empty() {
            return None;
        }
        let inspection = Arc::new(Inspection {
            ask: ask.clone(),
            answers: (0..self.regular()).map(|_| Mutex::default()).collect(),
            left: AtomicUsize::new(with_pinned.len()),
            full: AtomicBool::new(false),
            answered: Default::default(),
            over: AtomicBool::new(false),
        });

        with_pinned
            .iter()
            .for_each(|worker| inspection.answer(*worker).asked = true);
        let mut all = self.inspections.all();
        all.push(inspection.clone());
        self.inspections.count.store(all.len(), Ordering::SeqCst);
        drop(all);
        with_pinned
            .iter()
            .for_each(|worker| self.workers[*worker].signal());

        Some(inspection)
    }

    /// Takes the answers as they come, until all are complete or it is time to give up.
    fn take_answers(
        &self,
        asked: &Inspection,
        inspected: &mut Inspected,
        pass_on: &mut impl FnMut(View) -> bool,
    ) {
        let Ask {
            deadline, patience, ..
        } = asked.ask;
        let mut heard = Instant::now();
        while !inspected.cut {
            let complete = asked.left.load(Ordering::Acquire) == 0;
            let taken = self.take_some(asked, inspected, pass_on);
            let now = Instant::now();
            if taken > 0 {
                heard = now;
            }
            if complete
                || now >= deadline
                || now.duration_since(heard) >= patience
                || self.is_stopping()
            {
                break;
            }
            pause(Some(asked));
        }

        asked.over.store(true, Ordering::Relaxed);
        let mut all = self.inspections.all();
        all.retain(|other| !std::ptr::eq(&**other, asked));
        self.inspections.count.store(all.len(), Ordering::SeqCst);
        drop(all);
        let out_of_time = inspected.cut || Instant::now() >= deadline;

        for worker in 0..asked.answers.len() {
            let answer = asked.answer(worker);
            if !answer.asked || (answer.finished && answer.views.is_empty()) {
                continue;
            }
            // Of one that goes on describing there was only too little time. One that begins when
            // nobody has patience any more has said nothing.
            if out_of_time && (answer.taken > 0 || !answer.views.is_empty()) {
                inspected.cut = true;
            } else {
                let known = self.workers[worker].live.load(Ordering::Relaxed);
                inspected
                    .silent
                    .push((worker, known.saturating_sub(answer.taken)));
            }
        }
    }

    /// Takes what workers have described so far, and lets those go on that wait for this. Returns
    /// how many fibers.
    fn take_some(
        &self,
        asked: &Inspection,
        inspected: &mut Inspected,
        pass_on: &mut impl FnMut(View) -> bool,
    ) -> usize {
        asked.full.store(false, Ordering::Relaxed);
        let mut taken = 0;
        for worker in 0..asked.answers.len() {
            let mut answer = asked.answer(worker);
            let views = std::mem::take(&mut answer.views);
            answer.taken += views.len();
            drop(answer);
            if views.len() >= MOST_AHEAD {
                self.workers[worker].signal();
            }
            taken += views.len();
            if !views.into_iter().all(&mut *pass_on) {
                inspected.cut = true;
                break;
            }
        }

        taken
    }

    /// Returns how many fibers have started and not ended.
    pub(crate) fn started(&self) -> usize {
        self.workers
            .iter()
            .map(|worker| worker.movable().len() + worker.live.load(Ordering::Relaxed))
            .sum()
    }
}

/// Lets others run: on a fiber, those behind it; on a plain thread that waits for answers, whoever
/// answers.
fn pause(asked: Option<&Inspection>) {
    if let Some(me) = wait::suspendable() {
        return me.switch(Switch::Yield);
    }
    if let Some(asked) = asked {
        let guard = asked
            .answered
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if asked.left.load(Ordering::Acquire) > 0 && !asked.full.load(Ordering::Acquire) {
            drop(asked.answered.1.wait_timeout(guard, PAUSE));
        }
    }
}

impl<P: Policy<FiberTask>> Worker<P> {
    /// Describes some of the fibers that are pinned here, if somebody has asked. Returns whether it
    /// did.
    #[inline]
    pub(super) fn answer_if_asked(&self) -> bool {
        self.ctx.pool().inspections.count.load(Ordering::Relaxed) > 0 && self.answer()
    }

    #[cold]
    fn answer(&self) -> bool {
        let all = self.ctx.pool().inspections.all().clone();
        // Not `any`, which stops at the first.
        all.iter()
            .filter(|inspection| self.answer_one(inspection))
            .count()
            > 0
    }

    fn answer_one(&self, inspection: &Inspection) -> bool {
        let id = self.ctx.id();
        if id >= inspection.answers.len() || inspection.over.load(Ordering::Relaxed) {
            return false;
        }
        let mut answer = inspection.answer(id);
        if !answer.asked || answer.finished || answer.views.len() >= MOST_AHEAD {
            return false;
        }

        let pinned = self.ctx.pinned.borrow();
        let end = pinned.capacity().min(answer.cursor + MOST_ENTRIES);

        let mut found = 0;
        while answer.cursor < end && found < SLICE {
            if let Some(header) = pinned.get(answer.cursor) {
                // SAFETY: on the worker's own record, so not retired.
                let view = view_of_pinned(unsafe { header.as_ref() }, &inspection.ask);
                answer.views.push(view);
                found += 1;
            }
            answer.cursor += 1;
        }

        answer.finished = answer.cursor >= pinned.capacity();
        let finished = answer.finished;
        let full = answer.views.len() >= MOST_AHEAD;
        drop(answer);
        if finished {
            inspection.left.fetch_sub(1, Ordering::AcqRel);
        }
        inspection.full.fetch_or(full, Ordering::AcqRel);
        if finished || full {
            drop(inspection.answered.0.lock());
            inspection.answered.1.notify_all();
        }

        true
    }
}

/// Describes a fiber that is pinned to the calling worker, which runs none now.
fn view_of_pinned(header: &Header, ask: &Ask) -> View {
    debug_assert!(header.movement() != Movement::Anytime);
    let does = if header.own.pinned.is_suspended() {
        // SAFETY: only this worker resumes it.
        Does::Waits(unsafe { Wait::of(header, ask) })
    } else if header.state.is_finished() {
        Does::Ended
    } else {
        Does::Awake
    };
    View::new(header, does)
}

/// Finds the holder of a lock among the fibers that are known, by the lower half of its number.
pub(crate) fn name_holder(object: &mut Object, fiber: impl Fn(u32) -> Option<u64>) {
    match object.holder.map(|holder| (holder, fiber(holder))) {
        None => {}
        Some((_, Some(fiber))) => {
            object.fibers = vec![fiber];
            object.unknown = 0;
        }
        Some((0, None)) => object.about = "held by a plain thread".to_owned(),
        Some((_, None)) => {
            object.about = "taken by a fiber that has ended or is not in the dump".to_owned()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
