//! What a mutex holds is used by one fiber after the other, on different workers: it has to be
//! `Send`.

use std::rc::Rc;
use std::sync::Arc;

fn main() {
    plainweave::run(|| {
        let lock = Arc::new(plainweave::sync::Mutex::new(Rc::new(1)));
        plainweave::spawn(move || lock.lock().map(|guard| drop(guard.clone())).is_ok());
    });
}
