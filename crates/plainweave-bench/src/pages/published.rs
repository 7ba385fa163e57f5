//! Published figures beside ours: the workloads of the OCaml schedulers' thesis, and whether its claims hold here.
//!
//! `figures` has what is published, `claims` judges it by our rows. The machines differ (5 to 115 domains there, a few
//! workers here), so no two values are compared: what is judged is how our lines stand to each other. A case is taken
//! from the newest file that has it. What takes more workers is left to the simulator, and the page says so.

mod claims;
mod figures;

use std::fmt::Write as _;

use super::experiment;
use super::meaning::words;
use super::source::Table;
use crate::plot::text::{attribute, escape};
use claims::{Finding, Line, Outcome, Rows, count, shown};
use figures::{Claim, Published, WORKLOADS, Workload};

/// A file of ours.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    pub(super) table: &'a Table,
    /// The name of its run.
    pub(super) run: &'a str,
    /// The page that has its plots, as this one links to it.
    pub(super) page: String,
}

/// Columns of ours where nothing was measured.
const COLUMNS: [usize; 2] = [1, 2];

/// Of this page, besides what all pages have.
pub(super) const STYLE: &str = "\
.claims{padding-left:1.2rem}.claims span{padding:1px 6px;border-radius:3px;white-space:nowrap}\
.claims small{color:var(--faint)}";

/// Returns whether a file has rows that stand beside published ones.
pub(super) fn is_beside(table: &Table) -> bool {
    let sources = [Source { table, run: "", page: String::new() }];
    WORKLOADS.iter().any(|workload| !Beside::new(*workload, &sources).files.is_empty())
}

/// Returns how the claims come out, in a sentence.
pub(super) fn sentence(sources: &[Source<'_>]) -> String {
    let outcomes: Vec<_> = WORKLOADS.iter().flat_map(|workload| Beside::new(*workload, sources).outcomes()).collect();
    let of = |outcome| outcomes.iter().filter(|one| **one == outcome).count();
    format!(
        "{} claims of a thesis on schedulers; holding here: {}, not holding: {}, not measured or beyond this machine: \
         {}.",
        outcomes.len(),
        of(Outcome::Holds),
        of(Outcome::Fails),
        of(Outcome::Open)
    )
}

/// Writes the page's body, from the newest file to the oldest.
pub(super) fn body(sources: &[Source<'_>]) -> String {
    let mut html = format!(
        "<p>{} Published: medians on two EPYC 7702 with 5 to 115 domains, read off charts to within 5 %. Ours: medians \
         of the newest file that has the case; sizes are smaller than published unless <code>--full</code> was given. \
         The machines differ: look at how lines stand to each other. What takes more workers is left to the simulator \
         (<code>plainweave sim</code>, docs/simulator.md), and simulated figures are not on this page.</p><nav>",
        sentence(sources)
    );
    for Workload { title, .. } in WORKLOADS {
        let _ = write!(html, "<a href='#{}'>{}</a> ", experiment::id(title), escape(title));
    }
    html.push_str("</nav>");
    for workload in WORKLOADS {
        html.push_str(&Beside::new(*workload, sources).section());
    }
    html
}

/// A workload, and what we have of it.
struct Beside<'a> {
    workload: Workload,
    rows: Rows<'a>,
    /// The files of the rows.
    files: Vec<&'a Source<'a>>,
}

impl<'a> Beside<'a> {
    fn new(workload: Workload, sources: &'a [Source<'a>]) -> Self {
        let (mut rows, mut files) = (Rows::default(), Vec::new());
        for source in sources.iter().filter(|source| source.table.experiment == workload.experiment) {
            let new = |case: &str| workload.has(case) && rows.0.iter().all(|figure| figure.case != case);
            let figures: Vec<_> = source.table.figures.iter().filter(|figure| new(&figure.case)).collect();
            if !figures.is_empty() {
                rows.0.extend(figures);
                files.push(source);
            }
        }
        Self { workload, rows, files }
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.workload.claims.iter().map(|claim| Outcome::of(&(claim.judge)(&self.rows))).collect()
    }

    fn section(&self) -> String {
        let Workload { title, command, source, claims, simulated, .. } = self.workload;
        let mut html = format!(
            "<section id='{}'><h2>{}</h2><p>Published: {}. Ours: {}.</p>",
            experiment::id(title),
            escape(title),
            escape(source),
            self.origin()
        );
        html.push_str(&self.table());
        html.push_str("<ul class='claims'>");
        claims.iter().for_each(|claim| html.push_str(&self.claim(claim)));
        html.push_str("</ul>");
        let simulated = match simulated {
            Some(simulator) => format!(": <code>{}</code>", escape(simulator)),
            None => ", which does not have this workload".to_owned(),
        };
        let _ = write!(
            html,
            "<p>Ours: <code>{}</code>. More workers are left to the simulator{simulated}.</p></section>",
            escape(command)
        );
        html
    }

    /// Returns where our figures are from, and the parameters of their cases.
    fn origin(&self) -> String {
        if self.files.is_empty() {
            return "not measured".to_owned();
        }
        let file = |Source { table, run, page }: &&Source<'_>| {
            let plans = table.facts.iter().filter(|(key, _)| key == "case").map(|(_, plan)| plan);
            let plans = plans.filter(|plan| self.workload.has(plan.split(':').next().unwrap_or_default()));
            let plans: Vec<_> = plans.map(|plan| escape(plan)).collect();
            format!(
                "<a href='{page}#{}'>{}</a>, commit {} <small class='faint'>{}</small>",
                experiment::id(&table.name),
                escape(run),
                escape(table.fact("commit").unwrap_or("not recorded")),
                plans.join("; ")
            )
        };
        self.files.iter().map(file).collect::<Vec<_>>().join("; ")
    }

    fn table(&self) -> String {
        let mut columns: Vec<usize> = self.rows.0.iter().map(|figure| figure.workers).collect();
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            columns = COLUMNS.to_vec();
        }
        let mut html =
            "<div class='wide'><table class='wins'><thead><tr><th></th><th>line</th><th>domains or load</th>\
                        <th>published</th>"
                .to_owned();
        for workers in &columns {
            let _ = write!(html, "<th>ours, {}</th>", count(*workers));
        }
        html.push_str("</tr></thead>");
        for Published { line, metric, unit, place, value } in self.workload.figures {
            let value = value.map_or("no value".to_owned(), |value| shown(value, unit));
            let _ = write!(
                html,
                "<tr><th>{}</th><td>{}</td><td>{}</td><td class='even'>{}</td>",
                escape(&words(metric)),
                escape(line.name),
                escape(place),
                escape(&value)
            );
            columns.iter().for_each(|workers| html.push_str(&self.cell(*line, metric, *workers)));
            html.push_str("</tr>");
        }
        html + "</table></div>"
    }

    /// Writes one of our figures, with its case and policy.
    fn cell(&self, line: Line, metric: &str, workers: usize) -> String {
        let Some(figure) = self.rows.get(line, metric, workers) else {
            return "<td><small>not measured</small></td>".to_owned();
        };
        let value = |value| shown(value, &figure.unit);
        let spread = figure.spread;
        format!(
            "<td title='{} to {}'>{}<br><small>{}: {}</small></td>",
            attribute(&value(spread.q1)),
            attribute(&value(spread.q3)),
            escape(&value(spread.median)),
            escape(&figure.case),
            escape(line.policy)
        )
    }

    fn claim(&self, claim: &Claim) -> String {
        let findings = (claim.judge)(&self.rows);
        let mut html = format!("<li>{}", escape(claim.text));
        for Finding { outcome, words } in findings {
            let (class, outcome) = (outcome.class(), outcome.words());
            let _ = write!(html, " <span class='{class}'>{outcome}</span> <small>{}</small>", escape(&words));
        }
        html + "</li>"
    }
}

impl Workload {
    /// Returns whether some line has this case.
    fn has(&self, case: &str) -> bool {
        self.figures.iter().any(|Published { line, .. }| match line.case.strip_suffix('N') {
            None => line.case == case,
            Some(start) => case.strip_prefix(start).is_some_and(|number| number.parse::<u64>().is_ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Beside, Outcome, Source, WORKLOADS, body, is_beside, sentence};
    use crate::pages::compare::tests::{figure, table};
    use crate::pages::source::{Figure, Table};
    use crate::thesis;

    fn source(table: &Table) -> Source<'_> {
        Source { table, run: "2026-01-01-lab", page: "2026-01-01-lab/index.html".to_owned() }
    }

    /// A row of ours in an experiment's own words.
    fn ours(case: &str, policy: &str, metric: &str, unit: &str, workers: usize, median: f64) -> Figure {
        let system = format!("plainweave {policy} before-start/shared");
        Figure { workers, ..figure(case, &system, metric, unit, median) }
    }

    fn rate(case: &str, policy: &str, workers: usize, median: f64) -> Figure {
        ours(case, policy, "throughput", "1/s", workers, median)
    }

    /// Returns what becomes of a workload's claims.
    fn outcomes(title: &str, experiment: &str, figures: Vec<Figure>) -> Vec<Outcome> {
        let table = table(experiment, figures);
        let workload = WORKLOADS.iter().find(|workload| workload.title == title).unwrap();
        Beside::new(*workload, &[source(&table)]).outcomes()
    }

    #[test]
    fn each_published_line_is_one_that_the_benchmarks_measure() {
        for workload in WORKLOADS.iter().filter(|workload| workload.experiment != "queues") {
            for figure in workload.figures {
                let metric = (figure.metric, figure.unit);
                let known = thesis::reports(workload.experiment, figure.line.case, figure.line.policy, metric);
                assert!(known, "{}: {figure:?}", workload.title);
            }
        }
    }

    #[test]
    fn ours_stand_beside_the_published() {
        let mut packets = table(
            "packets",
            vec![
                rate("base", "ot-fifo-base", 2, 2.5e5),
                rate("base", "ot-lifo-base", 2, 4e5),
                rate("code", "fifo", 2, 1.0),
            ],
        );
        packets.facts = [("commit", "abc"), ("case", "base: packets=50000"), ("case", "code: packets=50000")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec();
        let html = body(&[source(&packets)]);
        for part in [
            "<a href='2026-01-01-lab/index.html#packets'>2026-01-01-lab</a>, commit abc",
            "base: packets=50000</small>",
            "<td>FIFO</td><td>5 domains</td><td class='even'>0.33 M/s</td>\
             <td title='0.225 M/s to 0.275 M/s'>0.25 M/s<br><small>base: ot-fifo-base",
            "<span class='good'>holds</span> <small>with 2 workers: LIFO 0.4 M/s, FIFO 0.25 M/s",
            "left to the simulator",
            "<th>ours, 2 workers</th>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let fib = html.split("id='fib'").nth(1).unwrap();
        assert!(fib.contains("Ours: not measured.") && fib.contains("<th>ours, 1 worker</th>"), "{fib}");
        assert!(sentence(&[source(&packets)]).contains("holding here: 1, not holding: 0,"));
        assert!(is_beside(&packets) && !is_beside(&table("packets", vec![rate("code", "fifo", 2, 1.0)])));
    }

    #[test]
    fn a_case_is_from_the_newest_file_that_has_it() {
        let new = table("packets", vec![rate("10m", "ot-fifo-base", 1, 3e5)]);
        let old = table("packets", vec![rate("10m", "ot-fifo-base", 1, 9e5), rate("base", "ot-fifo-base", 1, 8e5)]);
        let html = body(&[source(&new), source(&old)]);
        assert!(html.contains("0.3 M/s") && html.contains("0.8 M/s") && !html.contains("0.9 M/s<br>"), "{html}");
    }

    #[test]
    fn orders_are_judged_with_each_number_of_workers() {
        let p99 = |policy: &str, workers, us| ours("base", policy, "p99_us", "us", workers, us);
        let judge = |fifo: [f64; 2], lifo: [f64; 2]| {
            let of = |policy, us: [f64; 2]| [p99(policy, 1, us[0]), p99(policy, 2, us[1])];
            outcomes("options", "options", [of("ot-fifo-base", fifo), of("ot-lifo-base", lifo)].concat())
        };
        assert_eq!(judge([8.0, 4.0], [20.0, 9.0]), [Outcome::Holds, Outcome::Holds]);
        // Overlapping quartiles leave a claim open; failing once is enough.
        assert_eq!(judge([8.0, 8.0], [8.1, 8.1]), [Outcome::Open, Outcome::Open]);
        assert_eq!(judge([8.0, 9.0], [20.0, 4.0]), [Outcome::Fails, Outcome::Holds]);
        assert_eq!(outcomes("options", "options", Vec::new()), [Outcome::Open, Outcome::Open]);
    }

    #[test]
    fn a_course_and_a_control_are_judged() {
        let delay = |two: f64| {
            let rates = vec![rate("delay-spin", "ot-fifo-base", 1, 3e5), rate("delay-spin", "ot-fifo-base", 2, two)];
            outcomes("packets: delay-spin", "packets", rates)
        };
        assert_eq!([delay(3.1e5), delay(1e5)].concat(), [Outcome::Holds, Outcome::Fails]);
        let control = |lifo: f64| {
            let of = |policy, rates| rate("sequential", policy, 1, rates);
            let (fifo, lifo) = (of("ot-fifo-base:capacity=1024", 5e5), of("ot-lifo-base:capacity=1024", lifo));
            outcomes("cache-effects", "cache-effects", vec![fifo, lifo])[1]
        };
        assert_eq!([control(5.1e5), control(9e5)], [Outcome::Holds, Outcome::Fails]);
        let retries = |workers| ours("base", "ot-fifo-base", "insert_retries", "count", workers, 7.0);
        assert_eq!(outcomes("packets: base", "packets", vec![retries(1)])[3], Outcome::Open);
        assert_eq!(outcomes("packets: base", "packets", vec![retries(2)])[3], Outcome::Holds);
    }

    #[test]
    fn a_sweep_is_judged_at_its_greatest_number() {
        let breaches = |case, policy, rate| ours(case, policy, "breach_rate", "1", 2, rate);
        let figures = vec![
            breaches("base mixers=50", "ot-fifo", 0.0),
            breaches("base mixers=200", "ot-fifo", 0.5),
            breaches("base mixers=50", "ot-lifo", 0.4),
            breaches("base mixers=200", "ot-lifo", 0.1),
        ];
        assert_eq!(outcomes("mixer", "mixer", figures), [Outcome::Holds, Outcome::Open]);
    }

    #[test]
    fn a_queue_with_one_shard_leaves_its_claim_open() {
        let judge = |threads| {
            let ns = |queue: &str, ns| Figure {
                workers: threads,
                ..figure("thesis", &format!("plainweave {queue}"), "ns_per_item", "ns", ns)
            };
            outcomes("queues: thesis", "queues", vec![ns("injector", 90.0), ns("mpmc", 40.0), ns("sharded-half", 5.0)])
        };
        assert_eq!(judge(2), [Outcome::Holds, Outcome::Open]);
        assert_eq!(judge(8), [Outcome::Holds, Outcome::Holds]);
    }
}
