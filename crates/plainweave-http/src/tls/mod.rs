//! TLS by [rustls](https://docs.rs/rustls), over any stream: a fiber's, a thread's, a test's.
//!
//! An [`Acceptor`] holds certificates and settings. [`Acceptor::accept`] makes a [`TlsStream`] of a
//! stream, which is a [`Transport`](crate::Transport) again, for
//! [`Server::serve_stream`](crate::Server::serve_stream); [`Acceptor::listen`] makes a listener of
//! a listener, for [`Server::serve`](crate::Server::serve).
//!
//! ```no_run
//! use plainweave_http::tls::{Acceptor, Config};
//! use plainweave_http::{Request, Response, Server};
//!
//! let acceptor = Acceptor::new(Config::new("chain.pem", "key.pem"))?;
//! let server = Server::new(|request: &mut Request<'_>| {
//!     let version = request.tls().map_or("no TLS", |tls| tls.version);
//!     Response::ok(format!("you speak {version}\n"))
//! });
//! let listener = std::net::TcpListener::bind("127.0.0.1:8443")?;
//! std::sync::Arc::new(server).serve(acceptor.listen(listener))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! TLS 1.2 and 1.3, by the crypto of `ring`. Sessions are resumed, by tickets whose keys change
//! every six hours, or from memory. [`Limits::handshake_timeout`](crate::Limits::handshake_timeout)
//! bounds handshakes, and [`Config::with_handshakes_at_once`] how many of them are computed at
//! once.

mod acceptor; // What turns connections into TLS connections.
// Certificates and keys from PEM files, judged before they are used, and found by the name that a
// client asks for.
mod certificates;
mod config; // What a server over TLS is made from: files, protocols, what is asked of clients.
mod engine; // TLS without I/O: what was received goes in, plaintext comes out.
mod error; // What can go wrong with TLS, asked by `is_*()`.
mod listener; // A listener whose connections speak TLS.
mod non_blocking; // TLS without waiting, for HTTP/2.
mod shared; // What the TLS connections of an acceptor share.
mod stage; // The stage of a handshake that computes, for a bounded number of connections at once.
mod stream; // A TLS connection over any stream: the I/O around the engine.

pub use acceptor::Acceptor;
pub use config::Config;
pub use error::Error;
pub use listener::TlsListener;
pub use shared::Counts;
pub use stream::TlsStream;
