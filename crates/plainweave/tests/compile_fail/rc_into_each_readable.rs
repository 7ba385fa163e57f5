//! Each burst of a connection may be served on another worker.

use std::ops::ControlFlow;
use std::rc::Rc;

fn main() {
    plainweave::run(|| {
        let stream = plainweave::net::TcpStream::connect("127.0.0.1:1").unwrap();
        let shared = Rc::new(1);
        plainweave::net::each_readable(stream, None, move |_, _| {
            drop(shared.clone());
            ControlFlow::Break(())
        });
    });
}
