//! The scope itself stays inside.

fn main() {
    plainweave::run(|| {
        let mut kept = None;
        plainweave::scope(|s| {
            kept = Some(s);
        });
    });
}
