//! What stands in for `tls` in a build without that feature: no flags, and an error for `https://`.

use std::io::{self, Read, Write};

use anyhow::bail;
use clap::Args;

use super::files::Files;
use super::socket::Socket;
use super::tally::Failure;

/// None.
#[derive(Args, Debug)]
pub(super) struct TlsFlags {}

/// There is none.
#[derive(Debug)]
pub(super) enum Tls {}

impl Tls {
    pub(super) fn new(
        _flags: &TlsFlags,
        _files: &Files,
        secure: bool,
        _protocol: Option<&'static str>,
    ) -> anyhow::Result<Option<Self>> {
        if secure {
            bail!(
                "https:// and --tls need TLS, which this build lacks (build with the feature tls)"
            );
        }
        Ok(None)
    }

    pub(super) fn connect(&self, _host: &str, _stream: Socket) -> Result<(Session, bool), Failure> {
        match *self {}
    }
}

pub(super) fn check_host(_host: &str) -> anyhow::Result<()> {
    Ok(())
}

/// There is none.
#[derive(Debug)]
pub(super) enum Session {}

#[cfg(feature = "http2")]
impl Session {
    pub(super) fn into_parts(self) -> (Option<Records>, Socket) {
        match self {}
    }
}

/// There are none.
#[cfg(feature = "http2")]
pub(super) enum Records {}

#[cfg(feature = "http2")]
impl Records {
    pub(super) fn open(&mut self, _records: &[u8], _plain: &mut Vec<u8>) -> Result<(), Failure> {
        match *self {}
    }

    pub(super) fn wants_write(&self) -> bool {
        match *self {}
    }

    pub(super) fn seal(&mut self, _plain: &[u8], _records: &mut Vec<u8>) {
        match *self {}
    }
}

impl Read for Session {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for Session {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}
