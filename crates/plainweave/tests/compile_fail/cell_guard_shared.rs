//! A guard of a lock may be shared between fibers only where its data may.

use std::cell::Cell;

fn main() {
    plainweave::run(|| {
        let lock = plainweave::sync::Mutex::new(Cell::new(1));
        let guard = lock.lock().unwrap();
        plainweave::scope(|s| {
            s.spawn(|| guard.set(2));
        });
    });
}
