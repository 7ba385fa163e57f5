//! A future that is spawned is polled on whichever worker its fiber is: what it keeps across an
//! await is `Send`.

use std::rc::Rc;

fn main() {
    plainweave::run(|| {
        plainweave::spawn_future(async {
            let kept = Rc::new(1);
            std::future::ready(()).await;
            drop(kept);
        });
    });
}
