//! Storage of fibers' own, on x86-64 Linux with a shared glibc.

mod base; // The register.
mod block; // Making, recycling and ending a block.
mod glibc; // The parts of glibc it needs, found and checked at run time.
#[cfg(test)]
mod tests;

pub(crate) use base::{on, set};
pub(crate) use block::{Block, base_of_worker, end_of_fiber};
pub(crate) use glibc::available;
