//! Plots as SVG, in the colours of the page around them.

use std::fmt::Write as _;

use plainweave_report::text::escape;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
/// Around the plot: left, right, top, bottom.
/// (Letters are half as large again beside the plot on a phone.)
const MARGIN: (f64, f64, f64, f64) = (112.0, 44.0, 34.0, 56.0);
/// Points of a line, at most: more than these are not told apart.
const POINTS: usize = 1000;

/// An axis: what it shows, and how a value is written.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub(super) title: &'static str,
    pub(super) log: bool,
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

/// An axis, and where it begins and ends in the plot.
struct Range {
    values: plainweave_report::axis::Axis,
    from: f64,
    to: f64,
}

impl Range {
    /// Covers the values, of which a plain axis shows 0 too.
    fn of(values: impl Iterator<Item = f64>, log: bool, from: f64, to: f64) -> Self {
        let values = plainweave_report::axis::Axis::over(values, log).rounded();
        Self { values, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + self.values.at(value) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        self.values.ticks()
    }
}

impl Chart {
    /// Returns the plot with its title and legend as HTML.
    pub(super) fn html(&self) -> String {
        let (left, right, top, bottom) = MARGIN;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Range::of(
            points().map(|point| point.0),
            self.x.log,
            left,
            WIDTH - right,
        );
        let y = Range::of(
            points().map(|point| point.1),
            self.y.log,
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
            let fits = |p: &&(f64, f64)| p.1.is_finite() && (!self.y.log || p.1 > 0.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool, points: Vec<(f64, f64)>) -> String {
        let x = Axis {
            title: "s",
            log: false,
            write: |value| value.to_string(),
        };

        let y = Axis {
            title: "a<b",
            log,
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
        let svg = chart(false, vec![(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)]);
        assert!(
            svg.contains("points=\"112.0,274.0 394.0,154.0 676.0,34.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("a&lt;b") && svg.contains("t&amp;u") && svg.contains("&lt;l&gt;: 50 at 5"),
            "{svg}"
        );
        let svg = chart(
            true,
            vec![(0.0, 1.0), (5.0, 10.0), (6.0, 0.0), (10.0, 100.0)],
        );

        assert!(
            svg.contains("points=\"112.0,274.0 394.0,154.0 676.0,34.0\""),
            "0 has no place: {svg}"
        );
    }

    #[test]
    fn what_has_no_extent_is_drawn_all_the_same() {
        for log in [false, true] {
            for points in [
                vec![],
                vec![(0.0, 0.0)],
                vec![(3.0, 7.0)],
                vec![(1.0, f64::NAN)],
            ] {
                let svg = chart(log, points);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }

        let many = chart(false, (0..100_000).map(|n| (f64::from(n), 1.0)).collect());
        assert!(many.len() < 30_000 && !many.contains("<circle"));
    }
}
