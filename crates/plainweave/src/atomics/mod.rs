//! The synchronisation protocols. Each file is one protocol on one or two atomic words and imports
//! only the shim, so loom checks the code that runs.

pub(crate) mod bell;
pub(crate) mod biased_lock;
pub(crate) mod claim;
pub(crate) mod event_ring;
pub(crate) mod gate;
pub(crate) mod job_queue;
pub(crate) mod join;
pub(crate) mod live_count;
pub(crate) mod pinned_state;
pub(crate) mod posted;
pub(crate) mod ref_count;
pub(crate) mod signal_slot;
pub(crate) mod sleepers;
pub(crate) mod spin_lock;
pub(crate) mod state;
pub(crate) mod wake_flag;
pub(crate) mod woken;
