//! The same server on fibers and on threads: `hello [ADDRESS] [--threads]`. The listener makes the
//! difference.
#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::io;
use std::sync::Arc;

use plainweave_http::{Listener, Request, Response, Server, Transport};

pub(crate) fn hello(request: &mut Request<'_>) -> Response {
    // Whoever waits here, a fiber or a thread, the code is the same.
    Response::ok(format!("hello, you asked for {}\n", request.path()))
}

pub(crate) fn serve(listener: impl Listener<Stream: Transport>) -> io::Result<()> {
    if let Some(address) = listener.address() {
        println!("listening on {address}");
    }
    Arc::new(Server::new(hello)).serve(listener)
}

fn main() -> io::Result<()> {
    let mut address = "127.0.0.1:8080".to_owned();
    let mut threads = false;
    for arg in std::env::args().skip(1) {
        match &*arg {
            "--threads" => threads = true,
            _ => address = arg,
        }
    }

    match threads {
        true => serve(std::net::TcpListener::bind(address)?),
        false => plainweave::run(|| serve(plainweave::net::TcpListener::bind(address)?)),
    }
}
