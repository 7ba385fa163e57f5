//! The structures that tasks wait in. A policy (`policy/*`) is built from these and owns no
//! `unsafe` of its own.
//!
//! | structure | producers | consumers | when full | used for |
//! |---|---|---|---|---|
//! | [`ring`] | its owner | the owner, oldest first; thieves, a batch | `push` returns the task | run queues, FIFO |
//! | [`deque`] | its owner | the owner, at both ends; thieves, a batch | the same, or it grows | run queues in other
//! orders |
//! | `inbox` | any thread | the worker, all at once | never: links are in the tasks | remote wake-ups |
//! | [`mpmc`] | any thread | any thread | `push` returns the task | tasks that come one by one |
//! | `mpsc` | any thread | the worker, one by one | `push` reports it | grants to pinned fibers |
//! | [`shared`] | any thread | any thread | never: holds live fibers | the policies' shared queues |
//!
//! Three rules hold in all of them:
//!
//! * **Ownership is in the type.** Operations for the owner alone take `&mut Owner`; operations for
//!   any thread take `&self` of a shareable handle. No comment says "call this from the right
//!   thread".
//! * **Only owned slots are read.** No slot is copied first and validated afterwards, so there is
//!   no racy read to excuse: loom's cells, Miri and ThreadSanitizer check the very code that runs.
//! * **A look may err on one side only.** `is_empty` may return false for a queue that is empty a
//!   moment later; it never returns true for one that holds a task whose push happened before the
//!   look. The sleep protocol (`atomics/sleepers`, `docs/sleep-protocol.md`) relies on that for its
//!   last look: a waker pushes, fences (`SeqCst`) and reads the sleepers; a sleeper announces
//!   itself, fences (`SeqCst`) and looks.
//!
//! They are public so that policies outside this crate can be built from them, and so that they can
//! be compared with others (`plainweave bench queues`); `docs/queues.md` has the figures.
//!
//! Everything atomic comes through `crate::shim`, so the models in `models` check these files and
//! not a copy. The oracles with real threads are in `tests/queues.rs` and `tests.rs`: nothing is
//! lost, nothing comes twice, each producer stays in order.

mod batch; // What ring and deque have in common: moving tasks that are claimed.
pub mod deque; // A worker's deque, which pops at both ends and grows: word and protocol.
pub(crate) mod inbox; // Remote wake-ups: no bound, no lock, no allocation.
pub mod mpmc; // A shared queue without a lock.
pub(crate) mod mpsc; // Short messages to a worker: grants to fibers pinned there.
pub mod ring; // A worker's bounded ring: words and protocol.
pub mod shared; // What policies share: one or several of these, each with a locked queue behind it.

#[cfg(all(test, not(loom)))]
mod cost;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
