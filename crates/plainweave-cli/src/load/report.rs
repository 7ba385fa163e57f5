//! The result: a table, a CSV, a JSON document.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use serde_json::{Value, json};

use super::engine::Outcome;
use super::flags::Common;
use super::plan::Plan;
use super::schedule::Pace;

/// Percentiles shown, by name.
const PERCENTILES: [(&str, f64); 7] =
    [("p50", 50.0), ("p75", 75.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("max", 100.0)];

/// One figure.
struct Figure {
    metric: String,
    unit: &'static str,
    value: f64,
}

/// All figures of a run, and what they are of.
pub(super) struct Report<'a> {
    name: &'a str,
    addresses: &'a [SocketAddr],
    plan: &'a Plan,
    outcome: &'a Outcome,
}

impl<'a> Report<'a> {
    pub(super) fn new(name: &'a str, addresses: &'a [SocketAddr], plan: &'a Plan, outcome: &'a Outcome) -> Self {
        Self { name, addresses, plan, outcome }
    }

    /// Prints the table, or the JSON in its place, and writes the files asked for.
    pub(super) fn publish(&self, flags: &Common) -> anyhow::Result<()> {
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let json = flags.json.as_deref();
        let to_stdout = json == Some(Path::new("-"));
        crate::console::say(io::stdout(), (if to_stdout { self.json() } else { self.table() }).trim_end());
        if let Some(path) = json.filter(|_| !to_stdout) {
            write(path, self.json())?;
        }
        flags.csv.as_deref().map_or(Ok(()), |path| write(path, self.csv()))
    }

    fn loop_kind(&self) -> &'static str {
        match self.plan.pace {
            Pace::OnAnswer => "closed",
            Pace::Constant(_) => "open, constant",
            Pace::Poisson(_) => "open, Poisson",
            Pace::Distribution(..) => "open, by a distribution",
        }
    }

    /// Everything that is a number, in the order of the table.
    fn figures(&self) -> Vec<Figure> {
        let Outcome { tally, began, elapsed, cpu, .. } = self.outcome;
        let figure = |metric: &str, unit, value| Figure { metric: metric.to_owned(), unit, value };
        let seconds = elapsed.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let requests = tally.ok + tally.failures.total();
        let mut figures = vec![
            // Since 1970.
            figure("began", "s", began.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()),
            figure("elapsed", "s", seconds),
            figure("requests", "1", requests as f64),
            figure("ok", "1", tally.ok as f64),
            figure("errors", "1", tally.failures.total() as f64),
            figure("misses", "1", tally.misses as f64),
            figure("reconnects", "1", tally.reconnects as f64),
            figure("rate", "1/s", per_second(tally.ok_in_time)),
            figure("received", "B", tally.bytes as f64),
            figure("client_cpu", "s", cpu.as_secs_f64()),
        ];
        if let Some(rate) = self.plan.rate {
            figures.push(figure("intended_rate", "1/s", rate));
        }
        let us = |ns: f64| ns / 1000.0;
        if !tally.latency.is_empty() {
            figures.push(figure("latency_mean", "us", us(tally.latency.mean())));
        }
        for (prefix, histogram) in [("latency", &tally.latency), ("lateness", &tally.lateness)] {
            for (name, percentile) in PERCENTILES.iter().filter(|_| !histogram.is_empty()) {
                let value = us(histogram.value_at_percentile(*percentile) as f64);
                figures.push(figure(&format!("{prefix}_{name}"), "us", value));
            }
        }
        figures
    }

    fn table(&self) -> String {
        let (plan, Outcome { tally, elapsed, cpu, driver, .. }) = (self.plan, self.outcome);
        let figures = self.figures();
        let value = |name: &str| figures.iter().find(|figure| figure.metric == name).map_or(0.0, |f| f.value);
        let mut text = String::new();
        let rate = plan.rate.map_or(String::new(), |rate| format!(" {rate} requests/s,"));
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "{} ({}): {} loop,{rate} {} connection{}, depth {}, {} worker{}, driver {driver}, mode {}, seed {}",
            self.name,
            self.addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", "),
            self.loop_kind(),
            plan.connections,
            plural(plan.connections),
            plan.depth,
            plan.workers,
            plural(plan.workers),
            plan.mode,
            plan.seed,
        );
        let requests = value("requests");
        let _ = writeln!(text, "answers   {} in {:.3} s, {:.1}/s", tally.ok, elapsed.as_secs_f64(), value("rate"));
        let _ = writeln!(text, "errors    {}: {}", tally.failures.total(), tally.failures);
        if tally.misses > 0 {
            let _ = writeln!(text, "misses    {}", tally.misses);
        }
        let _ = writeln!(text, "received  {} bytes", tally.bytes);
        let each = if requests > 0.0 { cpu.as_secs_f64() * 1e6 / requests } else { 0.0 };
        let _ = writeln!(text, "this program's CPU  {:.3} s, {each:.2} us a request", cpu.as_secs_f64());
        for (title, prefix) in [("latency", "latency"), ("sent late by", "lateness")] {
            let of = |name: &str| figures.iter().find(|f| f.metric == format!("{prefix}_{name}"));
            let shown = PERCENTILES.iter().filter_map(|(name, _)| Some((name, of(name)?.value)));
            let shown: Vec<_> = shown.map(|(name, value)| format!("{name} {}", time(value))).collect();
            if !shown.is_empty() {
                let _ = writeln!(text, "{title:<9} {}", shown.join("  "));
            }
        }
        text
    }

    fn csv(&self) -> String {
        let mut text = "metric,unit,value\n".to_owned();
        for Figure { metric, unit, value } in self.figures() {
            let _ = writeln!(text, "{metric},{unit},{value}");
        }
        for (failure, count) in self.outcome.tally.failures.by_kind() {
            let _ = writeln!(text, "errors: {},1,{count}", failure.name());
        }
        text
    }

    fn json(&self) -> String {
        let plan = self.plan;
        let errors = self.outcome.tally.failures.by_kind();
        let errors: serde_json::Map<_, _> = errors.map(|(f, n)| (f.name().into_owned(), json!(n))).collect();
        let figures = self.figures().into_iter().map(|figure| {
            let whole = figure.value.fract() == 0.0 && figure.unit == "1";
            let value = if whole { json!(figure.value as u64) } else { json!(figure.value) };
            let unit = match figure.unit {
                "us" => "_us",
                "s" => "_seconds",
                "1/s" => "_per_second",
                "B" => "_bytes",
                _ => "",
            };
            (format!("{}{unit}", figure.metric), value)
        });
        let document = json!({
            "target": self.name,
            "addresses": self.addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
            "loop": self.loop_kind(),
            "connections": plan.connections,
            "depth": plan.depth,
            "workers": plan.workers,
            "driver": self.outcome.driver,
            "mode": plan.mode.to_string(),
            "seed": plan.seed,
            "errors_by_kind": errors,
            "figures": figures.collect::<serde_json::Map<String, Value>>(),
        });
        format!("{document:#}\n")
    }
}

/// Microseconds, for a person.
fn time(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} us"),
        1e3..1e6 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.3} s", us / 1e6),
    }
}
