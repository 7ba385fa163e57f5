//! What stands in for `http2` in a build without that feature: no connection speaks it.

use crate::{ConnState, Handler, Next, Server, Transport};

/// There is none.
#[derive(Debug)]
pub(crate) enum Http2 {}

pub(crate) fn begins<S: Transport, H: Handler>(
    _server: &Server<H>,
    _stream: &mut S,
    _state: &ConnState,
    _received: &[u8],
) -> bool {
    false
}

pub(crate) fn begin<S: Transport, H: Handler>(
    _server: &Server<H>,
    _stream: &mut S,
    _state: &mut ConnState,
    _received: &[u8],
) -> Next {
    Next::Close
}

pub(crate) fn turn<S: Transport, H: Handler>(
    _server: &Server<H>,
    _stream: &mut S,
    _state: &mut ConnState,
) -> Next {
    Next::Close
}

pub(crate) fn end<S: Transport>(_stream: &mut S, _state: &mut ConnState) {}

/// There are none.
#[derive(Debug, Default)]
pub(crate) struct Connections(());

impl Connections {
    pub(crate) fn wake(&self) {}
}
