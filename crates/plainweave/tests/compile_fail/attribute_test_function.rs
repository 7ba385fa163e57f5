//! What nobody can call.

#[plainweave::test]
fn takes(_argument: u32) {}

#[plainweave::test]
fn generic<T>() {}

#[plainweave::test]
#[test]
fn tested_twice() {}

#[plainweave::test]
unsafe fn contract() {}

fn main() {}
