//! What stands in for `http2` in a build without that feature: no connection speaks it.

use crate::message::request::Handler;
use crate::server::link::{LinkState, Next};
use crate::server::shared::Server;
use crate::transport::stream::Transport;

/// There is none.
#[derive(Debug)]
pub(crate) enum Http2 {}

pub(crate) fn begins<S: Transport, H: Handler>(
    _server: &Server<H>,
    _stream: &mut S,
    _state: &LinkState,
    _received: &[u8],
) -> bool {
    false
}

pub(crate) fn begin<S: Transport, H: Handler>(
    _server: &Server<H>,
    _stream: &mut S,
    _state: &mut LinkState,
    _kept: &mut Option<Box<Http2>>,
    _received: &[u8],
) -> Next {
    Next::Close
}

pub(crate) fn turn<S: Transport, H: Handler>(
    _server: &Server<H>,
    _stream: &mut S,
    _state: &mut LinkState,
    _kept: &mut Option<Box<Http2>>,
) -> Next {
    Next::Close
}

pub(crate) fn end<S: Transport>(_stream: &mut S, _kept: &mut Option<Box<Http2>>) {}
