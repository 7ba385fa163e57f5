//! The systems take turns: a repetition of each, then the next of each, each time starting from
//! another one. What drifts in the machine meanwhile then meets all of them.

use super::cases::Case;
use super::repetition::{Figure, Size};
use super::system::System;
use crate::harness::c2c;
use crate::harness::course::Course;
use crate::harness::interrupt;
use crate::harness::report::Failures;
use crate::harness::sample::{Origin, Row};

/// A system in a case: what its repetitions have given so far.
struct Series<'a> {
    system: &'a System,
    rows: Vec<Row>,
    /// Repetitions whose CPUs were far apart.
    far: usize,
    /// Whether another repetition would tell nothing new, or fail.
    over: bool,
}

/// What came of a case with a number of workers.
#[derive(Default)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    /// What a system of others lacks, and why.
    pub(super) absent: Vec<(String, String)>,
}

/// A case in a size, of which the systems take turns.
pub(super) struct Contest<'a> {
    pub(super) case: &'a Case,
    /// Its name in the results.
    pub(super) title: String,
    pub(super) size: Size,
    /// Repetitions of each system.
    pub(super) runs: usize,
    /// Whether it counts what workers do on CPUs that are far apart.
    pub(super) far: bool,
}

impl Contest<'_> {
    /// Runs all repetitions of these systems.
    pub(super) fn run<'a>(
        &self,
        systems: impl Iterator<Item = &'a System>,
        course: &mut Course,
        failures: &mut Failures,
    ) -> Found {
        let runs = self.runs;
        let mut found = Found::default();
        let mut all: Vec<_> = systems.map(Series::new).collect();
        let count = all.len();

        // One more for each, which warms up.
        for run in 0..=runs {
            for place in 0..count {
                let one = &mut all[(place + run) % count];
                if one.over {
                    continue;
                }
                let case = self.case.name;
                let workers = self.size.workers;
                let name = &one.system.name;
                course.step(&format!(
                    "{case} on {name}, {workers} workers: {run} of {runs}"
                ));
                self.turn(one, failures, &mut found.absent, |one| {
                    self.repeat(one, run)
                });
                if one.over {
                    course.skip(runs - run);
                }
            }
        }

        for one in &mut all {
            if self.size.workers > 1 && !one.rows.is_empty() {
                let far = Figure::new("far_repetitions", one.far as f64);
                self.add(one, far);
            }
            if !one.over {
                self.turn(one, failures, &mut found.absent, |one| self.clocked(one));
            }
        }

        found.rows = all.into_iter().flat_map(|one| one.rows).collect();
        found
    }

    /// Has a system do something; if that fails, its figures go.
    fn turn(
        &self,
        one: &mut Series<'_>,
        failures: &mut Failures,
        absent: &mut Vec<(String, String)>,
        work: impl FnOnce(&mut Series<'_>) -> anyhow::Result<()>,
    ) {
        let what = format!("{} {}", self.case.name, one.system.name);
        let mut lacks = None;
        let done = failures.catch(&what, || match work(one) {
            // A peer may lack a case, which is a line of the report. If ours fails, so does the
            // run.
            Err(error) if !one.system.is_ours() && interrupt::came().is_none() => {
                lacks = Some(error);
                Ok(())
            }
            done => done,
        });

        if let Some(error) = lacks {
            // What a system lacks, it lacks with any number of workers: once is enough.
            let who = format!("{} {}", one.system.name, self.case.name);
            absent.push((who, format!("{error:#}")));
        } else if done.is_some() {
            return;
        }
        one.over = true;
        // A signal leaves what was measured before.
        if interrupt::came().is_none() {
            one.rows.clear();
        }
    }

    fn repeat(&self, one: &mut Series<'_>, run: usize) -> anyhow::Result<()> {
        // A run on CPUs that are far apart is made again: it would measure the distance.
        let must_be_near = run > 0 && !self.far;
        let (figures, was_far) = c2c::near(self.size.workers, must_be_near, || {
            one.system.repetition(self.case, &self.size)
        })?;
        let starves = |figure: &Figure| figure.metric == "starved" && figure.value > 0.0;
        let starved = figures.iter().any(starves);

        // The first warms up. A thread that starves does so for five seconds: once is enough.
        if run > 0 || starved {
            one.far += usize::from(was_far);
            figures.into_iter().for_each(|figure| self.add(one, figure));
        }
        one.over = starved;
        Ok(())
    }

    /// Repetitions of their own, since reading the clock at each operation costs as much as some.
    fn clocked(&self, one: &mut Series<'_>) -> anyhow::Result<()> {
        let case = self.case;
        if !case.clocked || (!case.migrates && one.system.peer.is_some()) {
            return Ok(());
        }
        let size = Size {
            clocked: true,
            ..self.size.clone()
        };
        let runs = if case.migrates { self.runs } else { 1 };

        for _ in 0..runs {
            let figures = one.system.repetition(case, &size)?;
            figures.into_iter().for_each(|figure| self.add(one, figure));
        }

        Ok(())
    }

    fn add(&self, one: &mut Series<'_>, figure: Figure) {
        let rows = &mut one.rows;
        match rows.iter_mut().find(|row| row.metric == figure.metric) {
            // A repetition may have figures that others lack: rows are found by name, not by place.
            Some(row) => row.values.push(figure.value),
            None => rows.push(Origin::new("micro").with_workers(self.size.workers).row(
                self.title.clone(),
                one.system.name.replace(',', ";"),
                figure.metric,
                figure.unit,
                vec![figure.value],
            )),
        }
    }
}

impl<'a> Series<'a> {
    fn new(system: &'a System) -> Self {
        Self {
            system,
            rows: Vec::new(),
            far: 0,
            over: false,
        }
    }
}
