//! The cache as a library: in a program of one's own, on fibers beside others.

mod embedded;
#[path = "../../../plainweave/tests/common/skip.rs"]
mod skip;
