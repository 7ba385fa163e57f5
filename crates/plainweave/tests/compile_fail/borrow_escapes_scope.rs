//! What the body of a scope owns ends before its fibers may.

fn main() {
    plainweave::run(|| {
        plainweave::scope(|s| {
            let inner = String::from("ends with the body");
            s.spawn(|| inner.len());
        });
    });
}
