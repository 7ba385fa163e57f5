//! A file's part of a page: its head, then for each metric lines, a heat map, or a panel for each
//! case.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::compare::by_place;
use super::finding;
use super::meaning::{Better, better, is_ratio, metrics, role, words};
use super::summary;
use crate::harness::report::RAW;
use crate::harness::source::{Figure, Table};
use plainweave_report::lines::{Line, Panel, plain};
use plainweave_report::text::{attribute, escape};
use plainweave_report::{axis::Axis, dots, heat};

/// Places that make a line, and lines that can be told apart.
const PLACES: usize = 3;
const LINES: usize = 8;
/// Systems, and cases of them, that make a heat map.
const SYSTEMS: usize = 6;
const CASES: usize = 3;
/// Metrics that are open when the page is; the others unfold.
const OPEN: usize = 4;
/// Figures of a metric that are drawn one by one.
const DRAWN: usize = 300;
/// Values that are this far apart are drawn on a log axis.
const APART: f64 = 20.0;

/// Returns the name by which a page links to a table.
pub(super) fn id(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}

/// Writes the part of the page; `dir` leads to the table's file.
pub(super) fn section(table: &Table, dir: &str) -> String {
    let mut html = head(table, dir);
    html.push_str(&summary::matrix(table));
    let mut open = Vec::new();
    let mut folded = Vec::new();
    let mut left = Vec::new();

    for (metric, unit) in metrics(table) {
        let figures: Vec<_> = table
            .figures
            .iter()
            .filter(|figure| figure.metric == metric)
            .collect();
        let way = better(&metric, &unit);
        // What a metric leads to depends on whether it can be won: only then is it worth a look
        // first.
        let html = pictures(table, &figures, way);
        match html {
            None => left.push(metric),
            Some(html)
                if way != Better::Neither
                    && !is_ratio(figures[0])
                    && (open.len() < OPEN || is_tail(&metric)) =>
            {
                open.push(html);
            }
            Some(html) => folded.push((metric, html)),
        }
    }

    open.iter().for_each(|part| html.push_str(part));
    if !folded.is_empty() {
        // The names stand outside, so that a reader can search the page for them.
        let names: Vec<_> = folded.iter().map(|(metric, _)| words(metric)).collect();
        let _ = write!(
            html,
            "<details><summary>More figures: {}</summary>",
            escape(&names.join(", "))
        );
        folded.iter().for_each(|(_, part)| html.push_str(part));
        html.push_str("</details>");
    }

    if !left.is_empty() {
        let _ = write!(
            html,
            "<p>In the CSV alone: {}.</p>",
            escape(&left.join(", "))
        );
    }

    html + "</section>"
}

/// Returns whether a metric is what published figures of latency show, which must not be looked
/// for.
fn is_tail(metric: &str) -> bool {
    metric.starts_with("p99_")
}

fn head(table: &Table, dir: &str) -> String {
    let name = escape(&table.name);
    let file = attribute(&table.name);
    let mut html = format!("<section id='{}'><h2>{name}</h2>", id(&table.name));
    let (command, whole) = table.command();
    let flags = if whole {
        ""
    } else {
        " (its flags were not recorded)"
    };

    let _ = write!(
        html,
        "<p><code>{}</code>{flags}: <a href='{dir}{file}.csv'>{} rows</a>. ",
        escape(&command),
        table.figures.len()
    );
    if table.raw {
        let _ = write!(
            html,
            "<a href='{dir}{RAW}/{name}.csv'>Every single value</a>. "
        );
    }

    if let Some(simulated) = table.fact("simulated") {
        let _ = write!(html, "<b>Simulated</b>: {}. ", escape(simulated));
    }
    let bands = if table.quartiles {
        "quartiles"
    } else {
        "the least to the greatest value (no quartiles were kept)"
    };

    let _ = write!(
        html,
        "Dots and lines are medians, bands {bands}; ours is in colour.</p>"
    );
    if !table.facts.is_empty() {
        html.push_str(
            "<details><summary>Machine, versions, parameters</summary><table class='facts'>",
        );
        for (key, value) in &table.facts {
            let _ = write!(
                html,
                "<tr><th>{}</th><td>{}</td></tr>",
                escape(key),
                escape(value)
            );
        }
        html.push_str("</table></details>");
    }

    for absent in &table.absent {
        let _ = write!(
            html,
            "<p class='faint'>Not measured: {}</p>",
            escape(absent)
        );
    }

    html
}

/// Returns the pictures of one metric; `None`: there are too many figures to draw, and no way is
/// better.
fn pictures(table: &Table, figures: &[&Figure], way: Better) -> Option<String> {
    let first = figures.first()?;
    let (sweeps, rest) = split(figures);
    let mut html = format!(
        "<h3>{} <small>{}</small></h3>",
        escape(&words(&first.metric)),
        way.words()
    );

    if !sweeps.is_empty() {
        html.push_str("<div class='panels'>");
        for sweep in &sweeps {
            let said = finding::of_sweep(&table.experiment, &sweep.places());
            let panel = sweep.panel(table, way);
            html.push_str(&figure(&(panel.svg() + &panel.values()), &said, table));
        }
        html.push_str("</div>");
    }

    let heats = if way == Better::Neither {
        Vec::new()
    } else {
        heats(table, &rest, way)
    };

    for map in &heats {
        html.push_str(map);
    }
    // Hundreds of panels help nobody; the CSV has their figures.
    if rest.len() > DRAWN {
        return (!heats.is_empty() || !sweeps.is_empty()).then_some(html);
    }

    let panels: String = by_place(&rest)
        .iter()
        .map(|group| panel(table, group, way))
        .collect();
    // A heat map has the same figures already: each case is then for those who look for it.
    if !panels.is_empty() && heats.is_empty() {
        let _ = write!(html, "<div class='panels'>{panels}</div>");
    } else if !panels.is_empty() {
        let _ = write!(
            html,
            "<details><summary>Each case</summary><div class='panels'>{panels}</div></details>"
        );
    }

    Some(html)
}

/// Puts a picture, with what is behind it, above its sentence and command.
fn figure(picture: &str, said: &str, table: &Table) -> String {
    let (command, _) = table.command();
    let said = escape(said);
    let command = escape(&command);
    format!("<figure>{picture}<figcaption>{said} <code>{command}</code></figcaption></figure>")
}

/// Draws the systems of a case, the best first.
fn panel(table: &Table, group: &[&Figure], way: Better) -> String {
    let mut sorted = group.to_vec();
    // NaN, which total order puts last, is what was not measured.
    sorted.sort_by(|a, b| a.spread.median.total_cmp(&b.spread.median));
    if way == Better::More {
        sorted.reverse();
    }
    let row = |figure: &&Figure| dots::Row {
        name: figure.system.clone(),
        role: role(&table.experiment, &figure.system),
        spread: figure.spread,
    };

    let panel = dots::Panel {
        title: finding::title(group[0]),
        better: way.words(),
        unit: group[0].unit.clone(),
        rows: sorted.iter().map(row).collect(),
    };

    figure(
        &panel.svg(),
        &finding::of_systems(&table.experiment, group),
        table,
    )
}

/// Figures of one metric over a swept value.
struct Sweep<'a> {
    title: String,
    across: String,
    points: Vec<(f64, &'a Figure)>,
}

/// Takes the last number out of a case's name: `web 64` is `web N` at 64.
fn number_in(case: &str) -> Option<(String, f64)> {
    let numeric = |c: char| c.is_ascii_digit() || c == '.';
    let end = case.rfind(|c: char| c.is_ascii_digit())? + 1;
    // A character before the number may take several bytes.
    let begin = case[..end].rfind(|c| !numeric(c)).map_or(0, |at| {
        at + case[at..].chars().next().map_or(1, char::len_utf8)
    });
    let number = case[begin..end].parse().ok()?;
    Some((format!("{}N{}", &case[..begin], &case[end..]), number))
}

/// Finds what is swept, over numbers in the names of cases or over workers; returns the other
/// figures too.
fn split<'a>(figures: &[&'a Figure]) -> (Vec<Sweep<'a>>, Vec<&'a Figure>) {
    let mut groups: Vec<Sweep> = Vec::new();
    let mut add = |title: String, across: String, x: f64, figure: &'a Figure| match groups
        .iter_mut()
        .find(|group| group.title == title && group.across == across)
    {
        Some(group) => group.points.push((x, figure)),
        None => groups.push(Sweep {
            title,
            across,
            points: vec![(x, figure)],
        }),
    };

    for figure in figures {
        add(
            figure.case.clone(),
            "workers".to_owned(),
            figure.workers as f64,
            figure,
        );
        // The same figure may be part of two sweeps: whichever has enough places is drawn.
        if let Some((pattern, number)) = number_in(&figure.case) {
            let place = super::compare::place(&pattern, figure.workers);
            add(place, format!("N of \"{pattern}\""), number, figure);
        }
    }

    let (mut sweeps, mut drawn): (Vec<Sweep>, Vec<*const Figure>) = Default::default();
    for group in groups {
        let points = &group.points;
        let mut places: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let mut systems: Vec<&str> = points
            .iter()
            .map(|(_, figure)| figure.system.as_str())
            .collect();

        systems.sort_unstable();
        systems.dedup();
        // Two places are no course, and more lines than these cannot be told apart.
        if places.len() >= PLACES && systems.len() <= LINES {
            drawn.extend(points.iter().map(|(_, figure)| std::ptr::from_ref(*figure)));
            sweeps.push(group);
        }
    }

    let rest = figures
        .iter()
        .copied()
        .filter(|figure| !drawn.contains(&std::ptr::from_ref(*figure)))
        .collect();
    (sweeps, rest)
}

impl<'a> Sweep<'a> {
    fn places(&self) -> Vec<(f64, Vec<&'a Figure>)> {
        let mut places: Vec<(f64, Vec<&Figure>)> = Vec::new();
        for (x, figure) in &self.points {
            match places.iter_mut().find(|(at, _)| at == x) {
                Some((_, figures)) => figures.push(figure),
                None => places.push((*x, vec![figure])),
            }
        }

        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        places
    }

    fn panel(&self, table: &Table, way: Better) -> Panel {
        let mut lines: Vec<Line> = Vec::new();
        for (x, figure) in &self.points {
            match lines.iter_mut().find(|line| line.name == figure.system) {
                Some(line) => line.points.push((*x, figure.spread)),
                None => lines.push(Line {
                    name: figure.system.clone(),
                    role: role(&table.experiment, &figure.system),
                    points: vec![(*x, figure.spread)],
                }),
            }
        }

        lines
            .iter_mut()
            .for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        // All points of a sweep have one metric.
        let first = self.points[0].1;
        let log = Axis::wants_log(
            self.points.iter().map(|(_, figure)| figure.spread.median),
            APART,
        );
        let notes = [way.words(), if log { "log scale" } else { "" }];
        let notes: Vec<_> = notes.into_iter().filter(|note| !note.is_empty()).collect();
        let log_across = Axis::wants_log(self.points.iter().map(|(x, _)| *x), APART);

        Panel {
            title: format!("{}: {}", self.title, words(&first.metric)),
            across: format!(
                "{}{}",
                self.across,
                if log_across { ", log scale" } else { "" }
            ),
            place: plain,
            upwards: notes.join(", "),
            unit: first.unit.clone(),
            log_across,
            log,
            extremes: false,
            lines,
        }
    }
}

/// Draws a heat map for each number of workers that has enough systems and cases.
fn heats(table: &Table, figures: &[&Figure], way: Better) -> Vec<String> {
    let mut by_workers: BTreeMap<usize, Vec<&Figure>> = BTreeMap::new();
    for &figure in figures
        .iter()
        .filter(|figure| !figure.spread.median.is_nan())
    {
        by_workers.entry(figure.workers).or_default().push(figure);
    }
    let mut maps = Vec::new();

    for (workers, figures) in by_workers {
        let cases = by_place(&figures);
        let mut systems: Vec<&str> = Vec::new();
        for figure in &figures {
            if !systems.contains(&figure.system.as_str()) {
                systems.push(&figure.system);
            }
        }

        // A small table reads better as panels, which show quartiles too.
        if systems.len() < SYSTEMS || cases.len() < CASES {
            continue;
        }
        let cell = |system: &str, case: &[&Figure]| {
            let values = || case.iter().map(|figure| figure.spread.median);
            // Ratios, since cases differ by orders of magnitude: colours would show the cases, not
            // systems.
            let best = if way == Better::More {
                values().fold(0.0, f64::max)
            } else {
                values().fold(f64::INFINITY, f64::min)
            };

            let own = case
                .iter()
                .find(|figure| figure.system == system)?
                .spread
                .median;
            Some(way.ratio(best, own))
        };

        let mut rows: Vec<heat::Row> = systems
            .iter()
            .map(|system| {
                let cells = cases.iter().map(|case| cell(system, case)).collect();
                ((*system).to_owned(), role(&table.experiment, system), cells)
            })
            .collect();
        // By the geometric mean: a row that lacks a case cannot be averaged, and goes last.
        let key = |cells: &[Option<f64>]| {
            let there: Vec<_> = cells.iter().copied().filter(Option::is_some).collect();
            finding::mean(&there).unwrap_or(f64::INFINITY)
        };

        // Before the rows are sorted: ours is the first of the file, not of the map.
        let said = finding::of_heat(&rows);
        rows.sort_by(|a, b| key(&a.2).total_cmp(&key(&b.2)));
        let columns: Vec<_> = cases.iter().map(|case| case[0].case.clone()).collect();
        let (command, _) = table.command();
        maps.push(format!(
            "<div class='map'><p>{} {}, how many times worse than the best of each case (1 is the best); the best rows \
             first.</p>{}<p class='caption'>{} <code>{}</code></p></div>",
            workers,
            if workers == 1 { "worker" } else { "workers" },
            heat::table(&columns, &rows),
            escape(&said),
            escape(&command)
        ));
    }

    maps
}

#[cfg(test)]
mod tests {
    use super::{number_in, section, split};
    use crate::pages::compare::tests::{figure, table};
    use plainweave_report::inside;

    #[test]
    fn the_last_number_of_a_case_is_swept() {
        let is = |case: &str, pattern: &str, number| {
            assert_eq!(number_in(case), Some((pattern.to_owned(), number)))
        };
        is("web 64", "web N", 64.0);
        is("3 % at 0.10", "3 % at N", 0.1);
        is("overload-1.5x-of-nginx", "overload-Nx-of-nginx", 1.5);
        is("64", "N", 64.0);
        assert!(number_in("block").is_none());
    }

    #[test]
    fn three_places_are_a_line_and_two_are_not() {
        let cases = [
            "web 64",
            "web 1024",
            "web 10000",
            "cache 64",
            "cache 1024",
            "block",
        ];
        let figures = cases.map(|case| figure(case, "driver", "p99_us", "us", 5.0));
        let (sweeps, rest) = split(&figures.iter().collect::<Vec<_>>());
        assert_eq!(
            (sweeps.len(), rest.len(), sweeps[0].title.as_str()),
            (1, 3, "web N")
        );
    }

    #[test]
    fn each_picture_has_a_sentence_and_a_command_and_labels_within() {
        let systems: Vec<_> = (0..7)
            .map(|n| format!("plainweave policy-{n} <of a long name> anytime/own"))
            .collect();
        let mut figures = Vec::new();
        for (n, system) in systems.iter().chain([&"nginx".to_owned()]).enumerate() {
            for case in ["a", "b", "mutex"] {
                figures.push(figure(case, system, "ns_per_op", "ns", 10.0 + n as f64));
            }
            for case in ["web 1", "web 100", "web 1000"] {
                figures.push(figure(case, system, "p99_us", "us", 10_f64.powi(n as i32)));
            }
            figures.push(figure("a", system, "stolen_percent", "%", 1.0));
        }

        let mut table = table("web", figures);
        table.facts = vec![("command".to_owned(), "web --runs 3".to_owned())];
        let html = section(&table, "");
        inside(&html);
        assert!(
            html.contains("<table class='heat'>") && html.contains("log scale"),
            "{html}"
        );

        // A panel a case, a line panel, and what has no better way.
        assert_eq!(
            (
                html.matches("<figure>").count(),
                html.matches("<svg").count()
            ),
            (5, 5),
            "{html}"
        );
        assert_eq!(
            html.matches("<code>plainweave bench web --runs 3</code></figcaption>")
                .count(),
            5
        );
        assert!(
            !html.contains("<of a") && !html.contains("<script"),
            "{html}"
        );
    }
}
