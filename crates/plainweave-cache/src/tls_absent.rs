//! What stands in for `tls` in a build without that feature: `-Z` is refused.

use std::num::NonZeroUsize;
use std::time::SystemTime;

use anyhow::bail;
use plainweave::net::TcpStream;

use super::certificates::{Certificates, Security};
use super::store::Time;
use super::stream::Layered;

/// There is none.
#[derive(Debug)]
pub(crate) enum Tls {}

impl Tls {
    pub(super) fn load(
        _certificates: &Certificates,
        _asked: &[Security],
        _workers: NonZeroUsize,
    ) -> anyhow::Result<Self> {
        bail!("-Z is not in this build (build with the feature tls)")
    }

    pub(super) fn accept(
        &self,
        _stream: TcpStream,
        _security: Security,
    ) -> Result<Box<dyn Layered>, String> {
        match *self {}
    }

    pub(super) fn reload(&self, _now: Time) -> anyhow::Result<()> {
        match *self {}
    }

    pub(super) fn fails_first(&self) -> bool {
        match *self {}
    }

    pub(super) fn closes_first(&self) -> bool {
        match *self {}
    }

    pub(crate) fn resumes(&self) -> bool {
        match *self {}
    }

    pub(crate) fn certificates(&self) -> &Certificates {
        match *self {}
    }

    pub(crate) fn refreshed(&self) -> Time {
        match *self {}
    }

    pub(crate) fn handshakes(&self) -> [u64; 3] {
        match *self {}
    }

    pub(crate) fn expires(&self) -> Option<SystemTime> {
        match *self {}
    }
}
