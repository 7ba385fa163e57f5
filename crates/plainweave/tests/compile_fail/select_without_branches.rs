//! A select with nothing to wait for would wait for ever.

fn main() {
    plainweave::run(|| plainweave::sync::select! {}.unwrap());
}
