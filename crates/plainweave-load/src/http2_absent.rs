//! What stands in for `http2` in a build without that feature: an error for `--http2`.

use std::cell::RefCell;

use anyhow::bail;

use super::engine::{Broken, Next, Protocol, Reply};
use super::files::Files;
use super::flags::HttpFlags;
use super::popularity::Picker;
use super::socket::Place;
use super::tally::{Failure, Opening};
use super::target::Target;

/// There is none.
pub(super) enum Http2 {}

impl Http2 {
    pub(super) fn prepare(
        _flags: &HttpFlags,
        _files: &Files,
    ) -> anyhow::Result<(Vec<Target>, Self)> {
        bail!("--http2: this program was built without HTTP/2 (build it with the feature http2)")
    }
}

impl Protocol for Http2 {
    type Connection = ();
    type Memory = ();

    fn picker(&self, _worker: usize, _workers: usize, _seed: u64) -> Picker {
        match *self {}
    }

    fn connect(&self, _server: usize, _address: &Place) -> Result<((), Opening), Failure> {
        match *self {}
    }

    fn exchange(
        &self,
        _connection: &mut (),
        _picker: &RefCell<Picker>,
        _memory: &mut (),
        _depth: usize,
        _done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken> {
        match *self {}
    }
}
