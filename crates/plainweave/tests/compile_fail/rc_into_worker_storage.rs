//! Code on the worker's storage is another thread's: what goes in is `Send`.

fn main() {
    plainweave::run(|| {
        let count = std::rc::Rc::new(1);
        plainweave::with_worker_storage(|| drop(count.clone()));
    });
}
