//! A result of a set's fiber goes to its owner, on another worker.

use std::rc::Rc;

fn main() {
    plainweave::run(|| {
        let mut set = plainweave::sync::JoinSet::new();
        set.spawn(|| Rc::new(1));
    });
}
