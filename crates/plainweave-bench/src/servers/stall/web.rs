//! The servers of the case `web`, but Go's: one of plainweave-http, and one on Tokio.
//!
//! Ours runs as it does for a program that configures nothing: fibers with storage of their own,
//! `Movement::Anytime`, spare workers, a fiber for each connection. The one on Tokio is written by
//! hand and knows just enough of HTTP for its clients: it looks for the end of the head and at the
//! path, so its requests cost less than the libraries'.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use plainweave::net;
use plainweave_http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::slow::Slow;

/// More than a request's head takes.
const HEAD_BYTES: usize = 1024;

/// Returns the body of the answer, after what the request costs.
fn handle(is_slow: bool, slow: Slow) -> &'static str {
    if is_slow {
        slow.run();
    }
    if is_slow { "slow" } else { "fast" }
}

pub(super) fn fibers(
    workers: usize,
    slow: Slow,
) -> anyhow::Result<(SocketAddr, plainweave::Runtime)> {
    let runtime = plainweave::Runtime::builder().workers(workers).build()?;
    let handler =
        move |request: &mut Request<'_>| Response::ok(handle(request.path() == "/slow", slow));
    let server = Arc::new(plainweave_http::Server::new(handler));
    let address = runtime.run(|| server.start(net::TcpListener::bind("127.0.0.1:0")?))?;
    let address = address.tcp().context("an address of TCP")?;

    Ok((address, runtime))
}

pub(super) fn tasks(
    workers: usize,
    slow: Slow,
) -> anyhow::Result<(SocketAddr, tokio::runtime::Runtime)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_io()
        .build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, slow));
        }
    });

    Ok((address, runtime))
}

/// Answers a connection's requests, of which the next comes when the last has been answered.
async fn connection(mut stream: tokio::net::TcpStream, slow: Slow) -> io::Result<()> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    while head.len() < HEAD_BYTES && stream.read_buf(&mut head).await? > 0 {
        if head.ends_with(b"\r\n\r\n") {
            let body = handle(head.starts_with(b"GET /slow "), slow);
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await?;
            head.clear();
        }
    }
    Ok(())
}
