//! A spawned fiber may start on another worker: what it captures is `Send`.

fn main() {
    plainweave::run(|| {
        let shared = std::rc::Rc::new(1);
        plainweave::spawn(move || *shared);
    });
}
