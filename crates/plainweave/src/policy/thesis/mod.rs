//! Work stealing with parameters: the variants that have been published, above all those of the
//! OCaml schedulers' thesis, from one set of parts.
//!
//! A policy of this family is [`Stealing`] over an [`Order`]. The order is a type, because its push
//! and pop are the hot path: [`Ring`] (FIFO), [`Slot`] (FIFO behind a slot for what became ready
//! last), [`Batches`] (FIFO, shown to thieves in batches) or [`Deque`] (LIFO, stochastic,
//! alternate, reverse). Everything else is data for the cold paths, in
//! [`StealingParams`]: whom to steal from and how much ([`Victim`], [`Amount`]), what to do without room
//! ([`WhenFull`]), how many shared queues there are and of what kind, and where tasks go that
//! yield.

mod batches; // The order first in, first out, shown to thieves in batches.
mod deque; // LIFO, stochastic, alternate, reverse.
mod fifo; // The order first in, first out.
mod horizontal; // The lane for thieves as two structures.
mod insert; // Inserts that spin until there is room.
mod lifo_slot; // A slot before the order for what became ready last.
mod movable; // The lane that thieves can take from.
mod order; // What an order is; which end comes next.
mod overflow; // What to do when full; the shared queues.
mod params; // The parameters.
mod presets; // The policies of the thesis that have a name.
mod stealing; // Work stealing over an order.
mod victim; // Whom to steal from, and how much.

pub use batches::{Batches, InBatches};
pub use deque::{Deque, Ordered};
pub use fifo::{Fifo, Ring};
pub use lifo_slot::{LifoSlot, Slot, SlotFor, SlotParams};
pub use order::{Ends, Order};
pub use overflow::WhenFull;
pub use params::{Shards, StealingParams, Yields};
pub(super) use presets::ROWS;
pub use stealing::Stealing;
pub use victim::{Amount, Victim};
