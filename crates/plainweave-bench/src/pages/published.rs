//! Published figures beside ours: those of the seeds, two theses and a web server, and whether
//! their claims hold here.
//!
//! `figures` has what is published, `claims` judges it by our rows. The machines differ (5 to 115
//! domains there, a few workers here), so no two values are compared: what is judged is how our
//! lines stand to each other. A case is taken from the newest of the files that have most of what
//! is asked of it. What takes more workers is left to the simulator, whose rows stand beside the
//! published ones, marked as simulated, and are judged by the same claims (`simulated`).

mod claims; // What becomes of a published claim on this machine: small functions over our rows.
mod figures; // The published figures of the workloads, and what each of them claims: `figures.toml`.
// The simulator's rows in the words of the benchmarks, so that the same claims judge them.
mod simulated;

use std::fmt::Write as _;

use super::experiment;
use super::meaning::words;
use crate::harness::source::{Figure, Table};
use claims::{Finding, Line, Outcome, Rows, Who, count, shown};
use figures::{Claim, Published, WORKLOADS, Workload};
pub(super) use figures::{Run, Seed, seeds};
use plainweave_report::statistics::Spread;
use plainweave_report::text::{attribute, escape};
use plainweave_report::{Role, lines};

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

/// Rounds with which a file is as good as any other.
const ENOUGH: usize = 3;

/// Of this page, besides what all pages have.
pub(super) const STYLE: &str = "\
.claims{padding-left:1.2rem}.claims span{padding:1px 6px;border-radius:3px;white-space:nowrap}\
.claims small{color:var(--faint)}";

/// Returns whether a file has rows that stand beside published ones.
pub(super) fn is_beside(table: &Table) -> bool {
    let sources = [Source {
        table,
        run: "",
        page: String::new(),
    }];
    WORKLOADS
        .iter()
        .any(|workload| !Beside::new(workload, &sources).files.is_empty())
}

/// Returns how the claims come out, in a sentence.
pub(super) fn sentence(sources: &[Source<'_>]) -> String {
    let mut here = Vec::new();
    let mut simulated = Vec::new();
    for workload in WORKLOADS.iter() {
        let beside = Beside::new(workload, sources);
        here.extend(beside.outcomes(&beside.rows));
        simulated.extend(beside.outcomes(&beside.simulated()));
    }

    let of = |outcomes: &[Outcome], which| outcomes.iter().filter(|one| **one == which).count();
    let mut text = format!(
        "{} claims of two theses and a web server; holding here: {}, not holding: {}, not measured or beyond this \
         machine: {}.",
        here.len(),
        of(&here, Outcome::Holds),
        of(&here, Outcome::Fails),
        of(&here, Outcome::Open)
    );
    let [holds, fails] = [Outcome::Holds, Outcome::Fails].map(|which| of(&simulated, which));

    if holds + fails > 0 {
        let _ = write!(
            text,
            " Holding in simulation: {holds}, not holding: {fails}."
        );
    }

    text
}

/// Writes the page's body, from the newest file to the oldest.
pub(super) fn body(sources: &[Source<'_>]) -> String {
    let mut html = format!(
        "<p>{} Ours: medians of the newest file with most of a case's lines; sizes are smaller than published unless \
         <code>--full</code> was given. The machines differ: look at how lines stand to each other. What takes more \
         workers is left to the simulator (<code>plainweave sim</code>, docs/simulator.md). Simulated figures are \
         marked so; some costs are fitted to published ones.</p><nav>",
        sentence(sources)
    );
    for Workload { title, .. } in WORKLOADS.iter() {
        let _ = write!(
            html,
            "<a href='#{}'>{}</a> ",
            experiment::id(title),
            escape(title)
        );
    }

    html.push_str("</nav>");
    for seed in seeds() {
        let _ = write!(
            html,
            "<h2 id='seed-{}'>{}</h2><p><cite>{}</cite></p><p>There: {} Here: {} \
             Measured by <code>plainweave bench seeds --seeds {}</code>.</p>",
            attribute(&seed.name),
            escape(&seed.title),
            escape(&seed.work),
            escape(&seed.there),
            escape(&seed.here),
            escape(&seed.name)
        );
        WORKLOADS
            .iter()
            .filter(|workload| workload.seed == seed.name)
            .for_each(|workload| html.push_str(&Beside::new(workload, sources).section()));
    }
    html
}

/// A workload, and what we have of it.
struct Beside<'a> {
    workload: &'static Workload,
    rows: Rows<'a>,
    /// What the simulator has of it, in the words of `rows`.
    simulated: Vec<Figure>,
    /// The files of the rows, and of the simulator's.
    files: Vec<&'a Source<'a>>,
}

impl<'a> Beside<'a> {
    fn new(workload: &'static Workload, sources: &'a [Source<'a>]) -> Self {
        let mut rows = Rows::default();
        let mut files: Vec<&Source<'_>> = Vec::new();
        let of: Vec<_> = sources
            .iter()
            .filter(|source| source.table.experiment == workload.experiment)
            .collect();
        let mut cases: Vec<_> = of.iter().flat_map(|source| &source.table.figures).collect();
        cases.retain(|figure| workload.has(&figure.case));
        cases.sort_by_key(|figure| &figure.case);
        cases.dedup_by_key(|figure| &figure.case);

        for Figure { case, .. } in cases {
            // Of the files with the most of what is asked the newest: one that was measured for
            // something else has little of it. A round or two, as of `--quick`, come behind more.
            let worth = |source: &&&Source<'_>| workload.worth_of(case, source.table);
            let Some(best) = of.iter().rev().max_by_key(worth) else {
                continue;
            };
            let figures = best.table.figures.iter();
            rows.0.extend(figures.filter(|figure| figure.case == *case));
            let known = files.iter().any(|file| std::ptr::eq(*file, *best));
            files.extend((!known).then_some(*best));
        }

        files.sort_by_key(|file| sources.iter().position(|one| std::ptr::eq(one, *file)));
        let mut simulated: Vec<Figure> = Vec::new();

        for source in sources
            .iter()
            .filter(|source| simulated::is_simulated(source.table))
        {
            let mut more = simulated::rows(source.table, workload.experiment);
            more.retain(|new| {
                workload.has(&new.case) && simulated.iter().all(|figure| figure.case != new.case)
            });
            if !more.is_empty() {
                simulated.append(&mut more);
                files.push(source);
            }
        }

        Self {
            workload,
            rows,
            simulated,
            files,
        }
    }

    fn simulated(&self) -> Rows<'_> {
        Rows(self.simulated.iter().collect())
    }

    fn outcomes(&self, rows: &Rows<'_>) -> Vec<Outcome> {
        let claims = self.workload.claims.iter();
        claims
            .filter(|claim| !claim.ours)
            .map(|claim| Outcome::of(&claim.judge(rows)))
            .collect()
    }

    fn section(&self) -> String {
        let Workload {
            title,
            command,
            source,
            claims,
            simulated,
            ..
        } = self.workload;
        let mut html = format!(
            "<section id='{}'><h3>{}</h3><p>Published: {}. Ours: {}.</p>",
            experiment::id(title),
            escape(title),
            escape(source),
            self.origin()
        );
        let simulations = self.simulated();
        html.push_str(&self.pictures(&simulations));
        html.push_str(&self.table(&simulations));
        html.push_str("<ul class='claims'>");
        claims
            .iter()
            .for_each(|claim| html.push_str(&self.claim(claim, &simulations)));
        html.push_str("</ul>");
        let commands: Vec<_> = simulated
            .iter()
            .map(|command| format!("<code>{}</code>", escape(command)))
            .collect();
        let simulated = match &*commands {
            [] => "The simulator does not have this workload.".to_owned(),
            commands => format!(
                "More workers are left to the simulator: {}.",
                commands.join(" and ")
            ),
        };

        let _ = write!(
            html,
            "<p>Ours: <code>{}</code>. {simulated}</p></section>",
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
            let link = format!(
                "<a href='{page}#{}'>{}</a>",
                experiment::id(&table.name),
                escape(run)
            );
            if simulated::is_simulated(table) {
                return format!(
                    "{link}, simulated by <code>{}</code>",
                    escape(&table.command().0)
                );
            }

            let plans = table
                .facts
                .iter()
                .filter(|(key, _)| key == "case")
                .map(|(_, plan)| plan);
            let plans = plans.filter(|plan| {
                self.workload
                    .has(plan.split(':').next().unwrap_or_default())
            });

            let plans: Vec<_> = plans.map(|plan| escape(plan)).collect();
            let plans = match &*plans {
                [] => String::new(),
                plans => format!(" <small class='faint'>{}</small>", plans.join("; ")),
            };
            let commit = escape(table.fact("commit").unwrap_or("not recorded"));
            format!("{link}, commit {commit}{plans}")
        };
        self.files.iter().map(file).collect::<Vec<_>>().join("; ")
    }

    fn table(&self, simulations: &Rows<'_>) -> String {
        let mut columns: Vec<usize> = self.rows.0.iter().map(|figure| figure.workers).collect();
        columns.sort_unstable();
        columns.dedup();
        // The columns stay, so that a page before a run looks as it will after it.
        if columns.is_empty() {
            columns = COLUMNS.to_vec();
        }
        let mut html =
            "<div class='wide'><table class='wins'><thead><tr><th></th><th>line</th><th>domains or load</th>\
                        <th>published</th><th>simulated</th>"
                .to_owned();

        for workers in &columns {
            let _ = write!(html, "<th>ours, {}</th>", count(*workers));
        }
        html.push_str("</tr></thead>");

        for Published {
            line,
            metric,
            unit,
            place,
            value,
        } in &self.workload.figures
        {
            let value = value.map_or("no value".to_owned(), |value| shown(value, unit));
            let _ = write!(
                html,
                "<tr><th>{}</th><td>{}</td><td>{}</td><td class='even'>{}</td>",
                escape(&words(metric)),
                escape(line.name),
                escape(place),
                escape(&value)
            );
            html.push_str(&simulated_cell(simulations, *line, metric, place));
            columns
                .iter()
                .for_each(|workers| html.push_str(&self.cell(*line, metric, *workers)));
            html.push_str("</tr>");
        }
        html + "</table></div>"
    }

    /// Draws what was published, simulated and measured over the number of workers, a panel for
    /// each figure and case that has a course: two places at least, of whoever it is.
    fn pictures(&self, simulations: &Rows<'_>) -> String {
        let mut panels: Vec<(&str, &str, &str)> = Vec::new();
        for Published {
            line, metric, unit, ..
        } in &self.workload.figures
        {
            let panel = (line.case, *metric, *unit);
            panels.extend((!panels.contains(&panel)).then_some(panel));
        }

        let drawn: String = panels
            .into_iter()
            .filter_map(|panel| self.picture(simulations, panel))
            .collect();
        if drawn.is_empty() {
            drawn
        } else {
            format!("<div class='panels'>{drawn}</div>")
        }
    }

    fn picture(
        &self,
        simulations: &Rows<'_>,
        (case, metric, unit): (&str, &str, &str),
    ) -> Option<String> {
        let mut lines = Vec::new();
        let mut names: Vec<Line> = Vec::new();
        for Published { line, .. } in self
            .workload
            .figures
            .iter()
            .filter(|figure| figure.line.case == case)
        {
            // Several values of one line are one line.
            if names.iter().all(|known| known.who != line.who) {
                names.push(*line);
            }
        }
        let of = |rows: &Rows<'_>, line: Line| -> Vec<(f64, Spread)> {
            let at =
                |workers: usize| Some((workers as f64, rows.get(line, metric, workers)?.spread));
            rows.workers(line, metric)
                .into_iter()
                .filter_map(at)
                .collect()
        };

        for line in names {
            let published = self.workload.figures.iter().filter_map(|figure| {
                let same = figure.line.case == case
                    && figure.line.who == line.who
                    && figure.metric == metric;
                // Only a place that begins with a number has a place on the axis.
                let domains = figure
                    .place
                    .split(' ')
                    .next()?
                    .parse()
                    .ok()
                    .filter(|_| same)?;
                Some((domains, Spread::of(&[figure.value?])))
            });

            for (whose, role, points) in [
                ("published", Role::Peer, published.collect()),
                ("simulated", Role::Ours, of(simulations, line)),
                ("measured", role(line), of(&self.rows, line)),
            ] {
                if !points.is_empty() {
                    lines.push(lines::Line {
                        name: format!("{}, {whose}", line.name),
                        role,
                        points,
                    });
                }
            }
        }

        // Without a course there is nothing that the table does not say.
        lines.iter().any(|line| line.points.len() > 1).then(|| {
            lines::Panel {
                title: format!("{}: {}", self.workload.title, words(metric)),
                across: "domains or workers".to_owned(),
                place: lines::plain,
                upwards: words(metric),
                unit: unit.to_owned(),
                log_across: false,
                log: metric.starts_with("p99"),
                extremes: false,
                lines,
            }
            .figure()
        })
    }

    /// Writes one of our figures, with its case and policy.
    fn cell(&self, line: Line, metric: &str, workers: usize) -> String {
        match self.rows.get(line, metric, workers) {
            Some(figure) => cell(figure, &format!("{}: {}", figure.case, line.who.name())),
            None => "<td><small>not measured</small></td>".to_owned(),
        }
    }

    fn claim(&self, claim: &Claim, simulations: &Rows<'_>) -> String {
        let mut html = format!("<li>{}", escape(claim.text));
        let mut say = |Finding { outcome, words }: Finding, mark: &str| {
            let class = outcome.class();
            let outcome = outcome.words();
            let _ = write!(
                html,
                " <span class='{class}'>{mark}{outcome}</span> <small>{}</small>",
                escape(&words)
            );
        };

        claim
            .judge(&self.rows)
            .into_iter()
            .for_each(|finding| say(finding, ""));
        let simulated = claim.judge(simulations).into_iter();
        simulated
            .filter(|finding| finding.outcome != Outcome::Open)
            .for_each(|finding| say(finding, "simulated: "));
        html + "</li>"
    }
}

/// Returns whose rows a line has here.
fn role(line: Line) -> Role {
    match line.who {
        Who::System(name) if !name.starts_with("plainweave") => Role::Peer,
        Who::System(_) | Who::Policy(_) => Role::Ours,
    }
}

/// Writes the simulator's figure for a published place.
fn simulated_cell(rows: &Rows<'_>, line: Line, metric: &str, place: &str) -> String {
    let workers = simulated::workers(place, &rows.workers(line, metric));
    match workers.and_then(|workers| rows.get(line, metric, workers)) {
        Some(figure) => cell(figure, &format!("simulated, {}", count(figure.workers))),
        None => "<td><small>not simulated</small></td>".to_owned(),
    }
}

/// Writes a figure with its quartiles, and a note under it.
fn cell(figure: &Figure, note: &str) -> String {
    let value = |value| shown(value, &figure.unit);
    let spread = figure.spread;
    format!(
        "<td title='{} to {}'>{}<br><small>{}</small></td>",
        attribute(&value(spread.q1)),
        attribute(&value(spread.q3)),
        escape(&value(spread.median)),
        escape(note)
    )
}

impl Workload {
    /// Returns how many of the values that this workload asks of a case a file has, and in how many
    /// rounds.
    fn worth_of(&self, case: &str, table: &Table) -> (usize, usize) {
        let asked = self.figures.iter().filter(|figure| figure.line.is_of(case));
        let has = |asked: &&Published| {
            let mut rows = table.figures.iter();
            rows.any(|row| {
                row.case == case && row.metric == asked.metric && asked.line.who.is(&row.system)
            })
        };
        // Some rows are of more or fewer values than there were rounds.
        let mut runs: Vec<_> = table.figures.iter().map(|figure| figure.runs).collect();
        runs.sort_unstable();
        let rounds = runs.get(runs.len() / 2).copied().unwrap_or(0);
        (asked.filter(has).count(), rounds.min(ENOUGH))
    }

    /// Returns whether some line has this case.
    fn has(&self, case: &str) -> bool {
        self.figures.iter().any(|figure| figure.line.is_of(case))
    }
}

#[cfg(test)]
mod tests {
    use super::{Beside, Outcome, Source, WORKLOADS, Who, body, is_beside, sentence};
    use crate::harness::source::{Figure, Table};
    use crate::pages::compare::tests::{figure, table};
    use crate::scheduler::thesis;

    fn source(table: &Table) -> Source<'_> {
        Source {
            table,
            run: "2026-01-01-lab",
            page: "2026-01-01-lab/index.html".to_owned(),
        }
    }

    /// A row of ours in an experiment's own words.
    fn ours(
        case: &str,
        policy: &str,
        metric: &str,
        unit: &str,
        workers: usize,
        median: f64,
    ) -> Figure {
        let system = format!("plainweave {policy} before-start/shared");
        Figure {
            workers,
            ..figure(case, &system, metric, unit, median)
        }
    }

    fn rate(case: &str, policy: &str, workers: usize, median: f64) -> Figure {
        ours(case, policy, "throughput", "1/s", workers, median)
    }

    /// Returns what becomes of a workload's claims.
    fn outcomes(title: &str, experiment: &str, figures: Vec<Figure>) -> Vec<Outcome> {
        let table = table(experiment, figures);
        let workload = WORKLOADS
            .iter()
            .find(|workload| workload.title == title)
            .unwrap();
        let sources = [source(&table)];
        let beside = Beside::new(workload, &sources);

        if experiment == "sim" {
            beside.outcomes(&beside.simulated())
        } else {
            beside.outcomes(&beside.rows)
        }
    }

    #[test]
    fn each_published_line_is_one_that_the_benchmarks_measure() {
        for workload in WORKLOADS
            .iter()
            .filter(|workload| workload.seed == "ocaml" && workload.experiment != "queues")
        {
            for figure in &workload.figures {
                let metric = (figure.metric, figure.unit);
                let Who::Policy(policy) = figure.line.who else {
                    panic!("{figure:?} is no policy of ours");
                };
                let case = figure.line.case;
                let known = thesis::reports(workload.experiment, case, policy, metric);
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
        packets.facts = [
            ("commit", "abc"),
            ("case", "base: packets=50000"),
            ("case", "code: packets=50000"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec();
        let html = body(&[source(&packets)]);

        for part in [
            "<a href='2026-01-01-lab/index.html#packets'>2026-01-01-lab</a>, commit abc",
            "base: packets=50000</small>",
            "<td>FIFO</td><td>5 domains</td><td class='even'>0.33 M/s</td><td><small>not simulated</small></td>\
             <td title='0.225 M/s to 0.275 M/s'>0.25 M/s<br><small>base: ot-fifo-base",
            "<span class='good'>holds</span> <small>with 2 workers: LIFO 0.4 M/s, FIFO 0.25 M/s",
            "left to the simulator",
            "<th>ours, 2 workers</th>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }

        let fib = html.split("id='fib'").nth(1).unwrap();
        assert!(
            fib.contains("Ours: not measured.") && fib.contains("<th>ours, 1 worker</th>"),
            "{fib}"
        );
        assert!(sentence(&[source(&packets)]).contains("holding here: 1, not holding: 0,"));
        assert!(
            is_beside(&packets)
                && !is_beside(&table("packets", vec![rate("code", "fifo", 2, 1.0)]))
        );
    }

    /// A row of the simulator's.
    fn simulated(policy: &str, workers: usize, millions: f64) -> Figure {
        let case = "packets on epyc, thieves never sleep";
        Figure {
            workers,
            ..figure(
                case,
                &format!("simulated {policy}"),
                "throughput",
                "1/s",
                millions * 1e6,
            )
        }
    }

    #[test]
    fn simulated_figures_stand_beside_the_published_and_are_judged() {
        let lines = [
            ("ot-lifo-base", [0.5, 1.5, 2.0, 1.8, 1.2, 1.1, 1.0, 0.6]),
            ("ot-fifo-base", [0.3, 1.2, 1.6, 1.3, 1.25, 1.2, 1.15, 0.9]),
        ];
        let rows = |(policy, rates): (&'static str, [f64; 8])| {
            let grid = [5, 16, 20, 24, 70, 80, 90, 115];
            grid.into_iter()
                .zip(rates)
                .map(move |(workers, rate)| simulated(policy, workers, rate))
        };

        let rows: Vec<_> = lines.into_iter().flat_map(rows).collect();
        let judged = outcomes("packets: base", "sim", rows.clone());
        assert_eq!(
            judged[..4],
            [
                Outcome::Holds,
                Outcome::Holds,
                Outcome::Fails,
                Outcome::Holds
            ]
        );

        // Without the neighbours of a peak nothing can be said of it.
        let coarse = rows
            .iter()
            .filter(|figure| ![16, 24, 70, 90].contains(&figure.workers))
            .cloned()
            .collect();
        let judged = outcomes("packets: base", "sim", coarse);
        assert_eq!(judged[1..3], [Outcome::Open, Outcome::Open]);
        let table = table("sim", rows);
        let html = body(&[source(&table)]);

        for part in [
            "<td>FIFO</td><td>5 domains</td><td class='even'>0.33 M/s</td>\
             <td title='0.27 M/s to 0.33 M/s'>0.3 M/s<br><small>simulated, 5 workers</small></td>",
            "<td>above 40 domains</td><td class='even'>50 \u{b5}s</td><td><small>not simulated</small></td>",
            "FIFO peaks at 80 domains. <span class='even'>cannot be told here</span> \
             <small>it takes more workers</small> <span class='bad'>simulated: does not hold</span> \
             <small>highest with 20 workers: FIFO 1.6 M/s</small>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }

        assert!(is_beside(&table));
        let drawn = html.split("id='packets--base'").nth(1).unwrap();
        for line in [
            "FIFO, published",
            "FIFO, simulated",
            "LIFO, published",
            "LIFO, simulated",
        ] {
            assert!(drawn.contains(line), "{line}: {drawn}");
        }

        assert!(sentence(&[source(&table)]).ends_with("Holding in simulation: 3, not holding: 1."));
    }

    #[test]
    fn a_case_is_from_the_newest_file_that_has_it() {
        let new = table("packets", vec![rate("10m", "ot-fifo-base", 1, 3e5)]);
        let old = table(
            "packets",
            vec![
                rate("10m", "ot-fifo-base", 1, 9e5),
                rate("base", "ot-fifo-base", 1, 8e5),
            ],
        );
        let html = body(&[source(&new), source(&old)]);
        assert!(
            html.contains("0.3 M/s") && html.contains("0.8 M/s") && !html.contains("0.9 M/s<br>"),
            "{html}"
        );
    }

    #[test]
    fn a_case_is_from_the_file_with_most_of_it() {
        let fifo = |runs, rate_of| Figure {
            runs,
            ..rate("base", "ot-fifo-base", 1, rate_of)
        };
        let lifo = |runs| Figure {
            runs,
            ..rate("base", "ot-lifo-base", 1, 7e5)
        };
        // Measured for something else; a round of both; three rounds of both, twice.
        let newest = table("packets", vec![fifo(9, 1e5)]);
        let quick = table("packets", vec![fifo(1, 2e5), lifo(1)]);
        let new = table("packets", vec![fifo(3, 4e5), lifo(3)]);
        let old = table("packets", vec![fifo(9, 5e5), lifo(9)]);
        let sources = [&newest, &quick, &new, &old].map(source);
        let workload = WORKLOADS.iter().find(|one| one.title == "packets: base");
        let beside = Beside::new(workload.unwrap(), &sources);
        let medians: Vec<_> = beside.rows.0.iter().map(|row| row.spread.median).collect();
        assert_eq!(medians, [4e5, 7e5]);
    }

    #[test]
    fn keeping_up_takes_two_others_and_half_of_them_behind() {
        let ns = |system: &str, ns| figure("cycle", system, "ns_per_op", "ns", ns);
        let judged = |others: &[(&str, f64)]| {
            let others = others.iter().map(|(system, cost)| ns(system, *cost));
            let rows = std::iter::once(ns("cfa", 100.0)).chain(others).collect();
            outcomes("micro: cycle", "micro", rows)[0]
        };

        assert_eq!(judged(&[]), Outcome::Open);
        assert_eq!(judged(&[("tokio", 10.0)]), Outcome::Open);
        assert_eq!(judged(&[("tokio", 10.0), ("go", 900.0)]), Outcome::Holds);
        assert_eq!(judged(&[("tokio", 10.0), ("go", 20.0)]), Outcome::Fails);
        let three = [("tokio", 10.0), ("go", 20.0), ("libfibre", 900.0)];
        assert_eq!(judged(&three), Outcome::Fails);
    }

    #[test]
    fn a_limit_of_nothing_is_passed_by_one_run() {
        let starved = |max| {
            let mut row = figure("transfer-park", "cfa", "starved", "1", 0.0);
            row.workers = 2;
            row.spread.max = max;
            outcomes("micro: transfer-park", "micro", vec![row])[0]
        };
        assert_eq!(
            [starved(0.0), starved(1.0)],
            [Outcome::Holds, Outcome::Fails]
        );
    }

    #[test]
    fn orders_are_judged_with_each_number_of_workers() {
        let p99 = |policy: &str, workers, us| ours("base", policy, "p99_us", "us", workers, us);
        let judge = |fifo: [f64; 2], lifo: [f64; 2]| {
            let of = |policy, us: [f64; 2]| [p99(policy, 1, us[0]), p99(policy, 2, us[1])];
            outcomes(
                "options",
                "options",
                [of("ot-fifo-base", fifo), of("ot-lifo-base", lifo)].concat(),
            )
        };

        assert_eq!(
            judge([8.0, 4.0], [20.0, 9.0]),
            [Outcome::Holds, Outcome::Holds]
        );
        // Overlapping quartiles leave a claim open; failing once is enough.
        assert_eq!(
            judge([8.0, 8.0], [8.1, 8.1]),
            [Outcome::Open, Outcome::Open]
        );
        assert_eq!(
            judge([8.0, 9.0], [20.0, 4.0]),
            [Outcome::Fails, Outcome::Holds]
        );
        assert_eq!(
            outcomes("options", "options", Vec::new()),
            [Outcome::Open, Outcome::Open]
        );
    }

    #[test]
    fn a_course_and_a_control_are_judged() {
        let delay = |two: f64| {
            let rates = vec![
                rate("delay-spin", "ot-fifo-base", 1, 3e5),
                rate("delay-spin", "ot-fifo-base", 2, two),
            ];
            outcomes("packets: delay-spin", "packets", rates)
        };

        assert_eq!(
            [delay(3.1e5), delay(1e5)].concat(),
            [Outcome::Holds, Outcome::Fails]
        );
        let control = |lifo: f64| {
            let of = |policy, rates| rate("sequential", policy, 1, rates);
            let fifo = of("ot-fifo-base:capacity=1024", 5e5);
            let lifo = of("ot-lifo-base:capacity=1024", lifo);
            outcomes("cache-effects", "cache-effects", vec![fifo, lifo])[1]
        };

        assert_eq!(
            [control(5.1e5), control(9e5)],
            [Outcome::Holds, Outcome::Fails]
        );
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
        assert_eq!(
            outcomes("mixer", "mixer", figures),
            [Outcome::Holds, Outcome::Open]
        );
    }

    #[test]
    fn a_queue_with_one_shard_leaves_its_claim_open() {
        let judge = |threads| {
            let ns = |queue: &str, ns| Figure {
                workers: threads,
                ..figure(
                    "thesis",
                    &format!("plainweave {queue}"),
                    "ns_per_item",
                    "ns",
                    ns,
                )
            };

            outcomes(
                "queues: thesis",
                "queues",
                vec![
                    ns("injector", 90.0),
                    ns("mpmc", 40.0),
                    ns("sharded-half", 5.0),
                ],
            )
        };

        assert_eq!(judge(2), [Outcome::Holds, Outcome::Open]);
        assert_eq!(judge(8), [Outcome::Holds, Outcome::Holds]);
    }
}
