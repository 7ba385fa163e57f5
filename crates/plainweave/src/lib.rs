//! Plainweave: plain blocking code, woven onto a few cores.

pub(crate) mod io;
pub(crate) mod queue;
pub(crate) mod shim;
#[allow(dead_code, unused_imports)]
pub(crate) mod stack;
pub(crate) mod timer;
