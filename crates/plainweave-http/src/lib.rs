//! An HTTP/1 and HTTP/2 server library for plain blocking handlers.
//!
//! A handler is a function from [`Request`] to [`Response`]; bodies are `Read`. There is no
//! `async`: connections run on fibers of [`plainweave`], or on threads, and a handler that waits
//! holds up no other connection.
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
//! A server can have several, on TCP and on Unix sockets. On a fiber, a listener of
//! [`plainweave::net`] gives each connection a fiber (only while it has a request: an idle one has
//! no stack); one of `std`, or any off a fiber, gives it a thread. Any other stream with timeouts
//! can carry a connection too: implement [`Transport`] and hand it to [`Server::serve_stream`].
//! ```no_run
//! # use std::{sync::Arc, time::Duration};
//! use plainweave::net::{TcpListener, UnixListener};
//! # use plainweave_http::{Request, Response, Server};
//!
//! # plainweave::run(|| {
//! let server = Arc::new(Server::new(|_: &mut Request<'_>| Response::ok("hello\n")).with_name("mine")?);
//! let address = server.start(TcpListener::bind("127.0.0.1:0")?)?;
//! server.start(UnixListener::bind_over_stale("/run/mine.sock")?)?;
//! // While it serves: server.counts(), server.addresses(). At the end:
//! let in_time = server.shutdown(Duration::from_secs(10));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! # });
//! ```
//!
//! # Middleware
//! Middleware is a function that takes a handler and returns one:
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
//! # From `std`, from Tokio
//!
//! | there | here |
//! |---|---|
//! | `std::net::TcpListener` and a thread for each connection | the same listener, given to [`Server::serve`] |
//! | hyper's `service_fn`, axum's handlers | a closure, or a type that implements [`Handler`] |
//! | tower's `Layer` | a function from handler to handler |
//! | axum's `Router` | a `match` on [`Request::path`](RequestHead::path), or a crate such as matchit |
//! | `Body`, `http_body::Frame` | [`Request`] is `Read`; [`Body::reader`], [`Body::writer`] |
//! | graceful shutdown by a future | [`Server::shutdown`], from any fiber or thread |
//! | `TimeoutLayer`, `RequestBodyLimitLayer` | [`Limits`], on by default; [`Server::with_request_limits`] by route |
//! | `hyper::upgrade` | [`Response::upgrade`], [`Response::tunnel`] |
//! | tokio-rustls | the feature `tls`: `server.serve(acceptor.listen(listener))` |
//! | `ServeDir` | [`files::StaticFiles`] |
//!
//! # Movement and storage
//! [`Server::run`] uses the default runtime: a fiber may change its worker whenever it waits, and
//! has thread-local variables of its own. So a handler may use any crate that works on threads, and
//! a handler that computes or blocks its thread holds up others for some 10 ms, until the watchdog
//! notices, and for no longer. To choose otherwise, build a [`plainweave::Runtime`] and serve in
//! it.
//!
//! # Stopping
//! [`Server::shutdown`] closes the listeners and idle connections, makes the next answer of each
//! other connection its last, and waits for at most the given time; then it cuts what is left. A
//! connection that has sent a request by then still gets that last answer, whose `Connection:
//! close` tells the client that requests pipelined behind it are not served. A program that accepts
//! connections itself, and keeps idle ones without a fiber, does the same on a plain thread by
//! ```no_run
//! # use std::time::Duration;
//! # fn stop<H: plainweave_http::Handler>(
//! #     server: &plainweave_http::Server<H>, listener: &plainweave::net::TcpListener, runtime: &plainweave::Runtime
//! # ) -> bool {
//! server.stop();
//! listener.close();
//! // Ends those that wait without a fiber, in `net::on_readable` or `net::each_readable`.
//! runtime.close_idle_connections();
//! runtime.wait_idle(Duration::from_secs(10))
//! # }
//! ```
//! `wait_idle` returns when the last request in progress has been answered, or at its limit.
//!
//! # TLS
//! With the cargo feature `tls`, `tls::Acceptor::listen` makes a [`Listener`] of any other one
//! whose connections speak TLS; the example `https` serves one beside one without. A program that
//! accepts connections itself wraps each stream by `tls::Acceptor::accept`, for
//! [`Server::serve_stream`]. [`Request::tls`] has the outcome of the handshake.
//!
//! # HTTP/2
//! With the cargo feature `http2`, connections on fibers speak HTTP/2 too: those that begin with
//! its preface, and over TLS those that negotiate `h2` (`Config::with_alpn(["h2", "http/1.1"])`).
//! Each request has its own fiber and calls the same handler. [`Limits::http2`] bounds it.
//!
//! # Limits
//! No HTTP/3, no compression, no router and no client: other crates have those, and the examples
//! show some at work. HTTP/2 is served on fibers only. [`Limits`] names every bound on sizes,
//! counts and times.
//!
//! # Where to look
//! [`Server`] serves; [`Request`], [`Response`] and [`Body`] are what handlers see. [`files`]
//! serves a directory. [`accept`] decides which clients are let in, and [`proxy`] reads the PROXY
//! protocol's header. [`parse`] and [`body`] read HTTP/1 without doing any I/O. [`testing`] has
//! servers for tests.

pub mod files; // The static handler: files beneath a directory.
pub mod testing; // Servers for tests, on a free port or without a socket.
#[cfg(feature = "tls")]
pub mod tls; // TLS by rustls, over any stream.

mod http1; // HTTP/1: a connection that has one request in progress.
#[cfg(feature = "http2")]
mod http2; // HTTP/2: a connection that has many requests in progress.
#[cfg(not(feature = "http2"))]
#[path = "http2_absent.rs"]
mod http2;
mod limits; // Every bound on sizes, counts and times.
mod listen; // A server that accepts.
mod message; // What is said over a connection, sans I/O.
mod server; // A server as its connections know it.
mod transport; // What carries a connection.

pub use bytes::Bytes;
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
pub use plainweave_serve::{Address, Closer, Listener, accept};

pub use http1::conn::ConnState;
#[cfg(feature = "http2")]
pub use limits::Http2Limits;
pub use limits::{Limits, RequestLimits};
pub use listen::serve::ServerCounts;
pub use message::error::Error;
pub use message::exchange::Exchange;
pub use message::head::{Framing, RequestHead, Target};
pub use message::header_lines::HeaderLines;
pub use message::request::{Handler, Request};
pub use message::response::{Body, FilePart, Response};
pub use message::writer::BodyWriter;
pub use message::{body, forwarded, parse, proxy};
pub use server::link::Next;
pub use server::shared::{Closed, Server};
pub use transport::non_blocking::{NonBlocking, Wait, Wakeups};
pub use transport::session::TlsSession;
pub use transport::stream::{Handshake, Layer, Transport};
pub use transport::upgraded::{ReadHalf, Readable, Upgraded, WriteHalf};
