//! A picture of two figures of each system, for the page of a benchmark: one across, the other
//! upwards, on a log scale.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use super::axis::{Axis, round_step};
use super::text::{escape, humane};

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 360.0;
/// Room around a panel's axes.
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const RIGHT: f64 = 20.0;
/// Room for the last panel's labels.
const OVERHANG: f64 = 60.0;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#334}\
.head{font-size:15px;font-weight:600}\
line{stroke:#99a;stroke-width:1}\
.grid{stroke:#ccd;stroke-dasharray:2 3}\
.marked{fill:#c2410c}\
.other{fill:#2563a8}\
.bar{stroke:#2563a8;stroke-opacity:.45}\
@media(prefers-color-scheme:dark){text{fill:#dde}line{stroke:#778}.grid{stroke:#445}.marked{fill:#f19a4b}\
.other{fill:#5aa9ee}.bar{stroke:#5aa9ee}}";

/// A system's place in a panel, with the quartiles of what is drawn across.
pub struct Point {
    /// What stands beside it.
    pub label: String,
    /// Drawn in the colour that stands out.
    pub marked: bool,
    /// First quartile, median, third quartile.
    pub across: [f64; 3],
    /// Microseconds.
    pub up_us: f64,
}

impl Point {
    /// Writes its values.
    fn said(&self) -> String {
        let [q1, median, q3] = self.across.map(|value| humane(value, ""));
        let up = humane(self.up_us, "us");
        format!("{}: {median} ({q1} to {q3}), {up}", self.label)
    }
}

/// A panel and what its axes are called.
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// What the axis across shows.
    pub across: &'static str,
    /// What the axis upwards shows.
    pub up: &'static str,
    /// A place on the axis across that is always in sight.
    pub holds: Option<f64>,
    /// One for each system.
    pub points: Vec<Point>,
}

/// Writes the panels that have points, side by side; no file if there are none.
///
/// # Errors
/// The file cannot be written; the message names it.
pub fn write(panels: &[Panel], file: &Path) -> anyhow::Result<()> {
    let panels: Vec<_> = panels
        .iter()
        .filter(|panel| !panel.points.is_empty())
        .collect();
    if panels.is_empty() {
        return Ok(());
    }
    let width = LEFT + WIDTH + RIGHT;
    let height = TOP + HEIGHT + BOTTOM;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {height}' role='img'><style>{STYLE}</style>",
        width * panels.len() as f64 + OVERHANG
    );

    for (n, panel) in panels.iter().enumerate() {
        let _ = write!(svg, "<g transform='translate({},0)'>", width * n as f64);
        draw(&mut svg, panel);
        svg.push_str("</g>");
    }

    svg.push_str("</svg>\n");
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
}

/// What is less is drawn as this much: a log axis has no zero.
const MIN_US: f64 = 0.01;

/// The axes of a panel.
#[derive(Clone, Copy)]
struct Axes {
    across: Axis,
    up: Axis,
}

impl Axes {
    fn of(panel: &Panel) -> Self {
        let all = |of: fn(&Point) -> f64| panel.points.iter().map(of).chain(panel.holds);
        let low = all(|point| point.across[0]).fold(f64::INFINITY, f64::min);
        let high = all(|point| point.across[2]).fold(f64::NEG_INFINITY, f64::max);
        let step = round_step((high - low) / 6.0);

        Axes {
            // Not from zero on, and with room for labels at the right.
            across: Axis {
                low: (low / step - 0.3).floor() * step,
                high: (high / step + 0.8).ceil() * step,
                log: false,
            },
            up: Axis::over(
                panel.points.iter().map(|point| point.up_us.max(MIN_US)),
                true,
            ),
        }
    }

    fn x(self, across: f64) -> f64 {
        LEFT + self.across.at(across) * WIDTH
    }

    fn y(self, us: f64) -> f64 {
        TOP + HEIGHT * (1.0 - self.up.at(us.max(MIN_US)))
    }
}

fn draw_grid(svg: &mut String, panel: &Panel, axes: Axes) {
    let bottom = TOP + HEIGHT;
    let right = LEFT + WIDTH;
    let _ = write!(
        svg,
        "<text class='head' x='{LEFT}' y='20'>{}</text>",
        escape(&panel.title)
    );

    for tick in axes.across.ticks() {
        let at = axes.x(tick);
        let _ = write!(
            svg,
            "<line class='grid' x1='{at:.1}' x2='{at:.1}' y1='{TOP}' y2='{bottom}'/>\
             <text x='{:.1}' y='{}'>{}</text>",
            at - 8.0,
            bottom + 16.0,
            humane(tick, "")
        );
    }

    for tick in axes.up.ticks() {
        let at = axes.y(tick);
        let label = humane(tick, "us");
        let _ = write!(
            svg,
            "<line class='grid' x1='{LEFT}' x2='{right}' y1='{at:.1}' y2='{at:.1}'/>\
             <text x='4' y='{:.1}'>{label}</text>",
            at + 4.0
        );
    }

    let _ = write!(
        svg,
        "<text x='{LEFT}' y='{}'>{}</text><text x='{LEFT}' y='{}'>{}</text>",
        bottom + 36.0,
        panel.across,
        TOP - 6.0,
        panel.up
    );
}

/// Draws the axes and the points of a panel.
fn draw(svg: &mut String, panel: &Panel) {
    let axes = Axes::of(panel);
    draw_grid(svg, panel, axes);
    let places: Vec<_> = panel
        .points
        .iter()
        .map(|p| (axes.x(p.across[1]), axes.y(p.up_us)))
        .collect();
    let mut taken: Vec<Area> = places
        .iter()
        .map(|&(x, y)| Area::around(x, y, 12.0, 10.0))
        .collect();

    for (point, &(at, up)) in panel.points.iter().zip(&places) {
        let class = if point.marked { "marked" } else { "other" };
        let area = label_area(&point.label, at, up, &taken);
        let _ = write!(
            svg,
            "<line class='bar' x1='{:.1}' x2='{:.1}' y1='{up:.1}' y2='{up:.1}'/>\
             <circle class='{class}' cx='{at:.1}' cy='{up:.1}' r='5'><title>{}</title></circle>\
             <text x='{:.1}' y='{:.1}'>{}</text>",
            axes.x(point.across[0]),
            axes.x(point.across[2]),
            escape(&point.said()),
            area.x,
            area.y + 10.0,
            escape(&point.label),
        );
        taken.push(area);
    }
}

/// A rectangle of the picture, by its upper left corner.
#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Area {
    fn around(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self {
            x: x - width / 2.0,
            y: y - height / 2.0,
            width,
            height,
        }
    }

    fn meets(&self, other: &Area) -> bool {
        let apart =
            |a: f64, length_a: f64, b: f64, length_b: f64| a + length_a <= b || b + length_b <= a;
        !apart(self.x, self.width, other.x, other.width)
            && !apart(self.y, self.height, other.y, other.height)
    }
}

/// Returns the free area nearest to a point that holds its label: beside it, or a little higher or
/// lower.
fn label_area(label: &str, at: f64, up: f64, taken: &[Area]) -> Area {
    let width = label.len() as f64 * 6.6;
    let height = 12.0;
    let beside = |shift: f64| {
        let area = |left: f64| Area {
            x: left,
            y: up + shift - height / 2.0,
            width,
            height,
        };
        [area(at + 9.0), area(at - 9.0 - width)]
    };

    let shifts = [0.0, -11.0, 11.0, -17.0, 17.0, -24.0, 24.0];
    let free = |area: &Area| !taken.iter().any(|other| area.meets(other));
    shifts
        .into_iter()
        .flat_map(beside)
        .find(free)
        .unwrap_or(beside(0.0)[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_steps_and_holds_all_points() {
        let point = |across, up_us| Point {
            label: String::new(),
            marked: false,
            across: [across; 3],
            up_us,
        };

        let points = vec![point(480_000.0, 1.7), point(952_000.0, 1225.0)];
        let axes = Axes::of(&Panel {
            title: String::new(),
            across: "",
            up: "",
            holds: None,
            points,
        });

        assert_eq!(
            (axes.across.low, axes.across.high),
            (400_000.0, 1_100_000.0)
        );
        let [first, second, ..] = axes.across.ticks()[..] else {
            panic!("no grid")
        };
        assert_eq!((first, second), (400_000.0, 600_000.0));
        assert_eq!((axes.up.low, axes.up.high), (1.0, 10_000.0));
    }

    #[test]
    fn labels_lie_beside_each_other() {
        let mut taken = vec![
            Area::around(100.0, 100.0, 12.0, 10.0),
            Area::around(103.0, 101.0, 12.0, 10.0),
        ];
        for (x, y) in [
            (100.0, 100.0),
            (103.0, 101.0),
            (100.0, 100.0),
            (103.0, 101.0),
        ] {
            let area = label_area("before-start", x, y, &taken);
            assert!(taken.iter().all(|other| !area.meets(other)));
            assert!((area.y + 6.0 - y).abs() <= 24.0);
            taken.push(area);
        }
    }
}
