//! A call runs on another thread: what it lends must be `Sync`.

use std::rc::Rc;

use plainweave::pools::Pool;

fn call(pool: &Pool) {
    let local = Rc::new(1);
    pool.call(|| *local).unwrap();
}

fn main() {}
