//! Plainweave: plain blocking code, woven onto a few cores.

pub(crate) mod io;
#[allow(dead_code)]
pub(crate) mod queue;
pub(crate) mod shim;
pub(crate) mod stack;
#[allow(dead_code)]
pub(crate) mod timer;
