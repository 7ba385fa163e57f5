//! What the crates that programs use most cost where fibers are ten thousand, beside threads.
//!
//! To the language each fiber is a thread, so a crate that keeps something for each thread keeps it
//! ten thousand times. For each crate this program starts itself again: some fibers (or threads)
//! use the crate once, wait until all have, use it again, and end. CPU time and memory are the
//! whole process's, less what the same fibers take that do nothing.
//!
//! `cargo run --release` in this folder writes the table of docs/crates.md; `--check` compares what it measures with
//! the limits in `cases.rs` instead, and fails where one is passed: `.ci/more crates`.

mod cases;

use std::io::{IsTerminal, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cases::{CASES, Case};

/// Fibers, and threads, of which a machine allows fewer.
const MANY: usize = 10_000;
const FEW: usize = 1_000;
/// Children of each kind; the one with the median CPU time counts.
const ROUNDS: usize = 5;
/// How long a child may take.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fibers,
    Threads,
}

/// What one child has measured, for each fiber.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    first_us: f64,
    again_us: f64,
    kib: f64,
    /// Fibers that panicked.
    failed: usize,
}

impl Measured {
    /// Whether it cannot be told from fibers that do nothing.
    fn is_noise(&self) -> bool {
        let times_are = self.first_us.abs() <= 2.5 && self.again_us.abs() <= 1.2;
        times_are && self.kib < 0.25 && self.failed == 0
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match texts[..] {
        ["--child", case, kind, count] => {
            let case = CASES.iter().find(|one| one.name == case).expect("a case");
            let kind = if kind == "fibers" {
                Kind::Fibers
            } else {
                Kind::Threads
            };
            child(case, kind, count.parse().expect("a number"));
            ExitCode::SUCCESS
        }
        [] => table(false),
        ["--check"] => table(true),
        _ => {
            eprintln!("usage: crates-on-fibers [--check]");
            ExitCode::from(2)
        }
    }
}

/// Measures all cases. With `check` it prints what has passed its limits only. Returns whether
/// nothing has.
fn table(check: bool) -> ExitCode {
    let shows_progress = std::io::stderr().is_terminal();
    let (mut good, mut unnoticed) = (true, Vec::new());
    if !check {
        println!(
            "| crate | used for | 1,000 threads, us | 1,000 fibers, us | 10,000 fibers, us | again, us | KiB a fiber | |"
        );
        println!("|---|---|---|---|---|---|---|---|");
    }
    for (at, case) in CASES.iter().enumerate() {
        if shows_progress {
            eprint!("\r\x1b[K{} of {}: {}", at + 1, CASES.len(), case.name);
        }
        let kinds = [
            (Kind::Threads, FEW),
            (Kind::Fibers, FEW),
            (Kind::Fibers, MANY),
        ];
        let [threads, few, many] = kinds.map(|(kind, count)| measure(at, kind, count));
        if check {
            let limits = &case.limits;
            let passed = many.first_us <= limits.us && many.kib <= limits.kib;
            if !passed || (many.failed > 0) != limits.fails {
                good = false;
                println!(
                    "{}: {:.1} us and {:.1} KiB a fiber, {} failed; the limits are {} us and {} KiB, and {}",
                    case.name,
                    many.first_us,
                    many.kib,
                    many.failed,
                    limits.us,
                    limits.kib,
                    if limits.fails {
                        "some fail"
                    } else {
                        "none fails"
                    },
                );
            }
            continue;
        }
        if at > 0 && many.is_noise() {
            unnoticed.push(case.name);
            continue;
        }
        let failed = match many.failed {
            0 => String::new(),
            failed => format!("{failed} panic; "),
        };
        println!(
            "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {failed}{} |",
            case.name,
            case.what,
            tenths(threads.first_us),
            tenths(few.first_us),
            tenths(many.first_us),
            tenths(many.again_us),
            tenths(many.kib),
            case.note
        );
    }
    if !unnoticed.is_empty() {
        println!("\nWithin noise: {}.", unnoticed.join("; "));
    }
    if shows_progress {
        eprint!("\r\x1b[K");
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Has children measure a case, in turn with ones that do nothing, whose figures are taken off.
/// Returns the one in the middle.
fn measure(case: usize, kind: Kind, count: usize) -> Measured {
    let round = |_| {
        let nothing = if case == 0 {
            Measured::default()
        } else {
            start(&CASES[0], kind, count)
        };
        let one = start(&CASES[case], kind, count);
        Measured {
            first_us: one.first_us - nothing.first_us,
            again_us: one.again_us - nothing.again_us,
            kib: one.kib - nothing.kib,
            failed: one.failed,
        }
    };
    let mut all: Vec<Measured> = (0..ROUNDS).map(round).collect();
    all.sort_by(|a, b| a.first_us.total_cmp(&b.first_us));
    all[ROUNDS / 2]
}

/// Without a negative zero.
fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0 + 0.0
}

fn start(case: &Case, kind: Kind, count: usize) -> Measured {
    let kind = match kind {
        Kind::Fibers => "fibers",
        Kind::Threads => "threads",
    };
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--child", case.name, kind, &count.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program");
    let end = Instant::now() + PATIENCE;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > end {
            child.kill().expect("a child");
            panic!("{}, {count} {kind}: no end after {PATIENCE:?}", case.name);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut text = String::new();
    let out = child.stdout.as_mut().expect("piped");
    out.read_to_string(&mut text).expect("text");
    let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
    let [first_us, again_us, kib, failed] = numbers[..] else {
        panic!("{}, {count} {kind}: {:?}", case.name, child.wait());
    };
    Measured {
        first_us,
        again_us,
        kib,
        failed: failed as usize,
    }
}

/// CPU time of the process so far.
fn processor_time() -> Duration {
    // SAFETY: the kernel fills it in.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
        .sum()
}

fn resident_kib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
    let pages = statm.split(' ').nth(1).expect("the second is resident");
    pages.parse::<f64>().expect("a number") * 4.0
}

/// Runs one case, and prints what it took for each fiber.
fn child(case: &Case, kind: Kind, count: usize) {
    std::panic::set_hook(Box::new(|_| ()));
    (case.set_up)();
    let uses = case.uses;
    let (arrived, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let go = Arc::new(AtomicBool::new(false));
    let body = |arrived: Arc<AtomicUsize>, failed: Arc<AtomicUsize>, go: Arc<AtomicBool>| {
        move || {
            let once = || std::panic::catch_unwind(uses).is_ok();
            let first = once();
            arrived.fetch_add(1, Ordering::SeqCst);
            while !go.load(Ordering::SeqCst) {
                match kind {
                    Kind::Fibers => plainweave::park().expect("not cancelled"),
                    Kind::Threads => std::thread::park(),
                }
            }
            if !first || !once() {
                failed.fetch_add(1, Ordering::SeqCst);
            }
            arrived.fetch_add(1, Ordering::SeqCst);
            while go.load(Ordering::SeqCst) {
                match kind {
                    Kind::Fibers => plainweave::park().expect("not cancelled"),
                    Kind::Threads => std::thread::park(),
                }
            }
        }
    };
    let body = || body(arrived.clone(), failed.clone(), go.clone());
    let wait = |so_many: usize| {
        while arrived.load(Ordering::SeqCst) < so_many {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let each_us = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    let runtime = plainweave::Runtime::builder()
        .workers(2)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let wake: Mutex<Vec<Box<dyn Fn()>>> = Mutex::default();
    let (before_kib, start) = (resident_kib(), processor_time());
    let mut ends: Vec<Box<dyn FnOnce()>> = Vec::new();
    let mut handles: Vec<Box<dyn Fn()>> = Vec::new();
    for _ in 0..count {
        match kind {
            Kind::Fibers => {
                let fiber = runtime.spawn(body());
                let handle = fiber.fiber().clone();
                handles.push(Box::new(move || handle.unpark()));
                ends.push(Box::new(move || fiber.join().expect("caught")));
            }
            Kind::Threads => {
                let thread = std::thread::spawn(body());
                let handle = thread.thread().clone();
                handles.push(Box::new(move || handle.unpark()));
                ends.push(Box::new(move || thread.join().expect("caught")));
            }
        }
    }
    *wake.lock().expect("one thread") = handles;
    wait(count);
    let first_us = each_us(processor_time() - start);
    let kib = (resident_kib() - before_kib) / count as f64;
    let wake_all = |on: bool| {
        go.store(on, Ordering::SeqCst);
        wake.lock()
            .expect("one thread")
            .iter()
            .for_each(|wake| wake());
    };
    let start = processor_time();
    wake_all(true);
    wait(2 * count);
    let again_us = each_us(processor_time() - start);
    println!(
        "{first_us} {again_us} {kib} {}",
        failed.load(Ordering::SeqCst)
    );
    std::io::stdout().flush().expect("a pipe");
    wake_all(false);
    ends.into_iter().for_each(|end| end());
}
