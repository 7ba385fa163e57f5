//! Reports of stalls: on standard error, and the last ones for the admin address.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plainweave::Stall;
use plainweave::stall::{Culprit, Frame};

/// Stalls at least this long are reported, if the server itself caused them.
const STALL: Duration = Duration::from_millis(10);
/// Minimum interval between two reports on standard error.
const QUIET: Duration = Duration::from_secs(1);
/// Stalls that are kept.
const KEPT: usize = 20;
/// Functions that are kept of each.
const CALLS: usize = 6;

/// The stalls of a server's runtimes so far.
#[derive(Debug, Default)]
pub struct Stalls(Mutex<Reported>);

#[derive(Debug, Default)]
struct Reported {
    /// When standard error got the last one.
    last: Option<Instant>,
    /// Reports since then.
    left_out: u64,
    /// The newest last.
    kept: VecDeque<Past>,
}

/// A stall, as it is kept.
#[derive(Clone, Debug)]
pub struct Past {
    /// When it was reported.
    pub at: Instant,
    /// Which worker was held up.
    pub worker: usize,
    /// For how long, when it was reported.
    pub held: Duration,
    /// Of it, without a processor.
    pub starved: Duration,
    /// The fiber's number and its name, if it was a fiber.
    pub fiber: Option<(u64, Option<String>)>,
    /// Where it was, the innermost function first. Never an address.
    pub calls: Vec<String>,
}

impl Stalls {
    /// Keeps a stall, and says it: at most once a second, with the number of those left out. What
    /// the machine's other programs have caused, and what was over before it could be looked at, is
    /// in the metrics alone.
    pub fn note(&self, name: &str, stall: &Stall, say: impl FnOnce(&str)) {
        let own = stall.held.saturating_sub(stall.starved) >= STALL;
        if !own || !matches!(stall.culprit, Culprit::Fiber { .. } | Culprit::Silent) {
            return;
        }
        let mut reported = self.lock();
        if reported.kept.len() == KEPT {
            reported.kept.pop_front();
        }
        reported.kept.push_back(Past::of(stall));
        if reported.last.is_some_and(|last| last.elapsed() < QUIET) {
            reported.left_out += 1;
            return;
        }

        let left_out = std::mem::take(&mut reported.left_out);
        reported.last = Some(Instant::now());
        // The page does not wait for standard error.
        drop(reported);
        let others = if left_out > 0 {
            format!("\n    (before it, {left_out} were left out)")
        } else {
            String::new()
        };

        say(&format!("plainweave {name}: {stall}{others}"));
    }

    /// Returns the last ones, the newest first.
    pub fn past(&self) -> Vec<Past> {
        self.lock().kept.iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Past {
    fn of(stall: &Stall) -> Self {
        let (fiber, frames) = match &stall.culprit {
            Culprit::Fiber { id, name, frames } => (Some((*id, name.clone())), &frames[..]),
            Culprit::Elsewhere { frames } => (None, &frames[..]),
            _ => (None, &[][..]),
        };

        // From the program's own code on, where that is known.
        let own = stall
            .own_frame()
            .and_then(|own| frames.iter().position(|frame| frame == own))
            .unwrap_or(0);
        let calls = frames[own..].iter().filter_map(call).take(CALLS).collect();
        Self {
            at: Instant::now(),
            worker: stall.worker,
            held: stall.held,
            starved: stall.starved,
            fiber,
            calls,
        }
    }
}

/// Returns a function with its line; `None` for one that has no name, whose report is an address.
fn call(frame: &Frame) -> Option<String> {
    let function = frame.function.as_deref()?;
    let file = frame
        .file
        .as_deref()
        .and_then(|file| file.file_name())
        .map(|name| name.to_string_lossy());
    Some(match (file, frame.line) {
        (Some(file), Some(line)) => format!("{function} ({file}:{line})"),
        _ => function.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use plainweave::Runtime;

    use super::*;

    #[test]
    fn of_many_stalls_one_is_said_and_the_last_are_kept() {
        let (send, stalled) = mpsc::channel();
        let (ended, wait) = mpsc::channel::<()>();
        let runtime = Runtime::builder().workers(2).on_stall(move |stall| {
            let _ = send.send(stall.clone());
        });
        let runtime = runtime.build().unwrap();
        let fiber = plainweave::Builder::new().name("<b>\u{7}");
        let fiber = runtime.spawn_with(fiber, move || wait.recv()).unwrap();

        // Others may be the machine's fault, or over; this one is reported until it ends.
        let stall = stalled.iter().find(|stall| {
            matches!(stall.culprit, Culprit::Fiber { .. })
                && stall.held.saturating_sub(stall.starved) >= STALL
        });

        let stall = stall.unwrap();
        let stalls = Stalls::default();
        let mut lines = Vec::new();
        (0..3).for_each(|_| stalls.note("test", &stall, |line| lines.push(line.to_owned())));
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("plainweave test: worker "),
            "{}",
            lines[0]
        );
        stalls.lock().last = None;
        stalls.note("test", &stall, |line| lines.push(line.to_owned()));
        assert!(
            lines[1].ends_with("\n    (before it, 2 were left out)"),
            "{}",
            lines[1]
        );
        let mut starved = stall.clone();

        starved.starved = starved.held;
        stalls.lock().last = None;
        stalls.note("test", &starved, |line| lines.push(line.to_owned()));
        assert_eq!((lines.len(), stalls.past().len()), (2, 4));

        for n in 0..30 {
            let mut other = stall.clone();
            other.worker = n;
            stalls.note("test", &other, |_| {});
        }

        let past = stalls.past();
        assert_eq!(
            (past.len(), past[0].worker, past[KEPT - 1].worker),
            (KEPT, 29, 10)
        );
        assert_eq!(
            past[0].fiber.as_ref().unwrap().1.as_deref(),
            Some("<b>\u{7}")
        );
        assert!(
            past[0].calls.len() <= CALLS && past[0].calls[0].contains("stalls.rs:"),
            "{past:?}"
        );
        assert!(
            !past[0].calls.iter().any(|call| call.contains("0x")),
            "{past:?}"
        );
        drop(ended);
        let _ = fiber.join();
    }
}
