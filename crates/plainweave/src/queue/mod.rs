//! The structures that tasks wait in. A policy (`policy/*`) is built from these and owns no `unsafe` of its own.
//!
//! | structure | who puts | who takes | when full | used for |
//! |---|---|---|---|---|
//! | [`ring`] | its owner | its owner; any thread steals a batch | `push` hands the task back | a worker's run queue |
//! | [`inbox`] | any thread | the worker, all at once | never: links live in the tasks | remote wake-ups |
//! | [`injector`] | any thread | any thread | never: holds at most the live fibers | spawns from outside, overflow |
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
//! Everything atomic comes through [`crate::shim`], so the models in `models.rs` check these files and not a copy.
//! `tests.rs` holds the oracles with real threads: nothing is lost, nothing comes twice, each producer stays in order.

pub(crate) mod inbox;
pub(crate) mod injector;
pub(crate) mod ring;

#[cfg(all(test, not(loom)))]
mod cost;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
