//! The fibers of a set may run on other workers than their owner.

use std::rc::Rc;

fn main() {
    plainweave::run(|| {
        let shared = Rc::new(1);
        let mut set = plainweave::sync::JoinSet::new();
        set.spawn(move || *shared);
    });
}
