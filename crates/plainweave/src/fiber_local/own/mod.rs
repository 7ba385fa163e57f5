//! x86-64 Linux with a shared glibc, where fibers can have storage of their own.

mod base;
mod block;
mod glibc;
#[cfg(test)]
mod tests;

pub(crate) use base::{base, resume};
pub(crate) use block::{Block, end_of_fiber};
pub(crate) use glibc::available;
