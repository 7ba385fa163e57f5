//! Plainweave's scheduling policies on simulated machines of 1 to 256 workers. `docs/simulator.md`
//! says what for, what the cost model is, and what its figures claim.
//!
//! The policies, their queues and the sleepers' protocol are not models: they are the runtime's own
//! files, compiled a second time against the metered atomics of `shim`. So are the decisions of a
//! worker without work, `sched/idle`.
//!
//! | question | file |
//! |---|---|
//! | how simulated time passes; which worker goes on next | `meter`, `engine` |
//! | what a cache line costs | `lines`; the constants are in `costs`, machines in `machine` |
//! | a worker's loop; workers that share a policy | `worker`; `pools` |
//! | in whose cache a fiber's stack is | `stacks` |
//! | a fiber; what it does | `task`; `workload` |
//! | workloads of a thesis: parameters and cases, for the benchmarks on real workers too | `thesis` |
//! | what every run is checked for; planted faults that it must find | `check`; `faulty` |
//! | a run as a timeline; throughput and latency as plots | `timeline`; `plot` |
//! | which policy serves a scenario best | `search` |
//! | the program; scenario files; which sources they ran | `program`, `scenario`; `commit` |

mod allocator; // Memory in whole pairs of cache lines, so that a run can be repeated bit for bit.
mod check; // What every run is checked for, whatever it measures.
mod commit; // Which sources figures come from, for the benchmarks too.
mod costs; // What things cost on a simulated machine, in nanoseconds.
mod engine; // One run: actors on coroutines, resumed in the order of simulated time.
mod faulty; // A policy with a planted fault, to see that the checkers of a run find it.
mod figures; // What a run came to.
mod lines; // Cache lines: which worker has which, and what it costs to get one.
mod machine; // Simulated machines: how many workers, what they share, how fast each of them is.
mod meter; // Where simulated workers meet simulated time.
mod plot; // Throughput and latency against workers as an SVG of small multiples.
mod pools; // Workers that share a policy, and what wakes them.
mod prefetch; // Prefetches, which the cost model leaves out.
mod program; // `plainweave sim`: simulated runs as a table or as CSV.
mod scenario; // Scenarios: what to run, as a file that can be kept and passed on.
mod search; // A search for the policy that serves a scenario best.
// Atomics, cells and locks as the runtime's `queue`, `policy` and `atomics` take them from
// `crate::shim`, for simulated workers: each operation passes the `meter` first.
mod shim;
mod stacks; // In whose cache a fiber's stack is.
mod task; // Simulated fibers: what a policy holds of one, and what the simulation knows of all.
// The workloads of the OCaml schedulers' thesis: parameters and published cases, for the benchmarks
// too.
pub mod thesis;
// What each worker of one run did when, as JSON in Chrome's trace format (`ui.perfetto.dev` shows
// it), and as a picture (`svg`).
mod timeline;
mod trial; // Random small machines: whatever the policy, the checkers must find nothing.
mod worker; // A simulated worker: the runtime's loop, as far as it concerns scheduling.
mod workload; // What simulated fibers do.
mod world; // What the actors of a run share beside the pools.

// The runtime's own files. What of them only the runtime uses is idle here.
mod atomics;
#[allow(dead_code, reason = "the runtime uses more of it")]
#[path = "../../plainweave/src/sched/idle.rs"]
mod idle;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the runtime uses more of it"
)]
#[path = "../../plainweave/src/policy/mod.rs"]
mod policy;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the runtime uses more of it"
)]
#[path = "../../plainweave/src/queue/mod.rs"]
mod queue;

pub use allocator::WholeLines;
pub use commit::{commit, profile};
pub use engine::{Setup, simulate};
pub use faulty::{Fault, simulate_fault};
pub use figures::Outcome;
pub use machine::Machine;
pub use program::main;
pub use timeline::Timeline;
pub use trial::Trial;
pub use workload::{Load, Value};
