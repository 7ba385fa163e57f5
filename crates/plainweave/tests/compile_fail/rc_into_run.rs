//! `run` starts a fiber on another thread.

fn main() {
    let shared = std::rc::Rc::new(1);
    plainweave::Runtime::new().unwrap().run(|| drop(shared.clone()));
}
