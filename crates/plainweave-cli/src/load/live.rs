//! What is shown while a run lasts: on a terminal a line that is written anew each second, elsewhere one now and then.

use std::io::{IsTerminal, Write, stderr};

use super::collect::{Second, Watch};
use super::plan::Plan;
use super::text;

/// Seconds between two lines if standard error is no terminal.
const SELDOM: u64 = 10;

/// Shows the seconds of one run.
pub(super) struct Live {
    terminal: bool,
    /// Seconds that the run is to take, with its warm-up; unknown if only the number of requests ends it.
    whole: Option<u64>,
}

impl Live {
    pub(super) fn new(plan: &Plan) -> Self {
        let whole = plan.duration.map(|duration| (plan.warm_up + duration).as_secs());
        Self { terminal: stderr().is_terminal(), whole }
    }
}

impl Watch for Live {
    fn second(&mut self, second: &Second<'_>) {
        let passed = second.number + 1;
        if !self.terminal && !passed.is_multiple_of(SELDOM) {
            return;
        }
        let tally = second.tally;
        let rate = (tally.ok + tally.warming) as f64 / (second.length as f64 / 1e9);
        let of = self.whole.map(|whole| format!(" of {whole}")).unwrap_or_default();
        let p99 = if tally.latency.is_empty() {
            String::new()
        } else {
            format!(", p99 {}", text::time(tally.latency.value_at_percentile(99.0) as f64 / 1e3))
        };
        let line = format!("{passed}{of} s: {rate:.0}/s, {} errors{p99}", tally.failures.total());
        let _ = if self.terminal { write!(stderr(), "\r\x1b[K{line}") } else { writeln!(stderr(), "{line}") };
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
