//! What each worker of one run did when, as JSON in Chrome's trace format (`ui.perfetto.dev` shows
//! it), and as a picture (`svg`).

mod svg; // The beginning of a run as a picture.

use std::io::{self, Write};

use crate::costs::{MICRO, Picos};
use crate::policy::WorkerId;
use crate::task::TaskId;

/// The most that is recorded of a run.
const MOST: usize = 1_000_000;

#[derive(Clone, Copy, Debug)]
enum What {
    Runs(TaskId),
    Sleeps,
    /// It stole tasks from a worker.
    Steals(WorkerId, u64),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    worker: WorkerId,
    begin: Picos,
    end: Picos,
    what: What,
}

/// The record of one run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    events: Vec<Event>,
    cut: bool,
}

impl Timeline {
    fn add(&mut self, event: Event) {
        if self.events.len() < MOST {
            self.events.push(event);
        } else {
            self.cut = true;
        }
    }

    pub(crate) fn runs(&mut self, worker: WorkerId, fiber: TaskId, begin: Picos, end: Picos) {
        self.add(Event {
            worker,
            begin,
            end,
            what: What::Runs(fiber),
        });
    }

    pub(crate) fn sleeps(&mut self, worker: WorkerId, begin: Picos, end: Picos) {
        self.add(Event {
            worker,
            begin,
            end,
            what: What::Sleeps,
        });
    }

    pub(crate) fn steals(&mut self, worker: WorkerId, victim: WorkerId, tasks: u64, at: Picos) {
        self.add(Event {
            worker,
            begin: at,
            end: at,
            what: What::Steals(victim, tasks),
        });
    }

    /// Returns whether the run went on after the last event that was recorded.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Writes the record; `title` names the run.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn write(&self, title: &str, out: &mut impl Write) -> io::Result<()> {
        let title = title.replace(['"', '\\'], "'");
        write!(
            out,
            r#"[{{"ph":"M","pid":1,"name":"process_name","args":{{"name":"simulated: {title}"}}}}"#
        )?;
        for (number, event) in self.events.iter().enumerate() {
            let worker = event.worker;
            let at = micros(event.begin);
            let time = micros(event.end.saturating_sub(event.begin));
            let slice = |name: &str| {
                format!(
                    r#"{{"ph":"X","pid":1,"tid":{worker},"ts":{at},"dur":{time},"name":"{name}"}}"#
                )
            };

            let text = match event.what {
                What::Runs(fiber) => slice(&format!("fiber {fiber}")),
                What::Sleeps => slice("asleep"),
                // An arrow from the victim to the thief.
                What::Steals(victim, tasks) => {
                    let rest = format!(
                        r#""pid":1,"ts":{at},"id":{number},"cat":"steal","name":"{tasks}""#
                    );
                    let end =
                        |ph: &str, tid: usize| format!(r#"{{"ph":"{ph}","tid":{tid},{rest}}}"#);
                    format!("{},\n{}", end("s", victim), end("f", worker))
                }
            };

            write!(out, ",\n{text}")?;
        }

        writeln!(out, "]")
    }
}

fn micros(time: Picos) -> f64 {
    time as f64 / MICRO as f64
}
