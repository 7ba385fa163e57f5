//! What stands in for `tls` in a build without that feature: no flags, and connections without TLS
//! alone.

use std::net::SocketAddr;

use clap::Args;
use plainweave_http::Limits;
use plainweave_serve::accept::InProgress;

use super::https::Https;
use plainweave_daemon::admin::Figures;

/// None.
#[derive(Args, Debug)]
pub(super) struct TlsFlags {}

impl TlsFlags {
    pub(super) fn addresses(&self, _unasked: bool) -> Vec<SocketAddr> {
        Vec::new()
    }

    pub(super) fn is_alone(&self) -> bool {
        false
    }

    pub(super) fn check(&self, _plain: &[SocketAddr]) -> anyhow::Result<()> {
        Ok(())
    }

    pub(super) fn is_on(&self) -> bool {
        false
    }

    pub(super) fn apply(&self, limits: Limits) -> Limits {
        limits
    }

    pub(super) fn load(&self, _workers: usize, _http2: bool) -> anyhow::Result<Option<Tls>> {
        Ok(None)
    }

    pub(super) fn https(&self, _port: Option<u16>) -> Https {
        Https::default()
    }
}

/// There is none.
#[derive(Clone, Debug)]
pub(super) enum Tls {}

impl Tls {
    pub(super) fn listen<L>(&self, _listener: L) -> L {
        match *self {}
    }

    pub(super) fn reload(&self) -> String {
        match *self {}
    }

    pub(super) fn figures(&self, _figures: Figures, _handshakes: &InProgress) -> Figures {
        match *self {}
    }
}
