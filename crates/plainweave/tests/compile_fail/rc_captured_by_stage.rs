//! A stage's function is called by several fibers at once.

use std::rc::Rc;
use plainweave::pools::{Pool, Stage};

fn stage(pool: &Pool, shared: Rc<u32>) {
    let _ = Stage::new(pool, 8, 2, move |item: u32| Ok(assert_ne!(item, *shared)));
}

fn main() {}
