//! The result of a local fiber stays on its worker, and so does the handle.

fn main() {
    plainweave::run(|| {
        let handle = plainweave::spawn_local(|| 1);
        plainweave::spawn(move || drop(handle.join()));
    });
}
