//! Lines over a swept value, each with a band between its quartiles, in small panels side by side.

use std::fmt::Write as _;

use crate::report::escape;
use crate::sample::Spread;

/// A panel, and the room around its axes.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const RIGHT: f64 = 20.0;

/// Told apart in light and dark, and by people who see red and green alike.
const COLOURS: [&str; 6] = ["#3b82c4", "#d97706", "#0d9488", "#a855f7", "#dc2626", "#78716c"];

const STYLE: &str = "\
.axis{stroke:currentColor;stroke-width:1}\
.grid{stroke:currentColor;stroke-opacity:.2;stroke-dasharray:2 3}\
.band{fill-opacity:.2;stroke:none}\
.line{fill:none;stroke-width:2}\
.small{font-size:11px}";

/// One line: the name, and the spread at each place.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, Spread)>,
}

/// One panel. `log`: each line upwards is ten times the one below.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) across: &'static str,
    pub(crate) upwards: &'static str,
    pub(crate) log: bool,
    pub(crate) lines: Vec<Line>,
}

/// Draws the panels in rows of `columns`, as an SVG for a page that has text in `currentColor`.
pub(crate) fn svg(panels: &[Panel], columns: usize) -> String {
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    let rows = panels.len().div_ceil(columns.max(1));
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' role=img><style>{STYLE}</style>",
        width * columns as f64,
        height * rows as f64
    );
    for (n, panel) in panels.iter().enumerate() {
        let (x, y) = (width * (n % columns) as f64, height * (n / columns) as f64);
        let _ = write!(svg, "<g transform='translate({x},{y})'>");
        panel.draw(&mut svg);
        svg.push_str("</g>");
    }
    svg + "</svg>"
}

/// Where values lie on an axis, between zero and one.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// Covers the values, from zero on, or in whole decades.
    fn over(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!log || *value > 0.0)) {
            (low, high) = (low.min(value), high.max(value));
        }
        match (low <= high, log) {
            (false, _) => Self { low: if log { 1.0 } else { 0.0 }, high: 10.0, log },
            (true, true) => {
                let low = low.log10().floor();
                Self { low: 10f64.powf(low), high: 10f64.powf(high.log10().ceil().max(low + 1.0)), log }
            }
            (true, false) => Self { low: 0.0, high: if high > 0.0 { high } else { 1.0 }, log },
        }
    }

    fn at(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    /// Returns where lines of the grid are: decades, or about five round numbers.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|n| self.low * 10f64.powi(n)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * unit).find(|step| *step >= rough).unwrap_or(rough);
        let count = ((self.high - self.low) / step + 1e-9).floor() as usize;
        (0..=count).map(|n| self.low + step * n as f64).collect()
    }
}

/// Writes a number with a letter for thousands and millions.
fn short(value: f64) -> String {
    let (value, letter) = match value {
        _ if value >= 1e6 => (value / 1e6, "M"),
        _ if value >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{value:.2}");
    format!("{}{letter}", digits.trim_end_matches('0').trim_end_matches('.'))
}

impl Panel {
    fn draw(&self, svg: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = Axis::over(points().map(|(x, _)| *x), false);
        let upwards = Axis::over(points().flat_map(|(_, spread)| [spread.q1, spread.median, spread.q3]), self.log);
        let x = |value: f64| LEFT + across.at(value) * WIDTH;
        let y = |value: f64| TOP + (1.0 - upwards.at(value)) * HEIGHT;
        let (bottom, right) = (TOP + HEIGHT, LEFT + WIDTH);
        let _ = write!(svg, "<text x='{LEFT}' y='20'>{}</text>", escape(&self.title));
        for tick in upwards.ticks() {
            let at = y(tick);
            let _ = write!(
                svg,
                "<line class=grid x1='{LEFT}' x2='{right}' y1='{at:.1}' y2='{at:.1}' />\
                 <text class=small text-anchor=end x='{:.1}' y='{:.1}'>{}</text>",
                LEFT - 6.0,
                at + 4.0,
                short(tick)
            );
        }
        for tick in across.ticks() {
            let at = x(tick);
            let _ = write!(
                svg,
                "<line class=axis x1='{at:.1}' x2='{at:.1}' y1='{bottom}' y2='{:.1}' />\
                 <text class=small text-anchor=middle x='{at:.1}' y='{:.1}'>{}</text>",
                bottom + 4.0,
                bottom + 17.0,
                short(tick)
            );
        }
        let _ = write!(
            svg,
            "<line class=axis x1='{LEFT}' x2='{right}' y1='{bottom}' y2='{bottom}' />\
             <line class=axis x1='{LEFT}' x2='{LEFT}' y1='{TOP}' y2='{bottom}' />\
             <text class=small text-anchor=middle x='{:.1}' y='{:.1}'>{}</text>\
             <text class=small text-anchor=end x='{right}' y='20'>{}</text>",
            LEFT + WIDTH / 2.0,
            bottom + 34.0,
            escape(self.across),
            escape(self.upwards)
        );
        for (n, line) in self.lines.iter().enumerate() {
            line.draw(svg, COLOURS[n % COLOURS.len()], x, y);
            let at = TOP + 14.0 + 15.0 * n as f64;
            let _ = write!(
                svg,
                "<rect x='{:.1}' y='{:.1}' width=10 height=10 style='fill:{}' /><text class=small x='{:.1}' \
                 y='{at:.1}'>{}</text>",
                LEFT + 10.0,
                at - 9.0,
                COLOURS[n % COLOURS.len()],
                LEFT + 25.0,
                escape(&line.name)
            );
        }
    }
}

impl Line {
    fn draw(&self, svg: &mut String, colour: &str, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
        let place = |at: f64, value: f64| format!("{:.1},{:.1} ", x(at), y(value));
        let there = || self.points.iter().filter(|(_, spread)| spread.median.is_finite());
        let upper: String = there().map(|(at, spread)| place(*at, spread.q3)).collect();
        let lower: String = there().rev().map(|(at, spread)| place(*at, spread.q1)).collect();
        let middle: String = there().map(|(at, spread)| place(*at, spread.median)).collect();
        let _ = write!(
            svg,
            "<polygon class=band style='fill:{colour}' points='{upper}{lower}' />\
             <polyline class=line style='stroke:{colour}' points='{middle}' />"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Line, Panel, short, svg};
    use crate::sample::Spread;

    #[test]
    fn axes_have_round_numbers() {
        let plain = Axis::over([3.0, 47_000.0].into_iter(), false);
        assert_eq!(plain.ticks(), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]);
        let log = Axis::over([300.0, 45_000.0, 0.0, f64::NAN].into_iter(), true);
        let ticks: Vec<_> = log.ticks().into_iter().map(f64::round).collect();
        assert_eq!(ticks, [100.0, 1_000.0, 10_000.0, 100_000.0]);
        assert!((log.at(1e3) - 1.0 / 3.0).abs() < 1e-9 && log.at(1.0) == 0.0 && plain.at(1e9) == 1.0);
        assert_eq!([0.0, 0.25, 1000.0, 12_500.0, 2e6].map(short), ["0", "0.25", "1k", "12.5k", "2M"]);
    }

    #[test]
    fn a_panel_without_points_is_drawn_too() {
        let spread = |median| Spread { median, q1: median, q3: median, min: median, max: median };
        let line = |points| Line { name: "a<b".to_owned(), points };
        let panel = |lines| Panel { title: "p99".to_owned(), across: "rate", upwards: "us", log: true, lines };
        let gap = vec![(1.0, spread(10.0)), (2.0, spread(f64::NAN)), (3.0, spread(1000.0))];
        let picture = svg(&[panel(vec![]), panel(vec![line(gap)])], 2);
        assert_eq!(picture.matches("<polyline").count(), 1);
        assert!(picture.contains("a&lt;b") && !picture.contains("NaN"), "{picture}");
    }
}
