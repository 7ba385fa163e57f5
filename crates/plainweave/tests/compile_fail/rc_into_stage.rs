//! A stage's items are made on one pool and used on another.

use std::rc::Rc;
use plainweave::pools::{Pool, Stage};

fn stage(pool: &Pool) {
    let _ = Stage::new(pool, 8, 1, |item: Rc<u32>| Ok(drop(item)));
}

fn main() {}
