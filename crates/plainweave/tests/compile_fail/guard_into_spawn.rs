//! A guard that borrows its lock does not go into a fiber that may outlive it.

fn main() {
    plainweave::run(|| {
        let lock = plainweave::sync::Mutex::new(1);
        let guard = lock.lock().unwrap();
        plainweave::spawn(move || drop(guard));
    });
}
