//! A handle to a fiber of a scope does not leave it.

fn main() {
    plainweave::run(|| {
        let local = 5;
        let handle = plainweave::scope(|s| s.spawn(|| &local));
        drop(handle);
    });
}
