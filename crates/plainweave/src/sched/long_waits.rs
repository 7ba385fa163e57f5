//! Gives back what fibers that wait for long do not use of their stacks.
//!
//! A fiber that once ran deep keeps the pages that it has touched, though it may wait for the rest
//! of its life in a frame near the top: 2,000 connections whose handlers had each used 170 KiB held
//! 356 MB. So workers look at the fibers that wait, in *rounds*, at their regular looks for what
//! may go back ([`WorkerCtx::tidy`]):
//!
//! 1. A round comes by every waiting fiber, [`SLICE`](super::inspect) of them at a time, at most
//!    every [`PERIOD_NS`].
//! 2. A fiber that is found in the same wait twice has waited for at least that long: its pages
//!    below the stack pointer go. The mark that it was seen stands beside the reason of its wait,
//!    which the next wait overwrites, so that a suspension costs nothing for it.
//! 3. A round that finds nobody for the first time leaves nothing to be done until some worker has
//!    run a fiber again. So a program at rest wakes up two or three times, and then sleeps.
//!
//! Fibers that may move are on lists of their pool. Any worker may take the next slice of them; it
//! claims each as a dump does (`sched/inspect`), so a wake-up that comes meanwhile is not lost.
//! Those that are pinned are looked at by their worker.
//!
//! A round also notes who waits for whom (`sched/circles`).
//!
//! What it saves and costs stands in `docs/stacks.md`.
//!
//! # Rejected
//! * *The watchdog does it*: it has no right to pinned fibers, and a runtime need not have one.
//! * *At each suspension*: 2 us a switch.
//! * *The time of the suspension in each fiber*: a reading of the clock per suspension.
//! * *`MADV_FREE`, `MADV_COLD`*: as for free stacks (`stack`), nobody could see that memory is
//!   free.

#![expect(unsafe_code, reason = "owns suspended fibers for a moment")]

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::circles::{Edge, MOST_EDGES};
use super::inspect::{MOST_ENTRIES, SLICE, claimed};
use super::pool::PoolShared;
use super::worker::WorkerCtx;
use crate::fiber::Header;
use crate::fiber::note::EarlierLooks;
use crate::policy::WorkerId;
use crate::timer::Nanos;

/// The time between the beginnings of two rounds, at least.
const PERIOD_NS: u64 = 2_000_000_000;
/// The time between two slices of a round, of 10 to 150 us.
const NEXT_NS: u64 = 1_000_000;

/// The rounds over some fibers: those of a pool that may move, or those pinned to one worker.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// When the next slice is due, by the pool's clock.
    next: AtomicU64,
    /// When the last round began that left nothing to be done.
    clean: AtomicU64,
    /// The worker that does the round at hand, by its number and one; 0 between rounds.
    by: AtomicUsize,
    round: Mutex<Round>,
}

/// How far a round has come.
#[derive(Debug, Default)]
struct Round {
    /// When it began; 0 before it has.
    began: Nanos,
    list: usize,
    cursor: usize,
    /// It has found somebody in a new wait.
    found_new: bool,
    /// Who waits for whom, of those that it has found before.
    edges: Vec<Edge>,
}

/// When a worker was last seen to have run fibers.
#[derive(Debug, Default)]
pub(super) struct Activity {
    switches: Cell<u64>,
    last: Cell<Nanos>,
}

impl Activity {
    /// Notes the worker's switches so far; returns when it last ran a fiber.
    fn note(&self, switches: u64, now: Nanos) -> Nanos {
        if self.switches.replace(switches) != switches {
            self.last.set(now);
        }
        self.last.get()
    }
}

impl Rounds {
    /// Does a slice of the round if one is due and `me` is the worker to do it; `slice` is true
    /// when the round is complete. Returns when to look next, or `None` once a round has seen every
    /// wait that began before `active`: the caller has run no fiber since.
    fn look(
        &self,
        (me, now): (WorkerId, Nanos),
        active: Nanos,
        slice: impl FnOnce(&mut Round) -> bool,
        ended: impl FnOnce(Vec<Edge>),
    ) -> Option<Nanos> {
        if self.clean.load(Ordering::Relaxed) > active {
            return None;
        }
        let mut next = self.next.load(Ordering::Relaxed);
        // Another worker's round is not to wake this one, unless that worker does not come back.
        let by = self.by.load(Ordering::Relaxed);
        if by != 0 && by != me + 1 {
            next += PERIOD_NS;
        }
        if now < next {
            return Some(next);
        }
        let Ok(mut round) = self.round.try_lock() else {
            return Some(now + PERIOD_NS);
        };

        if round.began == 0 {
            round.began = now;
        }
        self.by.store(me + 1, Ordering::Relaxed);
        let mut next = now + NEXT_NS;

        if slice(&mut round) {
            let round = std::mem::take(&mut *round);
            self.by.store(0, Ordering::Relaxed);
            next = now.max(round.began + PERIOD_NS);
            if !round.found_new {
                self.clean.store(round.began, Ordering::Relaxed);
            }
            ended(round.edges);
        }

        self.next.store(next, Ordering::Relaxed);
        (self.clean.load(Ordering::Relaxed) <= active).then_some(next)
    }
}

impl Round {
    /// Looks at a fiber that waits.
    ///
    /// # Safety
    /// The caller owns the fiber, which is suspended.
    unsafe fn look_at(&mut self, header: &Header, pool: &PoolShared) {
        let earlier = header.own.waits.look();
        if earlier != EarlierLooks::None
            && pool.circles.are_wanted()
            && self.edges.len() < MOST_EDGES
            // SAFETY: the caller's promise.
            && let Some(awaited) = unsafe { header.waits_for() }
        {
            self.edges.push((header.id() as u32, awaited));
        }

        match earlier {
            EarlierLooks::None => self.found_new = true,
            EarlierLooks::One => {
                // SAFETY: the caller's promise.
                if let Some(depth) = unsafe { header.trim_stack() } {
                    pool.stacks.note_high_water(depth);
                }
            }
            EarlierLooks::More => {}
        }
    }
}

impl PoolShared {
    /// Looks at the next of the fibers that may move. Returns whether they were the last.
    fn look_at_movable(&self, round: &mut Round) -> bool {
        while round.list < self.workers.first().len() {
            let Some(some) = self.some_movable(round.list, &mut round.cursor) else {
                (round.list, round.cursor) = (round.list + 1, 0);
                continue;
            };

            for fiber in &some {
                // SAFETY: claimed.
                claimed(fiber.header(), |header| unsafe {
                    round.look_at(header, self);
                });
            }

            return false;
        }
        true
    }
}

impl WorkerCtx {
    /// Looks at some of the fibers that wait, if it is time to. Returns when it should be called
    /// next; `None` if there is nothing to do until this worker has run a fiber.
    ///
    /// Context: the worker at its turn.
    pub(super) fn look_at_long_waits(&self, now: Nanos) -> [Option<Nanos>; 2] {
        let (pool, (switches, _)) = (self.pool(), self.shared().beat());
        let active = self.activity.note(switches, now);
        let ended = |edges, over| {
            if pool.circles.publish(over, edges) {
                pool.watchdog_bell.notice();
            }
        };

        let here = (self.id(), now);
        let movable = pool.long_waits.look(
            here,
            active,
            |round| pool.look_at_movable(round),
            |edges| ended(edges, 0),
        );
        let pinned = self.long_waits.look(
            here,
            active,
            |round| self.look_at_pinned(round),
            |edges| ended(edges, self.id() + 1),
        );
        [movable, pinned]
    }

    /// Looks at the next of the fibers that are pinned here. Returns whether they were the last.
    fn look_at_pinned(&self, round: &mut Round) -> bool {
        let pinned = self.pinned.borrow();
        let end = pinned.capacity().min(round.cursor + MOST_ENTRIES);

        let mut found = 0;
        while round.cursor < end && found < SLICE {
            if let Some(header) = pinned.get(round.cursor) {
                // SAFETY: on the worker's own record, so not retired.
                let header = unsafe { header.as_ref() };
                if header.own.pinned.is_suspended() {
                    // SAFETY: only this worker resumes it.
                    unsafe { round.look_at(header, self.pool()) };
                }
                found += 1;
            }
            round.cursor += 1;
        }

        round.cursor >= pinned.capacity()
    }
}
