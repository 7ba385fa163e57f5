//! The experiments on schedulers: fibers, queues and policies beside their peers, no server.

pub(crate) mod compose; // Does composition pay? Packets beside a slow side task.
pub(crate) mod micro; // The micro-benchmarks of a scheduler.
// Does the simulator predict what this machine does? The same policies and workloads, measured and
// simulated.
pub(crate) mod predict;
pub(crate) mod queues; // The queues that policies are built from, beside crossbeam's and st3's.
// The systems under test behind one trait, so that each workload is written once.
pub(crate) mod shim;
pub(crate) mod storm; // A storm of deadlines.
// The workloads of the OCaml schedulers' thesis, on the real runtime and on its peers.
pub(crate) mod thesis;
