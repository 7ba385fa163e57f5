//! Sessions as a load, and what came of a rate.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::system::System;
use crate::harness::cgroup::Group;
use crate::harness::turns::Values;
use crate::serving::catalog::Catalog;
use crate::serving::client::{Figures, load, run_load, run_overload, to_json};
use crate::serving::connections::{CLOSE_WAIT, drain, standing};
use crate::serving::rounds::SetOnDrop;
use crate::serving::site::{Checker, Site};
use crate::serving::web::{Server, plainweave_program};

/// Clients, each with a log of its own, as published.
const LOGS: &str = "16";
/// Of each log.
const SESSIONS: &str = "2000";
/// Connections of the closed loop that finds a peak.
const PEAK: &str = "64";
/// Between two looks at the server.
const LOOKS: Duration = Duration::from_millis(200);
/// Files whose content is compared before each sweep.
const SAMPLED: usize = 20;

/// Times that are shorter than published unless all is measured in full.
struct Times {
    /// Until as many sessions end as begin: past the peak, that takes several times the patience.
    warm_up: Duration,
    pause: Duration,
    /// An answer that takes longer is an error.
    patience: Duration,
    /// Between two requests of a session, at most.
    off: Duration,
}

impl Times {
    fn of(full: bool) -> Self {
        let [warm_up, pause, patience, off] = if full {
            [60_000, 20_000, 10_000, 60_000]
        } else {
            [8_000, 200, 1_000, 300]
        }
        .map(Duration::from_millis);
        Self {
            warm_up,
            pause,
            patience,
            off,
        }
    }
}

/// Returns the time that a step takes beside its length.
pub(super) fn around(full: bool) -> Duration {
    let times = Times::of(full);
    times.warm_up + times.pause
}

/// How much is measured.
pub(super) struct Size {
    /// As published.
    pub(super) full: bool,
    /// Of a step.
    pub(super) length: Duration,
    /// Of a CPU, for a server.
    pub(super) share: f64,
    /// At a time, at most.
    pub(super) sessions: usize,
}

/// What all servers get.
pub(super) struct Offered {
    pub(super) site: Site,
    pub(super) catalog: Catalog,
    size: Size,
    times: Times,
    /// Folders of session logs, with pauses and without.
    logs: [PathBuf; 2],
}

impl Offered {
    pub(super) fn new(size: Size, site: Site, catalog: Catalog) -> anyhow::Result<Self> {
        let mut times = Times::of(size.full);
        // Short steps are for trying things out: they should not wait ten times as long as they
        // last.
        times.warm_up = times.warm_up.min(size.length * 2);
        // Drawn from this list, all alike, requests are those of the table.
        let paths = site.dir().join("drawn.txt");
        let drawn: String = catalog
            .order
            .iter()
            .map(|&n| format!("{}\n", catalog.items[n].path))
            .collect();
        std::fs::write(&paths, drawn)?;

        let logs = [
            ("sessions", times.off),
            // For the peak: with pauses a closed loop would measure the sessions.
            ("eager-sessions", Duration::from_millis(1)),
        ];
        let logs =
            logs.map(|(name, off)| (site.dir().join(name), format!("{}ms", off.as_millis())));
        for (folder, off) in &logs {
            let mut command = Command::new(
                plainweave_program().context("plainweave is not beside plainweave-bench")?,
            );
            command
                .args(["load", "sessions"])
                .arg(folder)
                .arg("--paths")
                .arg(&paths)
                .args(["--zipf", "0"]);
            command.args(["--logs", LOGS, "--sessions", SESSIONS, "--longest-off", off]);
            let output = command.output().context("cannot run plainweave load")?;
            ensure!(
                output.status.success(),
                "no session logs: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }

        Ok(Self {
            site,
            catalog,
            size,
            times,
            logs: logs.map(|(folder, _)| folder),
        })
    }

    /// In words, for the report.
    pub(super) fn describe(&self) -> String {
        let Times { patience, off, .. } = self.times;
        format!(
            "sessions of {LOGS} logs, arrivals by Poisson, {} at a time at most; pauses to {off:?}, answers within \
             {patience:?}",
            self.size.sessions
        )
    }

    /// Makes a group with the quota of all servers.
    pub(super) fn group(&self, controllers: &[&'static str]) -> anyhow::Result<Group> {
        let group = Group::new("web-sweep", &[&["cpu", "cpuacct"], controllers].concat());
        let group = group.and_then(|group| group.limit_finely(self.size.share).map(|()| group));
        group.context("no control group for a quota of CPU, memory or a disk is available here")
    }

    /// Returns the requests a second that a server answers in a closed loop over the sessions.
    pub(super) fn peak(&self, system: &System) -> anyhow::Result<f64> {
        let server = system.start(&self.site, self.group(&[])?)?;
        let json = self.site.dir().join("peak.json");
        let logs = self.logs[1].to_string_lossy();
        let more = [
            "--sessions",
            &logs,
            "--connections",
            PEAK,
            "--warm-up",
            "500ms",
        ];
        let figures = run_load(
            &mut load(
                "epoll",
                &self.url(&server, ""),
                self.size.length,
                &json,
                &more,
            )?,
            &json,
        )?;

        // A peak of wrong answers is none.
        figures.check(&system.name)?;

        figures.get("rate_per_second")
    }

    /// Starts a server and offers it all rates, with all files in memory.
    pub(super) fn rates(
        &self,
        system: &System,
        cases: &[(String, f64)],
        peak: f64,
    ) -> anyhow::Result<Vec<Step>> {
        let server = system.start(&self.site, self.group(&[])?)?;
        // Content is compared before the load: the load itself looks at lengths.
        self.sample(&server)?;
        self.warm(&server)?;
        cases
            .iter()
            .map(|(_, share)| self.step(&server, share * peak))
            .collect()
    }

    /// Compares the content of some files, all sizes among them.
    pub(super) fn sample(&self, server: &Server) -> anyhow::Result<()> {
        let mut checker = Checker::connect(server.address)?;
        // The catalogue goes by size, so equal distances meet all sizes.
        let every = self.catalog.items.len().div_ceil(SAMPLED);
        let sampled = self
            .catalog
            .items
            .iter()
            .step_by(every)
            .chain(self.catalog.items.last());
        sampled
            .into_iter()
            .try_for_each(|item| checker.check(&item.path, &item.content()).map(drop))
    }

    /// Asks for every file once.
    pub(super) fn warm(&self, server: &Server) -> anyhow::Result<()> {
        let list = self.list(
            server,
            "all.txt",
            &mut self.catalog.items.iter().map(|item| item.path.as_str()),
        )?;
        let json = self.site.dir().join("warm.json");
        let all = self.catalog.items.len().to_string();
        let mut command = Command::new(
            plainweave_program().context("plainweave is not beside plainweave-bench")?,
        );
        command.args([
            "load",
            "http",
            "--urls",
            &list,
            "--requests",
            &all,
            "--connections",
            "16",
            "--workers",
            "1",
        ]);
        command
            // However long a cold disk takes.
            .args(["--io", "epoll", "--timeout", "60s"])
            .arg(to_json(&json));

        run_load(&mut command, &json)?.check("the warm-up")
    }

    /// Writes a list of URLs, and returns its name.
    pub(super) fn list(
        &self,
        server: &Server,
        name: &str,
        paths: &mut dyn Iterator<Item = &str>,
    ) -> anyhow::Result<String> {
        let list = self.site.dir().join(name);
        std::fs::write(
            &list,
            paths
                .map(|path| self.url(server, path) + "\n")
                .collect::<String>(),
        )?;
        Ok(list.to_string_lossy().into_owned())
    }

    pub(super) fn url(&self, server: &Server, path: &str) -> String {
        format!("http://{}{path}", server.address)
    }

    /// Returns the load of an open loop, at this rate, beside what it asks for.
    pub(super) fn open(
        &self,
        server: &Server,
        rate: f64,
        json: &str,
        more: &[&str],
    ) -> anyhow::Result<Command> {
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        let [rate, warm_up, patience] = [
            rate.to_string(),
            ms(self.times.warm_up),
            ms(self.times.patience),
        ];
        let more = [
            more,
            &[
                "--rate",
                &rate,
                "--arrivals",
                "poisson",
                "--warm-up",
                &warm_up,
                "--timeout",
                &patience,
            ],
        ];
        load(
            "epoll",
            &self.url(server, ""),
            self.size.length,
            &self.site.dir().join(json),
            &more.concat(),
        )
    }

    /// Offers a server this many requests a second, and looks at its connections meanwhile.
    pub(super) fn step(&self, server: &Server, rate: f64) -> anyhow::Result<Step> {
        let logs = self.logs[0].to_string_lossy();
        let sessions = self.size.sessions.to_string();
        let json = "step.json";
        let mut command = self.open(
            server,
            rate,
            json,
            &["--sessions", &logs, "--connections", &sessions],
        )?;
        let ended = AtomicBool::new(false);
        let mut close_wait = 0;

        // At its end the load closes all connections at once.
        let end = Instant::now() + self.times.warm_up + self.size.length;
        let figures = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Not beyond the load's own end: the connections that it closes are no fault of the
                // server.
                while !ended.load(Ordering::Relaxed) && Instant::now() < end {
                    // The most at any moment: those that a server forgets pile up.
                    close_wait = close_wait.max(standing(server.address, &[CLOSE_WAIT]));
                    std::thread::sleep(LOOKS);
                }
            });
            let _end = SetOnDrop(&ended);
            run_overload(&mut command, &self.site.dir().join(json))
        })?;
        std::thread::sleep(self.times.pause);

        // What this step has left would be counted with the next one.
        drain(server.address);
        let mut step = Step::read(rate, &figures)?;

        step.close_wait = close_wait as f64;

        Ok(step)
    }
}

/// What came of a point. What was not measured is NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Requests a second that were asked for, and answered.
    pub(super) target: f64,
    pub(super) rate: f64,
    /// The share of the requests that failed.
    pub(super) failed: f64,
    /// In microseconds.
    pub(super) p99: f64,
    /// 1: the client was on time.
    pub(super) counts: f64,
    pub(super) close_wait: f64,
    /// The p99 of requests for the files of the first 80 % of all requests.
    pub(super) hot_p99: f64,
    pub(super) hot_failed: f64,
    /// Read from the disk, a second.
    pub(super) megabytes: f64,
    /// Memory that the server may use, in MB.
    pub(super) limit: f64,
}

/// Latency that a client's own lateness must stay below, as a part.
const LATE: f64 = 0.1;
/// The names of a step's values, in their order.
const NAMES: [&str; 10] = [
    "target",
    "rate",
    "failed",
    "p99",
    "counts",
    "close_wait",
    "hot_p99",
    "hot_failed",
    "megabytes",
    "limit",
];

impl Step {
    /// Nothing was measured.
    pub(super) const NONE: Self = Self {
        target: f64::NAN,
        rate: f64::NAN,
        failed: f64::NAN,
        p99: f64::NAN,
        counts: f64::NAN,
        close_wait: f64::NAN,
        hot_p99: f64::NAN,
        hot_failed: f64::NAN,
        megabytes: f64::NAN,
        limit: f64::NAN,
    };

    fn read(target: f64, figures: &Figures) -> anyhow::Result<Self> {
        let p99 = figures.get("latency_p99_us").unwrap_or(f64::NAN);
        // NaN compares as not late enough to count, which is right: nothing was answered.
        let late = figures.get("lateness_p99_us").unwrap_or(f64::NAN);
        Ok(Self {
            target,
            rate: figures.get("rate_per_second")?,
            failed: figures.failed_share()?,
            p99,
            counts: if late <= LATE * p99 { 1.0 } else { 0.0 },
            ..Self::NONE
        })
    }

    /// Returns it as values by their names.
    pub(super) fn values(&self) -> Values {
        let Self {
            target,
            rate,
            failed,
            p99,
            counts,
            close_wait,
            hot_p99,
            hot_failed,
            megabytes,
            limit,
        } = *self;
        let values = [
            target, rate, failed, p99, counts, close_wait, hot_p99, hot_failed, megabytes, limit,
        ];
        NAMES
            .iter()
            .map(|name| (*name).to_owned())
            .zip(values)
            .collect()
    }

    /// Returns the steps that have these values.
    pub(super) fn all_of(values: &[(String, f64)]) -> anyhow::Result<Vec<Self>> {
        let step = |values: &[(String, f64)]| {
            let values: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
            let [
                target,
                rate,
                failed,
                p99,
                counts,
                close_wait,
                hot_p99,
                hot_failed,
                megabytes,
                limit,
            ] = values[..]
            else {
                anyhow::bail!("half a point was kept");
            };

            Ok(Self {
                target,
                rate,
                failed,
                p99,
                counts,
                close_wait,
                hot_p99,
                hot_failed,
                megabytes,
                limit,
            })
        };
        values.chunks(NAMES.len()).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, Step};
    use crate::serving::client::Figures;

    #[test]
    fn steps_are_kept_as_values() {
        let figures = Figures::of(&[
            ("rate_per_second", 80.0),
            ("errors", 5.0),
            ("requests", 100.0),
            ("latency_p99_us", 900.0),
            ("lateness_p99_us", 100.0),
        ]);
        let step = Step::read(100.0, &figures).unwrap();
        assert!(
            step.failed == 0.05 && step.rate == 80.0 && step.counts == 0.0 && step.limit.is_nan()
        );
        let values = [step.values(), step.values()].concat();
        let again = Step::all_of(&values).unwrap();

        assert!(again.len() == 2 && format!("{:?}", again[1]) == format!("{step:?}"));
        assert!(Step::all_of(&values[..NAMES.len() + 1]).is_err());
    }
}
