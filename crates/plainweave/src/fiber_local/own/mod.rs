//! Storage of fibers' own, on x86-64 Linux with a shared glibc.

mod base;
mod block;
mod glibc;
#[cfg(test)]
mod tests;

pub(crate) use base::{on, resume};
pub(crate) use block::{Block, base_of_worker, end_of_fiber};
pub(crate) use glibc::available;
