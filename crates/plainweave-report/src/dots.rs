//! A row for each system: its median as a dot, its quartiles as a bar, its least and greatest value
//! as a line.

use std::fmt::Write as _;

use super::axis::Axis;
use super::text::{self, Align, escape, humane, wrap};
use super::{PANEL, Role};
use crate::statistics::Spread;

const TITLE: f64 = 13.0;
const SIZE: f64 = 12.0;
const LINE: f64 = 15.0;
/// Height of the strip with the dot.
const STRIP: f64 = 12.0;
/// Values that are this far apart are drawn on a log axis.
const APART: f64 = 30.0;

/// A system.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// Whose it is.
    pub role: Role,
    /// Its figure.
    pub spread: Spread,
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// Which way is better, in words; perhaps nothing.
    pub better: &'static str,
    /// Of the figures; see [`humane`].
    pub unit: String,
    /// From the top on.
    pub rows: Vec<Row>,
}

impl Panel {
    /// Draws it as an SVG for a page that has [`super::STYLE`].
    pub fn svg(&self) -> String {
        let values = || {
            self.rows
                .iter()
                .flat_map(|row| [row.spread.min, row.spread.median, row.spread.max])
        };

        let axis = Axis::over(values(), Axis::wants_log(values(), APART));
        let mut body = String::new();
        let mut down = 4.0;

        for line in wrap(&self.title, TITLE, PANEL) {
            down += LINE;
            text::write(
                &mut body,
                (0.0, down - 2.0),
                Align::Left,
                TITLE,
                false,
                &line,
            );
        }

        let scale = if axis.log { "log scale" } else { "" };
        let note = [self.better, scale]
            .into_iter()
            .filter(|note| !note.is_empty())
            .collect::<Vec<_>>()
            .join(", ");
        if !note.is_empty() {
            down += LINE;
            text::write(&mut body, (0.0, down - 3.0), Align::Left, 11.0, true, &note);
        }

        for row in &self.rows {
            down = row.draw(&mut body, down, axis, &self.unit);
        }
        format!(
            "<svg class='panel' xmlns='http://www.w3.org/2000/svg' width='{PANEL}' viewBox='0 0 {PANEL} {:.0}' \
             role='img'>{body}</svg>",
            down + 4.0
        )
    }
}

impl Row {
    /// Writes its values.
    fn said(&self, unit: &str) -> String {
        let Spread {
            median,
            q1,
            q3,
            min,
            max,
        } = self.spread;
        let [median, q1, q3, min, max] =
            [median, q1, q3, min, max].map(|value| humane(value, unit));
        format!(
            "{}: {median}, quartiles {q1} and {q3}, least {min}, greatest {max}",
            self.name
        )
    }

    /// Draws it below a place and returns where it ends.
    fn draw(&self, body: &mut String, mut down: f64, axis: Axis, unit: &str) -> f64 {
        let Spread {
            median,
            q1,
            q3,
            min,
            max,
        } = self.spread;
        let value = humane(median, unit);
        down += 4.0;
        text::write(
            body,
            (PANEL, down + LINE - 4.0),
            Align::Right,
            SIZE,
            false,
            &value,
        );

        for line in wrap(&self.name, SIZE, PANEL - text::width(&value, SIZE) - 12.0) {
            down += LINE;
            text::write(
                body,
                (0.0, down - 4.0),
                Align::Left,
                SIZE,
                self.role != Role::Ours,
                &line,
            );
        }

        let class = match self.role {
            Role::Ours => "k0",
            Role::Peer => "peer",
            Role::Bound => "bound",
        };

        let x = |value: f64| 5.0 + axis.at(value) * (PANEL - 10.0);
        let middle = down + STRIP / 2.0 - 1.0;
        let _ = write!(
            body,
            "<line class='grid' x1='5' x2='{}' y1='{middle:.1}' y2='{middle:.1}'/>",
            PANEL - 5.0
        );

        if !median.is_nan() {
            let from = x(q1);
            let to = x(q3);
            let _ = write!(
                body,
                "<g><title>{}</title>\
                 <line class='range {class}' x1='{:.1}' x2='{:.1}' y1='{middle:.1}' y2='{middle:.1}'/>\
                 <rect class='quartiles {class}' x='{from:.1}' y='{:.1}' width='{:.1}' height='6'/>\
                 <circle class='median {class}' cx='{:.1}' cy='{middle:.1}' r='4'/></g>",
                escape(&self.said(unit)),
                x(min),
                x(max),
                middle - 3.0,
                (to - from).max(1.0),
                x(median)
            );
        }

        down + STRIP
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::{Panel, Row};
    use crate::statistics::Spread;
    use crate::{Role, inside};

    #[test]
    fn no_label_leaves_its_picture_whatever_it_is() {
        let mut random = SmallRng::seed_from_u64(27);
        let letters: Vec<char> = "abcdefghijklmWM%@- /<&'\u{b5}\u{4e2d}0123"
            .chars()
            .collect();
        for _ in 0..300 {
            let mut name = || -> String {
                let length = random.random_range(0..90);
                (0..length)
                    .map(|_| letters[random.random_range(0..letters.len())])
                    .collect()
            };

            let names: Vec<_> = (0..4).map(|_| name()).collect();
            let mut row = |name: &String| {
                let mut values = [0; 5].map(|_| 10_f64.powf(random.random_range(-9.0..12.0)));
                values.sort_by(f64::total_cmp);
                let [min, q1, median, q3, mut max] = values;
                if random.random_bool(0.1) {
                    max = f64::INFINITY;
                }
                Row {
                    name: name.clone(),
                    role: Role::Peer,
                    spread: Spread {
                        min,
                        q1,
                        median,
                        q3,
                        max,
                    },
                }
            };

            let rows = names[1..].iter().map(&mut row).collect();
            for unit in ["us", "1/s", "1/cpu-s", "count"] {
                let title = names[0].clone();
                let rows = Vec::clone(&rows);
                let unit = unit.to_owned();
                let picture = Panel {
                    title,
                    better: "less is better",
                    unit,
                    rows,
                }
                .svg();
                inside(&picture);
                assert!(
                    !picture.contains("NaN") && !picture.contains("inf"),
                    "{picture}"
                );
            }
        }
    }

    #[test]
    fn what_has_no_value_says_so() {
        let spread = Spread {
            median: f64::NAN,
            q1: f64::NAN,
            q3: f64::NAN,
            min: f64::NAN,
            max: f64::NAN,
        };

        let rows = vec![Row {
            name: "x".to_owned(),
            role: Role::Ours,
            spread,
        }];
        let picture = Panel {
            title: "t".to_owned(),
            better: "",
            unit: "us".to_owned(),
            rows,
        }
        .svg();
        assert!(
            picture.contains("no value")
                && !picture.contains("NaN")
                && !picture.contains("<circle"),
            "{picture}"
        );
    }
}
