//! A guard borrows its lock; `lock_owned` makes one that does not.

fn main() {
    plainweave::run(|| {
        let guard = {
            let lock = plainweave::sync::Mutex::new(1);
            lock.lock().unwrap()
        };
        drop(guard);
    });
}
