//! Everything that watches runs: the terminal, the log of histograms, the series of seconds.

use std::cell::Cell;
use std::time::SystemTime;

use super::collect::{Second, Watch};
use super::flags::Common;
use super::hdr_log::HdrLog;
use super::live::Live;
use super::live_metrics::LiveMetrics;
use super::plan::Plan;
use super::series::Point;

/// What watches all runs of a program.
#[derive(Default)]
pub(super) struct Watchers {
    log: Option<HdrLog>,
    /// Runs have tags in the log.
    several: bool,
    quiet: bool,
    metrics: Option<LiveMetrics>,
}

impl Watchers {
    /// Opens the files, so that one that cannot be written is reported before the load.
    pub(super) fn new(common: &Common) -> anyhow::Result<Self> {
        let log = common.hdr_log.as_deref().map(HdrLog::create).transpose()?;
        let metrics = common.admin.map(LiveMetrics::serve).transpose()?;
        let several = common.rates.is_some() || common.search.is_some();
        Ok(Self {
            log,
            several,
            quiet: common.quiet,
            metrics,
        })
    }

    /// Watches one run. `began` is set before its first second.
    pub(super) fn for_run<'a>(
        &'a mut self,
        plan: &Plan,
        began: &'a Cell<SystemTime>,
    ) -> Watching<'a> {
        let tag = plan
            .rate
            .filter(|_| self.several)
            .map(|rate| format!("rate={rate}"));
        if let Some(metrics) = &self.metrics {
            metrics.begin(plan.rate);
        }
        Watching {
            metrics: self.metrics.as_ref(),
            live: Live::new(plan, self.quiet),
            log: self.log.as_mut(),
            tag,
            began,
            seconds: Vec::new(),
        }
    }

    /// Closes the files.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.log.map_or(Ok(()), HdrLog::finish)
    }
}

/// What watches one run.
pub(super) struct Watching<'a> {
    metrics: Option<&'a LiveMetrics>,
    live: Live,
    log: Option<&'a mut HdrLog>,
    tag: Option<String>,
    began: &'a Cell<SystemTime>,
    seconds: Vec<Point>,
}

impl Watching<'_> {
    /// Ends the view on the terminal, and returns the seconds.
    pub(super) fn end(self) -> Vec<Point> {
        self.seconds
    }
}

impl Watch for Watching<'_> {
    fn second(&mut self, second: &Second<'_>) {
        self.seconds.extend(Point::of(second));
        if let Some(log) = &mut self.log {
            log.add(self.began.get(), self.tag.as_deref(), second);
        }
        if let Some(metrics) = self.metrics {
            metrics.add(second);
        }
        self.live.second(second);
    }
}
