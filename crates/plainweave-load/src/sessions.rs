//! `plainweave load sessions`: draws session logs from distributions and a seed.
//!
//! A session is a number of pages, a page a number of files: the first, and those embedded in it.
//! Between files of a page the client is off for an *active* time, between pages for an *inactive*
//! one. Files, times and numbers follow P. Barford, M. Crovella, Generating Representative Web
//! Workloads for Network and Server Performance Evaluation (SIGMETRICS 1998), unless the flags say
//! otherwise.

use std::fmt::Write as _;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::distribution::Distribution;
use super::popularity::{Picker, Popularity};
use super::session_log::{self, Visit};
use plainweave_daemon::flag::time;

/// Write session logs for --sessions, a file for each client.
#[derive(Args, Debug)]
pub(super) struct SessionFlags {
    /// New folder for the logs
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// File with a path a line, the most popular first, as in /index.html
    #[arg(long, value_name = "FILE")]
    paths: PathBuf,

    /// Logs, one a client
    #[arg(long, value_name = "N", default_value = "16")]
    logs: NonZeroUsize,

    /// Sessions of each log
    #[arg(long, value_name = "N", default_value = "1000")]
    sessions: NonZeroU32,

    /// Exponent of the Zipf distribution by which files are chosen
    #[arg(long, value_name = "S", default_value = "1", value_parser = super::popularity::exponent)]
    zipf: f64,

    /// Pages of a session, a distribution; at least 1
    #[arg(long, value_name = "DIST", default_value = "exponential:0.5", value_parser = Distribution::parse)]
    pages: Distribution,

    /// Files of a page, a distribution; at least 1
    #[arg(long, value_name = "DIST", default_value = "pareto:1,0.4115,0.4115", value_parser = Distribution::parse)]
    files: Distribution,

    /// Seconds between two files of a page, a distribution
    #[arg(long, value_name = "DIST", default_value = "weibull:0.382,1.46", value_parser = Distribution::parse)]
    active_off: Distribution,

    /// Seconds between two pages, a distribution
    #[arg(long, value_name = "DIST", default_value = "pareto:1,0.667,0.667", value_parser = Distribution::parse)]
    inactive_off: Distribution,

    /// No pause is longer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    longest_off: Duration,

    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Files of a page and pages of a session, at most: tails are heavy.
const MOST: f64 = 1000.0;

/// Writes the logs. Returns a line that says what they hold.
pub(super) fn write(flags: &SessionFlags) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(&flags.paths);
    let text = text.with_context(|| format!("cannot read {}", flags.paths.display()))?;
    let paths: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    ensure!(!paths.is_empty(), "{} has no path", flags.paths.display());

    for path in &paths {
        let whole =
            path.starts_with('/') && !path.contains(|c: char| c.is_whitespace() || c == '#');
        ensure!(
            whole,
            "{}: {path}: write a path a line, as in /index.html",
            flags.paths.display()
        );
    }

    let occupied = std::fs::read_dir(&flags.dir).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(
        !occupied,
        "{} is not empty; name a new folder",
        flags.dir.display()
    );
    std::fs::create_dir_all(&flags.dir)
        .with_context(|| format!("cannot create {}", flags.dir.display()))?;
    let mut requests = 0;
    let mut pauses = Duration::ZERO;

    for log in 0..flags.logs.get() {
        let (text, drawn) = flags.log(&paths, log);
        write_file(&flags.dir.join(format!("client-{:03}.log", log + 1)), &text)?;
        requests += drawn.requests;
        pauses += drawn.pauses;
    }

    let sessions = flags.logs.get() as u64 * u64::from(flags.sessions.get());
    Ok(format!(
        "{} logs in {}: {sessions} sessions, {requests} requests, {:.2} a session; pauses of {:.2} s a session",
        flags.logs,
        flags.dir.display(),
        requests as f64 / sessions as f64,
        pauses.as_secs_f64() / sessions as f64,
    ))
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// How much a log holds.
#[derive(Default)]
struct Drawn {
    requests: u64,
    pauses: Duration,
}

impl SessionFlags {
    /// Draws the log of one client.
    fn log(&self, paths: &[&str], log: usize) -> (String, Drawn) {
        let seed = self
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(log as u64);
        let mut picker = Picker::new(seed, vec![Popularity::new(paths.len(), Some(self.zipf), 0)]);
        // Numbers and times are drawn apart, so that other files do not change them.
        let mut random = SmallRng::seed_from_u64(!seed);
        let mut text = String::new();
        let mut drawn = Drawn::default();
        let _ = writeln!(
            text,
            "# plainweave load sessions: client {} of {}, seed {}",
            log + 1,
            self.logs,
            self.seed
        );
        text.push('\n');

        for _ in 0..self.sessions.get() {
            let mut session = Vec::new();
            let pages = number(self.pages, &mut random);
            for page in 1..=pages {
                let files = number(self.files, &mut random);
                for file in 1..=files {
                    let off = if file < files {
                        self.active_off
                    } else {
                        self.inactive_off
                    };

                    let last = page == pages && file == files;
                    let think = if last {
                        Duration::ZERO
                    } else {
                        self.off(off, &mut random)
                    };

                    let path = paths[picker.pick(0)].to_owned();
                    session.push((
                        file > 1,
                        Visit {
                            path,
                            method: None,
                            think,
                        },
                    ));
                    drawn.pauses += think;
                }
            }

            drawn.requests += session.len() as u64;
            session_log::write(&mut text, &session);
        }

        (text, drawn)
    }

    fn off(&self, distribution: Distribution, random: &mut SmallRng) -> Duration {
        let seconds = distribution.at(random.random(), random.random());
        Duration::from_secs_f64(seconds.clamp(0.0, self.longest_off.as_secs_f64()))
    }
}

/// Draws a whole number from 1.
fn number(distribution: Distribution, random: &mut SmallRng) -> u32 {
    distribution
        .at(random.random(), random.random())
        .clamp(1.0, MOST)
        .round() as u32
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: SessionFlags,
    }

    fn log(number: usize, args: &[&str]) -> (String, Drawn) {
        let args = [
            &["load", "dir", "--paths", "file", "--sessions", "500"],
            args,
        ]
        .concat();
        Cli::try_parse_from(args)
            .unwrap()
            .flags
            .log(&["/a", "/b", "/c"], number)
    }

    #[test]
    fn a_seed_makes_the_same_logs() {
        assert_eq!(log(0, &[]).0, log(0, &[]).0);
        assert_ne!(log(0, &[]).0, log(1, &[]).0.replace("client 2", "client 1"));
        assert_ne!(
            log(0, &[]).0,
            log(0, &["--seed", "2"]).0.replace("seed 2", "seed 1")
        );
    }

    #[test]
    fn logs_follow_the_flags() {
        let args = [
            "--pages",
            "2",
            "--files",
            "3",
            "--active-off",
            "0.1",
            "--inactive-off",
            "5",
            "--longest-off",
            "2s",
        ];
        let (text, drawn) = log(0, &args);
        assert_eq!(
            (drawn.requests, drawn.pauses),
            (3000, Duration::from_millis(500 * 2400))
        );
        let sessions = session_log::parse("log", &text).unwrap();
        assert_eq!(sessions.len(), 500);

        for session in &sessions {
            let millis: Vec<_> = session
                .iter()
                .map(|visit| visit.think.as_millis())
                .collect();
            assert_eq!(
                millis,
                [100, 100, 2000, 100, 100, 0],
                "off for no longer than 2 s"
            );
        }

        // Zipf's law over three files: 6/11, 3/11, 2/11.
        let share = sessions
            .iter()
            .flatten()
            .filter(|visit| visit.path == "/a")
            .count() as f64
            / 3000.0;
        assert!((share - 6.0 / 11.0).abs() < 0.03, "{share}");
    }

    #[test]
    fn the_usual_session_is_as_published() {
        let (_, drawn) = log(0, &[]);
        let requests = drawn.requests as f64 / 500.0;
        assert!(
            (2.0..8.0).contains(&requests),
            "{requests} requests a session"
        );
    }
}
