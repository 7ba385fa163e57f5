//! An HTTP client on fibers: ureq, a synchronous crate, over our sockets. `client [--ca FILE] URL...` fetches all of
//! them at once, a fiber each; connections are kept for the next call.
#![allow(clippy::print_stdout, reason = "it says what it has fetched")]

use std::error::Error as StdError;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Weak};
use std::time::Duration;

use plainweave::net::{TcpStream, ToSocketAddrs};
use plainweave::time::with_timeout;
use rustls::crypto::ring;
use ureq::config::{Config, ConfigBuilder};
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, ShutdownHandle, Transport,
};
use ureq::{Agent, Error};

/// Has the deadlines of fibers bound a call as ureq's timeouts do.
fn within<T>(timeout: NextTimeout, call: impl FnOnce() -> io::Result<T>) -> Result<T, Error> {
    let Some(limit) = timeout.not_zero() else { return Ok(call()?) };
    with_timeout(*limit, call).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    })
}

/// Connects as fibers do.
#[derive(Debug)]
struct FiberConnector;

impl Connector for FiberConnector {
    type Out = FiberTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<FiberTransport>, Error> {
        let stream = within(details.timeout, || TcpStream::connect(&*details.addrs))?;
        stream.set_nodelay(details.config.no_delay())?;
        let (socket, config) = (Arc::new(Socket(stream)), details.config);
        let handle = Arc::downgrade(&socket);
        (details.register_shutdown)(handle as Weak<dyn ShutdownHandle>)?;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(FiberTransport { socket, buffers }))
    }
}

/// What [`Agent::shutdown`] ends.
#[derive(Debug)]
struct Socket(TcpStream);

impl ShutdownHandle for Socket {
    fn shutdown(&self) {
        // It may have ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[derive(Debug)]
struct FiberTransport {
    socket: Arc<Socket>,
    buffers: LazyBuffers,
}

impl Transport for FiberTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let output = &self.buffers.output()[..amount];
        within(timeout.for_write(), || (&self.socket.0).write_all(output))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let input = self.buffers.input_append_buf();
        let len = within(timeout.for_read(), || (&self.socket.0).read(input))?;
        self.buffers.input_appended(len);
        Ok(len > 0)
    }

    /// Does not suspend: the pool asks with its lock held.
    fn is_open(&mut self) -> bool {
        !self.socket.0.is_readable()
    }
}

/// Looks names up off the workers. ureq's own resolver would hold the worker up until its thread has the answer.
#[derive(Debug)]
struct FiberResolver;

impl Resolver for FiberResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let parts = uri.scheme().zip(uri.authority());
        let name = parts.and_then(|(scheme, authority)| DefaultResolver::host_and_port(scheme, authority));
        let name = name.ok_or_else(|| Error::BadUri(uri.to_string()))?;
        let found = within(timeout, || name.resolve())?;
        let mut addrs = self.empty();
        for addr in config.ip_family().keep_wanted(found.into_iter()) {
            if addrs.try_push(addr).is_err() {
                break;
            }
        }
        if addrs.is_empty() { Err(Error::HostNotFound) } else { Ok(addrs) }
    }
}

/// Makes a client whose calls wait as fibers do. It is one for all fibers: clones share its connections.
pub(crate) fn agent(config: ConfigBuilder<AgentScope>) -> Agent {
    // A proxy would be another connector.
    Agent::with_parts(config.proxy(None).build(), FiberConnector.chain(RustlsConnector::default()), FiberResolver)
}

/// Trusts these authorities, in PEM.
pub(crate) fn trusting(pem: &[u8]) -> Result<TlsConfig, Error> {
    let mut roots: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item? {
            roots.push(certificate);
        }
    }
    let provider = Arc::new(ring::default_provider());
    let config = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    Ok(config.root_certs(RootCerts::new_with_certs(&roots)).build())
}

fn main() -> Result<(), Box<dyn StdError + Send + Sync>> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let mut authorities = "/etc/ssl/certs/ca-certificates.crt".to_owned();
    if urls.len() > 2 && urls[0] == "--ca" {
        authorities = urls.drain(..2).next_back().unwrap_or_default();
    }
    let tls = trusting(&std::fs::read(authorities)?)?;
    let agent = agent(Agent::config_builder().tls_config(tls).timeout_global(Some(Duration::from_secs(10))));
    plainweave::run(move || {
        let fetch = |url: String| {
            let agent = agent.clone();
            plainweave::spawn(move || {
                let fetched = agent.get(&url).call().and_then(|mut answer| answer.body_mut().read_to_vec());
                match fetched {
                    Ok(body) => println!("{url}: {} bytes", body.len()),
                    Err(error) => println!("{url}: {error}"),
                }
            })
        };
        let calls: Vec<_> = urls.into_iter().map(fetch).collect();
        calls.into_iter().try_for_each(plainweave::JoinHandle::join)
    })?;
    Ok(())
}
