//! The side that libtest calls.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "libtest captures what these macros print, and nothing else"
)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{BEGINS, BY_SEED, CHILD, Case, FAILED, FAILS, LINE_END, MARK};

/// How much longer than its time a child gets, to say what its fibers wait for.
const GRACE: Duration = Duration::from_secs(20);
/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(1);

/// What a child has said of itself.
#[derive(Debug, Default)]
struct Said {
    has_begun: bool,
    failure: Option<String>,
    /// The last of several.
    seed: Option<String>,
}

/// Starts the program again for this test alone. `None`: the program does not know it.
pub(super) fn run(case: &Case) -> Option<Result<(), String>> {
    // libtest leaves the crate out.
    let (_, name) = case.name.split_once("::")?;
    let mut command = Command::new(std::env::current_exe().ok()?);
    command
        .args([name, "--exact", "--nocapture", "--include-ignored"])
        .arg("--test-threads=1")
        .env(CHILD, case.name)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;

    let said = Mutex::new(Said::default());
    let out = child.stdout.take()?;
    let errors = child.stderr.take()?;
    // Before the body has begun libtest prints there.
    let print = |text: &str, has_begun| {
        if has_begun {
            print!("{text}");
        }
    };

    // Threads that are started so inherit what libtest captures by.
    let status = scope(|scope| {
        scope.spawn(|| read(out, &said, print));
        scope.spawn(|| read(errors, &said, |text, _| eprint!("{text}")));
        ended(&mut child, case.timeout + GRACE)
    });

    let said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
    let by_seed = |why: String| match (&said.failure, &said.seed) {
        (None, Some(seed)) => format!("{why} (by {seed})"),
        _ => why,
    };
    said.has_begun
        .then(|| judge(status, said.failure.clone(), case.timeout).map_err(by_seed))
}

/// Says why a test has failed.
pub(super) fn say_failed(why: &str) {
    eprintln!("plainweave: the test has failed: {why}");
}

/// Waits for a child, and has what it started end with it. `None`: it had to be killed.
fn ended(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let group = Pid::from_child(child);
    let deadline = Instant::now() + limit;
    let mut status = None;
    while status.is_none() && Instant::now() < deadline {
        status = child.try_wait().ok().flatten();
        sleep(LOOK);
    }

    // Of what is left nobody would hear, and it could hold the pipes.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    status
}

/// Passes on what a child prints, line by line, and keeps what it says of itself. `print` also gets
/// whether the body has begun.
fn read(pipe: impl Read, said: &Mutex<Said>, print: impl Fn(&str, bool)) {
    let mut lines = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            return;
        }

        let text = String::from_utf8_lossy(&line);
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let of_itself = text.split_once(MARK);
        let before = of_itself.map_or(&*text, |(before, _)| before);
        print(before, said.has_begun);
        match of_itself.map(|(_, word)| word.trim_end()) {
            Some(BEGINS) => said.has_begun = true,
            Some(word) if word.starts_with(BY_SEED) => said.seed = Some(word.to_owned()),
            Some(word) => {
                let why = word.strip_prefix(FAILS).unwrap_or(word);
                said.failure = Some(why.replace(LINE_END, "\n"));
            }
            None => {}
        }
    }
}

fn judge(
    status: Option<ExitStatus>,
    failure: Option<String>,
    timeout: Duration,
) -> Result<(), String> {
    let Some(status) = status else {
        return Err(format!(
            "the test has not ended within {timeout:?}, and was killed"
        ));
    };

    match (status.code(), status.signal(), failure) {
        (Some(0), ..) => Ok(()),
        (Some(FAILED), _, Some(why)) => Err(why),
        (Some(code), ..) => Err(format!("the test has ended its process with status {code}")),
        (_, Some(signal), _) => Err(format!("signal {signal} has ended the test: see above")),
        _ => Err(format!("the test has ended: {status}")),
    }
}
