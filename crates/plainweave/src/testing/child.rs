//! The side that runs the body.

use std::io::{self, Write};
use std::process::{ExitCode, Termination, exit};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::{BEGINS, BY_SEED, Case, FAILED, FAILS, LINE_END, MARK};
use crate::dump::Options;
use crate::io::probe::Io;
use crate::panics::name_panics;
use crate::runtime::Runtime;
use crate::sched::closure::UNSEEN_PANICS;
use crate::sim::{Bound, WatchedEnd, watch};

/// How long fibers may take to end behind the body before they count as left.
const SETTLE: Duration = Duration::from_millis(200);
/// How long they may take once they are cancelled.
const CANCELLED: Duration = Duration::from_secs(10);
/// The variable that names the one seed to run a test with.
const SEED: &str = "PLAINWEAVE_SEED";
/// How long a dump may take.
const DUMP: Duration = Duration::from_secs(3);

/// Runs the test in a process that is for it alone, and ends that.
pub(super) fn run<R: Termination + 'static>(case: Case, body: fn() -> R) -> ! {
    // The parent's thread waits for this process; if it is killed, nobody does.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = writeln!(io::stdout(), "{MARK}{BEGINS}");
    let judged = judged_by(case, body, |seed| {
        let _ = writeln!(io::stderr(), "{MARK}{BY_SEED}{seed}");
    });
    let _ = io::stdout().flush();
    match judged {
        Ok(()) => exit(0),
        Err(why) => {
            // One line, which the parent takes apart again.
            let why = why.replace('\n', &LINE_END.to_string());
            let _ = writeln!(io::stderr(), "{MARK}{FAILS}{why}");
            exit(FAILED);
        }
    }
}

/// Runs the test in this process, with each of its seeds.
///
/// # Errors
/// It fails; the text says why.
pub(super) fn judged<R: Termination + 'static>(case: Case, body: fn() -> R) -> Result<(), String> {
    judged_by(case, body, |_| ())
}

/// As [`judged`]; says each of several seeds before, in case it ends the process.
fn judged_by<R: Termination + 'static>(
    case: Case,
    body: fn() -> R,
    say: impl Fn(u64),
) -> Result<(), String> {
    name_panics();
    let Some(first) = case.builder.virtual_seed() else {
        return judged_once(case, body, Instant::now());
    };
    let began = Instant::now();
    let (first, count) = match std::env::var(SEED) {
        Err(_) => (first, case.seeds),
        Ok(text) => (
            text.parse()
                .map_err(|_| format!("{SEED}={text}: not a seed"))?,
            1,
        ),
    };

    if count == 0 {
        return Err("`seeds` is 0: nothing would be run".to_owned());
    }
    for nth in 0..count {
        let seed = first.wrapping_add(nth);
        if count > 1 {
            say(seed);
        }
        let case = Case {
            builder: case.builder.clone().io(Io::Sim { seed }),
            ..case
        };

        let name = case.name;
        let limit = case.timeout;
        let had = began.elapsed();
        judged_once(case, body, began).map_err(|why| match count {
            1 => why,
            _ if nth > 0 && had > limit / 2 && began.elapsed() >= limit => format!(
                "{nth} of {count} seeds have passed within {limit:?}, not all: `timeout` gives more"
            ),
            _ => format!("{why}\nthis was seed {seed}: {SEED}={seed} runs {name} with it alone"),
        })?;
    }
    Ok(())
}

/// Runs it with one seed; the time counts since `began`.
fn judged_once<R: Termination + 'static>(
    case: Case,
    body: fn() -> R,
    began: Instant,
) -> Result<(), String> {
    let unseen = UNSEEN_PANICS.load(Ordering::Relaxed);
    let limit = case.timeout.saturating_sub(began.elapsed());
    let watched = watch(case.builder, "test", Bound::Time(limit), move || {
        body().report()
    });
    let (runtime, end) = watched?;
    let joined = match end {
        WatchedEnd::Joined(joined) => joined,
        WatchedEnd::Stuck(deadlock) => {
            std::mem::forget(runtime);
            return Err(deadlock);
        }
        WatchedEnd::Late => return Err(unfinished(runtime, case.timeout)),
    };

    match joined {
        Ok(code) if code == ExitCode::SUCCESS => {}
        Ok(code) => return Err(format!("the test has ended with {code:?}")),
        Err(error) => return Err(text_of(error)),
    }
    left(runtime, case.deny_leaks)?;

    match UNSEEN_PANICS.load(Ordering::Relaxed) - unseen {
        0 => Ok(()),
        1 => Err("a fiber panicked that nobody has joined: see above".to_owned()),
        count => Err(format!(
            "{count} fibers panicked that nobody has joined: see above"
        )),
    }
}

/// Says what fibers do that should have ended. The runtime is leaked: it would wait for them.
fn unfinished(runtime: Runtime, timeout: Duration) -> String {
    print_fibers(&runtime);
    std::mem::forget(runtime);
    format!("the test has not ended within {timeout:?}: what its fibers wait for is above")
}

/// Ends the runtime behind a body that has ended.
fn left(runtime: Runtime, deny_leaks: bool) -> Result<(), String> {
    if deny_leaks && !runtime.wait_idle(SETTLE) {
        print_fibers(&runtime);
        let count = runtime.metrics().live_fibers;
        let _ = runtime.shutdown(CANCELLED);
        return Err(format!(
            "{count} fibers are left behind the test: they are above"
        ));
    }

    match runtime.shutdown(CANCELLED) {
        left if left.leaked_fibers == 0 && left.leaked_workers == 0 => Ok(()),
        left => Err(format!(
            "{} fibers have not ended within {CANCELLED:?} of being cancelled",
            left.leaked_fibers.max(left.leaked_workers as u64)
        )),
    }
}

fn print_fibers(runtime: &Runtime) {
    let options = Options::new().stacks(true).limit(DUMP);
    let _ = writeln!(io::stderr(), "{}", runtime.dump_with(&options));
}

fn text_of(error: crate::JoinError) -> String {
    let text = error.to_string();
    match text.strip_prefix("the fiber panicked: ") {
        Some(panic) => panic.to_owned(),
        None => text,
    }
}
