//! HTTP requests by [ureq](https://docs.rs/ureq) on fibers: a fiber waits for the server, not its
//! worker.
//!
//! ureq by itself works on fibers too, but opens sockets of `std`, each of which holds up a worker
//! while it waits. An agent made here opens [`plainweave::net::TcpStream`]s; all else is ureq's:
//! its pool, redirects, limits of time, TLS, proxies by CONNECT.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use plainweave::net::TcpListener;
//!
//! let body = plainweave::run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let url = format!("http://{}/", listener.local_addr()?);
//!     plainweave::spawn(move || -> std::io::Result<()> {
//!         let (mut stream, _) = listener.accept()?;
//!         let _ = stream.read(&mut [0; 1024])?;
//!         stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
//!     });
//!     let agent = plainweave_ureq::agent(ureq::config::Config::default());
//!     agent.get(&url).call()?.body_mut().read_to_string()
//! });
//! assert_eq!(body?, "hello");
//! # Ok::<(), ureq::Error>(())
//! ```
//!
//! # Cancellation and deadlines
//! A cancelled fiber, and one whose deadline ([`plainweave::time::with_timeout`]) passes, gets
//! [`ureq::Error::Io`]; [`plainweave::is_cancelled`] knows the error in it. What passes one of
//! ureq's own limits is [`ureq::Error::Timeout`] as ever. The connection is given up in each case.
//!
//! # What is missing
//! Proxies by SOCKS: a request by one fails. TLS by native-tls: a request over HTTPS with that
//! provider fails. `ureq`'s interfaces for connectors do not follow semver, so a minor version of
//! it may need one of this crate.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Weak};

use plainweave::net::{TcpStream, ToSocketAddrs};
use plainweave::time;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    RustlsConnector, ShutdownHandle, Transport,
};
use ureq::{Agent, Error, ProxyProtocol};

/// Creates an agent whose requests wait as fibers do.
///
/// It may be used by any number of fibers at once, and by plain threads, which it blocks.
#[must_use]
pub fn agent(config: Config) -> Agent {
    let connector =
        ().chain(ConnectProxyConnector::default())
            .chain(FiberConnector)
            .chain(RustlsConnector::default())
            .chain(Encrypted);
    Agent::with_parts(config, connector, FiberResolver)
}

/// Opens a connection, unless a proxy has been reached already.
#[derive(Debug)]
pub struct FiberConnector;

impl<In: Transport> Connector<In> for FiberConnector {
    type Out = Either<In, FiberTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if let Some(transport) = chained {
            return Ok(Some(Either::A(transport)));
        }

        let config = details.config;
        refuse_socks(config, details.uri)?;
        let stream = within(details.timeout, || TcpStream::connect(&details.addrs[..]))?;
        if config.no_delay() {
            stream.set_nodelay(true)?;
        }

        let transport = FiberTransport {
            stream: Arc::new(Stream(stream)),
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
        };
        let handle: Weak<dyn ShutdownHandle> = Arc::downgrade(&transport.stream) as _;
        (details.register_shutdown)(handle)?;
        Ok(Some(Either::B(transport)))
    }
}

/// Fails where a SOCKS proxy ought to be used: a direct connection would say who asks.
fn refuse_socks(config: &Config, uri: &Uri) -> Result<(), Error> {
    let Some(proxy) = config.proxy() else {
        return Ok(());
    };
    let speaks_http = matches!(proxy.protocol(), ProxyProtocol::Http | ProxyProtocol::Https);
    if speaks_http || proxy.is_no_proxy(uri) {
        return Ok(());
    }
    Err(Error::Io(io::Error::new(
        ErrorKind::Unsupported,
        "plainweave-ureq knows proxies by CONNECT (http://, https://), none by SOCKS",
    )))
}

/// Runs a call that waits, at most for as long as ureq allows.
fn within<T>(limit: NextTimeout, call: impl FnOnce() -> io::Result<T>) -> Result<T, Error> {
    if limit.after.is_zero() {
        return Err(Error::Timeout(limit.reason));
    }
    let Some(after) = limit.not_zero() else {
        return Ok(call()?);
    };

    let begun = time::now();
    match time::with_timeout(*after, call) {
        // A deadline of the caller's own came first if ureq's has not passed.
        Err(e) if e.kind() == ErrorKind::TimedOut && time::now() - begun >= *after => {
            Err(Error::Timeout(limit.reason))
        }
        result => Ok(result?),
    }
}

/// A connection that ureq's agent can shut down while a fiber waits on it.
struct Stream(TcpStream);

impl ShutdownHandle for Stream {
    fn shutdown(&self) {
        // It fails where the peer has closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A connection of an [`agent`].
pub struct FiberTransport {
    stream: Arc<Stream>,
    buffers: LazyBuffers,
}

impl Transport for FiberTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let mut output = &self.buffers.output()[..amount];
        let end = timeout
            .not_zero()
            .map(|all| time::saturating_add(time::now(), *all));
        while !output.is_empty() {
            // The limit of a write begins again with each, that of all does not.
            let left = end.map(|end| end.saturating_duration_since(time::now()));
            let rest = NextTimeout {
                after: left.map_or(timeout.after, Into::into),
                ..timeout
            };
            let written = within(rest.for_write(), || (&self.stream.0).write(output))?;
            if written == 0 {
                return Err(Error::Io(ErrorKind::WriteZero.into()));
            }
            output = &output[written..];
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let input = self.buffers.input_append_buf();
        let amount = within(timeout.for_read(), || (&self.stream.0).read(input))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Bytes that nobody asked for end a connection as its end does. This must not suspend: ureq
        // holds its pool's lock, a lock of `std`.
        !self.stream.0.is_readable()
    }
}

impl fmt::Debug for FiberTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FiberTransport")
            .field("peer", &self.stream.0.peer_addr().ok())
            .finish_non_exhaustive()
    }
}

/// Sees to it that a request over HTTPS is not sent in the clear, whatever provider is configured.
#[derive(Debug)]
struct Encrypted;

impl<In: Transport> Connector<In> for Encrypted {
    type Out = In;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<In>, Error> {
        if details.needs_tls()
            && chained
                .as_ref()
                .is_some_and(|transport| !transport.is_tls())
        {
            return Err(Error::Tls(
                "plainweave-ureq has TLS by rustls: choose TlsProvider::Rustls",
            ));
        }
        Ok(chained)
    }
}

/// Looks names up on the threads that Plainweave has for that.
#[derive(Debug)]
pub struct FiberResolver;

impl Resolver for FiberResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let (scheme, authority) = uri.scheme().zip(uri.authority()).ok_or_else(|| bad(uri))?;
        refuse_socks(config, uri)?;
        let name = DefaultResolver::host_and_port(scheme, authority).ok_or_else(|| bad(uri))?;
        let found = within(timeout, || name.resolve())?;

        let mut addrs = self.empty();
        for addr in config.ip_family().keep_wanted(found.into_iter()) {
            if addrs.try_push(addr).is_err() {
                break;
            }
        }
        if addrs.is_empty() {
            return Err(Error::HostNotFound);
        }
        Ok(addrs)
    }
}

fn bad(uri: &Uri) -> Error {
    Error::BadUri(format!("{uri}: http://HOST or https://HOST is expected"))
}
