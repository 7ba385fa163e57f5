//! A set may be leaked, so its fibers borrow nothing.

fn main() {
    plainweave::run(|| {
        let local = String::from("gone soon");
        let mut set = plainweave::sync::JoinSet::new();
        set.spawn(|| local.len());
    });
}
