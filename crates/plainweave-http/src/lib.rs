//! HTTP/1 server library for plain blocking handlers.
//!
//! A handler is a function from [`Request`] to [`Response`]; bodies are `Read`. Any stream with timeouts
//! ([`Transport`]) carries connections: a fiber's, a thread's, a test's.
//!
//! ```no_run
//! use plainweave_http::{Request, Response, Server};
//!
//! let server = Server::new(|request: &mut Request<'_>| Response::ok(format!("you asked for {}\n", request.path())));
//! let listener = std::net::TcpListener::bind("127.0.0.1:8080")?;
//! std::thread::scope(|scope| {
//!     for stream in listener.incoming().flatten() {
//!         scope.spawn(|| server.serve(stream));
//!     }
//! });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Stopping
//! [`Server::stop`] makes every answer its connection's last and ends the waits of idle connections in
//! [`Server::serve`]; what a peer has sent by then is still answered. With fibers, a graceful stop is
//! ```no_run
//! # use std::time::Duration;
//! # fn stop<H: plainweave_http::Handler>(
//! #     server: &plainweave_http::Server<H>, listener: &plainweave::net::TcpListener, runtime: &plainweave::Runtime
//! # ) -> bool {
//! server.stop();
//! listener.close();
//! // Those that wait without a fiber, by `net::on_readable` or `net::each_readable`.
//! runtime.close_idle_connections();
//! runtime.wait_idle(Duration::from_secs(10))
//! # }
//! ```
//! It returns when the last request in progress has been answered. Requests that a peer had sent ahead, behind the one
//! that was answered last, are not served: `Connection: close` tells the peer so.
//!
//! # TLS
//! With the cargo feature `tls`, the module `tls` makes a [`Transport`] of any other: hand [`Server::serve`] what its
//! `Acceptor` returns. [`Request::tls`] says what the handshake has found out.
//!
//! Where to look: [`conn`](Server::serve_ready) is the loop; [`parse`], [`body`] and the encoder do no I/O;
//! [`Limits`] names every bound; [`files`] is the static handler.

pub mod body;
pub mod files;
pub mod parse;
#[cfg(feature = "tls")]
pub mod tls;

mod authority;
mod buffer;
mod conn;
mod encode;
mod error;
mod exchange;
mod head;
mod header_lines;
mod idle;
mod incoming;
mod limits;
mod link;
mod outgoing;
mod refuse;
mod request;
mod response;
mod server;
mod session;
mod transport;

pub use bytes::Bytes;
pub use conn::Next;
pub use error::Error;
pub use exchange::Exchange;
pub use head::{Framing, RequestHead, Target};
pub use header_lines::HeaderLines;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
pub use limits::Limits;
pub use link::ConnState;
pub use request::{Handler, Request};
pub use response::{Body, FilePart, Response};
pub use server::Server;
pub use session::TlsSession;
pub use transport::Transport;
