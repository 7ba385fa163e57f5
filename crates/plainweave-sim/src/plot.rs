//! Throughput and latency against workers as an SVG of small multiples: a panel for each figure, in
//! each a line for each policy with a band from the least to the greatest of its runs, and the
//! published points beside it where there are some. Latencies have log axes.

use std::io::{self, Write};

use plainweave_report::axis::{Axis, round_step};
use plainweave_report::text::escape;

/// A panel, and the room around its axes.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 76.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 56.0;
/// A line of the legend, below all panels.
const LEGEND: f64 = 24.0;

/// Told apart by people who see red and green alike.
pub(crate) const COLOURS: [&str; 6] = [
    "#2563a8", "#c2610c", "#0d7a6f", "#8b3fd1", "#b91c1c", "#57534e",
];

/// The median, the least and the greatest of the repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// What was found with one number of workers: operations a second, and microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) workers: f64,
    pub(crate) throughput: Spread,
    pub(crate) p50: Spread,
    pub(crate) p99: Spread,
}

/// One policy.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    /// Workers and throughput as somebody else has published them.
    pub(crate) published: &'static [(f64, f64)],
}

/// What a panel shows.
struct Panel {
    title: &'static str,
    of: fn(&Point) -> Spread,
    is_latency: bool,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "simulated throughput, million a second",
        of: |point| point.throughput,
        is_latency: false,
    },
    Panel {
        title: "simulated latency, median",
        of: |point| point.p50,
        is_latency: true,
    },
    Panel {
        title: "simulated latency, p99",
        of: |point| point.p99,
        is_latency: true,
    },
];

impl Panel {
    fn published(&self, line: &Line) -> &'static [(f64, f64)] {
        if self.is_latency { &[] } else { line.published }
    }
}

/// Where values lie in a panel whose left edge is at `left`.
struct Scale {
    left: f64,
    /// From none to the most.
    workers: f64,
    values: Axis,
}

impl Scale {
    fn of(panel: &Panel, left: f64, lines: &[Line]) -> Self {
        let published = lines.iter().flat_map(|line| panel.published(line)).copied();
        let points = lines.iter().flat_map(|line| &line.points);
        let workers = points
            .clone()
            .map(|point| point.workers)
            .chain(published.clone().map(|(workers, _)| workers));
        let least = if panel.is_latency { TINY } else { 0.0 };
        let values = points
            .flat_map(|point| [(panel.of)(point).min, (panel.of)(point).max])
            .chain(published.map(|(_, value)| value))
            .map(|value| value.max(least));

        Self {
            left,
            workers: workers.fold(1.0, f64::max),
            values: Axis::over(values, panel.is_latency),
        }
    }

    fn x(&self, workers: f64) -> f64 {
        self.left + WIDTH * workers / self.workers
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - self.values.at(value))
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let place = |(workers, value)| format!("{:.1},{:.1}", self.x(workers), self.y(value));
        points.map(place).collect::<Vec<_>>().join(" ")
    }

    /// Returns the values that have a line of the grid, with their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let places = if self.values.step() < 1e5 { 3 } else { 1 };
        let label = |value: f64| match self.values.log {
            true => micros(value.log10().round() as i32),
            false => format!("{:.places$}", value / 1e6),
        };

        let ticks = self.values.ticks().into_iter();
        ticks.map(|value| (value, label(value))).collect()
    }
}

/// A microsecond's part that a latency is drawn as at least.
const TINY: f64 = 0.01;

/// Returns the name of a power of ten of microseconds.
fn micros(power: i32) -> String {
    let (less, unit) = match power {
        ..0 => (-3, "ns"),
        0..3 => (0, "us"),
        3..6 => (3, "ms"),
        _ => (6, "s"),
    };
    format!("{} {unit}", 10_u64.pow((power - less) as u32))
}

/// Returns a round step that divides `most` into four to ten parts.
pub(crate) fn step(most: f64) -> f64 {
    round_step(most / 10.0)
}

/// Writes the picture; `title` says what was run.
///
/// # Errors
/// `out` cannot be written to.
pub(crate) fn write(title: &str, lines: &[Line], out: &mut impl Write) -> io::Result<()> {
    let width = (LEFT + WIDTH + RIGHT) * PANELS.len() as f64;
    let below = TOP + HEIGHT + BOTTOM;
    begin(
        (width, below + LEGEND * lines.len() as f64 + 8.0),
        title,
        out,
    )?;

    for (number, panel) in PANELS.iter().enumerate() {
        let left = LEFT + (LEFT + WIDTH + RIGHT) * number as f64;
        let scale = Scale::of(panel, left, lines);
        axes(panel, &scale, out)?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            curve(panel, line, colour, &scale, out)?;
        }
    }

    for (number, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        legend(line, colour, below + LEGEND * number as f64, out)?;
    }
    writeln!(out, "</svg>")
}

/// Begins a picture of a size.
pub(crate) fn begin(
    (width, height): (f64, f64),
    title: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' font-family='sans-serif' \
         font-size='13'>\n<rect width='{width}' height='{height}' fill='white'/>\n\
         <text x='16' y='26' font-size='15'>Simulated: {}</text>",
        escape(title)
    )
}

fn axes(panel: &Panel, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    let left = scale.left;
    let right = scale.left + WIDTH;
    let bottom = TOP + HEIGHT;
    writeln!(
        out,
        "<text x='{left}' y='{}'>{}</text>",
        TOP - 16.0,
        panel.title
    )?;

    for (value, label) in scale.ticks() {
        let y = scale.y(value);
        writeln!(
            out,
            "<path d='M{left} {y:.1}H{right}' stroke='#ddd'/>\n\
             <text x='{:.0}' y='{:.1}' text-anchor='end'>{label}</text>",
            left - 6.0,
            y + 4.0
        )?;
    }

    let workers = step(scale.workers).max(1.0);
    for i in 0..=(scale.workers / workers) as u32 {
        let value = f64::from(i) * workers;
        let x = scale.x(value);
        let y = bottom + 18.0;
        writeln!(
            out,
            "<text x='{x:.1}' y='{y}' text-anchor='middle'>{value}</text>"
        )?;
    }

    writeln!(
        out,
        "<path d='M{left} {TOP}V{bottom}H{right}' fill='none' stroke='black'/>\n\
         <text x='{:.0}' y='{:.0}' text-anchor='middle'>workers</text>",
        left + WIDTH / 2.0,
        bottom + 38.0
    )
}

fn curve(
    panel: &Panel,
    line: &Line,
    colour: &str,
    scale: &Scale,
    out: &mut impl Write,
) -> io::Result<()> {
    let of = |value: fn(Spread) -> f64| {
        line.points
            .iter()
            .map(move |point| (point.workers, value((panel.of)(point))))
    };

    let band = of(|spread| spread.min).chain(of(|spread| spread.max).rev());
    writeln!(
        out,
        "<polygon points='{}' fill='{colour}' fill-opacity='.2'/>\n\
         <polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'/>",
        scale.path(band),
        scale.path(of(|spread| spread.median))
    )?;
    for (workers, value) in of(|spread| spread.median) {
        let x = scale.x(workers);
        let y = scale.y(value);
        writeln!(
            out,
            "<rect x='{:.1}' y='{:.1}' width='5' height='5' fill='{colour}'/>",
            x - 2.5,
            y - 2.5
        )?;
    }

    for (workers, value) in panel.published(line) {
        let x = scale.x(*workers);
        let y = scale.y(*value);
        writeln!(
            out,
            "<circle cx='{x:.1}' cy='{y:.1}' r='5' fill='white' stroke='{colour}' stroke-width='2'/>"
        )?;
    }

    Ok(())
}

/// Names a line at the height `row`.
fn legend(line: &Line, colour: &str, row: f64, out: &mut impl Write) -> io::Result<()> {
    let name = escape(&line.name);
    writeln!(
        out,
        "<path d='M{LEFT} {row}h22' stroke='{colour}' stroke-width='2'/>"
    )?;
    writeln!(
        out,
        "<text x='{}' y='{}'>{name}, simulated</text>",
        LEFT + 30.0,
        row + 4.0
    )?;
    if line.published.is_empty() {
        return Ok(());
    }
    let left = LEFT + WIDTH;

    writeln!(
        out,
        "<circle cx='{left}' cy='{row}' r='5' fill='white' stroke='{colour}' stroke-width='2'/>"
    )?;

    writeln!(
        out,
        "<text x='{}' y='{}'>{name}: throughput, published (measured)</text>",
        left + 14.0,
        row + 4.0
    )
}
