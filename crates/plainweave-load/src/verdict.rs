//! Whether a run met its objectives.

use super::exit::Exit;
use super::flags::Common;
use super::objective::{Condition, Metric};
use super::summary::Summary;
use super::text;

/// What a run is held to.
#[derive(Clone, Debug)]
pub(super) struct Objectives {
    /// The run fails if one of them holds.
    pub(super) fail_if: Vec<Condition>,
    /// The run fails unless all of them hold.
    pub(super) require: Vec<Condition>,
    /// Greatest share of requests that may fail.
    pub(super) max_errors: f64,
    /// Least share of the intended rate.
    pub(super) min_rate: f64,
    /// Greatest lateness of this program, as a share of the latency.
    pub(super) max_lateness: f64,
}

/// The judgement of a run, in sentences.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    pub(super) missed: Vec<String>,
    /// Some of that is by a condition of `--fail-if`, or leaves nothing to judge them by.
    failed: bool,
    /// Why latencies are not the server's alone.
    pub(super) invalid: Option<String>,
    /// Objectives that for this reason are not judged.
    pub(super) unjudged: Vec<String>,
}

impl Verdict {
    pub(super) fn exit(&self) -> Exit {
        match (self.missed.is_empty(), self.unjudged.is_empty()) {
            (true, true) => Exit::Met,
            (true, false) => Exit::Invalid,
            (false, _) => Exit::Missed,
        }
    }

    /// Returns what a run among several counts for: conditions of `--fail-if` alone, if there are
    /// any.
    pub(super) fn steps_exit(&self) -> Exit {
        match (self.failed, self.unjudged.is_empty()) {
            (true, _) => Exit::Missed,
            (false, false) => Exit::Invalid,
            (false, true) => Exit::Met,
        }
    }

    /// Returns what was not met, and why what is not judged is not, in sentences.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.missed.clone();
        if let (Some(reason), false) = (&self.invalid, self.unjudged.is_empty()) {
            notes.push(format!(
                "not judged: {}: {reason}",
                self.unjudged.join(", ")
            ));
        }
        notes
    }

    /// Returns the verdict in a word.
    pub(super) fn word(&self) -> &'static str {
        match (self.exit(), &self.invalid) {
            (Exit::Missed, _) => "missed",
            (Exit::Met, None) => "met",
            _ => "invalid",
        }
    }
}

impl Objectives {
    /// Takes what the flags say.
    pub(super) fn new(common: &Common) -> Self {
        let require = common
            .search
            .as_ref()
            .map_or_else(Vec::new, |conditions| conditions.0.clone());
        // A search that is to find a rate with errors says how many.
        let errors = require
            .iter()
            .any(|condition| condition.metric == Metric::Errors);
        Self {
            fail_if: common.fail_if.clone(),
            require,
            max_errors: if errors { 1.0 } else { common.max_errors },
            min_rate: common.min_rate,
            max_lateness: common.max_lateness,
        }
    }

    /// Judges a run against `name`.
    pub(super) fn judge(&self, name: &str, summary: &Summary<'_>) -> Verdict {
        let tally = &summary.outcome.tally;
        let mut verdict = Verdict::default();
        if tally.ok == 0 {
            // Stopped before anything could be answered: nobody's fault.
            if summary.outcome.interrupted && tally.failures.total() == 0 {
                return verdict;
            }
            verdict.missed.push(format!(
                "no request to {name} succeeded: {}",
                tally.failures
            ));
            // Without an answer most figures are not there: no condition may pass because of that.
            verdict.failed = !self.fail_if.is_empty();
            return verdict;
        }

        verdict.invalid = self.invalid(summary);
        let share = summary.error_share();
        if share > self.max_errors {
            let most = self.max_errors * 100.0;
            let kinds = &tally.failures;
            let failed = format!(
                "{:.1} % of the requests failed, and --max-errors allows {most} %",
                above(share)
            );
            verdict.missed.push(format!("{failed}: {kinds}"));
        }

        verdict.missed.extend(self.shortfall(summary));
        let conditions = self.fail_if.iter().map(|condition| (condition, true));
        for (condition, fails) in
            conditions.chain(self.require.iter().map(|condition| (condition, false)))
        {
            // A figure that is not there, as lateness in a closed loop, exceeds nothing.
            let Some(figure) = summary.figure(condition) else {
                continue;
            };
            // Lateness adds to latencies: one within the bound is so without it too.
            if verdict.invalid.is_some()
                && condition.metric.is_latency()
                && condition.is_exceeded(figure)
            {
                verdict.unjudged.push(condition.to_string());
            // `--fail-if` names what must not be, `--search` what must.
            } else if condition.holds(figure) == fails {
                verdict.missed.push(format!(
                    "{condition}: it was {}",
                    text::figure(condition, figure)
                ));
                verdict.failed |= fails;
            }
        }

        verdict
    }

    fn invalid(&self, summary: &Summary<'_>) -> Option<String> {
        // Latencies are judged only where this program itself added little to them.
        let share = summary
            .lateness_share()
            .filter(|share| *share > self.max_lateness)?;
        let [late, latency] =
            [summary.lateness(), summary.latency(99.0)].map(|us| text::time(us.unwrap_or(0.0)));
        Some(format!(
            "this program itself sent {late} late (p99), {:.1} % of the latency of {latency} that it measured, and \
             --max-lateness allows {} %: give it more CPUs or a lower rate",
            above(share),
            self.max_lateness * 100.0
        ))
    }

    fn shortfall(&self, summary: &Summary<'_>) -> Option<String> {
        let rate = summary.plan.rate?;
        let kept = summary.kept().filter(|kept| *kept < self.min_rate)?;
        let limit = if summary.is_saturated() {
            let busy = summary.busy() * 100.0;
            format!(
                "; this program's workers were busy {busy:.0} % of the time, so that it may be the limit itself"
            )
        } else {
            String::new()
        };

        Some(format!(
            "the rate was not kept: of {rate} requests/s, {:.1} % were answered in time, and --min-rate asks for \
             {:.0} %{limit}",
            kept * 100.0,
            self.min_rate * 100.0
        ))
    }
}

/// Returns a share that is above a bound in percent, rounded so that it still reads as above it.
fn above(share: f64) -> f64 {
    (share * 1000.0).ceil() / 10.0
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use clap::Parser;

    use super::*;
    use crate::plan::Plan;
    use crate::summary::Outcome;
    use crate::tally::{Failure, Tally};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        common: Common,
    }

    #[test]
    fn what_is_above_a_bound_reads_so() {
        assert_eq!(
            [0.1, 0.10001, 0.1004, 0.25].map(above),
            [10.0, 10.1, 10.1, 25.0]
        );
    }

    /// A run of 1000 requests/s for 10 s, one worker, of which this many were answered, each in the
    /// same time.
    struct Run {
        answered: u64,
        failed: u64,
        latency: Duration,
        late: Duration,
        busy: Duration,
        interrupted: bool,
        misses: u64,
        statuses: &'static [(u16, u64)],
    }

    impl Default for Run {
        fn default() -> Self {
            let latency = Duration::from_millis(10);
            let late = Duration::from_micros(50);
            Self {
                answered: 10_000,
                failed: 0,
                latency,
                late,
                busy: Duration::from_secs(1),
                interrupted: false,
                misses: 0,
                statuses: &[],
            }
        }
    }

    impl Run {
        fn judged(&self, args: &[&str]) -> Verdict {
            let args = [&["load", "--rate", "1000", "--workers", "1"], args].concat();
            let common = Cli::try_parse_from(args).unwrap().common;
            let plan = Plan::new(&common, 1, 1.0, 1).unwrap();
            let mut tally = Tally::new();
            for _ in 0..self.answered {
                tally.answered(self.latency.as_nanos() as u64);
                tally.late(self.late.as_nanos() as u64);
            }

            tally.answers_in_time = self.answered;
            tally.misses = self.misses;
            for (status, count) in self.statuses {
                tally.statuses.add(*status, *count);
            }
            tally.failures.add(Failure::TimedOut, self.failed);
            let elapsed = Duration::from_secs(10);
            let began = SystemTime::UNIX_EPOCH;
            let driver = String::new();
            let interrupted = self.interrupted;
            let outcome = Outcome {
                tally,
                seconds: Vec::new(),
                began,
                elapsed,
                wall: elapsed,
                cpu: self.busy,
                driver,
                interrupted,
            };

            Objectives::new(&common).judge("server", &Summary::new(&plan, &outcome))
        }
    }

    #[test]
    fn conditions_decide() {
        let run = Run::default();
        assert_eq!(run.judged(&[]).exit(), Exit::Met);
        assert_eq!(
            run.judged(&["--fail-if", "p99>20ms", "--fail-if", "errors>0"])
                .exit(),
            Exit::Met
        );
        let verdict = run.judged(&[
            "--fail-if",
            "p99>5ms",
            "--fail-if",
            "max<1s",
            "--fail-if",
            "rate<1M",
        ]);
        assert_eq!(
            (verdict.exit(), verdict.missed.len()),
            (Exit::Missed, 3),
            "{verdict:?}"
        );
        assert!(
            verdict.missed[0].starts_with("p99>5ms: it was 10.0"),
            "{verdict:?}"
        );
        let errors = Run {
            answered: 9_900,
            failed: 100,
            ..Run::default()
        };

        assert_eq!(errors.judged(&["--fail-if", "errors>1%"]).exit(), Exit::Met);
        assert_eq!(
            errors.judged(&["--fail-if", "errors>=1%"]).exit(),
            Exit::Missed
        );
        assert_eq!(
            errors.judged(&["--fail-if", "errors>99"]).exit(),
            Exit::Missed
        );
    }

    #[test]
    fn statuses_and_misses_decide() {
        let run = Run {
            misses: 1_000,
            statuses: &[(200, 9_940), (304, 50), (404, 7), (503, 3)],
            ..Run::default()
        };

        for (condition, exit) in [
            ("404>7", Exit::Met),
            ("404>=7", Exit::Missed),
            ("4xx>0.06%", Exit::Missed),
            ("5xx>0.03%", Exit::Met),
            ("502>0", Exit::Met),
            ("200<99%", Exit::Met),
            ("misses>10%", Exit::Met),
            ("misses>999", Exit::Missed),
        ] {
            let verdict = run.judged(&["--fail-if", condition]);
            assert_eq!(verdict.exit(), exit, "{condition}: {verdict:?}");
        }
    }

    #[test]
    fn a_rate_that_was_not_kept_is_an_error() {
        let slow = Run {
            answered: 4_000,
            failed: 6_000,
            ..Run::default()
        };

        let args = ["--max-errors", "1"];
        let verdict = slow.judged(&args);
        assert_eq!(
            (verdict.exit(), verdict.missed.len()),
            (Exit::Missed, 1),
            "{verdict:?}"
        );
        assert!(
            verdict.missed[0].contains("the rate was not kept")
                && verdict.missed[0].contains("40.1 %")
        );
        assert!(!verdict.missed[0].contains("busy"));
        assert_eq!(
            slow.judged(&["--max-errors", "1", "--min-rate", "0"])
                .exit(),
            Exit::Met
        );
        let saturated = Run {
            busy: Duration::from_millis(9_500),
            ..slow
        }
        .judged(&args);

        assert!(
            saturated.missed[0].contains("may be the limit itself"),
            "{saturated:?}"
        );
        // However long answers take, no more are under way than there are connections: 64.
        let latency = Duration::from_secs(2);
        let queued = Run {
            answered: 1_000,
            failed: 9_000,
            latency,
            ..Run::default()
        }
        .judged(&args);
        assert!(queued.missed[0].contains("10.6 %"), "{queued:?}");

        // What a signal kept from being asked is nobody's failure.
        let interrupted = Run {
            answered: 4_000,
            failed: 6_000,
            interrupted: true,
            ..Run::default()
        };

        assert_eq!(interrupted.judged(&args).exit(), Exit::Met);
    }

    #[test]
    fn a_late_client_does_not_judge_latencies() {
        let late = Run {
            late: Duration::from_millis(2),
            ..Run::default()
        };

        let verdict = late.judged(&[]);
        assert_eq!((verdict.exit(), verdict.word()), (Exit::Met, "invalid"));
        // Without its lateness the latency would be less, so that it cannot exceed 20 ms.
        assert_eq!(late.judged(&["--fail-if", "p99>20ms"]).exit(), Exit::Met);

        for condition in ["p99>5ms", "p99<5ms"] {
            let verdict = late.judged(&["--fail-if", condition]);
            assert_eq!(
                (verdict.exit(), verdict.unjudged.as_slice()),
                (Exit::Invalid, &[condition.to_owned()][..])
            );
            assert!(verdict.invalid.unwrap().contains("sent 2.00 ms late"));
        }

        let rate = late.judged(&["--fail-if", "rate<95%", "--fail-if", "p50>1s"]);
        assert_eq!(
            rate.exit(),
            Exit::Missed,
            "a rate is judged all the same: {rate:?}"
        );
        assert_eq!(
            late.judged(&["--max-lateness", "0.5", "--fail-if", "p99>5ms"])
                .exit(),
            Exit::Missed
        );
    }

    #[test]
    fn nothing_answered_is_always_an_error() {
        let none = Run {
            answered: 0,
            failed: 10,
            ..Run::default()
        };

        let verdict = none.judged(&["--max-errors", "1", "--min-rate", "0"]);
        assert_eq!(
            verdict.missed,
            ["no request to server succeeded: timeout 10"]
        );
        assert_eq!(
            verdict.steps_exit(),
            Exit::Met,
            "a sweep without conditions may go that far"
        );

        for condition in ["errors>0", "p99>20ms", "rate<50%"] {
            assert_eq!(
                none.judged(&["--fail-if", condition]).steps_exit(),
                Exit::Missed,
                "{condition}"
            );
        }
    }
}
