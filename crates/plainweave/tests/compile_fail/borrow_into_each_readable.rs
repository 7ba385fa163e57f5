//! A connection that is served when something arrives outlives its fiber.

use std::ops::ControlFlow;

fn main() {
    plainweave::run(|| {
        let stream = plainweave::net::TcpStream::connect("127.0.0.1:1").unwrap();
        let local = String::from("gone soon");
        plainweave::net::each_readable(stream, None, |_, _| {
            drop(local.len());
            ControlFlow::Break(())
        });
    });
}
