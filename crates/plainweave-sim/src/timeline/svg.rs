//! The beginning of a run as a picture: fibers and sleeps as bars, steals as arrows from the victim
//! to the thief.

use std::io::{self, Write};

use plainweave_report::gantt::{Arrow, Bar, Gantt, Kind};

use super::{Timeline, What, micros};
use crate::costs::{MICRO, Picos};

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
        let mut bars = Vec::new();
        let mut arrows = Vec::new();
        for event in self.events.iter().filter(|event| event.begin < length) {
            let begin = micros(event.begin);
            let end = micros(event.end.min(length));
            let (name, kind) = match event.what {
                What::Runs(fiber) => (fiber.to_string(), Kind::Fiber),
                What::Sleeps => ("asleep".to_owned(), Kind::Asleep),
                What::Steals(victim, tasks) => {
                    let thief = event.worker;
                    arrows.push(Arrow {
                        kind: "steal".to_owned(),
                        from: (victim, begin),
                        to: (thief, begin),
                        title: format!(
                            "simulated: worker {thief} steals {tasks} from worker {victim} at {begin:.2} us"
                        ),
                    });
                    continue;
                }
            };

            bars.push(Bar {
                row: event.worker,
                begin,
                end,
                title: format!("simulated: {name}, {:.3} us", end - begin),
                name,
                kind,
            });
        }

        let picture = Gantt {
            title: format!("Simulated: {title}, the first {} us", length / MICRO),
            rows: (0..workers).map(|worker| format!("worker {worker}")).collect(),
            bars,
            arrows,
            begin: 0.0,
            end: micros(length),
            notes: vec![
                "Simulated time. Each number is a simulated fiber. Grey: asleep. Red: steals, from the victim to the \
                 thief. Blank: the worker schedules or searches."
                    .to_owned(),
            ],
        };
        out.write_all(picture.svg().as_bytes())
    }
}
