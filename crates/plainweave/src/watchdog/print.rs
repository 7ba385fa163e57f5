//! Reports of stalls on standard error, each place in the program's code once.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::report::{Culprit, Frame, Stall};
use super::reporter::OnStall;

/// Frames shown.
const MOST_FRAMES: usize = 6;
/// Places remembered; more are not reported.
const MOST_PLACES: usize = 1000;

/// A place in the code: file and line, or an address where these are not known.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Place {
    Line(PathBuf, Option<u32>),
    Address(usize),
    /// Any, where no spare worker can be had: that is news, wherever it is.
    NoSpare,
}

/// Returns a function that reports each place once, to standard error.
pub(crate) fn once_for_each_place() -> OnStall {
    let seen = Mutex::new(HashSet::new());
    OnStall(Arc::new(move |stall| {
        if let Some(text) = first_report(
            &mut seen.lock().unwrap_or_else(PoisonError::into_inner),
            stall,
        ) {
            crate::abort::report(&text);
        }
    }))
}

/// Returns what to report of this stall, if it is a fiber's and its place is new.
fn first_report(seen: &mut HashSet<Place>, stall: &Stall) -> Option<String> {
    let Culprit::Fiber { frames, .. } = &stall.culprit else {
        return None;
    };
    // For most of the time it was others that had the processor: the place says nothing.
    if (stall.starved > stall.held / 2 && stall.no_spare.is_none()) || seen.len() == MOST_PLACES {
        return None;
    }
    let place = match stall.own_frame() {
        _ if stall.no_spare.is_some() => Place::NoSpare,
        Some(Frame {
            file: Some(file),
            line,
            ..
        }) => Place::Line(file.clone(), *line),
        _ => Place::Address(frames.first()?.address),
    };

    let first = seen.is_empty();
    if !seen.insert(place) {
        return None;
    }
    let mut shown = stall.clone();
    if let Culprit::Fiber { frames, .. } = &mut shown.culprit {
        keep_own(frames);
        frames.truncate(MOST_FRAMES);
    }

    let mut text = shown.to_string();
    if first {
        text += "\n    (Each place is reported once. Work that computes or blocks for long belongs in \
                 plainweave::blocking; RuntimeBuilder::report_stalls(false) turns these reports off.)";
    }

    Some(text)
}

/// Removes all functions but the program's own, if it has any there.
pub(super) fn keep_own(frames: &mut Vec<Frame>) {
    if frames.iter().any(is_own) {
        frames.retain(is_own);
    }
}

impl Stall {
    /// Returns the innermost function of the program itself: neither of `std` or the C library, nor
    /// of this crate or another one from a registry. Needs debugging information; without it, and
    /// if there is none, `None`.
    pub fn own_frame(&self) -> Option<&Frame> {
        match &self.culprit {
            Culprit::Fiber { frames, .. } | Culprit::Elsewhere { frames } => {
                frames.iter().find(|frame| is_own(frame))
            }
            Culprit::Gone | Culprit::Silent => None,
        }
    }
}

fn is_own(frame: &Frame) -> bool {
    const THIS_CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    let Some(file) = frame.file.as_deref() else {
        return false;
    };
    let text = file.to_string_lossy();
    let foreign = ["/rustc/", THIS_CRATE]
        .iter()
        .any(|start| text.starts_with(start))
        || ["/rustlib/src/", "/registry/src/", "/git/checkouts/"]
            .iter()
            .any(|part| text.contains(part));

    // The C library's debugging information may be installed.
    !foreign
        && Path::new(file)
            .extension()
            .is_some_and(|extension| extension == "rs")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> Frame {
        let known = (!file.is_empty()).then(|| file.into());
        Frame {
            address: line as usize,
            function: Some(function.to_owned()),
            file: known,
            line: Some(line),
        }
    }

    fn stall(frames: Vec<Frame>) -> Stall {
        let culprit = Culprit::Fiber {
            id: 7,
            name: Some("checkout".to_owned()),
            frames,
        };

        Stall {
            worker: 1,
            held: Duration::from_millis(12),
            starved: Duration::ZERO,
            culprit,
            missed: 0,
            no_spare: None,
        }
    }

    #[test]
    fn each_place_is_reported_once_by_the_program_s_own_functions() {
        let mut seen = HashSet::new();
        let frames = |line| {
            vec![
                frame("syscall", "./misc/syscall.c", 1),
                frame("futex_wait", "/rustc/59807/library/std/src/sys/futex.rs", 2),
                frame(
                    "parse",
                    "/root/.cargo/registry/src/index/regex-1/src/lib.rs",
                    3,
                ),
                frame("price", "/home/shop/src/price.rs", line),
                frame(
                    "closure",
                    concat!(env!("CARGO_MANIFEST_DIR"), "/src/scope.rs"),
                    5,
                ),
                frame("order", "src/main.rs", 6),
            ]
        };

        let text = first_report(&mut seen, &stall(frames(4))).expect("new");
        assert!(
            text.starts_with("worker 1 has been held up for 12 ms, by fiber #7 \"checkout\"\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "    price (/home/shop/src/price.rs:4)\n    order (src/main.rs:6)\n    (Each"
            ),
            "{text}"
        );
        assert_eq!(first_report(&mut seen, &stall(frames(4))), None);
        let second = first_report(&mut seen, &stall(frames(40))).expect("another place");

        assert!(second.ends_with("    order (src/main.rs:6)"), "{second}");

        assert_eq!(
            stall(frames(4))
                .own_frame()
                .and_then(|frame| frame.function.as_deref()),
            Some("price")
        );
    }

    #[test]
    fn without_debugging_information_the_address_is_the_place() {
        let mut seen = HashSet::new();
        let text = first_report(
            &mut seen,
            &stall(vec![frame("syscall", "", 1), frame("f", "", 2)]),
        )
        .expect("new");
        assert!(text.contains("    syscall\n    f\n    ("), "{text}");
        assert_eq!(
            first_report(&mut seen, &stall(vec![frame("syscall", "", 1)])),
            None
        );
    }

    #[test]
    fn what_is_no_fiber_s_fault_is_not_reported() {
        let frames = || vec![frame("price", "src/price.rs", 4)];
        let mut seen = HashSet::new();
        let starved = Stall {
            starved: Duration::from_millis(7),
            ..stall(frames())
        };

        let elsewhere = Stall {
            culprit: Culprit::Elsewhere { frames: frames() },
            ..stall(vec![])
        };

        for other in [
            starved,
            elsewhere,
            Stall {
                culprit: Culprit::Gone,
                ..stall(vec![])
            },
        ] {
            assert_eq!(first_report(&mut seen, &other), None);
        }
    }
}
