//! Who did what when: a row for each worker, bars for what ran there, arrows for what one did to
//! another. A picture of its own, in the colours of the reader's light or dark system.

use std::fmt::Write as _;

use super::axis::round_step;
use super::text::{self, attribute, escape};

/// The picture's width, in pixels.
const WIDTH: f64 = 1200.0;
const RIGHT: f64 = 10.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;
/// Room for the title, and for the labels of the grid below it.
const TITLE: f64 = 26.0;
const TOP: f64 = 30.0;
/// Of a line of the notes below.
const LINE: f64 = 20.0;
const SIZE: f64 = 12.0;
/// Of a name within its bar.
const SMALL: f64 = 10.0;
/// A bar is at least as wide as this.
const LEAST: f64 = 0.6;

/// Microseconds.
pub type Micros = f64;

/// What a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A fiber ran: a colour by its name.
    Fiber,
    /// The worker slept.
    Asleep,
    /// The worker itself did something.
    Worker,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its row, counted from 0.
    pub row: usize,
    /// When it began.
    pub begin: Micros,
    /// When it ended.
    pub end: Micros,
    /// Shown in it if there is room.
    pub name: String,
    /// Shown by a pointer that rests on it.
    pub title: String,
    /// What it stands for.
    pub kind: Kind,
}

/// What one row did to another, or to itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrow {
    /// `wake`, `spawn` or `steal`: each has a colour.
    pub kind: String,
    /// Row and time of its beginning.
    pub from: (usize, Micros),
    /// Row and time of its end.
    pub to: (usize, Micros),
    /// Shown by a pointer that rests on it.
    pub title: String,
}

/// A picture.
#[derive(Clone, Debug, Default)]
pub struct Gantt {
    /// What stands above it; perhaps nothing.
    pub title: String,
    /// The names of the rows, from the top on.
    pub rows: Vec<String>,
    /// Those of a row in the order of their beginnings.
    pub bars: Vec<Bar>,
    /// Drawn over the bars.
    pub arrows: Vec<Arrow>,
    /// What is shown begins here.
    pub begin: Micros,
    /// And ends here.
    pub end: Micros,
    /// What stands below it, a line each.
    pub notes: Vec<String>,
}

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#222}.in{font-size:10px;fill:#fff}line{stroke:#ccc}.paper{fill:#fff}\
path{fill:none;stroke-width:.8;opacity:.7}.wake{stroke:#222}.spawn{stroke:#2a8a3e}\
.steal{stroke:#c43b3b;stroke-width:1.6;marker-end:url(#steal)}marker path{fill:#c43b3b;opacity:1}.asleep{fill:#ddd}\
.worker{fill:#888}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.in{fill:#fff}line{stroke:#444}.paper{fill:#14181c}\
.wake{stroke:#ddd}.asleep{fill:#333}}";

/// Where things lie in a picture.
struct Scale {
    left: f64,
    top: f64,
    begin: Micros,
    /// Pixels of a microsecond.
    pixels: f64,
}

impl Scale {
    fn x(&self, at: Micros) -> f64 {
        self.left + (at - self.begin) * self.pixels
    }

    fn y(&self, row: usize) -> f64 {
        self.top + row as f64 * ROW
    }
}

impl Gantt {
    /// Draws it as an SVG that needs no page.
    pub fn svg(&self) -> String {
        let names = self.rows.iter().map(|name| text::width(name, SIZE));
        let left = names.fold(0.0, f64::max) + 12.0;
        let head = if self.title.is_empty() { 0.0 } else { TITLE };
        let scale = Scale {
            left,
            top: head + TOP,
            begin: self.begin,
            pixels: (WIDTH - left - RIGHT) / (self.end - self.begin).max(1e-3),
        };

        let bottom = scale.y(self.rows.len());
        let height = bottom + 10.0 + LINE * self.notes.len() as f64;
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img'><style>{STYLE}</style>\
             <defs><marker id='steal' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='4' markerHeight='4' \
             orient='auto'><path d='M0 0L8 4L0 8z'/></marker></defs>\
             <rect class='paper' width='{WIDTH}' height='{height}'/>"
        );

        if !self.title.is_empty() {
            let title = escape(&self.title);
            let _ = write!(
                svg,
                "<text x='4' y='18' style='font-size:15px'>{title}</text>"
            );
        }

        self.grid(&mut svg, &scale, bottom);
        for (row, name) in self.rows.iter().enumerate() {
            let y = scale.y(row) + BAR - 5.0;
            let _ = write!(svg, "<text x='4' y='{y}'>{}</text>", escape(name));
        }

        // What is narrower than a pixel is drawn once a pixel, however many there are.
        let mut drawn = vec![0.0; self.rows.len()];
        for bar in &self.bars {
            let x = scale.x(bar.begin);
            let end = scale.x(bar.end);
            if end - x < 1.0 && end <= drawn[bar.row] {
                continue;
            }
            drawn[bar.row] = end.max(x + 1.0);
            bar.draw(&mut svg, x, scale.y(bar.row), end - x);
        }

        for arrow in &self.arrows {
            arrow.draw(&mut svg, &scale);
        }
        for (line, note) in self.notes.iter().enumerate() {
            let y = bottom + LINE * (line as f64 + 1.0);
            let _ = write!(svg, "<text x='4' y='{y}'>{}</text>", escape(note));
        }

        svg + "</svg>\n"
    }

    /// Draws lines at round times, with their distance from the first.
    fn grid(&self, svg: &mut String, scale: &Scale, bottom: f64) {
        let span = self.end - self.begin;
        let step = round_step(span.max(1e-3) / 8.0);
        let top = scale.top - 12.0;

        let mut at = 0.0;
        while at <= span {
            let x = scale.x(self.begin + at);
            let label = time(at, span);
            // The last one stays within the picture.
            let text_x = x.min(WIDTH - text::width(&label, SIZE));
            let _ = write!(
                svg,
                "<line x1='{x:.2}' x2='{x:.2}' y1='{top}' y2='{bottom}'/><text x='{text_x:.2}' y='{}'>{label}</text>",
                top - 6.0
            );
            at += step;
        }
    }
}

impl Bar {
    /// Draws it, with its name if there is room.
    fn draw(&self, svg: &mut String, x: f64, y: f64, width: f64) {
        let (class, fill) = match self.kind {
            Kind::Fiber => ("fiber", format!(" fill='hsl({} 55% 42%)'", hue(&self.name))),
            Kind::Asleep => ("asleep", String::new()),
            Kind::Worker => ("worker", String::new()),
        };

        let shown = width.max(LEAST);
        let title = escape(&self.title);
        let _ = write!(
            svg,
            "<rect class='{class}' x='{x:.2}' y='{y:.1}' width='{shown:.2}' height='{BAR}'{fill}>\
             <title>{title}</title></rect>"
        );

        if self.kind == Kind::Fiber && width > text::width(&self.name, SMALL) {
            let _ = write!(
                svg,
                "<text class='in' x='{:.2}' y='{:.1}'>{}</text>",
                x + 3.0,
                y + 14.0,
                escape(&self.name)
            );
        }
    }
}

impl Arrow {
    /// Draws it: within a row from the top edge, else between the edges that face each other.
    fn draw(&self, svg: &mut String, scale: &Scale) {
        let from = scale.y(self.from.0);
        let to = scale.y(self.to.0);
        let (y1, y2) = match self.to.0.cmp(&self.from.0) {
            std::cmp::Ordering::Greater => (from + BAR, to),
            std::cmp::Ordering::Less => (from, to + BAR),
            std::cmp::Ordering::Equal => (from, to),
        };

        let bend = if from == to {
            y1 - 8.0
        } else {
            (y1 + y2) / 2.0
        };

        let x1 = scale.x(self.from.1);
        let x2 = scale.x(self.to.1);
        let _ = write!(
            svg,
            "<path class='{}' d='M{x1:.2} {y1:.1}Q{:.2} {bend:.1} {x2:.2} {y2:.1}'><title>{}</title></path>",
            attribute(&self.kind),
            (x1 + x2) / 2.0,
            escape(&self.title)
        );
    }
}

/// Returns a time in words, in the unit that fits `span`.
fn time(at: Micros, span: Micros) -> String {
    let (value, unit) = if span >= 2e3 {
        (at / 1e3, "ms")
    } else {
        (at, "\u{b5}s")
    };

    let value = format!("{value:.3}");
    format!(
        "{} {unit}",
        value.trim_end_matches('0').trim_end_matches('.')
    )
}

/// Returns a colour for a name, in degrees: the same for the same name.
fn hue(name: &str) -> u32 {
    // Fowler, Noll and Vo's hash, 32 bits.
    let hash = name.bytes().fold(0x811C_9DC5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash % 360
}

#[cfg(test)]
mod tests {
    use super::{Arrow, Bar, Gantt, Kind};

    #[test]
    fn bars_narrower_than_a_pixel_are_drawn_once_a_pixel() {
        let bar = |begin| Bar {
            row: 0,
            begin,
            end: begin + 0.01,
            name: "f".to_owned(),
            title: "<f>".to_owned(),
            kind: Kind::Fiber,
        };

        let gantt = Gantt {
            rows: vec!["worker 0".to_owned()],
            bars: (0..10_000).map(|n| bar(f64::from(n) * 0.1)).collect(),
            arrows: vec![Arrow {
                kind: "steal".to_owned(),
                from: (0, 0.0),
                to: (0, 9.0),
                title: "a & b".to_owned(),
            }],
            end: 1000.0,
            ..Gantt::default()
        };

        let svg = gantt.svg();
        let bars = svg.matches("<rect class='fiber'").count();
        assert!((500..1300).contains(&bars), "{bars}");
        assert!(
            svg.contains("&lt;f&gt;") && svg.contains("a &amp; b") && svg.contains(">200 \u{b5}s<"),
            "{svg}"
        );
    }
}
