//! Lines over a swept value, each with a band between its quartiles. Points name their values where
//! there are few enough to be pointed at; [`Panel::figure`] has all values in a table behind.

use std::fmt::Write as _;

use super::axis::Axis;
use super::text::{self, Align, escape, humane, wrap};
use super::{PANEL, Role, STYLE, class};
use crate::statistics::Spread;

/// The room around the axes, and within them.
const TOP: f64 = 8.0;
const HEIGHT: f64 = 190.0;
const RIGHT: f64 = 14.0;
const BELOW: f64 = 40.0;
/// Of a line of text.
const LINE: f64 = 15.0;
const TITLE: f64 = 13.0;
const SMALL: f64 = 11.0;
/// Of a sheet: between panels, and above them.
const GAP: f64 = 20.0;
const HEAD: f64 = 40.0;
/// Points of a line that are drawn: more than these are not told apart.
const POINTS: usize = 1000;
/// A line of more points than these has no dots.
const DOTS: usize = 120;

/// One line: the name, and the spread at each place.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is called.
    pub name: String,
    /// Whose it is.
    pub role: Role,
    /// Places across, and the figures there.
    pub points: Vec<(f64, Spread)>,
}

/// One panel. Log axes: each line of the grid is ten times the one before.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// What is swept.
    pub across: String,
    /// Writes a value of what is swept; see [`plain`].
    pub place: fn(f64) -> String,
    /// What is drawn, and which way is better.
    pub upwards: String,
    /// Of what is drawn; see [`humane`].
    pub unit: String,
    /// Whether the axis across is a log axis.
    pub log_across: bool,
    /// Whether the axis upwards is one.
    pub log: bool,
    /// Whether the least and the greatest value have lines too, dotted and dashed.
    pub extremes: bool,
    /// Ours in the order of their colours.
    pub lines: Vec<Line>,
}

/// Writes a value across that has no unit.
pub fn plain(value: f64) -> String {
    humane(value, "")
}

impl Panel {
    /// Draws it for a page that has [`super::STYLE`], with its values in a table that opens.
    pub fn figure(&self) -> String {
        format!("<figure>{}{}</figure>", self.svg(), self.values())
    }

    /// Returns the values as a table that opens: a row for each place, a column for each line, with
    /// its quartiles where they differ.
    pub fn values(&self) -> String {
        let mut places: Vec<f64> = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().map(|(place, _)| *place))
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();

        let mut html = format!(
            "<details><summary>Values</summary><div class='wide'><table class='values'><tr><th>{}",
            escape(&self.across)
        );
        for line in &self.lines {
            let _ = write!(html, "<th>{}", escape(&line.name));
        }
        for place in places {
            let _ = write!(html, "<tr><th>{}", escape(&(self.place)(place)));
            for line in &self.lines {
                let found = line.points.iter().find(|(at, _)| *at == place);
                let value = found.map_or(String::new(), |(_, spread)| self.value(spread));
                let _ = write!(html, "<td>{}", escape(&value));
            }
        }

        html + "</table></div></details>"
    }

    /// Writes a figure, and its quartiles where they differ.
    fn value(&self, spread: &Spread) -> String {
        let of = |value| humane(value, &self.unit);
        let median = of(spread.median);
        if spread.q1 == spread.q3 || spread.median.is_nan() {
            median
        } else {
            format!("{median} ({} to {})", of(spread.q1), of(spread.q3))
        }
    }

    /// Draws it as an SVG for a page that has [`super::STYLE`].
    pub fn svg(&self) -> String {
        let (body, height) = self.drawn();
        format!(
            "<svg class='panel' xmlns='http://www.w3.org/2000/svg' width='{PANEL}' viewBox='0 0 {PANEL} {height:.0}' \
             role='img'>{body}</svg>"
        )
    }

    /// Draws it without a frame, [`PANEL`] wide, and returns its height too.
    pub(crate) fn drawn(&self) -> (String, f64) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = Axis::over(points().map(|(x, _)| *x), self.log_across);
        let upwards = Axis::over(
            points().flat_map(|(_, spread)| spread.drawn(self.extremes)),
            self.log,
        );
        let labels: Vec<_> = upwards
            .ticks()
            .into_iter()
            .map(|tick| (tick, humane(tick, &self.unit)))
            .collect();
        // The plot begins right of the widest number, whatever the unit.
        let widest = labels
            .iter()
            .map(|(_, label)| text::width(label, SMALL))
            .fold(0.0, f64::max);
        let mut body = String::new();
        let mut top = TOP;

        for (words, size, faint) in [(&self.title, TITLE, false), (&self.upwards, SMALL, true)] {
            for line in wrap(words, size, PANEL) {
                top += LINE;
                text::write(&mut body, (0.0, top - 3.0), Align::Left, size, faint, &line);
            }
        }

        top += TOP;
        let left = widest + 8.0;
        let right = PANEL - RIGHT;
        let bottom = top + HEIGHT;
        let x = |value: f64| left + across.at(value) * (right - left);
        let y = |value: f64| top + (1.0 - upwards.at(value)) * HEIGHT;

        for (tick, label) in &labels {
            let at = y(*tick);
            let _ = write!(
                body,
                "<line class='grid' x1='{left:.1}' x2='{right}' y1='{at:.1}' y2='{at:.1}'/>"
            );
            text::write(
                &mut body,
                (left - 6.0, at + 4.0),
                Align::Right,
                SMALL,
                true,
                label,
            );
        }

        self.draw_across(&mut body, across, bottom, x);
        let _ = write!(
            body,
            "<line class='axis' x1='{left:.1}' x2='{right}' y1='{bottom}' y2='{bottom}'/>\
             <line class='axis' x1='{left:.1}' x2='{left:.1}' y1='{top}' y2='{bottom}'/>"
        );
        let mut down = bottom + BELOW;
        let mut legend = String::new();

        for line in wrap(&self.across, SMALL, PANEL) {
            text::write(
                &mut legend,
                (PANEL / 2.0, down - 8.0),
                Align::Middle,
                SMALL,
                true,
                &line,
            );
            down += LINE;
        }

        for (line, class) in self.lines.iter().zip(self.classes()) {
            self.draw_line(&mut body, line, &class, x, y);
            if self.extremes {
                line.draw_extremes(&mut body, &class, x, y);
            }
            let middle = down - 7.0;
            let _ = write!(
                legend,
                "<line class='line {class}' x1='2' x2='22' y1='{middle:.1}' y2='{middle:.1}'/>"
            );

            for words in wrap(&line.name, SMALL, PANEL - 28.0) {
                text::write(
                    &mut legend,
                    (28.0, down - 3.0),
                    Align::Left,
                    SMALL,
                    false,
                    &words,
                );
                down += LINE;
            }
        }

        (body + &legend, down)
    }

    /// Draws the ticks across, and the labels that do not meet their neighbours.
    fn draw_across(&self, body: &mut String, across: Axis, bottom: f64, x: impl Fn(f64) -> f64) {
        let mut free = 0.0;
        for tick in across.ticks() {
            let at = x(tick);
            let label = (self.place)(tick);
            let _ = write!(
                body,
                "<line class='axis' x1='{at:.1}' x2='{at:.1}' y1='{bottom}' y2='{:.1}'/>",
                bottom + 4.0
            );

            let width = text::width(&label, SMALL);
            // Labels at the ends stay within the picture.
            let middle = at.clamp(width / 2.0, PANEL - width / 2.0);
            // One that would meet its neighbour is left out; its tick stays.
            if middle - width / 2.0 >= free {
                text::write(
                    body,
                    (middle, bottom + 17.0),
                    Align::Middle,
                    SMALL,
                    true,
                    &label,
                );
                free = middle + width / 2.0 + 2.0;
            }
        }
    }

    fn draw_line(
        &self,
        svg: &mut String,
        line: &Line,
        class: &str,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
    ) {
        let place = |at: f64, value: f64| format!("{:.1},{:.1} ", x(at), y(value));
        let every = line.points.len().div_ceil(POINTS).max(1);
        let has_place = |(_, spread): &&(f64, Spread)| {
            !spread.median.is_nan() && (!self.log || spread.median > 0.0)
        };
        let points: Vec<_> = line
            .points
            .iter()
            .filter(has_place)
            .step_by(every)
            .collect();
        let there = || points.iter().copied();

        let upper: String = there().map(|(at, spread)| place(*at, spread.q3)).collect();
        // Back along the lower edge: the band is one polygon.
        let lower: String = there()
            .rev()
            .map(|(at, spread)| place(*at, spread.q1))
            .collect();
        let middle: String = there()
            .map(|(at, spread)| place(*at, spread.median))
            .collect();
        let _ = write!(
            svg,
            "<polygon class='band {class}' points='{upper}{lower}'/><polyline class='line {class}' points='{middle}'/>"
        );

        if line.points.len() > DOTS {
            return;
        }
        for (at, spread) in there() {
            let title = format!(
                "{}: {} at {}",
                line.name,
                self.value(spread),
                (self.place)(*at)
            );
            let _ = write!(
                svg,
                "<circle class='median {class}' cx='{:.1}' cy='{:.1}' r='2.5'><title>{}</title></circle>",
                x(*at),
                y(spread.median),
                escape(&title)
            );
        }
    }

    fn classes(&self) -> impl Iterator<Item = String> {
        let mut seen: Vec<Role> = Vec::new();
        self.lines.iter().map(move |line| {
            // Colours count within a role, so that ours keep theirs whatever peers are beside.
            let before = seen.iter().filter(|role| **role == line.role).count();
            seen.push(line.role);
            class(line.role, before)
        })
    }
}

impl Spread {
    /// Returns what is drawn of it.
    fn drawn(&self, extremes: bool) -> impl Iterator<Item = f64> + use<> {
        let Self {
            median,
            q1,
            q3,
            min,
            max,
        } = *self;
        [q1, median, q3]
            .into_iter()
            .chain([min, max].into_iter().filter(move |_| extremes))
    }
}

impl Line {
    fn draw_extremes(
        &self,
        svg: &mut String,
        class: &str,
        x: impl Fn(f64) -> f64,
        y: impl Fn(f64) -> f64,
    ) {
        let there = || {
            self.points
                .iter()
                .filter(|(_, spread)| !spread.median.is_nan())
        };

        for (dashes, of) in [
            ("2 2", (|spread| spread.min) as fn(&Spread) -> f64),
            ("6 3", |spread| spread.max),
        ] {
            let points: String = there()
                .map(|(at, spread)| format!("{:.1},{:.1} ", x(*at), y(of(spread))))
                .collect();
            let _ = write!(
                svg,
                "<polyline class='line {class}' style='stroke-width:.8;stroke-dasharray:{dashes}' points='{points}'/>"
            );
        }
    }
}

/// Draws panels beside each other as one picture that needs no page.
pub fn sheet(title: &str, panels: &[Panel]) -> String {
    let drawn: Vec<_> = panels.iter().map(Panel::drawn).collect();
    let width = GAP + (PANEL + GAP) * panels.len() as f64;
    let height = HEAD + drawn.iter().map(|(_, height)| *height).fold(0.0, f64::max) + GAP;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height:.0}' role='img'><style>{STYLE}</style>\
         <rect width='100%' height='100%' style='fill:var(--paper)'/>"
    );

    text::write(&mut svg, (GAP, 26.0), Align::Left, 15.0, false, title);
    for (n, (body, _)) in drawn.iter().enumerate() {
        let x = GAP + (PANEL + GAP) * n as f64;
        let _ = write!(svg, "<g transform='translate({x} {HEAD})'>{body}</g>");
    }

    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::{Line, Panel};
    use crate::statistics::Spread;
    use crate::{Role, inside};

    #[test]
    fn a_panel_without_points_is_drawn_too() {
        let spread = |median| Spread {
            median,
            q1: median,
            q3: median,
            min: median,
            max: median,
        };

        let line = |points| Line {
            name: "a<b".to_owned(),
            role: Role::Ours,
            points,
        };

        let panel = |lines, extremes| Panel {
            title:
                "p99 of a very long title that has to be broken at least once, since it is wider"
                    .to_owned(),
            across: "requests/s asked for".to_owned(),
            place: super::plain,
            upwards: "p99, less is better".to_owned(),
            unit: "us".to_owned(),
            log_across: false,
            log: true,
            extremes,
            lines,
        };

        let gap = vec![
            (1.0, spread(10.0)),
            (2.0, spread(f64::NAN)),
            (3.0, spread(1000.0)),
        ];
        let pictures = panel(vec![], false).svg() + &panel(vec![line(gap.clone())], false).svg();
        assert_eq!(pictures.matches("<polyline").count(), 1);
        let extremes = panel(vec![line(gap)], true).svg();
        assert!(
            extremes.matches("<polyline").count() == 3 && !extremes.contains("NaN"),
            "{extremes}"
        );
        assert!(
            pictures.contains("a&lt;b") && !pictures.contains("NaN"),
            "{pictures}"
        );
        inside(&pictures);
    }
}
