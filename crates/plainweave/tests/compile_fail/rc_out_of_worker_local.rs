//! What comes out of a worker's value may go on on another worker, so it is `Send`.

use std::rc::Rc;

plainweave::worker_local!(static NAME: Rc<str> = "shared by the worker's fibers".into());

fn main() {
    plainweave::run(|| NAME.with(Rc::clone).len());
}
