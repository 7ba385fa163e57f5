//! Plots as SVG, in the colours of the page around them.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
/// Around the plot: left, right, top, bottom.
/// (Letters are half as large again beside the plot on a phone.)
const MARGIN: (f64, f64, f64, f64) = (112.0, 44.0, 34.0, 56.0);
/// Points of a line, at most: more than these are not told apart.
const POINTS: usize = 1000;

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis: what it shows, and how a value is written.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    pub(super) write: fn(f64) -> String,
}

/// A line with its name.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A plot.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

/// Values and the places they have on an axis.
struct Range {
    scale: Scale,
    least: f64,
    greatest: f64,
    from: f64,
    to: f64,
}

impl Range {
    /// Covers the values, of which a linear axis shows 0 too.
    fn of(values: impl Iterator<Item = f64>, scale: Scale, from: f64, to: f64) -> Self {
        let fits = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut least, mut greatest) = values
            .filter(fits)
            .fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        if least > greatest {
            (least, greatest) = (1.0, 1.0);
        }

        match scale {
            Scale::Linear => {
                least = least.min(0.0);
                let step = step(greatest - least);
                greatest = (greatest / step).ceil() * step;
                greatest = if greatest > least {
                    greatest
                } else {
                    least + 1.0
                };
            }
            Scale::Log => {
                least = 10f64.powf(least.log10().floor());
                greatest = 10f64.powf(greatest.log10().ceil()).max(least * 10.0);
            }
        }

        Self {
            scale,
            least,
            greatest,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.least) / (self.greatest - self.least),
            Scale::Log => {
                (value.max(self.least) / self.least).log10() / (self.greatest / self.least).log10()
            }
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.greatest - self.least);
                let first = (self.least / step).ceil() as i64;
                let last = (self.greatest / step + 1e-9).floor() as i64;
                (first..=last).map(|n| n as f64 * step).collect()
            }
            Scale::Log => {
                let decades =
                    self.least.log10().round() as i32..=self.greatest.log10().round() as i32;
                decades.map(|decade| 10f64.powi(decade)).collect()
            }
        }
    }
}

/// A round distance that divides a range into about five.
fn step(range: f64) -> f64 {
    if range <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powf((range / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|n| n * unit)
        .into_iter()
        .find(|step| range / step <= 6.0)
        .unwrap_or(10.0 * unit)
}

impl Chart {
    /// Returns the plot with its title and legend as HTML.
    pub(super) fn html(&self) -> String {
        let (left, right, top, bottom) = MARGIN;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Range::of(
            points().map(|point| point.0),
            self.x.scale,
            left,
            WIDTH - right,
        );
        let y = Range::of(
            points().map(|point| point.1),
            self.y.scale,
            HEIGHT - bottom,
            top,
        );
        let mut svg = format!("<figure><figcaption>{}", escape(self.title));

        for (number, line) in self.lines.iter().enumerate() {
            let _ = write!(
                svg,
                "<span class=\"k{}\">{}</span>",
                number % 6,
                escape(&line.name)
            );
        }

        let _ = write!(
            svg,
            "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">"
        );
        self.grid(&mut svg, &x, &y);
        for (number, line) in self.lines.iter().enumerate() {
            let fits =
                |p: &&(f64, f64)| p.1.is_finite() && (self.y.scale == Scale::Linear || p.1 > 0.0);
            let every = line.points.len().div_ceil(POINTS).max(1);
            let places: Vec<_> = line.points.iter().step_by(every).filter(fits).collect();
            let path = places
                .iter()
                .map(|p| format!("{:.1},{:.1}", x.place(p.0), y.place(p.1)));
            let path = path.collect::<Vec<_>>().join(" ");

            let _ = write!(
                svg,
                "<polyline class=\"l{}\" points=\"{path}\"/>",
                number % 6
            );
            for p in places.iter().filter(|_| places.len() <= 120) {
                let [at, value] =
                    [(self.x.write)(p.0), (self.y.write)(p.1)].map(|text| escape(&text));
                let cx = x.place(p.0);
                let cy = y.place(p.1);
                let name = escape(&line.name);
                let dot = format!(
                    "<circle class=\"d{}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\">",
                    number % 6
                );
                let _ = write!(svg, "{dot}<title>{name}: {value} at {at}</title></circle>");
            }
        }

        svg + "</svg></figure>\n"
    }

    fn grid(&self, svg: &mut String, x: &Range, y: &Range) {
        let (left, right, top, bottom) = MARGIN;
        let end = WIDTH - right;
        let floor = HEIGHT - bottom;

        for tick in y.ticks() {
            let at = y.place(tick);
            let text = escape(&(self.y.write)(tick));
            let _ = write!(
                svg,
                "<line class=\"g\" x1=\"{left}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" class=\"e\">{text}</text>",
                left - 8.0,
                at + 4.0
            );
        }

        for tick in x.ticks() {
            let at = x.place(tick);
            let text = escape(&(self.x.write)(tick));
            let _ = write!(
                svg,
                "<line class=\"g\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{floor}\"/>"
            );
            let _ = write!(
                svg,
                "<text x=\"{at:.1}\" y=\"{}\" class=\"m\">{text}</text>",
                floor + 20.0
            );
        }

        let [across, up] = [self.x.title, self.y.title].map(escape);
        let middle = (left + end) / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" class=\"m t\">{across}</text>",
            HEIGHT - 6.0
        );
        let _ = write!(svg, "<text x=\"{left}\" y=\"20\" class=\"t\">{up}</text>");
    }
}

/// Writes text so that HTML takes it for text.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: Vec<(f64, f64)>) -> String {
        let x = Axis {
            title: "s",
            scale: Scale::Linear,
            write: |value| value.to_string(),
        };

        let y = Axis {
            title: "a<b",
            scale,
            write: |value| value.to_string(),
        };

        Chart {
            title: "t&u",
            x,
            y,
            lines: vec![Line {
                name: "<l>".to_owned(),
                points,
            }],
        }
        .html()
    }

    #[test]
    fn lines_go_where_their_values_are() {
        let svg = chart(Scale::Linear, vec![(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)]);
        assert!(
            svg.contains("points=\"112.0,274.0 394.0,154.0 676.0,34.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("a&lt;b") && svg.contains("t&amp;u") && svg.contains("&lt;l&gt;: 50 at 5"),
            "{svg}"
        );
        let svg = chart(
            Scale::Log,
            vec![(0.0, 1.0), (5.0, 10.0), (6.0, 0.0), (10.0, 100.0)],
        );

        assert!(
            svg.contains("points=\"112.0,274.0 394.0,154.0 676.0,34.0\""),
            "0 has no place: {svg}"
        );
    }

    #[test]
    fn what_has_no_extent_is_drawn_all_the_same() {
        for scale in [Scale::Linear, Scale::Log] {
            for points in [
                vec![],
                vec![(0.0, 0.0)],
                vec![(3.0, 7.0)],
                vec![(1.0, f64::NAN)],
            ] {
                let svg = chart(scale, points);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }

        let many = chart(
            Scale::Linear,
            (0..100_000).map(|n| (f64::from(n), 1.0)).collect(),
        );
        assert!(many.len() < 30_000 && !many.contains("<circle"));
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(
            [0.9, 7.0, 30.0, 70_000.0].map(step),
            [0.2, 2.0, 5.0, 20_000.0]
        );
    }
}
