//! The words that threads meet at: each file is one protocol on one word or two, and imports the shim alone, so that
//! loom checks the file that runs.

pub(crate) mod bell;
pub(crate) mod biased_lock;
pub(crate) mod job_queue;
pub(crate) mod join;
pub(crate) mod pinned_state;
pub(crate) mod signal_slot;
pub(crate) mod sleepers;
pub(crate) mod spin_lock;
pub(crate) mod state;
