//! The servers that are part of this program, each in a process of its own: the HTTP library on
//! fibers and on threads, and its peers among Rust's crates.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clap::Args;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use may_minihttp::{HttpService, HttpServiceFactory};
use plainweave::Io;
use plainweave_http::{Body, Handler, Request, Response, Server};

use super::kind::{BODY, Kind};
use super::websocket_server;
use crate::harness::descriptors;
use crate::harness::machine;
use crate::harness::mode::Mode;
use crate::harness::report;
use crate::serving::limit;
use crate::serving::process::free_address;

/// Descriptors that are asked for; with fewer, a server serves fewer connections.
const CONNECTIONS: usize = 4096;

/// One server, told by its parent which to be.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    kind: Kind,

    /// Sends back the messages of WebSockets
    #[arg(long)]
    websocket: bool,

    /// Sends the answer in chunks
    #[arg(long)]
    chunked: bool,
}

/// In a child process: serves until it is killed.
pub(crate) fn serve(flags: &Flags) -> anyhow::Result<()> {
    machine::end_with_parent();
    descriptors::at_least(CONNECTIONS);
    let listener = limit::listen()?;

    match (flags.kind, flags.websocket) {
        (Kind::Hyper, _) => serve_hyper(listener, flags.chunked),
        (Kind::MayMinihttp, _) => serve_may(),
        (Kind::Tungstenite, _) => websocket_server::serve_threads(&listener),
        (ours, false) if flags.chunked => serve_ours(ours, listener, |_: &mut Request<'_>| {
            Response::ok(Body::writer(|out| out.write_all(BODY.as_bytes())))
        }),
        (ours, false) => serve_ours(ours, listener, |_: &mut Request<'_>| Response::ok(BODY)),
        (ours, true) => serve_ours(ours, listener, websocket_server::handle),
    }
}

fn serve_ours(kind: Kind, listener: TcpListener, handler: impl Handler) -> anyhow::Result<()> {
    let address = listener.local_addr()?.to_string();
    let server = Arc::new(Server::new(handler));
    let (io, mode) = match kind {
        Kind::Uring => (Io::Uring, Mode::DEFAULT),
        Kind::UringShared => (Io::Uring, Mode::SHARED),
        Kind::EpollShared => (Io::Epoll, Mode::SHARED),
        Kind::Threads => {
            report::say(&address);
            return Ok(server.serve(listener)?);
        }
        _ => (Io::Epoll, Mode::DEFAULT),
    };

    let runtime = mode.builder().workers(1).io(io).build()?;
    let listener = plainweave::net::TcpListener::from_std(listener)?;
    report::say(&address);
    Ok(runtime.run(|| server.serve(listener))?)
}

/// Without a timer, so it has no timeouts, which costs it the least.
fn serve_hyper(listener: TcpListener, chunked: bool) -> anyhow::Result<()> {
    let hello = move |_: hyper::Request<Incoming>| {
        let body = Hello {
            body: Full::new(Bytes::from_static(BODY.as_bytes())),
            chunked,
        };
        std::future::ready(Ok::<_, Infallible>(hyper::Response::new(body)))
    };

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    listener.set_nonblocking(true)?;
    runtime.block_on(async {
        report::say(&listener.local_addr()?.to_string());
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new();
                // It fails when the client is gone.
                let _ = connection
                    .serve_connection(TokioIo::new(stream), service_fn(hello))
                    .await;
            });
        }
    })
}

/// A body of hyper's: it says how long it is, or it does not.
struct Hello {
    body: Full<Bytes>,
    chunked: bool,
}

impl hyper::body::Body for Hello {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        if self.chunked {
            hyper::body::SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}

struct HelloService;

impl HttpService for HelloService {
    fn call(
        &mut self,
        _: may_minihttp::Request<'_, '_, '_>,
        response: &mut may_minihttp::Response<'_>,
    ) -> io::Result<()> {
        response.body(BODY);
        Ok(())
    }
}

impl HttpServiceFactory for HelloService {
    type Service = Self;

    fn new_service(&self, _: usize) -> Self {
        Self
    }
}

fn serve_may() -> anyhow::Result<()> {
    may::config().set_workers(1);
    let address = free_address()?;
    let server = HelloService.start(address)?;
    report::say(&address.to_string());
    server.wait();
    Ok(())
}
