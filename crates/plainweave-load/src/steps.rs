//! The result of several runs: a row each.

use std::fmt::Write as _;

use super::report::Report;
use super::results::{Search, Series};
use super::summary::{PERCENTILES, Summary};
use super::sweep::Step;
use super::text::{self, key};

/// What a search was for, and what it found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) objective: String,
    pub(super) rate: Option<f64>,
}

/// All steps, and what they are of.
pub(super) struct Steps<'a> {
    pub(super) name: &'a str,
    pub(super) addresses: &'a [String],
    pub(super) steps: &'a [Step],
    pub(super) search: Option<&'a Found>,
}

/// Percentiles of the table.
const SHOWN: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];
/// Figures of the CSV and their units, before and after the percentiles of the latency.
const COLUMNS: [(&str, &str); 6] = [
    ("step", ""),
    ("intended_rate", "1/s"),
    ("rate", "1/s"),
    ("requests", "1"),
    ("ok", "1"),
    ("errors", "1"),
];
const LAST_COLUMNS: [(&str, &str); 6] = [
    ("kept", "share"),
    ("latency_mean", "us"),
    ("lateness_p99", "us"),
    ("client_busy", "share"),
    ("valid", ""),
    ("verdict", ""),
];

impl Steps<'_> {
    fn report<'a>(&'a self, step: &'a Step) -> Report<'a> {
        let summary = Summary::new(&step.plan, &step.outcome);
        Report {
            name: self.name,
            addresses: self.addresses,
            summary,
            verdict: &step.verdict,
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        if let Some(first) = self.steps.first() {
            text += &self.report(first).head_at("");
        }
        let _ = write!(text, "{:>9} {:>9} {:>8}", "rate/s", "answers/s", "errors");
        for name in SHOWN {
            let _ = write!(text, " {name:>9}");
        }
        let _ = writeln!(text, " {:>9}  verdict", "late p99");

        for step in self.steps {
            let summary = Summary::new(&step.plan, &step.outcome);
            let [intended, rate] =
                [step.plan.rate.unwrap_or(0.0), summary.rate()].map(text::short_rate);
            let _ = write!(
                text,
                "{intended:>9} {rate:>9} {:>6.2} %",
                summary.error_share() * 100.0
            );
            let latency = |name: &str| {
                PERCENTILES
                    .iter()
                    .find(|p| p.0 == name)
                    .and_then(|p| summary.latency(p.1))
            };

            for time in SHOWN
                .iter()
                .map(|name| latency(name))
                .chain([summary.lateness()])
            {
                let _ = write!(text, " {:>9}", time.map_or("-".to_owned(), text::time));
            }
            let _ = writeln!(text, "  {}", step.verdict.word());
        }

        if let Some(Found { objective, rate }) = self.search {
            let rate = rate.map_or("none was found".to_owned(), |rate| {
                format!("{rate} requests/s")
            });
            let _ = writeln!(text, "highest rate with {objective}: {rate}");
        }

        text
    }

    pub(super) fn csv(&self) -> String {
        let latencies = PERCENTILES
            .iter()
            .map(|(name, _)| (format!("latency_{name}"), "us"));
        let owned = |(name, unit): &(&str, &'static str)| ((*name).to_owned(), *unit);
        let columns: Vec<_> = COLUMNS
            .iter()
            .map(owned)
            .chain(latencies)
            .chain(LAST_COLUMNS.iter().map(owned))
            .collect();
        let names: Vec<_> = columns.iter().map(|(name, unit)| key(name, unit)).collect();
        let mut text = names.join(",") + "\n";

        for (number, step) in self.steps.iter().enumerate() {
            let figures = Summary::new(&step.plan, &step.outcome).figures();
            let fields = columns.iter().map(|(column, _)| match column.as_str() {
                "step" => (number + 1).to_string(),
                "valid" => u8::from(step.verdict.invalid.is_none()).to_string(),
                "verdict" => step.verdict.word().to_owned(),
                name => figures
                    .iter()
                    .find(|f| f.metric == name)
                    .map_or(String::new(), |f| f.value.to_string()),
            });
            text += &(fields.collect::<Vec<_>>().join(",") + "\n");
        }

        text
    }

    pub(super) fn results(&self) -> Series {
        let search = |Found { objective, rate }: &Found| Search {
            objective: objective.clone(),
            highest_rate: *rate,
        };
        Series {
            target: self.name.to_owned(),
            steps: self
                .steps
                .iter()
                .map(|step| self.report(step).results())
                .collect(),
            search: self.search.map(search),
        }
    }
}
