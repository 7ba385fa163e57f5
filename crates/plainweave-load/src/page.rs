//! The result as a page of HTML that needs nothing beside it: tables, and plots as SVG, light or
//! dark as the reader's system is.

use std::fmt::Write as _;

use plainweave_report::text::escape;

use super::chart::{Axis, Chart, Line};
use super::series::{NAMES, Point};
use super::steps::Steps;
use super::summary::Summary;
use super::text;
use super::verdict::Verdict;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2430;--paper:#fff;--soft:#667085;--grid:#e3e7ee;--c0:#1f6feb;--c1:#d1462f;\
--c2:#2e8540;--c3:#8a4fbf;--c4:#b7791f;--c5:#0e7c86}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--paper:#14181f;--soft:#98a2b3;--grid:#2b323d;--c0:#6ea8fe;\
--c1:#ff8a70;--c2:#6fcf83;--c3:#c79bf2;--c4:#e7b65c;--c5:#5cc9d3}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:780px;margin:2em auto;\
padding:0 1em}h1{font-size:1.4em}p.head{color:var(--soft)}p.bad{color:var(--c1)}table{border-collapse:collapse;\
width:100%;font-variant-numeric:tabular-nums}td,th{padding:.2em .6em;text-align:right;border-bottom:1px solid \
var(--grid)}td:first-child,th:first-child{text-align:left}figure{margin:2em 0}figcaption{font-weight:600}\
figcaption span{font-weight:400;margin-left:1em}svg{width:100%;height:auto}pre{overflow-x:auto;font-size:.8em}\
svg text{font-size:13px;fill:var(--soft)}\
@media(max-width:600px){svg text{font-size:20px}}\
ul.key{display:flex;flex-wrap:wrap;gap:.4em 2em;list-style:none;margin:1em 0;padding:0}\
ul.key b{display:block;font-size:1.3em}\
.e{text-anchor:end}.m{text-anchor:middle}.g{stroke:var(--grid)}polyline{fill:none;stroke-width:1.8}\
.k0{color:var(--c0)}.k1{color:var(--c1)}.k2{color:var(--c2)}.k3{color:var(--c3)}.k4{color:var(--c4)}\
.k5{color:var(--c5)}\
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}.l4{stroke:var(--c4)}\
.l5{stroke:var(--c5)}.d0{fill:var(--c0)}.d1{fill:var(--c1)}.d2{fill:var(--c2)}.d3{fill:var(--c3)}.d4{fill:var(--c4)}\
.d5{fill:var(--c5)}";

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
    body += &over_time(&summary.outcome.seconds);
    body += &distribution(summary);
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
        Line {
            name: name.to_owned(),
            points,
        }
    };

    let asked = Axis {
        title: "requests/s asked for",
        log: false,
        write: text::short_rate,
    };

    let answers = Axis {
        title: "answers/s",
        log: false,
        write: text::short_rate,
    };

    let latencies = [
        ("p50", 50.0),
        ("p99", 99.0),
        ("p99.9", 99.9),
        ("max", 100.0),
    ];
    let latencies =
        latencies.map(|(name, percentile)| line(name, &|summary| summary.latency(percentile)));
    let kept = [
        line("answered", &|summary| Some(summary.rate())),
        line("asked for", &|summary| Some(rate(summary))),
    ];
    let failed = line("failed", &|summary| Some(summary.error_share() * 100.0));
    let percent = Axis {
        title: "% of the requests",
        log: false,
        write: |value| format!("{value:.3}"),
    };

    let charts = [
        Chart {
            title: "Throughput",
            x: asked,
            y: answers,
            lines: kept.into(),
        },
        Chart {
            title: "Latency",
            x: asked,
            y: LATENCY,
            lines: latencies.into(),
        },
        Chart {
            title: "Errors",
            x: asked,
            y: percent,
            lines: vec![failed],
        },
    ];
    let body = format!("<pre>{}</pre>\n", escape(steps.table().trim_end()));
    page(
        head,
        notes,
        &(body + &charts.iter().map(Chart::html).collect::<String>()),
    )
}

const LATENCY: Axis = Axis {
    title: "latency",
    log: true,
    write: text::time,
};

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

fn over_time(seconds: &[Point]) -> String {
    // The rate of a fraction of a second at the end is mostly chance.
    let seconds = match seconds {
        [all @ .., last] if !all.is_empty() && last.at.fract() > 0.0 && last.at.fract() < 0.5 => {
            all
        }
        all => all,
    };

    let x = Axis {
        title: "seconds",
        log: false,
        write: |value| format!("{value:.0}"),
    };

    let line = |name: &str, value: &dyn Fn(&Point) -> Option<f64>| {
        let points = seconds
            .iter()
            .filter_map(|point| Some((point.at, value(point)?)));
        Line {
            name: name.to_owned(),
            points: points.collect(),
        }
    };

    let per_second = Axis {
        title: "per second",
        log: false,
        write: text::short_rate,
    };

    let latencies =
        [0, 2, 4].map(|n: usize| line(NAMES[n], &|point| point.latency.map(|latency| latency[n])));
    let counts = vec![
        line("answers", &|point| Some(point.rate)),
        line("errors", &|point| Some(point.errors)),
    ];
    let rates = Chart {
        title: "Answers and errors",
        x,
        y: per_second,
        lines: counts,
    };

    let latencies = Chart {
        title: "Latency",
        x,
        y: LATENCY,
        lines: latencies.into(),
    };

    rates.html() + &latencies.html()
}

/// Plots the latency by percentile, each nine as wide as the one before.
fn distribution(summary: &Summary<'_>) -> String {
    let count = summary.outcome.tally.latency.len() as f64;
    let nines = (0..=TAIL * 10)
        .map(|tenth| 10f64.powf(f64::from(tenth) / 10.0))
        .filter(|nine| *nine <= count);
    let points = nines
        .filter_map(|nine| Some((nine, summary.latency(100.0 - 100.0 / nine)?)))
        .collect();
    let write = |nine: f64| format!("{} %", text::trimmed(100.0 - 100.0 / nine));
    let x = Axis {
        title: "share of requests that took no longer",
        log: true,
        write,
    };

    let line = Line {
        name: "latency".to_owned(),
        points,
    };

    Chart {
        title: "Latency by percentile",
        x,
        y: LATENCY,
        lines: vec![line],
    }
    .html()
}

fn page(head: &str, notes: &[String], body: &str) -> String {
    let notes: String = notes
        .iter()
        .map(|note| format!("<p class=\"bad\">{}</p>\n", escape(note)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>plainweave load</title><style>{STYLE}</style>\n\
         <h1>plainweave load</h1>\n<p class=\"head\">{}</p>\n{notes}{body}</html>\n",
        escape(head.trim())
    )
}
