//! Plainweave: plain blocking code, woven onto a few cores.

#[allow(dead_code)]
pub(crate) mod io;
pub(crate) mod queue;
pub(crate) mod shim;
pub(crate) mod stack;
pub(crate) mod timer;
