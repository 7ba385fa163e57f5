//! Options are known, each with its values.

#[plainweave::test(worker = 2)]
fn unknown() {}

#[plainweave::test(workers = 0)]
fn too_few() {}

#[plainweave::test(timeout = "10")]
fn without_unit() {}

#[plainweave::test(io = "kqueue")]
fn no_driver() {}

#[plainweave::test(io = "sim", workers = 2)]
fn exclude_each_other() {}

#[plainweave::test(seed = 1, seed = 2)]
fn twice() {}

#[plainweave::test(seeds = 100)]
fn of_a_real_driver() {}

#[plainweave::main(timeout = "10s")]
fn main() {}
