//! Several readers see the data of a read-write lock at once, so it has to be `Sync`.

use std::cell::Cell;
use std::sync::Arc;

fn main() {
    plainweave::run(|| {
        let lock = Arc::new(plainweave::sync::RwLock::new(Cell::new(1)));
        let other = lock.clone();
        plainweave::spawn(move || other.read().map(|guard| guard.set(2)).is_ok());
        lock.read().unwrap().set(3);
    });
}
