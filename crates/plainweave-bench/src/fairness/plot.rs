//! One picture: what each system costs, against how long it lets ready fibers wait.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use super::plan::System;
use crate::sample::Row;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 360.0;
/// Room around a panel's axes.
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const RIGHT: f64 = 20.0;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#334}\
.head{font-size:15px;font-weight:600}\
line{stroke:#99a;stroke-width:1}\
.grid{stroke:#ccd;stroke-dasharray:2 3}\
.base{fill:#c2410c}\
.other{fill:#2563a8}\
.bar{stroke:#2563a8;stroke-opacity:.45}\
@media(prefers-color-scheme:dark){text{fill:#dde}.grid{stroke:#445}}";

/// A system's place in a panel, with the quartiles of its cost.
struct Point {
    label: String,
    is_base: bool,
    cost: [f64; 3],
    wait: f64,
}

/// Writes the picture: a panel a case, CPU per request to the base's across, the greatest wait upwards.
pub(super) fn write(rows: &[Row], systems: &[System], file: &Path) -> anyhow::Result<()> {
    let panels: Vec<_> = ["cache", "web"]
        .into_iter()
        .map(|case| (case, points(rows, systems, case)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    if panels.is_empty() {
        return Ok(());
    }
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {height}' role='img'><style>{STYLE}</style>",
        width * panels.len() as f64
    );
    for (n, (case, points)) in panels.iter().enumerate() {
        let _ = write!(svg, "<g transform='translate({},0)'>", width * n as f64);
        panel(&mut svg, case, points);
        svg.push_str("</g>");
    }
    svg.push_str("</svg>\n");
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
}

fn points(rows: &[Row], systems: &[System], case: &str) -> Vec<Point> {
    let base = &systems[0];
    let of = |name: &str, metric: &str| {
        let row = rows.iter().find(|r| r.case == case && r.system == name && r.workers == 1 && r.metric == metric)?;
        Some(row.spread())
    };
    let point = |system: &System| {
        let name = system.name();
        let is_base = system == base;
        let cost =
            if is_base { [1.0; 3] } else { of(&name, "cpu_to_base").map(|cost| [cost.q1, cost.median, cost.q3])? };
        Some(Point { label: system.change(base)?, is_base, cost, wait: of(&name, "greatest_wait_us")?.median })
    };
    systems.iter().filter(|system| system.workers == 1).filter_map(point).collect()
}

/// Draws the axes and the points of a case.
fn panel(svg: &mut String, case: &str, points: &[Point]) {
    let all = |of: fn(&Point) -> [f64; 2]| points.iter().flat_map(of);
    let low = all(|p| [p.cost[0], 1.0]).fold(f64::INFINITY, f64::min);
    let high = all(|p| [p.cost[2], 1.0]).fold(0.0, f64::max);
    // Steps of a tenth, and room for labels.
    let (low, high) = ((low * 10.0 - 0.3).floor() / 10.0, (high * 10.0 + 0.8).ceil() / 10.0);
    let (least, most) = points.iter().fold((f64::INFINITY, 1.0_f64), |(l, m), p| (l.min(p.wait), m.max(p.wait)));
    let (least, most) = (least.max(1.0).log10().floor(), most.log10().ceil().max(least.max(1.0).log10().floor() + 1.0));
    let x = |cost: f64| LEFT + (cost - low) / (high - low) * WIDTH;
    let y = |wait: f64| TOP + HEIGHT - (wait.max(1.0).log10() - least) / (most - least) * HEIGHT;
    let (bottom, right) = (TOP + HEIGHT, LEFT + WIDTH);
    let _ = write!(svg, "<text class='head' x='{LEFT}' y='20'>{case}, one worker</text>");
    let mut step = low;
    while step <= high + 1e-9 {
        let at = x(step);
        let _ = write!(
            svg,
            "<line class='grid' x1='{at:.1}' x2='{at:.1}' y1='{TOP}' y2='{bottom}'/>\
             <text x='{:.1}' y='{}'>{step:.1}</text>",
            at - 8.0,
            bottom + 16.0
        );
        step += 0.1;
    }
    for power in least as i32..=most as i32 {
        let at = y(10_f64.powi(power));
        let label = if power < 3 {
            format!("{} us", 10_i32.pow(power as u32))
        } else {
            format!("{} ms", 10_i32.pow(power as u32 - 3))
        };
        let _ = write!(
            svg,
            "<line class='grid' x1='{LEFT}' x2='{right}' y1='{at:.1}' y2='{at:.1}'/>\
             <text x='4' y='{:.1}'>{label}</text>",
            at + 4.0
        );
    }
    let _ = write!(
        svg,
        "<text x='{LEFT}' y='{}'>CPU per request, to the base (less is better)</text>\
         <text x='{LEFT}' y='{}'>greatest wait of a ready fiber (less is better)</text>",
        bottom + 36.0,
        TOP - 6.0
    );
    let places: Vec<_> = points.iter().map(|point| (x(point.cost[1]), y(point.wait))).collect();
    let mut taken: Vec<Area> = places.iter().map(|&(x, y)| Area::around(x, y, 12.0, 10.0)).collect();
    for (point, &(at, up)) in points.iter().zip(&places) {
        let class = if point.is_base { "base" } else { "other" };
        let label = format!("{}{}", point.label, if point.is_base { " (base)" } else { "" });
        let area = label_area(&label, at, up, &taken);
        let _ = write!(
            svg,
            "<line class='bar' x1='{:.1}' x2='{:.1}' y1='{up:.1}' y2='{up:.1}'/>\
             <circle class='{class}' cx='{at:.1}' cy='{up:.1}' r='5'/><text x='{:.1}' y='{:.1}'>{label}</text>",
            x(point.cost[0]),
            x(point.cost[2]),
            area.x,
            area.y + 10.0,
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
        Self { x: x - width / 2.0, y: y - height / 2.0, width, height }
    }

    fn meets(&self, other: &Area) -> bool {
        let apart = |a: f64, length_a: f64, b: f64, length_b: f64| a + length_a <= b || b + length_b <= a;
        !apart(self.x, self.width, other.x, other.width) && !apart(self.y, self.height, other.y, other.height)
    }
}

/// Returns the free area nearest to a point that holds its label: beside it, or a little higher or lower.
fn label_area(label: &str, at: f64, up: f64, taken: &[Area]) -> Area {
    let (width, height) = (label.len() as f64 * 6.6, 12.0);
    let beside = |shift: f64| {
        let area = |left: f64| Area { x: left, y: up + shift - height / 2.0, width, height };
        [area(at + 9.0), area(at - 9.0 - width)]
    };
    let shifts = [0.0, -11.0, 11.0, -17.0, 17.0, -24.0, 24.0];
    let free = |area: &Area| !taken.iter().any(|other| area.meets(other));
    shifts.into_iter().flat_map(beside).find(free).unwrap_or(beside(0.0)[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_lie_beside_each_other() {
        let mut taken = vec![Area::around(100.0, 100.0, 12.0, 10.0), Area::around(103.0, 101.0, 12.0, 10.0)];
        for (x, y) in [(100.0, 100.0), (103.0, 101.0), (100.0, 100.0), (103.0, 101.0)] {
            let area = label_area("before-start", x, y, &taken);
            assert!(taken.iter().all(|other| !area.meets(other)));
            assert!((area.y + 6.0 - y).abs() <= 24.0);
            taken.push(area);
        }
    }
}
