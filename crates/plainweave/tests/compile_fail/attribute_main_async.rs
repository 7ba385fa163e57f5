//! There is nothing to await.

#[plainweave::main]
async fn main() {}
