//! The synchronisation protocols. Each file is one protocol on one or two atomic words and imports
//! only the shim, so loom checks the code that runs.

pub(crate) mod barrier; // A light and a heavy one, where one side seldom comes.
pub(crate) mod bell; // How the watchdog sleeps while all workers do, and is woken.
// The lock on a worker's I/O: free for its worker, and the watchdog may take it.
pub(crate) mod biased_lock;
pub(crate) mod claim; // How a wait for several things ends just once.
// Whether a pool's only regular worker has anybody to wake.
pub(crate) mod company;
pub(crate) mod event_ring; // The last events of a thread, which any thread may copy.
pub(crate) mod gate; // How an ending pool shuts out what other threads spawn into it.
pub(crate) mod job_queue; // The blocking pool's queue, and when it starts a thread.
pub(crate) mod join; // The handoff of a fiber's result.
pub(crate) mod live_count; // How many of a scope's children live, and which one wakes its owner.
// The state of a fiber that is pinned: its own worker uses no atomic operation.
pub(crate) mod pinned_state;
// A list that any thread adds to, and that costs its reader a load while it is empty.
pub(crate) mod posted;
pub(crate) mod ref_count; // Who gives up the last reference to a fiber.
pub(crate) mod signal_slot; // How a signal handler's answer reaches the thread that asked.
pub(crate) mod sleepers; // Which workers sleep, and which one a push wakes.
pub(crate) mod spin_lock; // The lock beneath wait queues, for a dozen instructions.
pub(crate) mod state; // The state word of a fiber: which thread owns its stack.
// Which way a wake-up of a worker takes: eventfd, futex, or none because one is on its way.
pub(crate) mod wake_flag;
pub(crate) mod woken; // Whether a future is to be polled again.
