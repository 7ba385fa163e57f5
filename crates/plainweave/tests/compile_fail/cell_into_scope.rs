//! Two fibers of a scope may run at once: what they share is `Sync`.

fn main() {
    plainweave::run(|| {
        let cell = std::cell::Cell::new(1);
        plainweave::scope(|s| {
            s.spawn(|| cell.set(2));
            s.spawn(|| cell.set(3));
        });
    });
}
