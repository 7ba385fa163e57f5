//! How far apart the CPUs are: the round trip of a cache line between CPU 0 and CPU 1.
//!
//! On a virtual machine the host moves them between near and far places in phases of seconds, which
//! makes whatever two workers share two to three times as dear. A figure of two workers counts if
//! they were near before and after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::harness::machine;

/// Nanoseconds a round trip; farther is far.
pub(crate) const NEAR_NS: f64 = 150.0;
/// Repetitions that a far phase of the machine may cost, for each that counts.
const TRIES: usize = 4;
const SLICES: usize = 9;
const ROUNDS: u32 = 5_000;

/// Returns the median of [`SLICES`] slices, in nanoseconds. `None` where there are not two CPUs to
/// bind threads to.
pub(crate) fn round_trip() -> Option<f64> {
    let line = Arc::new((CachePadded::new(AtomicU32::new(0)), AtomicBool::new(false)));
    let other = line.clone();
    let echo = std::thread::spawn(move || {
        let pinned = machine::pin_to(1);
        let mut expected = 1;
        while pinned && !other.1.load(Ordering::Relaxed) {
            if other.0.load(Ordering::Acquire) == expected {
                other.0.store(expected + 1, Ordering::Release);
                expected += 2;
            }
        }

        pinned
    });

    let ask = std::thread::spawn(move || {
        let mut slices = [0.0; SLICES];
        let mut n = 0;
        for slice in if machine::pin_to(0) {
            &mut slices[..]
        } else {
            &mut []
        } {
            let started = Instant::now();
            for _ in 0..ROUNDS {
                line.0.store(n + 1, Ordering::Release);
                while line.0.load(Ordering::Acquire) != n + 2 {
                    // A machine without a second CPU would wait here for ever.
                    if started.elapsed().as_millis() > 500 {
                        line.1.store(true, Ordering::Relaxed);
                        return None;
                    }
                }
                n += 2;
            }
            *slice = started.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
        }

        line.1.store(true, Ordering::Relaxed);
        slices.sort_by(f64::total_cmp);
        (n > 0).then_some(slices[SLICES / 2])
    });

    let echoed = echo.join().ok()?;
    let slices = ask.join().ok()?;
    if echoed { slices } else { None }
}

/// Runs a repetition, again if the CPUs were far from each other; whether they still were at the
/// last try.
pub(crate) fn near<T>(
    workers: usize,
    gated: bool,
    mut repetition: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(T, bool)> {
    let is_far = || round_trip().is_some_and(|ns| ns > NEAR_NS);
    for last in (0..TRIES).map(|n| n + 1 == TRIES) {
        let gated = gated && workers > 1;
        let far = gated && is_far();
        if far && !last {
            std::thread::sleep(Duration::from_millis(300));
            continue;
        }

        let figures = repetition()?;
        let far = far || (gated && is_far());
        if !far || last {
            return Ok((figures, far));
        }
    }
    unreachable!("the last try returns")
}
