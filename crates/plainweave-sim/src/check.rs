//! What every run is checked for, whatever it measures.
//!
//! 1. **Nothing is lost, nothing runs twice.** A fiber that comes out of a policy is one that was
//!    pushed and has not come out since. When nothing can happen any more, no fiber is left.
//! 2. **Work conservation**, as the policy declares it ([`Conservation`]): while some worker
//!    sleeps, none is on its way from sleep to a fiber and none searches, no ready fiber waits
//!    longer than it takes to wake workers one after the other. The time of searches does not
//!    count: nobody is woken meanwhile, and a worker that searches may have to wait long for a
//!    policy's lock. What it finds may be more urgent than the fiber that waits, so the count
//!    starts over with each find.
//! 3. **Bounded waiting**, where the policy promises it: how many *rounds* pass between a push and
//!    the pop. In a round each worker leaves the fiber that it ran at the round's beginning; so
//!    rounds stop while one fiber holds up its worker, and a policy may leave that worker's queue
//!    alone without breaking its promise.
//! 4. **No livelock**: fibers start, however busy the workers look.
//!
//! The second and the third are promises of a policy, so each pool is checked for itself; the
//! others concern the run.

use crate::costs::{MICRO, MILLI, Picos};
use crate::policy::{Conservation, WorkerId};
use crate::task::TaskId;

/// Events without the start of a fiber that count as a livelock, if as much time as in
/// [`FUTILE_TIME`] has passed.
const FUTILE: u64 = 1_000_000;

/// Longer than any fiber computes.
const FUTILE_TIME: Picos = 100 * MILLI;

/// How many tasks of its own a worker may take before it must take the next one from elsewhere, at
/// most.
const POLL: u64 = 128;

/// What a policy has promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    pub(crate) conservation: Conservation,
    pub(crate) bounded: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    ready: bool,
    /// When it was pushed, by the [clock](Checker::clock) that stops for searches.
    since: Picos,
    /// Fibers that had started, rounds that had passed, and fibers that were ready when this one
    /// was pushed.
    starts: u64,
    rounds: u64,
    before: u64,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    /// It runs no fiber.
    #[default]
    Nothing,
    /// It was signalled in its sleep, and has run no fiber since.
    Wakes,
    /// It runs one that it has begun in this round.
    Runs,
    /// It runs one since before this round: the round waits for it.
    HoldsUp,
}

/// The state of all checks of one run.
#[derive(Debug)]
pub(crate) struct Checker {
    pools: Vec<PoolChecker>,
    futile: u64,
    last_start: Picos,
    /// The longest that the run may take.
    pub(crate) limit: Picos,
    violation: Option<String>,
}

impl Checker {
    /// `pools`: how many workers each has.
    pub(crate) fn new(promises: Promises, pools: &[usize]) -> Self {
        Self {
            pools: pools
                .iter()
                .map(|workers| PoolChecker::new(promises, *workers))
                .collect(),
            futile: 0,
            last_start: 0,
            limit: Picos::MAX,
            violation: None,
        }
    }

    /// Returns the checks of a pool.
    pub(crate) fn pool(&mut self, pool: usize) -> &mut PoolChecker {
        &mut self.pools[pool]
    }

    /// Returns what went wrong first.
    pub(crate) fn violation(&self) -> Option<&str> {
        let of_pools = || self.pools.iter().find_map(|pool| pool.violation.as_deref());
        self.violation.as_deref().or_else(of_pools)
    }

    fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Returns the longest that a ready fiber waited while a worker of its pool slept, and none
    /// woke or found anything.
    pub(crate) fn longest_beside_sleeper(&self) -> Picos {
        self.pools
            .iter()
            .map(|pool| pool.longest_beside_sleeper)
            .max()
            .unwrap_or(0)
    }

    /// Returns the most fibers of a pool that started between a push and its pop.
    pub(crate) fn most_overtaken(&self) -> u64 {
        self.pools
            .iter()
            .map(|pool| pool.most_overtaken)
            .max()
            .unwrap_or(0)
    }

    /// A fiber has started, or goes on.
    pub(crate) fn starts(&mut self, now: Picos) {
        self.futile = 0;
        self.last_start = now;
    }

    /// Counts an event; returns whether the run should go on.
    pub(crate) fn event(&mut self, now: Picos) -> bool {
        self.futile += 1;
        if self.futile > FUTILE && now > self.last_start + FUTILE_TIME {
            self.violated(format!(
                "livelock: {FUTILE} events without the start of a fiber"
            ));
        }

        if now > self.limit {
            self.violated(format!(
                "given up: it takes longer than {} us",
                self.limit / MICRO
            ));
        }

        self.violation().is_none()
    }

    /// Nothing can happen any more, and `live` fibers are left.
    pub(crate) fn stuck(&mut self, live: usize) {
        let ready: u64 = self.pools.iter().map(|pool| pool.ready).sum();
        if ready > 0 {
            self.violated(format!(
                "lost: {ready} ready fibers, and every worker sleeps"
            ));
        } else if live > 0 {
            self.violated(format!(
                "lost: {live} fibers wait, and nothing will wake them"
            ));
        }
    }

    /// The run is over, and a worker does not stop.
    pub(crate) fn endless(&mut self) {
        self.violated(
            "a worker does not come back from the policy after the last fiber has ended".to_owned(),
        );
    }

    /// A worker's code has panicked.
    pub(crate) fn panicked(&mut self, message: &str) {
        self.violated(format!("the policy panicked: {message}"));
    }
}

/// The state of a pool's checks. Workers' numbers are those in the pool.
#[derive(Debug)]
pub(crate) struct PoolChecker {
    promises: Promises,
    /// What each worker does.
    doing: Vec<Doing>,
    /// How many of them hold up the round.
    held_up: usize,
    rounds: u64,
    waits: Vec<Wait>,
    ready: u64,
    starts: u64,
    asleep: u64,
    /// How many workers wake.
    waking: usize,
    /// Since when some worker has slept all the time, and none has woken or found something; by the
    /// same clock.
    asleep_since: Picos,
    /// How many workers look into the policy in a search, since when any does, and for how long any
    /// did before.
    searching: usize,
    searching_since: Picos,
    searched: Picos,
    longest_beside_sleeper: Picos,
    most_overtaken: u64,
    violation: Option<String>,
}

impl PoolChecker {
    fn new(promises: Promises, workers: usize) -> Self {
        Self {
            promises,
            doing: vec![Doing::default(); workers],
            held_up: 0,
            rounds: 0,
            waits: Vec::new(),
            ready: 0,
            starts: 0,
            asleep: 0,
            waking: 0,
            asleep_since: 0,
            searching: 0,
            searching_since: 0,
            searched: 0,
            longest_beside_sleeper: 0,
            most_overtaken: 0,
            violation: None,
        }
    }

    fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn pushed(&mut self, fiber: TaskId, now: Picos) {
        if self.waits.len() <= fiber {
            self.waits.resize(fiber + 1, Wait::default());
        }
        if self.waits[fiber].ready {
            self.violated(format!(
                "fiber {fiber} is pushed a second time before it has run"
            ));
        }

        self.waits[fiber] = Wait {
            ready: true,
            since: self.clock(now),
            starts: self.starts,
            rounds: self.rounds,
            before: self.ready,
        };
        self.ready += 1;
    }

    /// A worker has taken a fiber from the policy, and runs it until [`left`](Self::left).
    pub(crate) fn popped(&mut self, fiber: TaskId, worker: WorkerId, now: Picos) {
        let Some(wait) = self.waits.get_mut(fiber).filter(|wait| wait.ready) else {
            return self.violated(format!("fiber {fiber} comes out of the policy twice"));
        };
        wait.ready = false;
        let wait = *wait;
        self.ready -= 1;
        let overtaken = self.starts - wait.starts;
        let rounds = self.rounds - wait.rounds;

        self.starts += 1;
        self.most_overtaken = self.most_overtaken.max(overtaken);

        let bound = POLL * (wait.before + self.workers() + 2);
        if self.promises.bounded && rounds > bound {
            self.violated(format!(
                "waiting is bounded, but every worker changed fibers {rounds} times between a push and its pop: at \
                 most {bound} are allowed"
            ));
        }

        self.is_awake(worker, now);
        self.start_in_round(worker);
        // Where one is on its way already, nobody has to wake another.
        if self.asleep > 0 && self.waking == 0 {
            self.beside_sleeper(
                self.clock(now)
                    .saturating_sub(wait.since.max(self.asleep_since)),
            );
        }
    }

    /// Notes that a worker which was signalled has arrived at a fiber, or at its next sleep.
    fn is_awake(&mut self, worker: WorkerId, now: Picos) {
        if self.doing[worker] == Doing::Wakes {
            self.doing[worker] = Doing::Nothing;
            self.waking -= 1;
            // A new time begins: until now the fiber waited for this worker to get up.
            self.asleep_since = self.clock(now);
        }
    }

    fn workers(&self) -> u64 {
        self.doing.len() as u64
    }

    /// Notes that a worker begins a fiber; the next round begins with it if nobody holds up this
    /// one.
    fn start_in_round(&mut self, worker: WorkerId) {
        if self.held_up == 0 {
            self.rounds += 1;
            // The next round is over once each of these has left what it runs now.
            for doing in self.doing.iter_mut().filter(|doing| **doing == Doing::Runs) {
                *doing = Doing::HoldsUp;
                self.held_up += 1;
            }
        }
        self.doing[worker] = Doing::Runs;
    }

    /// A worker no longer runs the fiber that it popped.
    pub(crate) fn left(&mut self, worker: WorkerId) {
        if std::mem::take(&mut self.doing[worker]) == Doing::HoldsUp {
            self.held_up -= 1;
        }
    }

    fn beside_sleeper(&mut self, waited: Picos) {
        self.longest_beside_sleeper = self.longest_beside_sleeper.max(waited);
        let bound = match self.promises.conservation {
            Conservation::Always => 40 * MICRO * (self.workers() + 4),
            Conservation::AfterSearches => 80 * MICRO * (self.workers() + 4),
            Conservation::Never => return,
        };

        if waited > bound {
            self.violated(format!(
                "work is conserved, but a fiber was ready for {} us while a worker slept and none searched: at most \
                 {} us are allowed",
                waited / MICRO,
                bound / MICRO
            ));
        }
    }

    pub(crate) fn sleeps(&mut self, worker: WorkerId, now: Picos) {
        self.is_awake(worker, now);
        if self.asleep == 0 {
            self.asleep_since = self.clock(now);
        }
        self.asleep += 1;
    }

    /// A worker that slept is signalled.
    pub(crate) fn wakes(&mut self, worker: WorkerId) {
        self.asleep -= 1;
        self.waking += 1;
        self.doing[worker] = Doing::Wakes;
    }

    /// A worker that searches begins to look into the policy.
    pub(crate) fn search_begins(&mut self, now: Picos) {
        // Searches overlap: what counts is whether any is under way.
        if self.searching == 0 {
            self.searching_since = now;
        }
        self.searching += 1;
    }

    /// It has looked, with whatever result.
    pub(crate) fn search_ends(&mut self, now: Picos) {
        self.searching -= 1;
        if self.searching == 0 {
            self.searched += now.saturating_sub(self.searching_since);
        }
    }

    /// The simulated time less the time in which some worker searched. Workers' clocks differ a
    /// little, so it may stand still for a moment or be a little behind.
    fn clock(&self, now: Picos) -> Picos {
        let under_way = if self.searching > 0 {
            now.saturating_sub(self.searching_since)
        } else {
            0
        };
        now.saturating_sub(self.searched + under_way)
    }

    /// A worker that searched has found a fiber.
    pub(crate) fn found(&mut self, now: Picos) {
        self.asleep_since = self.clock(now);
    }
}
