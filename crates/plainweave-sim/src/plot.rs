//! Throughput against workers as an SVG: a line for each policy, with a band from the least to the greatest of its
//! runs, and the published points beside it where there are some.

use std::io::{self, Write};

/// The panel, and the room around its axes.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 210.0;
const BOTTOM: f64 = 50.0;

/// Told apart by people who see red and green alike.
const COLOURS: [&str; 6] = ["#2563a8", "#c2610c", "#0d7a6f", "#8b3fd1", "#b91c1c", "#57534e"];

/// The median and the limits of the repetitions with one number of workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) workers: f64,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// One policy.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    /// Workers and throughput as somebody else has published them.
    pub(crate) published: &'static [(f64, f64)],
}

/// Where values lie in the panel.
struct Scale {
    workers: f64,
    throughput: f64,
}

impl Scale {
    fn of(lines: &[Line]) -> Self {
        let mut scale = Self { workers: 1.0, throughput: 0.0 };
        let mut include = |workers: f64, throughput: f64| {
            scale.workers = scale.workers.max(workers);
            scale.throughput = scale.throughput.max(throughput);
        };
        for line in lines {
            line.points.iter().for_each(|point| include(point.workers, point.max));
            line.published.iter().for_each(|(workers, throughput)| include(*workers, *throughput));
        }
        scale
    }

    fn x(&self, workers: f64) -> f64 {
        LEFT + WIDTH * workers / self.workers
    }

    fn y(&self, throughput: f64) -> f64 {
        TOP + HEIGHT * (1.0 - throughput / self.throughput.max(1.0))
    }

    fn path<'a>(&self, points: impl Iterator<Item = &'a (f64, f64)>) -> String {
        let place = |(workers, throughput): &(f64, f64)| format!("{:.1},{:.1}", self.x(*workers), self.y(*throughput));
        points.map(place).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a round step that divides `most` into four to ten parts.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf(most.max(1e-9).log10().floor());
    [0.1, 0.2, 0.5, 1.0].map(|part| part * power).into_iter().find(|step| most / step <= 10.0).unwrap_or(power)
}

/// Writes the picture; `title` says what was run.
///
/// # Errors
/// `out` cannot be written to.
pub(crate) fn write(title: &str, lines: &[Line], out: &mut impl Write) -> io::Result<()> {
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    writeln!(
        out,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' font-family='sans-serif' \
         font-size='13'>\n<rect width='{width}' height='{height}' fill='white'/>\n\
         <text x='{LEFT}' y='22' font-size='15'>Simulated: {}</text>",
        escape(title)
    )?;
    let scale = Scale::of(lines);
    axes(&scale, out)?;
    let mut row = TOP + 10.0;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        curve(line, colour, &scale, out)?;
        row = legend(line, colour, row, out)?;
    }
    writeln!(out, "</svg>")
}

fn axes(scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    let throughput = step(scale.throughput / 1e6) * 1e6;
    for i in 0..=(scale.throughput / throughput) as u32 {
        let (value, y) = (f64::from(i) * throughput, scale.y(f64::from(i) * throughput));
        writeln!(
            out,
            "<path d='M{LEFT} {y:.1}H{right}' stroke='#ddd'/><text x='{:.0}' y='{:.1}' text-anchor='end'>{:.1}</text>",
            LEFT - 6.0,
            y + 4.0,
            value / 1e6
        )?;
    }
    let workers = step(scale.workers).max(1.0);
    for i in 0..=(scale.workers / workers) as u32 {
        let value = f64::from(i) * workers;
        let (x, y) = (scale.x(value), bottom + 18.0);
        writeln!(out, "<text x='{x:.1}' y='{y}' text-anchor='middle'>{value}</text>")?;
    }
    writeln!(
        out,
        "<path d='M{LEFT} {TOP}V{bottom}H{right}' fill='none' stroke='black'/>\n\
         <text x='{:.0}' y='{:.0}' text-anchor='middle'>workers</text>\n\
         <text transform='translate(16,{:.0}) rotate(-90)' text-anchor='middle'>million a second</text>",
        LEFT + WIDTH / 2.0,
        bottom + 40.0,
        TOP + HEIGHT / 2.0
    )
}

fn curve(line: &Line, colour: &str, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    let of = |value: fn(&Point) -> f64| line.points.iter().map(move |point| (point.workers, value(point)));
    let band: Vec<_> = of(|point| point.min).chain(of(|point| point.max).rev()).collect();
    let median: Vec<_> = of(|point| point.median).collect();
    writeln!(
        out,
        "<polygon points='{}' fill='{colour}' fill-opacity='.2'/>\n\
         <polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'/>",
        scale.path(band.iter()),
        scale.path(median.iter())
    )?;
    for (workers, throughput) in line.published {
        let (x, y) = (scale.x(*workers), scale.y(*throughput));
        writeln!(out, "<circle cx='{x:.1}' cy='{y:.1}' r='5' fill='white' stroke='{colour}' stroke-width='2'/>")?;
    }
    Ok(())
}

/// Names a line at the height `row`. Returns the height of the next.
fn legend(line: &Line, colour: &str, row: f64, out: &mut impl Write) -> io::Result<f64> {
    let (left, text) = (LEFT + WIDTH + 15.0, LEFT + WIDTH + 45.0);
    let name = escape(&line.name);
    writeln!(out, "<path d='M{left} {row}h22' stroke='{colour}' stroke-width='2'/>")?;
    writeln!(out, "<text x='{text}' y='{}'>{name}</text>", row + 4.0)?;
    if line.published.is_empty() {
        return Ok(row + 22.0);
    }
    let (x, below) = (left + 11.0, row + 20.0);
    writeln!(out, "<circle cx='{x}' cy='{below}' r='5' fill='white' stroke='{colour}' stroke-width='2'/>")?;
    writeln!(out, "<text x='{text}' y='{}'>published (measured)</text>", below + 4.0)?;
    Ok(below + 26.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
