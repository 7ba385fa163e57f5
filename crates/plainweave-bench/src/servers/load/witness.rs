//! Published load generators, whose word stands beside ours: httperf for the web, mutilate for the
//! cache. Each is asked for a rate, and says in a line of its own what the latencies were.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::harness::child;

/// Connections of mutilate, one request on each at a time: far more than are ever busy.
const CONNECTIONS: &str = "16";

/// Lengths of keys and values, and gaps: what it would choose itself, but with numbers, since it
/// reads those from a null pointer where they are not given.
const SHAPES: [&str; 6] = [
    "--keysize",
    "fixed:30",
    "--valuesize",
    "fixed:200",
    "--iadist",
    "exponential:1",
];

/// A program that is not ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum Witness {
    /// A connection for each request. It tells the median of whole connections, to half a
    /// millisecond.
    Httperf,
    /// It tells no median.
    Mutilate,
}

impl Witness {
    /// Returns its program's name.
    pub(super) fn program(self) -> &'static str {
        match self {
            Witness::Httperf => "httperf",
            Witness::Mutilate => "mutilate",
        }
    }

    /// Has it ask a server at this rate for some seconds; returns p50 and p99 in microseconds.
    ///
    /// # Errors
    /// It fails, or does not say what it found.
    pub(super) fn run(
        self,
        address: SocketAddr,
        rate: u32,
        seconds: u32,
    ) -> anyhow::Result<[Option<f64>; 2]> {
        let mut command = Command::new(self.program());
        match self {
            Witness::Httperf => {
                let [host, port] = [address.ip().to_string(), address.port().to_string()];
                command.args(["--hog", "--server", &host, "--port", &port, "--uri", "/"]);
                let connections = (rate * seconds).to_string();
                command.args(["--rate", &rate.to_string(), "--num-conns", &connections]);
                command.args(["--timeout", "5"]);
            }
            Witness::Mutilate => {
                command.args([
                    "--server",
                    &address.to_string(),
                    "--noload",
                    "--update",
                    "0",
                ]);
                command.args(["--connections", CONNECTIONS, "--records", "100"]);
                command.args(SHAPES);
                command.args(["--qps", &rate.to_string(), "--time", &seconds.to_string()]);
            }
        }

        command.stdin(Stdio::null());
        let patience = Duration::from_secs(30 + u64::from(seconds));
        let printed = child::output(command, patience)?;
        let found = match self {
            Witness::Httperf => {
                // The median of those that were answered is another one.
                let errors = httperf_errors(&printed);
                let errors = errors.with_context(|| format!("no line on errors: {printed}"))?;
                ensure!(errors == 0, "requests without an answer: {errors}");
                [httperf_median(&printed), None]
            }
            Witness::Mutilate => [None, mutilate_p99(&printed)],
        };

        let says = found.iter().any(Option::is_some);
        ensure!(says, "it does not say what it found: {printed}");
        Ok(found)
    }
}

/// Returns a turn's length for those that know whole seconds alone.
pub(super) fn whole_seconds(turn: Duration) -> u32 {
    u32::try_from(turn.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Reads `Connection time [ms]: min 10.2 avg 12.1 max 110.4 median 10.5 stddev 12.6`.
fn httperf_median(printed: &str) -> Option<f64> {
    let mut lines = printed.lines();
    let line = lines.find(|line| line.starts_with("Connection time [ms]: min"))?;
    let mut words = line.split_whitespace().skip_while(|word| *word != "median");
    Some(words.nth(1)?.parse::<f64>().ok()? * 1e3)
}

/// Reads `Errors: total 0 client-timo 0 socket-timo 0 connrefused 0 connreset 0`.
fn httperf_errors(printed: &str) -> Option<u64> {
    let mut lines = printed.lines();
    let rest = lines.find_map(|line| line.strip_prefix("Errors: total "))?;
    rest.split(' ').next()?.parse().ok()
}

/// Reads the line `read`, whose columns are named above it.
fn mutilate_p99(printed: &str) -> Option<f64> {
    let line = |start: &str| printed.lines().find(|line| line.starts_with(start));
    let column = line("#type")?
        .split_whitespace()
        .position(|name| name == "99th")?;
    line("read")?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_say_is_read() {
        let httperf = "Connection rate: 99.9 conn/s (10.0 ms/conn, <=9 concurrent connections)\n\
                       Connection time [ms]: min 10.2 avg 12.1 max 110.4 median 10.5 stddev 12.6\n\
                       Connection time [ms]: connect 0.1\n";
        assert_eq!(httperf_median(httperf), Some(10_500.0));
        assert_eq!(httperf_median("Connection time [ms]: connect 0.1\n"), None);
        let errors = "Errors: total 3 client-timo 3 socket-timo 0\nErrors: fd-unavail 0\n";
        assert_eq!(httperf_errors(errors), Some(3));

        let mutilate = "#type       avg     std     min     5th    10th    90th    95th    99th\n\
                        read    12045.1  9001.0 10101.2 10102.0 10110.0 10400.0 10900.0 100300.5\n\
                        update      0.0     0.0     0.0     0.0     0.0     0.0     0.0     0.0\n";
        assert_eq!(mutilate_p99(mutilate), Some(100_300.5));
        assert_eq!(mutilate_p99("read 1 2 3\n"), None);
    }

    #[test]
    fn turns_have_whole_seconds() {
        let lengths = [300, 1000, 3900].map(|ms| whole_seconds(Duration::from_millis(ms)));
        assert_eq!(lengths, [1, 1, 3]);
    }
}
