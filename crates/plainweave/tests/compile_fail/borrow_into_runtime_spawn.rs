//! Neither from outside.

fn main() {
    let runtime = plainweave::Runtime::new().unwrap();
    let local = String::from("gone soon");
    runtime.spawn(|| local.len());
}
