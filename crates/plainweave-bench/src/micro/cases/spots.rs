//! Churn and Locality: threads that wake each other at random places.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::ensure;
use crossbeam_utils::CachePadded;

use super::super::repetition::{Figure, Size};
use super::super::shim::Shim;
use super::super::team::{self, Team};
use super::random::Random;
use super::switch::Signals;

/// `s = spots[random]; V(s); P(s)`. The first `spots` threads begin with a P each of a spot of its own, so that one
/// thread waits at each spot from the beginning to the end, and it is not the first draws that decide how often a P
/// blocks.
pub(super) async fn churn<S: Shim>(threads: usize, spots: usize, size: &Size) -> anyhow::Result<Vec<Figure>> {
    let places: Arc<[CachePadded<S::Semaphore>]> = (0..spots).map(|_| CachePadded::new(S::semaphore())).collect();
    let shared = places.clone();
    let body = move |i: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let places = shared.clone();
        async move {
            let mut random = Random::new(i);
            team.begin().await;
            if i < spots {
                S::acquire(&places[i]).await;
            }
            while !team.stopped() {
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
    let (logs, elapsed) = Team::run(threads, size.seconds, size.clocked, body, sweep).await?;
    team::figures(&logs, elapsed, size.workers)
}

/// Words in a thread's array, and how many are written at once.
const WORDS: usize = 2;
const WRITES: usize = 2;

/// Writes random words of an array, swaps itself into a random spot, wakes whom it found there and waits to be found.
/// With `share` the woken goes on with the waker's array: data that is warm where the waker ran.
pub(super) async fn locality<S: Shim>(
    threads: usize,
    spots: usize,
    share: bool,
    size: &Size,
) -> anyhow::Result<Vec<Figure>> {
    let signals = Signals::<S>::new(threads, size.clocked);
    let places: Arc<[CachePadded<AtomicUsize>]> = (0..spots).map(|_| CachePadded::default()).collect();
    let arrays: Arc<[CachePadded<[AtomicU64; WORDS]>]> = (0..threads).map(|_| CachePadded::default()).collect();
    let handed: Arc<[CachePadded<AtomicUsize>]> = (0..threads).map(|i| CachePadded::new(i.into())).collect();
    let (all_signals, all_places, data, gifts) = (signals.clone(), places.clone(), arrays.clone(), handed.clone());
    let body = move |me: usize, team: Arc<Team<S>>, mut log: team::Log| {
        let (signals, places, arrays, handed) = (all_signals.clone(), all_places.clone(), data.clone(), gifts.clone());
        async move {
            let mut random = Random::new(me);
            let mut mine = me;
            signals.register(me);
            team.begin().await;
            while !team.stopped() {
                for _ in 0..WRITES {
                    // Nobody else has the array now: no read-modify-write is needed.
                    let word = &arrays[mine][random.below(WORDS)];
                    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
                let found = places[random.below(spots)].swap(me + 1, Ordering::AcqRel);
                if let Some(other) = found.checked_sub(1) {
                    handed[other].store(mine, Ordering::Release);
                    signals.notify(other);
                }
                signals.wait(me).await;
                log.ran(signals.since(me));
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
    let (logs, elapsed) = Team::run(threads, size.seconds, size.clocked, body, sweep).await?;
    let written: u64 = arrays.iter().flat_map(|array| array.iter()).map(|word| word.load(Ordering::Relaxed)).sum();
    let ops: u64 = logs.iter().map(|log| log.n).sum();
    ensure!(written == ops * WRITES as u64, "{written} words were written in {ops} rounds: an array had two owners");
    team::figures(&logs, elapsed, size.workers)
}
