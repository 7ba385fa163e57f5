//! Plainweave.
fn main() {}
