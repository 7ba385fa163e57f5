//! The result as a page of HTML that needs nothing beside it: tables, and plots as SVG, light or
//! dark as the reader's system is.

use std::fmt::Write as _;

use plainweave_report::Role;
use plainweave_report::lines::{Line, Panel, plain};
use plainweave_report::statistics::Spread;
use plainweave_report::text::escape;

use super::series::{NAMES, Point};
use super::steps::Steps;
use super::summary::Summary;
use super::text;
use super::verdict::Verdict;

/// Of this page, besides that of the pictures.
const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:780px;margin:2em auto;\
padding:0 1em}h1{font-size:1.4em}p.head{color:var(--faint)}p.bad{background:var(--bad);padding:.2em .6em}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
td,th{padding:.2em .6em;text-align:right;border-bottom:1px solid var(--rule)}\
td:first-child,th:first-child{text-align:left}pre{overflow-x:auto;font-size:.8em}.panels{margin:1.5em 0}\
.wide{overflow-x:auto}.values{font-size:.8em}summary{cursor:pointer}\
ul.key{display:flex;flex-wrap:wrap;gap:.4em 2em;list-style:none;margin:1em 0;padding:0}\
ul.key b{display:block;font-size:1.3em}";

/// Percentiles of the plot of one run: how far from all, in steps of a decade.
const TAIL: i32 = 5;

/// Returns the page of one run. `head` is a line of text.
pub(super) fn run(head: &str, verdict: &Verdict, summary: &Summary<'_>) -> String {
    let mut notes = verdict.notes();
    notes.extend(
        verdict
            .invalid
            .iter()
            .filter(|_| verdict.unjudged.is_empty())
            .map(|why| format!("invalid: {why}")),
    );
    let mut body = key_figures(summary);
    let [rates, latencies] = over_time(&summary.outcome.seconds);
    body += &side_by_side(&[rates, latencies, distribution(summary)]);
    body += &table(summary);

    page(head, &notes, &body)
}

/// Returns the page of several runs.
pub(super) fn steps(head: &str, notes: &[String], steps: &Steps<'_>) -> String {
    let summaries: Vec<_> = steps
        .steps
        .iter()
        .map(|step| Summary::new(&step.plan, &step.outcome))
        .collect();
    let rate = |summary: &Summary<'_>| summary.plan.rate.unwrap_or(0.0);
    let line = |name: &str, value: &dyn Fn(&Summary<'_>) -> Option<f64>| {
        let mut points: Vec<_> = summaries
            .iter()
            .filter_map(|s| Some((rate(s), value(s)?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        named(name, points)
    };

    let percentiles = [
        ("p50", 50.0),
        ("p99", 99.0),
        ("p99.9", 99.9),
        ("max", 100.0),
    ];
    let latencies =
        percentiles.map(|(name, percentile)| line(name, &|summary| summary.latency(percentile)));
    let kept = [
        line("answered", &|summary| Some(summary.rate())),
        line("asked for", &|summary| Some(rate(summary))),
    ];
    let failed = line("failed", &|summary| Some(summary.error_share() * 100.0));

    let asked = "requests/s asked for";
    let panels = [
        panel("Throughput", asked, "answers/s", "1/s", kept.into()),
        latency(asked, latencies.into()),
        panel("Errors", asked, "share of the requests", "%", vec![failed]),
    ];
    let body = format!("<pre>{}</pre>\n", escape(steps.table().trim_end()));
    page(head, notes, &(body + &side_by_side(&panels)))
}

/// Makes a line of values that have no spread.
fn named(name: &str, points: Vec<(f64, f64)>) -> Line {
    let point = |(place, value)| (place, Spread::of(&[value]));
    Line {
        name: name.to_owned(),
        role: Role::Ours,
        points: points.into_iter().map(point).collect(),
    }
}

fn panel(title: &str, across: &str, upwards: &str, unit: &str, lines: Vec<Line>) -> Panel {
    Panel {
        title: title.to_owned(),
        across: across.to_owned(),
        place: plain,
        upwards: upwards.to_owned(),
        unit: unit.to_owned(),
        log_across: false,
        log: false,
        extremes: false,
        lines,
    }
}

fn latency(across: &str, lines: Vec<Line>) -> Panel {
    Panel {
        log: true,
        ..panel("Latency", across, "latency, log scale", "us", lines)
    }
}

fn side_by_side(panels: &[Panel]) -> String {
    let figures: String = panels.iter().map(Panel::figure).collect();
    format!("<div class='panels'>{figures}</div>\n")
}

/// Returns the figures that one looks for first.
fn key_figures(summary: &Summary<'_>) -> String {
    let latency = |percentile| {
        summary
            .latency(percentile)
            .map_or("none".to_owned(), text::time)
    };

    let figures = [
        ("answers", format!("{}/s", text::short_rate(summary.rate()))),
        ("p50", latency(50.0)),
        ("p99", latency(99.0)),
        ("slowest", latency(100.0)),
        ("errors", format!("{:.2} %", summary.error_share() * 100.0)),
    ];
    let figures = figures.map(|(name, value)| format!("<li><b>{value}</b>{name}"));
    format!("<ul class=\"key\">{}</ul>\n", figures.concat())
}

fn table(summary: &Summary<'_>) -> String {
    let mut rows = String::new();
    for figure in summary
        .figures()
        .into_iter()
        .filter(|figure| figure.metric != "began")
    {
        let value = match figure.unit {
            "us" => text::time(figure.value),
            "share" => format!("{:.2} %", figure.value * 100.0),
            "1" | "B" => format!("{:.0}", figure.value),
            "1/s" => format!("{:.1}/s", figure.value),
            unit => format!("{:.3} {unit}", figure.value),
        };

        let _ = write!(
            rows,
            "<tr><td>{}<td>{}",
            escape(&figure.metric.replace('_', " ")),
            escape(&value)
        );
    }

    let tally = &summary.outcome.tally;
    for (failure, count) in tally.failures.by_kind() {
        let _ = write!(
            rows,
            "<tr><td>errors: {}<td>{count}",
            escape(&failure.name())
        );
    }

    for (status, count) in tally.statuses.by_status() {
        let _ = write!(rows, "<tr><td>status {status}<td>{count}");
    }
    format!("<details><summary>All figures</summary><table>{rows}</table></details>\n")
}

/// Draws the run over its seconds.
fn over_time(seconds: &[Point]) -> [Panel; 2] {
    // The rate of a fraction of a second at the end is mostly chance.
    let seconds = match seconds {
        [all @ .., last] if !all.is_empty() && last.at.fract() > 0.0 && last.at.fract() < 0.5 => {
            all
        }
        all => all,
    };

    let line = |name: &str, value: &dyn Fn(&Point) -> Option<f64>| {
        let points = seconds
            .iter()
            .filter_map(|point| Some((point.at, value(point)?)));
        named(name, points.collect())
    };

    let latencies =
        [0, 2, 4].map(|n: usize| line(NAMES[n], &|point| point.latency.map(|latency| latency[n])));
    let counts = vec![
        line("answers", &|point| Some(point.rate)),
        line("errors", &|point| Some(point.errors)),
    ];

    [
        panel("Answers and errors", "seconds", "per second", "1/s", counts),
        latency("seconds", latencies.into()),
    ]
}

/// Draws the latency by percentile, each nine as wide as the one before.
fn distribution(summary: &Summary<'_>) -> Panel {
    let count = summary.outcome.tally.latency.len() as f64;
    let nines = (0..=TAIL * 10)
        .map(|tenth| 10f64.powf(f64::from(tenth) / 10.0))
        .filter(|nine| *nine <= count);
    let points = nines
        .filter_map(|nine| Some((nine, summary.latency(100.0 - 100.0 / nine)?)))
        .collect();

    let across = "share of requests that took no longer";
    Panel {
        title: "Latency by percentile".to_owned(),
        log_across: true,
        place: |nine| format!("{} %", text::trimmed(100.0 - 100.0 / nine)),
        ..latency(across, vec![named("latency", points)])
    }
}

fn page(head: &str, notes: &[String], body: &str) -> String {
    let notes: String = notes
        .iter()
        .map(|note| format!("<p class=\"bad\">{}</p>\n", escape(note)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>plainweave load</title><style>{}{STYLE}</style>\n\
         <h1>plainweave load</h1>\n<p class=\"head\">{}</p>\n{notes}{body}</html>\n",
        plainweave_report::STYLE,
        escape(head.trim())
    )
}
