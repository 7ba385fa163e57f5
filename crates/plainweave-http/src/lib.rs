//! HTTP/1 and HTTP/2 server library for plain blocking handlers.
//!
//! A handler is a function from [`Request`] to [`Response`]; bodies are `Read`. Any stream with timeouts
//! ([`Transport`]) carries connections: a fiber's, a thread's, a test's.
//!
//! ```no_run
//! use plainweave_http::{Request, Response, Server};
//!
//! Server::run("127.0.0.1:8080", |request: &mut Request<'_>| {
//!     Response::ok(format!("you asked for {}\n", request.path()))
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Listeners
//! A server can have several, of TCP and of Unix sockets. Those of [`plainweave::net`] run each connection on a fiber,
//! those of `std` on a thread; nothing else is different.
//! ```no_run
//! # use std::{sync::Arc, time::Duration};
//! use plainweave::net::{TcpListener, UnixListener};
//! # use plainweave_http::{Request, Response, Server};
//!
//! # plainweave::run(|| {
//! let server = Arc::new(Server::new(|_: &mut Request<'_>| Response::ok("hello\n")).with_name("mine")?);
//! let address = server.start(TcpListener::bind("127.0.0.1:0")?)?;
//! server.start(UnixListener::bind_over_stale("/run/mine.sock")?)?;
//! // A handle to all of it: server.counts(), server.addresses(), and at the end
//! let in_time = server.shutdown(Duration::from_secs(10));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! # });
//! ```
//!
//! # Middleware
//! is a function that makes a handler of a handler:
//! ```
//! use plainweave_http::{Handler, HeaderValue, Request, Response, header};
//!
//! fn uncached(handler: impl Handler) -> impl Handler {
//!     move |request: &mut Request<'_>| {
//!         handler.handle(request).with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
//!     }
//! }
//! ```
//!
//! # Stopping
//! [`Server::shutdown`] closes the listeners, makes every answer its connection's last, ends the waits of idle
//! connections, and waits; what a peer has sent by then is still answered. A program that accepts by itself, and keeps
//! idle connections without a fiber, does the same by
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
//! # HTTP/2
//! With the cargo feature `http2`, connections on fibers speak it too: those that begin with its preface, and by TLS
//! those for which `h2` was agreed on (`Config::with_alpn(["h2", "http/1.1"])`). Each request has a fiber of its own
//! and calls the same handler. [`Limits::http2`] bounds it.
//!
//! Where to look: [`conn`](Server::serve_ready) is the loop; [`parse`], [`body`] and the encoder do no I/O;
//! [`Limits`] names every bound; [`files`] is the static handler.

pub mod accept;
pub mod body;
pub mod files;
pub mod parse;
pub mod proxy;
pub mod testing;
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
#[cfg(feature = "http2")]
mod http2;
#[cfg(not(feature = "http2"))]
#[path = "http2_absent.rs"]
mod http2;
mod idle;
mod incoming;
mod limits;
mod link;
mod listener;
mod listeners;
mod non_blocking;
mod outgoing;
mod refuse;
mod request;
mod response;
mod serve;
mod server;
mod session;
mod transport;
mod upgraded;
mod writer;

pub use bytes::Bytes;
pub use error::Error;
pub use exchange::Exchange;
pub use head::{Framing, RequestHead, Target};
pub use header_lines::HeaderLines;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
#[cfg(feature = "http2")]
pub use http2::Http2Limits;
pub use limits::{Limits, RequestLimits};
pub use link::{ConnState, Next};
pub use listener::{Address, Listener};
pub use non_blocking::{NonBlocking, Wait, Wakeups};
pub use request::{Handler, Request};
pub use response::{Body, FilePart, Response};
pub use serve::ServerCounts;
pub use server::{Closed, Server};
pub use session::TlsSession;
pub use transport::{Closer, Transport};
pub use upgraded::Upgraded;
pub use writer::BodyWriter;
