//! What a select costs while others wait for a source of its own: all fibers of a program for its
//! stop, say.

use std::time::Instant;

use anyhow::ensure;
use plainweave::Runtime;
use plainweave::sync::channel::bounded;
use plainweave::sync::{Receiver, Sender, select};

use super::super::repetition::{Figure, Size};

/// Selects that wait beside, with the names of the figures.
const BESIDE: [(usize, &str); 3] = [
    (0, "ns_alone"),
    (10_000, "ns_beside_10000"),
    (50_000, "ns_beside_50000"),
];
/// What counts as a short repetition, in seconds, as tests make it, and by how much that divides
/// the numbers above.
const SHORT: (f64, usize) = (0.1, 100);
/// Round trips between two looks at the clock.
const BATCH: u64 = 100;

/// Two fibers that pass a number to and fro, each by a select that also waits for the stop.
pub(in crate::scheduler::micro) fn selects(
    runtime: &Runtime,
    size: &Size,
) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (beside, name) in BESIDE {
        let beside = if size.seconds < SHORT.0 {
            beside / SHORT.1
        } else {
            beside
        };

        let (ns, trips) = runtime.run(|| round_trip(beside, size.seconds / BESIDE.len() as f64));
        ensure!(trips > 0, "no round trip beside {beside} selects");
        figures.push(Figure::new(name, ns));
    }
    Ok(figures)
}

/// Returns the time of a round trip, in nanoseconds, and how many there were.
fn round_trip(beside: usize, seconds: f64) -> (f64, u64) {
    let (stop, stopped) = bounded::<()>(1);
    plainweave::scope(|scope| {
        let wait = |stopped: Receiver<()>| {
            select! {
                recv(stopped) -> _ => (),
            }
            .expect("not cancelled");
        };

        for _ in 0..beside {
            let stopped = stopped.clone();
            scope.spawn(move || wait(stopped));
        }

        // All of them wait before the clock starts.
        plainweave::yield_now();

        let ((ask, asked), (answer, answered)) = (bounded(1), bounded(1));
        let theirs = stopped.clone();
        scope.spawn(move || while pass(&asked, &answer, &theirs) {});
        let started = Instant::now();
        let mut trips = 0;
        ask.send(0_u64).expect("open");

        while started.elapsed().as_secs_f64() < seconds {
            trips += (0..BATCH)
                .filter(|_| pass(&answered, &ask, &stopped))
                .count() as u64;
        }

        let ns = started.elapsed().as_nanos() as f64 / trips as f64;
        drop(stop);
        (ns, trips)
    })
}

/// Passes a number on; false at the stop.
fn pass(from: &Receiver<u64>, to: &Sender<u64>, stopped: &Receiver<()>) -> bool {
    let number = select! {
        recv(from) -> number => number.ok(),
        recv(stopped) -> _ => None,
    };

    number
        .ok()
        .flatten()
        .is_some_and(|number| to.send(number + 1).is_ok())
}
