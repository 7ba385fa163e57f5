//! Churn and Locality: threads that wake each other at random places.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::ensure;
use crossbeam_utils::CachePadded;

use super::super::parameters::Shape;
use super::super::repetition::{Figure, Size};
use super::super::team::{self, Team};
use super::switch::Signals;
use crate::harness::random::Random;
use crate::scheduler::shim::Shim;

/// `s = spots[random]; V(s); P(s)`. The first `spots` threads begin with a P each of a spot of its
/// own, so that one thread waits at each spot from the beginning to the end, and it is not the
/// first draws that decide how often a P blocks.
pub(super) async fn churn<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let threads = size.shape.threads;
    let spots = size.shape.spots;
    let places: Arc<[CachePadded<S::Semaphore>]> = (0..spots)
        .map(|_| CachePadded::new(S::semaphore()))
        .collect();
    let shared = places.clone();
    let body = move |i: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let places = shared.clone();
        async move {
            let mut random = Random::new(i);
            if i < spots {
                // Not after the gate: while nobody waits no release and acquire blocks, and where
                // threads run until they do, those that others pass first would run for ever.
                team.arrive();
                S::acquire(&places[i]).await;
            } else {
                team.begin().await;
            }

            while team.goes_on(&log) {
                let place = &places[random.below(spots)];
                S::release(place);
                if !log.clocked() {
                    S::acquire(place).await;
                } else if !S::try_acquire(place) {
                    log.blocked += 1;
                    S::acquire(place).await;
                }

                log.ran(None);
            }

            log
        }
    };

    let sweep = || places.iter().for_each(|place| S::release(place));
    let (logs, elapsed) = Team::run(threads, size, body, sweep).await?;
    team::figures(&logs, elapsed, size.workers)
}

/// Words on a line of their own: what [`CachePadded`] pads to.
const LINE: usize = 16;

/// The threads' arrays, each on lines of its own.
struct Arrays {
    lines: Box<[CachePadded<[AtomicU64; LINE]>]>,
    /// Lines of an array.
    each: usize,
    /// The worker that wrote each array last, counted from 1; 0 until one has. Kept where
    /// migrations are counted.
    writers: Box<[CachePadded<AtomicUsize>]>,
}

impl Arrays {
    fn new(arrays: usize, words: usize) -> Arc<Self> {
        let each = words.div_ceil(LINE);
        let lines = (0..arrays * each).map(|_| CachePadded::default()).collect();
        Arc::new(Self {
            lines,
            each,
            writers: (0..arrays).map(|_| CachePadded::default()).collect(),
        })
    }

    #[inline]
    fn word(&self, array: usize, word: usize) -> &AtomicU64 {
        &self.lines[array * self.each + word / LINE][word % LINE]
    }

    /// Notes that a worker writes an array, and returns whether another wrote it last.
    fn migrates(&self, array: usize, worker: usize) -> bool {
        let last = self.writers[array].load(Ordering::Relaxed);
        self.writers[array].store(worker + 1, Ordering::Relaxed);
        last != 0 && last != worker + 1
    }

    fn sum(&self) -> u64 {
        self.lines
            .iter()
            .flat_map(|line| line.iter())
            .map(|word| word.load(Ordering::Relaxed))
            .sum()
    }
}

/// Writes random words of an array, swaps itself into a random spot, wakes whom it found there and
/// waits to be found. With `share` the woken goes on with the waker's array: data that is warm
/// where the waker ran.
pub(super) async fn locality<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let Shape {
        threads,
        spots,
        words,
        writes,
        share,
        ..
    } = size.shape;
    let signals = Signals::<S>::new(threads, size.clocked);
    let places: Arc<[CachePadded<AtomicUsize>]> =
        (0..spots).map(|_| CachePadded::default()).collect();
    let arrays = Arrays::new(threads, words);
    let handed: Arc<[CachePadded<AtomicUsize>]> =
        (0..threads).map(|i| CachePadded::new(i.into())).collect();
    let all_signals = signals.clone();
    let all_places = places.clone();
    let data = arrays.clone();
    let gifts = handed.clone();
    let body = move |me: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let signals = all_signals.clone();
        let places = all_places.clone();
        let arrays = data.clone();
        let handed = gifts.clone();
        async move {
            let mut random = Random::new(me);
            let mut mine = me;
            signals.register(me);
            team.begin().await;

            // Asked in repetitions with clocks alone, which measure no cost.
            let mut worker = if log.clocked() { S::worker() } else { 0 };
            while team.goes_on(&log) {
                if log.clocked() {
                    log.fetched += u64::from(arrays.migrates(mine, worker));
                }
                for _ in 0..writes {
                    // Nobody else has the array now: no read-modify-write is needed.
                    let word = arrays.word(mine, random.below(words));
                    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }

                let found = places[random.below(spots)].swap(me + 1, Ordering::AcqRel);
                if let Some(other) = found.checked_sub(1) {
                    handed[other].store(mine, Ordering::Release);
                    signals.notify(other);
                }

                signals.wait(me).await;
                log.ran(signals.since(me));
                if log.clocked() {
                    let now = S::worker();
                    log.moved += u64::from(now != worker);
                    worker = now;
                }

                if share && !team.stopped() {
                    mine = handed[me].load(Ordering::Acquire);
                }
            }

            log
        }
    };

    let sweep = || {
        for place in places.iter() {
            if let Some(other) = place.swap(0, Ordering::AcqRel).checked_sub(1) {
                signals.notify(other);
            }
        }
    };

    let (logs, elapsed) = Team::run(threads, size, body, sweep).await?;
    let written = arrays.sum();
    let ops: u64 = logs.iter().map(|log| log.n).sum();
    ensure!(
        written == ops * writes as u64,
        "{written} words were written in {ops} rounds: an array had two owners"
    );
    let mut figures = team::figures(&logs, elapsed, size.workers)?;

    if size.clocked {
        let per_op =
            |count: fn(&team::Log) -> u64| logs.iter().map(count).sum::<u64>() as f64 / ops as f64;
        figures.push(Figure::new(
            "thread_migrations_per_op",
            per_op(|log| log.moved),
        ));
        figures.push(Figure::new(
            "data_migrations_per_op",
            per_op(|log| log.fetched),
        ));
    }

    Ok(figures)
}
