//! The result of a run: a table, a CSV, a document.

use std::fmt::Write as _;

use super::plan::MODE;
use super::results::Results;
use super::schedule::Pace;
use super::series::Point;
use super::summary::{Figure, Outcome, PERCENTILES, Summary};
use super::text::{key, time};
use super::verdict::Verdict;

/// All figures of a run, and what they are of.
pub(super) struct Report<'a> {
    pub(super) name: &'a str,
    pub(super) addresses: &'a [String],
    pub(super) summary: Summary<'a>,
    pub(super) verdict: &'a Verdict,
}

impl Report<'_> {
    fn loop_kind(&self) -> &'static str {
        match self.summary.plan.pace {
            Pace::OnAnswer => "closed",
            Pace::Constant(_) => "open, constant",
            Pace::Poisson(_) => "open, Poisson",
            Pace::Distribution(..) => "open, by a distribution",
        }
    }

    /// Returns the line that says what was done.
    pub(super) fn head(&self) -> String {
        let rate = self
            .summary
            .plan
            .rate
            .map_or(String::new(), |rate| format!(" {rate} requests/s,"));
        self.head_at(&rate)
    }

    /// Returns the same with these words on the rate.
    pub(super) fn head_at(&self, rate: &str) -> String {
        let Summary { plan, outcome } = self.summary;
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        format!(
            "{} ({}): {} loop,{rate} {} connection{}, {}, {} worker{}, driver {}, mode {}, seed {}\n",
            self.name,
            self.addresses.join(", "),
            self.loop_kind(),
            plan.connections,
            plural(plan.connections),
            // Of a protocol with streams, the depth is theirs.
            if plan.streams > 1 {
                format!("{} streams each", plan.streams)
            } else {
                format!("depth {}", plan.depth)
            },
            plan.workers,
            plural(plan.workers),
            outcome.driver,
            MODE,
            plan.seed,
        )
    }

    pub(super) fn table(&self) -> String {
        let Outcome {
            tally,
            elapsed,
            cpu,
            ..
        } = self.summary.outcome;
        let figures = self.summary.figures();
        let value = |name: &str| {
            figures
                .iter()
                .find(|figure| figure.metric == name)
                .map_or(0.0, |f| f.value)
        };

        let mut text = self.head();
        let requests = value("requests");
        let _ = writeln!(
            text,
            "answers   {} in {:.3} s, {:.1}/s",
            tally.ok,
            elapsed.as_secs_f64(),
            value("rate")
        );
        let _ = writeln!(
            text,
            "errors    {}: {}",
            tally.failures.total(),
            tally.failures
        );

        if tally.unanswered > 0 {
            let _ = writeln!(
                text,
                "cut off   {} requests without an answer when a signal came",
                tally.unanswered
            );
        }

        let statuses = tally.statuses.to_string();
        if !statuses.is_empty() {
            let _ = writeln!(text, "statuses  {statuses}");
        }
        if tally.misses > 0 {
            let _ = writeln!(text, "misses    {}", tally.misses);
        }
        let _ = writeln!(text, "received  {} bytes", tally.bytes);
        let each = if requests > 0.0 {
            cpu.as_secs_f64() * 1e6 / requests
        } else {
            0.0
        };

        let _ = writeln!(
            text,
            "this program's CPU  {:.3} s, {each:.2} us a request",
            cpu.as_secs_f64()
        );
        let prefixes = [
            ("latency", "latency"),
            ("sent late by", "lateness"),
            ("connect", "connect"),
        ];
        for (title, prefix) in prefixes.into_iter().chain([("handshake", "handshake")]) {
            let of = |name: &str| {
                figures
                    .iter()
                    .find(|f| f.metric == format!("{prefix}_{name}"))
            };

            let shown = PERCENTILES
                .iter()
                .filter_map(|(name, _)| Some((name, of(name)?.value)));
            let shown: Vec<_> = shown
                .map(|(name, value)| format!("{name} {}", time(value)))
                .collect();
            if !shown.is_empty() {
                let _ = writeln!(text, "{title:<9} {}", shown.join("  "));
            }
        }

        if let Some(reason) = &self.verdict.invalid {
            let _ = writeln!(text, "INVALID   {reason}");
        }
        text
    }

    pub(super) fn csv(&self) -> String {
        let mut text = "metric,unit,value\n".to_owned();
        for Figure {
            metric,
            unit,
            value,
        } in self.summary.figures()
        {
            let _ = writeln!(text, "{metric},{unit},{value}");
        }
        let tally = &self.summary.outcome.tally;
        for (failure, count) in tally.failures.by_kind() {
            let _ = writeln!(text, "errors: {},1,{count}", failure.name());
        }
        for (status, count) in tally.statuses.by_status() {
            let _ = writeln!(text, "status: {status},1,{count}");
        }
        let _ = writeln!(
            text,
            "valid,bool,{}",
            u8::from(self.verdict.invalid.is_none())
        );

        text
    }

    pub(super) fn results(&self) -> Results {
        let Summary { plan, outcome } = self.summary;
        let figures = self.summary.figures().into_iter();
        let errors = outcome.tally.failures.by_kind();
        let statuses = outcome.tally.statuses.by_status();

        Results {
            target: self.name.to_owned(),
            addresses: self.addresses.to_vec(),
            pace: self.loop_kind().to_owned(),
            connections: plan.connections,
            depth: plan.depth,
            streams: plan.streams,
            workers: plan.workers,
            driver: outcome.driver.clone(),
            mode: MODE.to_string(),
            seed: plan.seed,
            errors_by_kind: errors
                .map(|(failure, count)| (failure.name().into_owned(), count))
                .collect(),
            answers_by_status: statuses
                .map(|(status, count)| (status.to_string(), count))
                .collect(),
            interrupted: outcome.interrupted,
            valid: self.verdict.invalid.is_none(),
            invalid_because: self.verdict.invalid.clone(),
            missed: self.verdict.missed.clone(),
            not_judged: self.verdict.unjudged.clone(),
            seconds: outcome.seconds.iter().map(Point::figures).collect(),
            figures: figures
                .map(|figure| (key(&figure.metric, figure.unit), figure.value))
                .collect(),
        }
    }
}
