//! Plainweave: plain blocking code, woven onto a few cores.

pub(crate) mod fiber;
#[cfg(not(loom))]
pub(crate) mod io;
pub(crate) mod park;
pub(crate) mod queue;
pub(crate) mod shim;
#[cfg(not(loom))]
pub(crate) mod stack;
pub(crate) mod timer;
