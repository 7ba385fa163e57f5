//! How many runs it takes until a planted bug shows: on fibers by schedules that are drawn from a
//! seed (`plainweave::sim`), by shuttle, and on threads.
//!
//! Each of [`TRIALS`] trials begins with another seed and runs a program until its bug has shown, or
//! [`MOST`] times. The table has the median of the trials' runs. On threads a program that has not
//! ended after a while never does.
//!
//! `cargo run --release 2>/dev/null` in this folder prints the table of docs/testing.md (shuttle says
//! each failure on standard error); `--check` fails where tests would take long: `.ci/more planted`.

mod on;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use plainweave::sim::Simulation;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

const TRIALS: u64 = 15;
const MOST: usize = 2_000;
/// Within how many runs `--check` wants each to be found.
const ENOUGH: usize = 100;
/// How long a program may take on threads.
const PATIENCE: Duration = Duration::from_millis(300);
/// Orderings that a bug may need, for both of those that draw priorities.
const DEPTH: usize = 3;

/// A way to run a program.
type Way = (&'static str, fn(usize, u64) -> Option<usize>);

const WAYS: [Way; 6] = [
    ("ours, drawn", |bug, trial| fibers(bug, trial, "drawn")),
    ("random", |bug, trial| fibers(bug, trial, "random")),
    ("PCT", |bug, trial| fibers(bug, trial, "pct")),
    ("shuttle, random", |bug, trial| {
        shuttled(bug, RandomScheduler::new_from_seed(trial, MOST))
    }),
    ("PCT", |bug, trial| {
        shuttled(bug, PctScheduler::new_from_seed(trial, DEPTH, MOST))
    }),
    ("threads", |bug, _| threads(bug)),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Each bug that shows is a panic.
    std::panic::set_hook(Box::new(|_| {}));
    match texts[..] {
        [] => table(),
        ["--check"] => return check(),
        _ => {
            eprintln!("usage: planted-bugs [--check]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn table() {
    let names: Vec<&str> = WAYS.iter().map(|(name, _)| *name).collect();
    println!("| bug | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(WAYS.len()));
    for (at, (bug, _)) in on::fibers::bugs::BUGS.iter().enumerate() {
        let medians: Vec<String> = WAYS
            .iter()
            .map(|(_, way)| match median(at, *way) {
                Some(runs) => runs.to_string(),
                None => format!("> {MOST}"),
            })
            .collect();
        println!("| {bug} | {} |", medians.join(" | "));
    }
    println!(
        "\n{:.1} million switches a second; shuttle {:.1}",
        switches_of_fibers(),
        switches_of_shuttle()
    );
}

/// Prints the bugs that the schedules of tests take too long to find.
fn check() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (at, (bug, _)) in on::fibers::bugs::BUGS.iter().enumerate() {
        let runs = median(at, WAYS[0].1);
        if runs.is_none_or(|runs| runs > ENOUGH) {
            println!("{bug}: not found within {ENOUGH} runs, but {runs:?}");
            code = ExitCode::FAILURE;
        }
    }
    for (name, program) in on::fibers::bugs::SOUND {
        let wrong = (0..MOST as u64).find(|seed| shows_on_fibers(*seed, "drawn", *program));
        if let Some(seed) = wrong {
            println!("{name}: seed {seed} shows a bug that is not there");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// The median of the trials' runs; none if most trials have found nothing.
fn median(bug: usize, way: fn(usize, u64) -> Option<usize>) -> Option<usize> {
    let mut runs: Vec<usize> = (0..TRIALS)
        .map(|trial| way(bug, trial).unwrap_or(usize::MAX))
        .collect();
    runs.sort_unstable();
    Some(runs[runs.len() / 2]).filter(|runs| *runs < usize::MAX)
}

/// Returns the number of the run in which the bug has shown.
fn fibers(bug: usize, trial: u64, order: &str) -> Option<usize> {
    let (_, program) = on::fibers::bugs::BUGS[bug];
    (0..MOST).map(|run| run + 1).find(|run| {
        let seed = trial * MOST as u64 + *run as u64;
        shows_on_fibers(seed, order, program)
    })
}

fn shows_on_fibers(seed: u64, order: &str, program: fn()) -> bool {
    let policy = format!("local-fifo:order={order},depth={DEPTH}");
    let run = || Simulation::new(seed).policy(policy).run(program);
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

fn shuttled(bug: usize, scheduler: impl Scheduler + 'static) -> Option<usize> {
    let (_, program) = on::shuttled::bugs::BUGS[bug];
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let mut config = Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    let all = || {
        Runner::new(scheduler, config).run(move || {
            count.fetch_add(1, Ordering::Relaxed);
            program();
        })
    };
    let shown = catch_unwind(AssertUnwindSafe(all)).is_err();
    shown.then(|| runs.load(Ordering::Relaxed))
}

fn threads(bug: usize) -> Option<usize> {
    let (_, program) = on::threads::bugs::BUGS[bug];
    (1..=MOST).find(|_| {
        let (ended, end) = channel();
        thread::spawn(move || {
            let shown = catch_unwind(AssertUnwindSafe(program)).is_err();
            let _ = ended.send(shown);
        });
        end.recv_timeout(PATIENCE).unwrap_or(true)
    })
}

const SWITCHES: usize = 1_000_000;

/// Millions a second, of two that yield.
fn switches_of_fibers() -> f64 {
    let begun = Instant::now();
    plainweave::sim::run(1, || {
        let yields = || (0..SWITCHES / 2).for_each(|_| plainweave::yield_now());
        let fibers = [(); 2].map(|()| plainweave::spawn(yields));
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    });
    SWITCHES as f64 / begun.elapsed().as_secs_f64() / 1e6
}

fn switches_of_shuttle() -> f64 {
    let mut config = Config::new();
    config.max_steps = shuttle::MaxSteps::None;
    let begun = Instant::now();
    Runner::new(RandomScheduler::new_from_seed(1, 1), config).run(|| {
        let yields = || (0..SWITCHES / 2).for_each(|_| shuttle::thread::yield_now());
        let threads = [(); 2].map(|()| shuttle::thread::spawn(yields));
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
    });
    SWITCHES as f64 / begun.elapsed().as_secs_f64() / 1e6
}
