//! What things cost on this machine: the constants that a loop can measure by itself, without a
//! scheduler.
//!
//! Each is the median of several slices. Those that no loop can tell from a scheduler are fitted
//! (`fit`), and the others are left as the simulator has them.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{EventfdFlags, eventfd};

use crate::harness::c2c;
use crate::harness::machine;
use crate::harness::random::Random;
use crate::scheduler::thesis::options::Tree;
use crate::scheduler::thesis::packets::Template;
use plainweave_report::statistics::Spread;

/// A constant of the simulator's cost model, and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Constant {
    /// As the simulator calls it.
    pub(super) name: &'static str,
    /// Nanoseconds.
    pub(super) value: f64,
    pub(super) source: String,
}

/// The longest that the simulator lets anything take, in nanoseconds.
const LONGEST: f64 = 1e6;

impl Constant {
    pub(super) fn new(name: &'static str, value: f64, source: impl Into<String>) -> Self {
        // A line's own resolution is a tenth of a nanosecond; of less than one, a hundredth.
        let unit = if value < 1.0 { 100.0 } else { 10.0 };
        let mut source = source.into();

        // Beside programs that take the CPU a sleep lasts for milliseconds. A prediction from that
        // is worth little, and whoever reads the constants should see why.
        if value > LONGEST {
            source += &format!("; measured {value:.0}, more than the simulator takes");
        }

        Self {
            name,
            value: (value.clamp(0.0, LONGEST) * unit).round() / unit,
            source,
        }
    }
}

/// How much is done for each of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// How many, of which the median counts.
    pub(super) slices: usize,
    /// Turns of a loop in each.
    pub(super) turns: u32,
    /// Packets that are copied and scanned.
    pub(super) packets: usize,
    /// Bytes that a walk through memory covers.
    pub(super) memory: usize,
}

/// Measures all of them.
///
/// # Errors
/// The machine has no second CPU, or none that may be used.
pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Constant>> {
    let hit = effort.hit();
    // On one word: what a write by another CPU adds to it is `group`.
    let exchange = effort.each(AtomicU64::new(0), |word| {
        black_box(word.fetch_add(1, Ordering::AcqRel));
    });
    let fenced = effort.each(AtomicU64::new(0), |word| {
        word.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    });

    let round_trip = near_round_trip().context("needs two CPUs that threads can be bound to")?;
    let (signal, wake) = effort.wake()?;
    let (copy, [shortest, longest]) = effort.packets();
    let (leaf, node) = effort.trees();

    Ok(vec![
        Constant::new(
            "hit",
            hit,
            "a load or store on a line of one's own, others beside it",
        ),
        Constant::new(
            "exchange",
            exchange - hit,
            "a fetch_add on a line of one's own, less a hit",
        ),
        Constant::new("fence", fenced, "a store and a full fence"),
        Constant::new(
            "group",
            round_trip / 2.0,
            "half a round trip of a line between two CPUs",
        ),
        Constant::new(
            "memory",
            effort.walk(),
            "a walk through memory, each step depending on the one before",
        ),
        Constant::new(
            "signal",
            signal,
            "a write to an eventfd that a thread on another CPU sleeps in",
        ),
        Constant::new(
            "wake",
            wake,
            "from the end of that write until the thread runs",
        ),
        Constant::new("nap", effort.nap(), "a sleep of 500 ns, less 500 ns"),
        Constant::new(
            "create",
            copy,
            "copying a packet of 2,000 bytes; what a spawn takes is added",
        ),
        Constant::new(
            "scan",
            shortest,
            "scanning and freeing a packet of 2,000 bytes that has left the cache",
        ),
        Constant::new(
            "longer",
            (longest - shortest) / 9.0,
            "a ninth of what one of 2,270 bytes takes longer",
        ),
        Constant::new("leaf", leaf, "building a tree of 1,000 time steps"),
        Constant::new("node", node, "folding it"),
    ])
}

/// Returns the shortest of a few round trips: the host may move CPUs apart for seconds.
fn near_round_trip() -> Option<f64> {
    let mut shortest = c2c::round_trip()?;
    for _ in 0..5 {
        if shortest <= c2c::NEAR_NS {
            break;
        }
        std::thread::sleep(Duration::from_millis(300));
        shortest = shortest.min(c2c::round_trip()?);
    }
    Some(shortest)
}

impl Effort {
    /// Returns the median of the slices.
    fn median(self, mut slice: impl FnMut() -> f64) -> f64 {
        Spread::of(&(0..self.slices).map(|_| slice()).collect::<Vec<_>>()).median
    }

    /// Returns what one turn of a loop takes.
    fn each<T>(self, state: T, turn: impl Fn(&T)) -> f64 {
        self.median(|| {
            let began = Instant::now();
            (0..self.turns).for_each(|_| turn(black_box(&state)));
            began.elapsed().as_nanos() as f64 / f64::from(self.turns)
        })
    }

    /// Returns what each of several accesses takes that do not depend on one another: a queue's are
    /// like that.
    fn hit(self) -> f64 {
        const WORDS: usize = 8;
        let words: [AtomicU64; WORDS] = Default::default();
        let turn = |words: &[AtomicU64; WORDS]| {
            for word in words {
                word.store(black_box(word.load(Ordering::Acquire)), Ordering::Release);
            }
        };

        self.each(words, turn) / (2 * WORDS) as f64
    }

    /// Returns a step of a walk along a random circle through memory.
    fn walk(self) -> f64 {
        const LINE: usize = 8;
        let lines = self.memory / 64;
        let (mut order, mut random): (Vec<_>, _) = ((0..lines).collect(), Random::new(1));

        // Shuffled, so that no prefetcher knows the next line.
        (1..lines)
            .rev()
            .for_each(|n| order.swap(n, random.below(n + 1)));
        let mut words = vec![0_usize; lines * LINE];

        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            words[from * LINE] = to * LINE;
        }
        let mut at = 0;
        let steps = self.turns.min(1_000_000);

        self.median(|| {
            let began = Instant::now();
            (0..steps).for_each(|_| at = words[at]);
            black_box(at);
            began.elapsed().as_nanos() as f64 / f64::from(steps)
        })
    }

    fn nap(self) -> f64 {
        let sleep = Duration::from_nanos(500);
        self.median(|| {
            let began = Instant::now();
            std::thread::sleep(sleep);
            (began.elapsed() - sleep).as_nanos() as f64
        })
    }

    /// Returns what it takes to wake a thread on another CPU, and how long that thread takes from
    /// then on.
    fn wake(self) -> anyhow::Result<(f64, f64)> {
        let epoch = Instant::now();
        let since = || epoch.elapsed().as_nanos() as u64;
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let ran = AtomicU64::new(0);
        let ended = AtomicBool::new(false);
        let waking = || {
            // Until the other thread sleeps again.
            std::thread::sleep(Duration::from_micros(300));
            let before = since();
            rustix::io::write(&event, &1_u64.to_ne_bytes())?;
            let written = since();

            // This CPU does not sleep, or its own waking would be measured too.
            while ran.load(Ordering::Acquire) < before {
                std::hint::spin_loop();
            }
            anyhow::Ok((
                (written - before) as f64,
                ran.load(Ordering::Acquire).saturating_sub(written) as f64,
            ))
        };

        let woken = std::thread::scope(|scope| {
            scope.spawn(|| {
                machine::pin_to(1);
                while !ended.load(Ordering::Acquire) {
                    if rustix::io::read(&event, &mut [0; 8]).is_ok() {
                        ran.store(since(), Ordering::Release);
                    }
                }
            });
            let waker = scope.spawn(|| {
                machine::pin_to(0);
                let woken = (0..20 * self.slices)
                    .map(|_| waking())
                    .collect::<anyhow::Result<Vec<_>>>();
                ended.store(true, Ordering::Release);
                rustix::io::write(&event, &1_u64.to_ne_bytes())?;
                woken
            });

            waker
                .join()
                .map_err(|_| anyhow::anyhow!("the waking thread panicked"))?
        })?;
        let (signals, wakes): (Vec<_>, Vec<_>) = woken.into_iter().unzip();
        Ok((Spread::of(&signals).median, Spread::of(&wakes).median))
    }

    /// Returns what copying the shortest packet takes, and scanning and freeing the shortest and
    /// the longest. Their number is such that no cache holds them, as in a run that spawns all of
    /// them first.
    fn packets(self) -> (f64, [f64; 2]) {
        let templates = Template::all();
        let mut copying = Vec::new();
        let scans = [0, templates.len() - 1].map(|which| {
            let template = &templates[which];
            self.median(|| {
                let began = Instant::now();
                let copies: Vec<_> = (0..self.packets).map(|_| template.bytes.clone()).collect();
                if which == 0 {
                    copying.push(began.elapsed().as_nanos() as f64 / self.packets as f64);
                }
                let began = Instant::now();

                for copy in copies {
                    assert!(
                        black_box(template).is_right(&copy),
                        "a copy is its template"
                    );
                }

                began.elapsed().as_nanos() as f64 / self.packets as f64
            })
        });

        (Spread::of(&copying).median, scans)
    }

    /// Returns what a leaf and a node of an option's tree take.
    fn trees(self) -> (f64, f64) {
        const DEPTH: u64 = 1_000;
        let mut folding = Vec::new();
        // A new tree each time, since folding consumes it.
        let leaf = self.median(|| {
            let began = Instant::now();
            let mut tree = Tree::published(DEPTH);
            let built = began.elapsed();
            while !black_box(&mut tree).fold() {}
            let nodes = DEPTH * (DEPTH + 1) / 2;
            folding.push((began.elapsed() - built).as_nanos() as f64 / nodes as f64);
            built.as_nanos() as f64 / (DEPTH + 1) as f64
        });

        (leaf, Spread::of(&folding).median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_one_that_the_simulator_takes() {
        let held_up = Constant::new("nap", 1_428_642.0, "a sleep");

        assert_eq!(held_up.value, LONGEST);
        assert_eq!(
            held_up.source,
            "a sleep; measured 1428642, more than the simulator takes"
        );
        assert_eq!(Constant::new("hit", -0.3, "").value, 0.0);
    }
}
