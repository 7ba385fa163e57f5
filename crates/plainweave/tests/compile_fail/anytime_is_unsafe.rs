//! Moving started fibers takes a promise.

fn main() {
    let _ = plainweave::Runtime::builder().movement_anytime();
}
