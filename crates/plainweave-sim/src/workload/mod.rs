//! What simulated fibers do: a workload is a small machine that says what each fiber does next.
//!
//! A workload has no clock and no scheduler of its own; it costs what its actions cost. One file
//! each; `table` has their names and what they can be given, `load` is one that has been chosen.

mod bimodal; // Bimodal (OCaml schedulers' thesis).
mod fib; // Fibonacci numbers (OCaml schedulers' thesis).
mod load; // A workload that has been chosen.
mod micro; // The micro-benchmarks of the CFA thesis, as far as schedulers are concerned.
mod mixer; // Audio mixer (OCaml schedulers' thesis).
mod open; // Requests from outside the pool that come whether or not the workers keep up.
mod options; // Options (OCaml schedulers' thesis).
mod packets; // Packets (OCaml schedulers' thesis, figures 7.1 to 7.7).
// Fibers that spawn what a workload consists of, one after the other and without a pause.
mod spawners;
mod table; // The table of workloads: names, sizes, parameters, and what is allowed.
mod value; // What a parameter of a workload is given.

pub use load::Load;
pub(crate) use table::{Key, LOADS, Row};
pub use value::Value;

use crate::costs::Picos;
use crate::policy::WorkerId;
use crate::task::{Fibers, TaskId};

/// What a fiber does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It computes for so long.
    Compute(Picos),
    /// It holds up its worker for so long, however fast that is: it sleeps as a thread does, or
    /// looks at the clock.
    HoldUp(Picos),
    /// It spawns a fiber that it has created.
    Spawn(TaskId),
    /// It reads and writes a line of the workload's data.
    Touch(u64),
    /// It sleeps for so long, and its worker does something else meanwhile.
    Sleep(Picos),
    /// It gives way.
    Yield,
    /// It waits until another fiber wakes it, or not at all if one has already.
    Wait,
    /// It wakes a fiber, which may have ended.
    Wake(TaskId),
    /// It ends.
    End,
}

/// What a workload may use while it decides.
pub(crate) struct Step<'a> {
    pub(crate) now: Picos,
    /// Which worker runs the fiber.
    pub(crate) worker: WorkerId,
    pub(crate) fibers: &'a mut Fibers,
    /// What it measures: the latency of one request, or what stands for one.
    pub(crate) latency: &'a mut dyn FnMut(Picos),
}

/// What fibers there are, and what they do.
pub(crate) trait Workload {
    /// Returns the next fiber that comes from outside the pool, and when. Times do not fall.
    fn arrival(&mut self, fibers: &mut Fibers) -> Option<(Picos, TaskId)>;

    /// Returns what a fiber does next.
    fn next(&mut self, fiber: TaskId, step: &mut Step<'_>) -> Action;

    /// Returns the number of what is counted for the throughput.
    fn operations(&self) -> u64;

    /// Returns what it has measured beside latencies, by name and unit.
    fn figures(&self) -> Vec<(&'static str, &'static str, f64)> {
        Vec::new()
    }
}
