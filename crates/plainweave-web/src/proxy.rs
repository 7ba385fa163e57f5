//! A proxy in front: how it says whose connection or request it passes on, and who is believed.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use plainweave_http::forwarded::{Field, TrustedProxies};
use plainweave_http::{Handler, Server};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// A header of the PROXY protocol, version 1 or 2, begins each connection
    ProxyProtocol,
    /// The field Forwarded of each request (RFC 7239)
    Forwarded,
    /// The field X-Forwarded-For of each request
    XForwardedFor,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Behind a proxy")]
pub(super) struct ProxyFlags {
    /// How a proxy in front says whose connection or request it passes on; that address is logged
    #[arg(long, value_name = "HOW", conflicts_with = "max_per_address")]
    behind_proxy: Option<How>,

    /// Networks and addresses of proxies that are believed, with commas between; who connects over
    /// a Unix socket is. With the PROXY protocol, connections of others are closed
    #[arg(
        long,
        value_name = "NETWORKS",
        default_value = "127.0.0.0/8,::1",
        value_parser = networks,
        requires = "behind_proxy"
    )]
    trusted_proxies: TrustedProxies,
}

/// Which field is meant is not known yet.
fn networks(text: &str) -> Result<TrustedProxies, String> {
    TrustedProxies::new(Field::Forwarded, text).map_err(|error| error.to_string())
}

impl ProxyFlags {
    pub(super) fn is_on(&self) -> bool {
        self.behind_proxy.is_some()
    }

    pub(super) fn apply<H: Handler>(&self, server: Server<H>) -> Server<H> {
        let proxies = self.trusted_proxies.clone();
        match self.behind_proxy {
            None => server,
            Some(How::Forwarded) => server.with_forwarded(proxies.by(Field::Forwarded)),
            Some(How::XForwardedFor) => server.with_forwarded(proxies.by(Field::XForwardedFor)),
            Some(How::ProxyProtocol) => server
                .with_proxy_protocol()
                .on_open(move |peer| proxies.trusts(peer.map(|peer: SocketAddr| peer.ip()))),
        }
    }
}
