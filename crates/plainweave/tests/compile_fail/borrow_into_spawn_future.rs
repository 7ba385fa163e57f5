//! A future that is spawned may outlive its spawner.

fn main() {
    plainweave::run(|| {
        let local = String::from("gone soon");
        plainweave::spawn_future(async { drop(local.len()) });
    });
}
