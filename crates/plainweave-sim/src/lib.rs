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

mod allocator;
mod check;
mod commit;
mod costs;
mod engine;
mod faulty;
mod figures;
mod lines;
mod machine;
mod meter;
mod plot;
mod pools;
mod prefetch;
mod program;
mod scenario;
mod search;
mod shim;
mod stacks;
mod task;
pub mod thesis;
mod timeline;
mod trial;
mod worker;
mod workload;

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
