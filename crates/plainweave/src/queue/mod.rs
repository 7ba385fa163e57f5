//! The structures that tasks wait in. A policy (`policy/*`) is built from these and owns no `unsafe` of its own.
//!
//! | structure | who puts | who takes | when full | used for |
//! |---|---|---|---|---|
//! | [`ring`] | its owner | it, the oldest; thieves, a batch | `push` hands it back | run queues, FIFO |
//! | [`deque`] | its owner | it, at both ends; thieves, a batch | the same, or it grows | run queues in other orders |
//! | `inbox` | any thread | the worker, all at once | never: links are in the tasks | remote wake-ups |
//! | [`mpmc`] | any thread | any thread | `push` hands it back | what comes one by one |
//! | `mpsc` | any thread | the worker, one by one | `push` says so | grants to fibers that stay |
//! | [`shared`] | any thread | any thread | never: holds live fibers | the policies' shared queues |
//!
//! Three habits hold in all of them:
//!
//! * **Ownership is in the type.** What only the owner may do takes `&mut Owner`; what any thread may do takes `&self`
//!   of a shareable handle. There is no "call this from the right thread" in a comment.
//! * **Nothing is read that is not owned.** No slot is copied first and validated afterwards, so there is no racy
//!   read to excuse: loom's cells, Miri and ThreadSanitizer check the very code that runs.
//! * **A look may err on one side only.** `is_empty` may call something non-empty that a moment later is not; it never
//!   calls empty what holds a task whose push happened before the look. `park` builds its last look on that: a waker
//!   pushes, fences (`SeqCst`) and reads the sleepers; a sleeper announces itself, fences (`SeqCst`) and looks.
//!
//! They are public so that policies outside this crate can be built from them, and so that they can be measured beside
//! others (`plainweave bench queues`); `docs/queues.md` has the figures.
//!
//! Everything atomic comes through `crate::shim`, so the models in `models` check these files and not a copy. The
//! oracles with real threads are in `tests/queues.rs` and `tests.rs`: nothing is lost, nothing comes twice, each
//! producer stays in order.

mod batch;
pub mod deque;
pub(crate) mod inbox;
pub mod mpmc;
pub(crate) mod mpsc;
pub mod ring;
pub mod shared;

#[cfg(all(test, not(loom)))]
mod cost;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
