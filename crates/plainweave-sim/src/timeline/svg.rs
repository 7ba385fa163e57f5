//! The beginning of a run as a picture: a row for each worker, fibers and sleeps as bars, steals as
//! arrows from the victim to the thief.

use std::io::{self, Write};

use super::{Timeline, What, micros};
use crate::costs::{MICRO, Picos};
use crate::plot::{COLOURS, begin, step};

const LEFT: f64 = 90.0;
const TOP: f64 = 66.0;
const WIDTH: f64 = 1_100.0;
const RIGHT: f64 = 30.0;
const BOTTOM: f64 = 84.0;
const ROW: f64 = 24.0;
const BAR: f64 = 16.0;
/// The room that a character takes.
const CHARACTER: f64 = 7.0;

/// Where times and workers lie.
struct Scale {
    length: Picos,
}

impl Scale {
    fn x(&self, at: Picos) -> f64 {
        LEFT + WIDTH * at.min(self.length) as f64 / self.length as f64
    }
}

/// Returns the middle of a worker's row.
fn middle(worker: usize) -> f64 {
    TOP + ROW * (worker as f64 + 0.5)
}

impl Timeline {
    /// Draws the first `length` of the run on `workers` workers; `title` names the run.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(crate) fn draw(
        &self,
        title: &str,
        workers: usize,
        length: Picos,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let bottom = TOP + ROW * workers as f64;
        let title = format!("{title}, the first {} us", length / MICRO);
        begin((LEFT + WIDTH + RIGHT, bottom + BOTTOM), &title, out)?;
        writeln!(
            out,
            "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='6' markerHeight='6' \
             orient='auto'><path d='M0 0L8 4L0 8z'/></marker></defs>"
        )?;
        let scale = Scale { length };

        axes(&scale, workers, bottom, out)?;
        self.bars(&scale, workers, out)?;
        self.arrows(&scale, out)?;

        writeln!(
            out,
            "<text x='{LEFT}' y='{}'>simulated time, us</text>\n<text x='{LEFT}' y='{}'>Each number is a simulated \
             fiber. Grey: asleep. Arrows: steals, from the victim to the thief. Blank: the worker schedules or \
             searches.</text>\n</svg>",
            bottom + 40.0,
            bottom + 64.0
        )
    }

    fn bars(&self, scale: &Scale, workers: usize, out: &mut impl Write) -> io::Result<()> {
        // What is narrower than a pixel is drawn once a pixel, however many there are.
        let mut drawn = vec![0.0; workers];
        for event in self
            .events
            .iter()
            .filter(|event| event.begin < scale.length)
        {
            let (name, colour) = match event.what {
                What::Runs(fiber) => (fiber.to_string(), COLOURS[fiber % COLOURS.len()]),
                What::Sleeps => ("asleep".to_owned(), "#c8c8c8"),
                What::Steals(..) => continue,
            };

            let x = scale.x(event.begin);
            let end = scale.x(event.end);
            if end <= drawn[event.worker] {
                continue;
            }
            drawn[event.worker] = end.max(x + 1.0);
            let width = drawn[event.worker] - x;
            let y = middle(event.worker);
            writeln!(
                out,
                "<rect x='{x:.1}' y='{:.1}' width='{width:.1}' height='{BAR}' fill='{colour}' stroke='white' \
                 stroke-width='.5'/>",
                y - BAR / 2.0
            )?;

            if width > name.len() as f64 * CHARACTER + 4.0 {
                let ink = if matches!(event.what, What::Sleeps) {
                    "black"
                } else {
                    "white"
                };

                let x = x + width / 2.0;
                let y = y + 4.0;
                writeln!(
                    out,
                    "<text x='{x:.1}' y='{y:.1}' font-size='11' fill='{ink}' text-anchor='middle'>{name}</text>"
                )?;
            }
        }
        Ok(())
    }

    fn arrows(&self, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
        for event in self
            .events
            .iter()
            .filter(|event| event.begin < scale.length)
        {
            let What::Steals(victim, tasks) = event.what else {
                continue;
            };
            let x = scale.x(event.begin);
            let thief = event.worker;

            // It ends at the edge of the thief's bar.
            let edge = if victim < thief {
                -BAR / 2.0
            } else {
                BAR / 2.0
            };

            writeln!(
                out,
                "<path d='M{x:.1} {:.1}V{:.1}' stroke='black' marker-end='url(#head)'><title>simulated: worker {thief} \
                 steals {tasks} from worker {victim} at {:.2} us</title></path>",
                middle(victim),
                middle(thief) + edge,
                micros(event.begin)
            )?;
        }
        Ok(())
    }
}

fn axes(scale: &Scale, workers: usize, bottom: f64, out: &mut impl Write) -> io::Result<()> {
    for worker in 0..workers {
        writeln!(
            out,
            "<text x='{}' y='{:.1}' text-anchor='end'>worker {worker}</text>",
            LEFT - 8.0,
            middle(worker) + 4.0
        )?;
    }

    let length = micros(scale.length);
    let step = step(length);
    for i in 0..=(length / step) as u32 {
        let value = f64::from(i) * step;
        let x = scale.x((value * MICRO as f64) as Picos);
        let decimals = if step < 1.0 { 1 } else { 0 };
        writeln!(
            out,
            "<path d='M{x:.1} {TOP}V{bottom}' stroke='#ddd'/><text x='{x:.1}' y='{}' \
             text-anchor='middle'>{value:.decimals$}</text>",
            bottom + 18.0
        )?;
    }

    Ok(())
}
