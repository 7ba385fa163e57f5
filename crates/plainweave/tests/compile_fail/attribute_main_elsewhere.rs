//! A program has one beginning.

#[plainweave::main]
fn serve() {}
