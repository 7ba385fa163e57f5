//! Server-side faults, reported on standard error: at most one line a minute for each kind, since a
//! lasting fault would otherwise repeat with every request. Client errors appear in the access log
//! and in the metrics.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plainweave_http::{Error, StatusCode};
use plainweave_serve::accept::Fault;

use plainweave_daemon::console::say;

/// Between two lines of a kind.
const QUIET: Duration = Duration::from_secs(60);

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Accept,
    Overload,
    ConnectionLimit,
    Shed,
    ShedHandshake,
    Disk,
    Log,
    SlowLog,
    Files,
    Link,
    Body,
    Panic,
    Upstream,
}

/// When each kind was last reported.
#[derive(Debug)]
pub(super) struct Faults {
    start: Instant,
    /// Milliseconds after `start`, plus one; 0: never.
    reported: [AtomicU64; 13],
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            reported: Default::default(),
        }
    }

    /// Connections are not let in, or requests refused.
    pub(super) fn accept(&self, fault: &Fault<'_>) {
        match fault {
            Fault::Failed(error) => self.tell(Kind::Accept, || {
                format!(
                    "cannot accept connections: {error}; will retry; established connections are still served \
                     (more descriptors: ulimit -n; fewer: --max-connections, --open-files)"
                )
            }),
            Fault::Overload { backlog } => self.tell(Kind::Overload, || {
                format!(
                    "more clients come than can be served; at most {backlog} wait to be accepted, others have to try \
                     again (more CPU, or --workers)"
                )
            }),
            Fault::AtConnectionLimit { max, waiting } => self.tell(Kind::ConnectionLimit, || {
                format!(
                    "the limit of {max} connections is reached, and {waiting} wait to be accepted \
                     (more: --max-connections, --max-memory, ulimit -n; idle ones leave sooner: --idle-timeout)"
                )
            }),
            Fault::TooManyRequests { max } => self.shed(*max),
            Fault::TooManyHandshakes { max } => self.shed_handshake(*max),
            _ => {}
        }
    }

    /// As many requests are in progress as there is memory for, and another one came.
    fn shed(&self, max: usize) {
        self.tell(Kind::Shed, || {
            format!(
                "{max} requests are in progress, and there is memory for no more; others are answered 503 \
                 (a higher memory limit or --max-memory; slow readers leave sooner: --write-timeout, --min-rate)"
            )
        });
    }

    /// As many TLS handshakes are in progress as there is memory for, and another one came.
    fn shed_handshake(&self, max: usize) {
        self.tell(Kind::ShedHandshake, || {
            format!(
                "{max} TLS handshakes are in progress, and there is memory for no more; others are closed \
                 (a higher memory limit or --max-memory; more of them at once: --tls-handshakes, --workers)"
            )
        });
    }

    /// Responses wait too long for the disk, and another one needs it.
    pub(super) fn disk(&self) {
        self.tell(Kind::Disk, || {
            "more files are asked for than the disk can read; others that are not in memory are answered 503 \
             (more memory, or a faster disk)"
                .to_owned()
        });
    }

    /// A request could not be passed on.
    pub(super) fn upstream(&self, name: &str, why: &str) {
        self.tell(Kind::Upstream, || {
            format!("upstream {name}: {why} (the status page and /metrics count them)")
        });
    }

    /// The access log has taken no lines for so long that lines were dropped.
    pub(super) fn log_is_slow(&self, name: &str, lost: u64) {
        self.tell(Kind::SlowLog, || {
            format!("access log {name}: it takes lines too slowly; {lost} lines lost so far, requests are served on")
        });
    }

    /// The server ends, and the access log still takes no lines.
    pub(super) fn log_has_ended(&self, name: &str, lost: u64) {
        let line = format!(
            "plainweave web: access log {name}: it took no last lines; {lost} were lost before"
        );
        say(io::stderr(), &line);
    }

    /// The access log cannot be written.
    pub(super) fn log(&self, name: &str, why: &io::Error, lost: u64) {
        self.tell(Kind::Log, || {
            format!("access log {name}: {why}; {lost} lines lost so far, requests are served on")
        });
    }

    /// A file could not be looked up or read; its answer has this status.
    pub(super) fn file(&self, status: StatusCode, path: &str) {
        let (kind, why) = match status {
            StatusCode::NOT_FOUND => (
                Kind::Link,
                "a symbolic link leads out of the served directory, and is not followed (serve a directory that \
                 has both, or mount what it leads to there)",
            ),
            StatusCode::SERVICE_UNAVAILABLE => (
                Kind::Files,
                "the served directory is gone, or descriptors or memory ran out",
            ),
            _ => (Kind::Files, "the file could not be read"),
        };

        self.tell(kind, || {
            format!("{path:?} is answered {}: {why}", status.as_u16())
        });
    }

    /// An exchange has failed. Tells what is not the client's doing.
    pub(super) fn exchange(&self, error: &Error) {
        if error.is_panic() {
            self.tell(Kind::Panic, || {
                format!("{error}; its request was answered 500, others go on")
            });
        } else if error.is_response_body() {
            let why = "a file became shorter while it was sent, or could not be read";
            self.tell(Kind::Body, || {
                format!("an answer was cut off: {error} ({why})")
            });
        }
    }

    fn tell(&self, kind: Kind, line: impl FnOnce() -> String) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1;
        let reported = &self.reported[kind as usize];
        let last = reported.load(Ordering::Relaxed);
        let due = last == 0 || u128::from(now - last.min(now)) >= QUIET.as_millis();

        // Of several at once one tells.
        if due
            && reported
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            say(io::stderr(), &format!("plainweave web: {}", line()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_fault_is_reported_once() {
        let faults = Faults::new();
        let mut lines = 0;
        for _ in 0..10 {
            faults.tell(Kind::Panic, || {
                lines += 1;
                String::new()
            });
        }

        assert_eq!(lines, 1);
    }
}
