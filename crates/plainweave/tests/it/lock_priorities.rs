//! A lock shared between priorities, and between pools: how long a hog keeps its holder, and so its
//! waiters, from running. The turns of the hog are counted, from the end of the time by which
//! ageing must have let the holder run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::sync::{Mutex, Semaphore};
use plainweave::{Builder, RuntimeBuilder, yield_now};

on_every_driver!(
    a_hog_keeps_a_high_waiter_out_for_the_ageing_bound_only,
    a_holder_in_a_pool_with_priorities_lets_in_a_waiter_of_another,
    a_waiter_in_a_pool_with_priorities_waits_for_the_holders_pool,
);

/// What a level of priority is worth in waiting, in microseconds, by the policy's text below.
const LEVEL_US: u64 = 500;
const PRIORITY: &str = "priority:level=500";
const LOW: u8 = 118;
const MIDDLE: u8 = 128;
const HIGH: u8 = 255;
/// A fiber of priority `LOW` is overtaken by those of `MIDDLE` for this long after it became ready.
const BOUND: Duration = Duration::from_micros((MIDDLE - LOW) as u64 * LEVEL_US);
/// Times that the holder yields with the lock.
const TURNS: usize = 5;
/// Switches between two readings of the clock by which tasks age, and the one under way.
const READING: usize = 64 + 1;

/// Holder, hog and waiter.
struct Run {
    lock: Mutex<()>,
    held: Semaphore,
    calling: AtomicBool,
    entered: AtomicBool,
    began: Instant,
    /// When the holder, which is ready, must have its turn: nanoseconds since `began`, 0 if it
    /// runs.
    due: AtomicU64,
    /// The hog's turns: in all, while the holder was ready, and of these the ones that came too
    /// late.
    turns: AtomicUsize,
    meanwhile: AtomicUsize,
    late: AtomicUsize,
    at_release: AtomicUsize,
    at_entry: AtomicUsize,
}

impl Run {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: Mutex::new(()),
            held: Semaphore::new(0),
            calling: AtomicBool::new(false),
            entered: AtomicBool::new(false),
            began: Instant::now(),
            due: AtomicU64::new(0),
            turns: AtomicUsize::new(0),
            meanwhile: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            at_release: AtomicUsize::new(0),
            at_entry: AtomicUsize::new(0),
        })
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn hog(&self) {
        while !self.entered.load(SeqCst) {
            self.turns.fetch_add(1, SeqCst);
            let due = self.due.load(SeqCst);
            if due != 0 {
                self.meanwhile.fetch_add(1, SeqCst);
                self.late.fetch_add(usize::from(self.now() > due), SeqCst);
            }

            yield_now();
        }
    }

    /// Holds the lock for a number of turns; each is due after `bound`.
    fn hold(&self, bound: Duration) {
        let guard = self.lock.lock_always();
        self.held.release();
        // All three take part.
        while !self.calling.load(SeqCst) || self.turns.load(SeqCst) == 0 {
            yield_now();
        }

        for _ in 0..TURNS {
            self.due.store(self.now() + bound.as_nanos() as u64, SeqCst);
            yield_now();
            self.due.store(0, SeqCst);
        }

        self.at_release.store(self.turns.load(SeqCst), SeqCst);
        drop(guard);
    }

    fn wait(&self) {
        self.held.acquire().expect("not cancelled").forget();
        self.calling.store(true, SeqCst);
        let guard = self.lock.lock().expect("not cancelled");
        self.at_entry.store(self.turns.load(SeqCst), SeqCst);
        self.entered.store(true, SeqCst);
        drop(guard);
    }

    fn count(&self, of: fn(&Self) -> &AtomicUsize) -> usize {
        of(self).load(SeqCst)
    }
}

/// One worker and never another.
fn one_worker(setup: Setup, policy: &str) -> RuntimeBuilder {
    setup.builder().workers(1).max_workers(1).policy(policy)
}

fn a_hog_keeps_a_high_waiter_out_for_the_ageing_bound_only(setup: Setup) {
    let runtime = one_worker(setup, PRIORITY).build().expect("a runtime");
    let run = Run::new();
    let spawn = |priority, f: Box<dyn FnOnce(&Run) + Send>| {
        let run = run.clone();
        runtime
            .spawn_with(Builder::new().priority(priority), move || f(&run))
            .expect("spawned")
    };

    let waiter = spawn(HIGH, Box::new(Run::wait));
    let holder = spawn(LOW, Box::new(|run| run.hold(BOUND)));
    let hog = spawn(MIDDLE, Box::new(Run::hog));
    [waiter, holder, hog]
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
    let meanwhile = run.count(|run| &run.meanwhile);
    let late = run.count(|run| &run.late);

    assert!(late <= TURNS * READING, "{late} turns too late");
    assert!(
        meanwhile - late >= TURNS,
        "the hog goes first while the holder ages: {meanwhile}, {late}"
    );
    let passed = run.count(|run| &run.at_entry) - run.count(|run| &run.at_release);

    assert!(
        passed <= 1,
        "{passed} turns of the hog between the release and the waiter, which is more urgent"
    );
}

/// Two pools of one worker each: `first` under priorities, `second` first in, first out.
fn two_pools(setup: Setup) -> (Pools, Pool, Pool) {
    let spec = |name, policy| PoolSpec::new(name).runtime(one_worker(setup, policy));
    let pools = Pools::build([spec("first", PRIORITY), spec("second", "fifo")]).expect("pools");
    let [first, second] = ["first", "second"].map(|name| pools.get(name).expect("built").clone());
    (pools, first, second)
}

/// Runs holder and hog in one pool, the waiter in another, and returns what was counted.
fn across(holds: &Pool, waits: &Pool, bound: Duration) -> Arc<Run> {
    let run = Run::new();
    let spawn = |pool: &Pool, priority, f: Box<dyn FnOnce(&Run) + Send>| {
        let run = run.clone();
        pool.spawn_with(Builder::new().priority(priority), move || f(&run))
            .expect("open")
    };

    let waiter = spawn(waits, HIGH, Box::new(Run::wait));
    let hog = spawn(holds, MIDDLE, Box::new(Run::hog));
    let holder = spawn(holds, LOW, Box::new(move |run| run.hold(bound)));
    [waiter, holder, hog]
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));

    run
}

/// The waiter enters although its pool can do nothing for the holder, whose own pool lets it age.
fn a_holder_in_a_pool_with_priorities_lets_in_a_waiter_of_another(setup: Setup) {
    let (_pools, first, second) = two_pools(setup);
    let run = across(&first, &second, BOUND);
    let late = run.count(|run| &run.late);
    assert!(late <= TURNS * READING, "{late} turns too late");
}

/// What bounds the wait is the policy of the holder's pool: here each fiber has its turn, whatever
/// its priority.
fn a_waiter_in_a_pool_with_priorities_waits_for_the_holders_pool(setup: Setup) {
    let (_pools, first, second) = two_pools(setup);
    let run = across(&second, &first, Duration::from_secs(1000));
    let meanwhile = run.count(|run| &run.meanwhile);
    assert!(
        meanwhile <= 2 * TURNS,
        "{meanwhile} turns of the hog in {TURNS} of the holder"
    );
}
