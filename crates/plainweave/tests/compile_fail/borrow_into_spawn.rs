//! A spawned fiber may outlive its spawner: it borrows nothing.

fn main() {
    plainweave::run(|| {
        let local = String::from("gone soon");
        plainweave::spawn(|| local.len());
    });
}
