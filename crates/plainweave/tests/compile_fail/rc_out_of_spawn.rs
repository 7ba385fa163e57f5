//! So is what it returns.

fn main() {
    plainweave::run(|| {
        plainweave::spawn(|| std::rc::Rc::new(1));
    });
}
