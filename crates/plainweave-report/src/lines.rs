//! Lines over a swept value, each with a band between its quartiles.

use std::fmt::Write as _;

use super::axis::Axis;
use super::text::{self, Align, humane, wrap};
use super::{PANEL, Role, class};
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

impl Panel {
    /// Draws it as an SVG for a page that has [`super::STYLE`].
    pub fn svg(&self) -> String {
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

        draw_across(&mut body, across, bottom, x);
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
            line.draw(&mut body, &class, x, y);
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

        format!(
            "<svg class='panel' xmlns='http://www.w3.org/2000/svg' width='{PANEL}' viewBox='0 0 {PANEL} {down:.0}' \
             role='img'>{body}{legend}</svg>"
        )
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

/// Draws the ticks across, and the labels that do not meet their neighbours.
fn draw_across(body: &mut String, across: Axis, bottom: f64, x: impl Fn(f64) -> f64) {
    let mut free = 0.0;
    for tick in across.ticks() {
        let at = x(tick);
        let label = humane(tick, "");
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

    fn draw(&self, svg: &mut String, class: &str, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
        let place = |at: f64, value: f64| format!("{:.1},{:.1} ", x(at), y(value));
        let there = || {
            self.points
                .iter()
                .filter(|(_, spread)| !spread.median.is_nan())
        };

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

        for (at, spread) in there() {
            let x = x(*at);
            let y = y(spread.median);
            let _ = write!(
                svg,
                "<circle class='median {class}' cx='{x:.1}' cy='{y:.1}' r='2.5'/>"
            );
        }
    }
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
