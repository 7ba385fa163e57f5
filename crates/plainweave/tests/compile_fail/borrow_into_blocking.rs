//! A job may outlive its caller, who can be cancelled.

fn main() {
    plainweave::run(|| {
        let mut local = [0u8; 16];
        plainweave::blocking(|| local[0] = 1).unwrap();
    });
}
