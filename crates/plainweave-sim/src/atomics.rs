//! Of the runtime's protocols, the one of workers that sleep and are woken.

#[allow(dead_code, reason = "the runtime uses more of it")]
#[path = "../../plainweave/src/atomics/sleepers.rs"]
pub(crate) mod sleepers;
