//! Notices that nothing can run any more, and reports which fiber waits for what.
//!
//! # When
//! All workers have slept for [`GRACE`] ([`GRACE_ALONE`] in some simulations), a plain thread waits
//! in `run` or `scope` for fibers that have not ended, and none of these waits for anything that
//! comes from outside: I/O, a timer, a job of the blocking pool, a future, an idle connection,
//! another runtime. Then a fiber can only be woken by another fiber, which cannot run, or by a
//! thread of the program's own.
//!
//! Nothing changes for workers and fibers. The watchdog, which is awake for a while anyway after
//! the last worker has fallen asleep, sleeps with a timeout instead of without one, once; then it
//! asks for all fibers, as a dump does (`sched/inspect`), and stops at the first that waits for
//! something from outside. Meanwhile it notices no stalls, so it gives up when workers are busy
//! again. Names are resolved on the thread that calls the program's function.
//!
//! *While others run*: the rounds over fibers that wait for long suspect circles (`sched/circles`),
//! and the watchdog asks all fibers about each suspicion. What waits there does so whatever else
//! runs.
//!
//! # How certain
//! Fibers that wait for each other in a circle (locks, joins, scopes) wait for ever:
//! [`Deadlock::cycle`]. Who holds a handle of a channel or would release a semaphore cannot be
//! known. If the process has no threads but the runtime's and those that wait for it, nobody is
//! left to do so. Otherwise the report is a warning, for the program's function only
//! (`RuntimeBuilder::on_deadlock`). Cancelling a fiber ends its wait in either case.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::report::Frame;
use super::reporter::{cut_nameless_end, frames};
use super::sample::Sample;
use super::unwind::Tables;
use crate::fiber::Reason;
use crate::fiber::note::Object;
use crate::fiber::saved::SavedStack;
use crate::sched::inspect::{Ask, Does, Stacks, View, Wait, name_holder};
use crate::sched::pool::PoolShared;
use crate::sys;

/// How long nothing has run before fibers are looked at.
const GRACE: Duration = Duration::from_millis(500);
/// The same after looks that ended too soon, each of which doubles it: the fibers may be too many,
/// or the machine busy.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);
/// In place of the first, of a simulated runtime that has the process to itself.
const GRACE_ALONE: Duration = Duration::from_millis(10);
/// How long a look may take.
const LIMIT: Duration = Duration::from_secs(2);
/// How long to wait for workers that say nothing and do not fall asleep: they are busy again.
const QUIET_WAIT: Duration = Duration::from_millis(50);
/// Fibers that are reported; others are counted.
const MOST: usize = 32;
/// Fibers that are reported of those that one waits for.
const MOST_AWAITED: usize = 1000;
/// Calls of each that are reported.
const MOST_FRAMES: usize = 12;

/// Fibers that wait, and nothing that could wake them; passed to
/// [`RuntimeBuilder::on_deadlock`](crate::RuntimeBuilder::on_deadlock).
///
/// `Display` writes a report of several lines.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// The fibers, those of the circle first; 32 at most.
    pub fibers: Vec<StuckFiber>,
    /// How many fibers wait, all told.
    pub count: usize,
    /// Fibers that wait for each other, each for the next and the last for the first, by number:
    /// locks, joins and scopes. Empty if there is no such circle.
    pub cycle: Vec<u64>,
    /// Whether other fibers run on: the report is about the circle alone.
    pub others_run: bool,
    /// How many threads of the process are neither the runtime's nor wait for it; `None` if proc(5)
    /// does not say.
    pub other_threads: Option<usize>,
}

/// A fiber of a [`Deadlock`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckFiber {
    /// Its number, as returned by [`Fiber::id`](crate::Fiber::id).
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Why it waits.
    pub reason: Reason,
    /// What it waits for, if that is known.
    pub object: Option<Object>,
    /// Where it waits, innermost function first.
    pub frames: Vec<Frame>,
}

/// The program's function.
#[derive(Clone)]
pub(crate) struct OnDeadlock(pub(crate) Arc<dyn Fn(&Deadlock) + Send + Sync>);

impl fmt::Debug for OnDeadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function")
    }
}

/// Returns a function that reports certain deadlocks on standard error: all of them, or those with
/// a circle.
pub(crate) fn print_deadlocks(all: bool) -> OnDeadlock {
    OnDeadlock(Arc::new(move |deadlock| {
        if deadlock.is_certain() && (all || !deadlock.cycle.is_empty()) {
            crate::abort::report(&deadlock.to_string());
        }
    }))
}

impl Deadlock {
    /// Returns whether nobody can wake these fibers, except by cancelling them: some of them wait
    /// for each other in a circle, or the process has no other threads. (A guard that was passed to
    /// another fiber or thread counts for the fiber that took the lock, until that ends.)
    #[must_use]
    pub fn is_certain(&self) -> bool {
        !self.cycle.is_empty() || self.other_threads == Some(0)
    }
}

/// What came of a look at the fibers.
enum Look {
    /// Something can still come.
    Fine,
    /// A job of the blocking pool runs, and its end wakes nobody; or workers were busy.
    Later,
    /// There was not enough time for all fibers.
    Cut,
    Stuck(Found),
}

/// A deadlock, without the places in the code.
struct Found {
    /// The first of them.
    fibers: Vec<Stuck>,
    count: usize,
    cycle: Vec<u64>,
    others_run: bool,
    other_threads: Option<usize>,
}

/// The watchdog's part.
pub(super) struct Deadlocks {
    on_deadlock: Option<OnDeadlock>,
    /// The number of switches at which nothing ran any more, since when, and how long to wait
    /// before a look.
    quiet: Option<(u64, Instant, Duration)>,
    /// The number of switches at the last look.
    looked: Option<u64>,
    /// The fibers of circles that have been reported while others ran.
    reported: HashSet<u64>,
    /// On virtual time: the switches at a report, and the program's threads that might have ended
    /// the wait then. One that ends leaves the fibers to themselves.
    beside: Option<(u64, usize)>,
    /// When to look for a circle again, after busy workers have not said what is pinned there.
    circles_at: Option<Instant>,
}

impl Deadlocks {
    pub(super) fn new(on_deadlock: Option<OnDeadlock>) -> Self {
        Self {
            on_deadlock,
            quiet: None,
            looked: None,
            reported: HashSet::new(),
            beside: None,
            circles_at: None,
        }
    }

    /// Returns whether deadlocks are reported.
    pub(super) fn are_reported(&self) -> bool {
        self.on_deadlock.is_some()
    }

    /// Returns whether there is reason for a look, if all workers sleep: somebody waits, and fibers
    /// have run since the last one.
    pub(super) fn has_reason(&self, pool: &PoolShared) -> bool {
        self.are_reported()
            && pool.callers.load(Ordering::Relaxed) > 0
            && self.looked != Some(switches(pool))
    }

    /// Looks if it is time, after all workers have fallen asleep. Returns when to call it again if
    /// they sleep on.
    pub(super) fn look_if_due(&mut self, pool: &PoolShared) -> Option<Instant> {
        let on_deadlock = self.on_deadlock.clone()?;
        if !self.has_reason(pool) {
            return None;
        }
        let now_switches = switches(pool);
        let (since, grace) = match self.quiet {
            Some((at, since, grace)) if at == now_switches => (since, grace),
            _ => {
                // On virtual time no timer is to come, and no other thread is there to wake one.
                let is_alone = pool.virtual_time && other_threads(pool) == Some(0);
                let grace = if is_alone { GRACE_ALONE } else { GRACE };
                return Some(self.look_after(grace, now_switches));
            }
        };

        if since.elapsed() < grace {
            return Some(since + grace);
        }
        if self.beside.is_some_and(|(at, others)| {
            at == now_switches && other_threads(pool).is_none_or(|now| now >= others)
        }) {
            return Some(self.look_after(GRACE, now_switches));
        }
        match self.look(pool, now_switches) {
            Look::Later => {
                self.quiet = None;
                return Some(Instant::now() + GRACE);
            }
            Look::Cut => {
                let grace = (grace * 2).min(LONGEST_GRACE);
                return Some(self.look_after(grace, now_switches));
            }
            Look::Fine => {}
            Look::Stuck(found) => {
                let known = found
                    .fibers
                    .iter()
                    .all(|one| self.reported.contains(&one.id));
                if !known {
                    report(on_deadlock, found);
                }

                let others = other_threads(pool).filter(|others| *others > 0);
                if let Some(others) = others.filter(|_| pool.virtual_time) {
                    self.beside = Some((now_switches, others));
                    return Some(self.look_after(GRACE, now_switches));
                }
            }
        }

        self.looked = Some(now_switches);
        None
    }

    /// Has the next look wait from now on, as long as nothing runs; returns until when.
    fn look_after(&mut self, grace: Duration, switches: u64) -> Instant {
        let now = Instant::now();
        self.quiet = Some((switches, now, grace));
        now + grace
    }

    /// Looks for a circle among fibers that wait while others run, and reports each once.
    pub(super) fn look_for_circle(&mut self, pool: &PoolShared) {
        let Some(on_deadlock) = self.on_deadlock.clone() else {
            return;
        };
        let is_early = |at| Instant::now() < at;
        if self.circles_at.is_some_and(is_early) || !pool.circles.take_suspicion() {
            return;
        }
        self.circles_at = None;
        let mut stuck = Vec::new();
        let mut numbers = HashMap::new();
        let inspected = pool.inspect(&ask(Stacks::Nobodys), |view| {
            numbers.insert(view.id as u32, view.id);
            stuck.extend(Stuck::of(view).filter(|one| !self.reported.contains(&one.id)));
            true
        });

        name_holders(&mut stuck, &numbers);
        let cycle = cycle(&stuck);
        if cycle.is_empty() {
            if inspected.cut || !inspected.silent.is_empty() {
                self.circles_at = Some(Instant::now() + GRACE);
                pool.circles.suspect();
            }
            return;
        }

        stuck.retain(|one| cycle.contains(&one.id));
        self.reported.extend(cycle);
        let found = Found {
            others_run: true,
            ..Found::new(pool, stuck)
        };

        report(on_deadlock, found);
        pool.circles.suspect(); // There may be another.
    }

    fn look(&self, pool: &PoolShared, switches_before: u64) -> Look {
        if pool.is_closing() || pool.idle_connections() > 0 {
            return Look::Fine;
        }
        if pool.blocking.is_busy() {
            return Look::Later;
        }
        let mut stuck = Vec::new();
        let mut numbers = HashMap::new();
        let mut fine = false;
        let inspected = pool.inspect(&ask(Stacks::Nobodys), |view| {
            numbers.insert(view.id as u32, view.id);
            match Stuck::of(view) {
                Some(fiber) => stuck.push(fiber),
                None => fine = true,
            }
            !fine
        });

        if !fine && !inspected.silent.is_empty() {
            return Look::Later;
        }
        if fine || stuck.is_empty() {
            return Look::Fine;
        }
        if inspected.cut {
            return Look::Cut;
        }
        name_holders(&mut stuck, &numbers);

        // Children elsewhere, or another runtime's fiber: that may go on.
        let elsewhere = |fiber: &Stuck| {
            fiber.reason != Reason::Sync
                && fiber
                    .object
                    .as_ref()
                    .is_some_and(|object| object.unknown > 0)
        };

        if stuck.iter().any(elsewhere) || pool.live() != stuck.len() as u64 {
            return Look::Fine;
        }
        match still_quiet(pool, switches_before) {
            // What the threads waited for has ended, and they are about to notice.
            Some(true) if !pool.is_awaited() => Look::Later,
            Some(true) => Look::Stuck(Found::new(pool, stuck)),
            Some(false) => Look::Fine,
            None => Look::Later,
        }
    }
}

/// Calls the program's function, on a thread of its own: it may take its time, and wake fibers,
/// which need the watchdog.
fn report(on_deadlock: OnDeadlock, found: Found) {
    let thread = std::thread::Builder::new().name("plainweave-deadlock".to_owned());
    let _ = sys::start_thread(thread, move || (on_deadlock.0)(&found.named()));
}

fn name_holders(stuck: &mut [Stuck], numbers: &HashMap<u32, u64>) {
    for object in stuck.iter_mut().filter_map(|one| one.object.as_mut()) {
        name_holder(object, |half| numbers.get(&half).copied());
    }
}

/// Returns whether nothing has run; `None` if workers do not fall asleep again after they have
/// described their fibers.
fn still_quiet(pool: &PoolShared, switches_before: u64) -> Option<bool> {
    let end = Instant::now() + QUIET_WAIT;
    loop {
        if switches(pool) != switches_before || pool.is_stopping() {
            return Some(false);
        }
        if (0..pool.workers.made()).all(|id| pool.is_asleep(id)) {
            return Some(switches(pool) == switches_before);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns what is asked of fibers.
fn ask(stacks: Stacks) -> Ask {
    // All children of a scope: any of them may be part of a circle.
    Ask {
        stacks,
        children: usize::MAX,
        deadline: Instant::now() + LIMIT,
        patience: QUIET_WAIT,
    }
}

impl Found {
    fn new(pool: &PoolShared, mut stuck: Vec<Stuck>) -> Self {
        let cycle = cycle(&stuck);
        let positions: HashMap<u64, usize> =
            cycle.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        stuck.sort_by_key(|fiber| {
            (
                positions.get(&fiber.id).copied().unwrap_or(usize::MAX),
                fiber.id,
            )
        });
        let count = stuck.len();
        stuck.truncate(MOST);

        // Only now, because a copy of each fiber's stack takes time and memory, and few are shown.
        let stacks = Stacks::Of(stuck.iter().map(|fiber| fiber.id).collect());
        pool.inspect(
            &Ask {
                children: 0,
                ..ask(stacks)
            },
            |view| {
                let shown = stuck.iter_mut().find(|fiber| fiber.id == view.id);
                if let (Some(fiber), Does::Waits(wait)) = (shown, view.does) {
                    fiber.stack = wait.stack;
                }
                true
            },
        );
        stuck
            .iter_mut()
            .filter_map(|fiber| fiber.object.as_mut())
            .for_each(|object| {
                object.unknown += object.fibers.len().saturating_sub(MOST_AWAITED);
                object.fibers.truncate(MOST_AWAITED);
            });
        Self {
            fibers: stuck,
            count,
            cycle,
            others_run: false,
            other_threads: other_threads(pool),
        }
    }

    /// Finds the places in the code, which may read the program's file.
    fn named(self) -> Deadlock {
        let mut tables = Tables::default();
        let fibers = self
            .fibers
            .into_iter()
            .map(|fiber| fiber.named(&mut tables))
            .collect();
        Deadlock {
            fibers,
            count: self.count,
            cycle: self.cycle,
            others_run: self.others_run,
            other_threads: self.other_threads,
        }
    }
}

impl Stuck {
    fn named(self, tables: &mut Tables) -> StuckFiber {
        let resolve = |SavedStack {
                           instruction,
                           stack,
                           frame,
                           copy,
                       }| {
            let addresses = tables.addresses(&Sample {
                fiber: None,
                instruction,
                stack,
                frame,
                copy,
            });

            let mut found = frames(&addresses, true);
            cut_nameless_end(&mut found);
            super::print::keep_own(&mut found);
            found.truncate(MOST_FRAMES);
            found
        };

        let frames = self.stack.map(resolve).unwrap_or_default();
        StuckFiber {
            id: self.id,
            name: self.name,
            reason: self.reason,
            object: self.object,
            frames,
        }
    }
}

/// A fiber that only another fiber, or a thread of the program, can wake.
struct Stuck {
    id: u64,
    name: Option<String>,
    reason: Reason,
    object: Option<Object>,
    stack: Option<SavedStack>,
}

impl Stuck {
    fn of(view: View) -> Option<Self> {
        let Does::Waits(Wait {
            reason,
            timed: false,
            object,
            stack,
        }) = view.does
        else {
            return None;
        };

        matches!(
            reason,
            Reason::Park | Reason::Join | Reason::Scope | Reason::Sync
        )
        .then_some(Self {
            id: view.id,
            name: view.name,
            reason,
            object,
            stack,
        })
    }
}

/// Returns fibers each of which waits for the next, and the last for the first; none if there is no
/// such circle.
fn cycle(stuck: &[Stuck]) -> Vec<u64> {
    let next = |fiber: &Stuck| {
        fiber
            .object
            .as_ref()
            .map(|object| object.fibers.clone())
            .unwrap_or_default()
    };

    let edges: HashMap<u64, Vec<u64>> = stuck.iter().map(|fiber| (fiber.id, next(fiber))).collect();
    let mut done = HashSet::new();
    for fiber in stuck {
        // Depth first: the path so far, each with how many of its edges have been followed; and
        // where on it each is.
        let mut path: Vec<(u64, usize)> = vec![(fiber.id, 0)];
        let mut places = HashMap::from([(fiber.id, 0)]);
        while let Some((id, followed)) = path.last_mut() {
            let edge = edges
                .get(id)
                .and_then(|edges| edges.get(*followed))
                .copied();
            *followed += 1;
            match edge {
                None => {
                    done.insert(*id);
                    places.remove(id);
                    path.pop();
                }
                Some(to) if done.contains(&to) => {}
                Some(to) => {
                    if let Some(at) = places.get(&to) {
                        return path[*at..].iter().map(|(id, _)| *id).collect();
                    }
                    places.insert(to, path.len());
                    path.push((to, 0));
                }
            }
        }
    }

    Vec::new()
}

/// Returns the number of switches so far; exact while all workers sleep, and never more than there
/// were.
fn switches(pool: &PoolShared) -> u64 {
    pool.workers
        .iter()
        .map(|worker| worker.switches.load(Ordering::Relaxed))
        .sum()
}

/// Returns how many threads are neither the runtime's nor wait for it.
fn other_threads(pool: &PoolShared) -> Option<usize> {
    let all = std::fs::read_dir("/proc/self/task").ok()?.count();
    let workers = pool
        .workers
        .iter()
        .filter(|worker| worker.thread() != 0)
        .count();
    // The watchdog and its reporter, if there is one.
    let own = workers + 1 + pool.reporters.load(Ordering::Relaxed);
    Some(all.saturating_sub(own + pool.blocking.threads() + pool.callers.load(Ordering::Relaxed)))
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.others_run {
            write!(
                f,
                "deadlock: {} fibers wait, for ever unless another has a guard of theirs or cancels one",
                self.count
            )?;
        } else if self.is_certain() {
            write!(
                f,
                "deadlock: {} fibers wait, and nothing will wake them",
                self.count
            )?;
        } else {
            write!(
                f,
                "all {} fibers wait, and only another thread of the program can wake them",
                self.count
            )?;
        }

        if !self.cycle.is_empty() {
            f.write_str("; these wait for each other: ")?;
            self.cycle
                .iter()
                .try_for_each(|fiber| write!(f, "#{fiber} -> "))?;
            write!(f, "#{}", self.cycle[0])?;
        }

        for fiber in &self.fibers {
            write!(f, "\n  {fiber}")?;
        }
        if self.count > self.fibers.len() {
            write!(f, "\n  and {} more", self.count - self.fibers.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for StuckFiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fiber #{}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        match &self.object {
            Some(object) => write!(f, " waits for {object}")?,
            None => write!(f, " waits for {}", self.reason.words())?,
        }

        self.frames
            .iter()
            .try_for_each(|frame| write!(f, "\n    {frame}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stuck(edges: &[(u64, &[u64])]) -> Vec<Stuck> {
        let fiber = |&(id, waits_for): &(u64, &[u64])| {
            let object = Object {
                fibers: waits_for.to_vec(),
                ..Object::default()
            };

            Stuck {
                id,
                name: None,
                reason: Reason::Sync,
                object: Some(object),
                stack: None,
            }
        };
        edges.iter().map(fiber).collect()
    }

    #[test]
    fn circles_are_found_wherever_they_are() {
        assert_eq!(cycle(&stuck(&[(1, &[2]), (2, &[3]), (3, &[])])), []);
        assert_eq!(cycle(&stuck(&[(1, &[1])])), [1]);
        assert_eq!(cycle(&stuck(&[(1, &[2]), (2, &[3]), (3, &[2])])), [2, 3]);

        // A scope waits for several; a fiber that is not there is none of these.
        assert_eq!(
            cycle(&stuck(&[
                (1, &[9, 2, 3]),
                (2, &[]),
                (3, &[4, 2]),
                (4, &[1])
            ])),
            [1, 3, 4]
        );
        let long: Vec<_> = (0..100_000).map(|id| (id, [id + 1])).collect();
        let long: Vec<_> = long.iter().map(|(id, next)| (*id, &next[..])).collect();
        assert_eq!(cycle(&stuck(&long[..2000])), []);
    }
}
