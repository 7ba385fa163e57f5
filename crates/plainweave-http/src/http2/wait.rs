//! A stream's waits for the engine.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plainweave::block_on;
use plainweave::time::with_timeout;

use crate::message::error::Error;

/// Asks until there is something, for at most as long as `limit` says, which is asked only if there
/// is a wait.
///
/// # Errors
/// Those of `limit`; `slow` when the time has passed; the fiber was cancelled.
pub(super) fn ready<T>(
    mut ask: impl FnMut(&mut Context<'_>) -> Poll<T>,
    limit: impl FnOnce() -> Option<Duration>,
    slow: impl Fn() -> Error,
) -> Result<T, Error> {
    if let Poll::Ready(found) = ask(&mut Context::from_waker(Waker::noop())) {
        return Ok(found);
    }
    let limit = limit().ok_or_else(&slow)?;
    let waited = match limit {
        Duration::MAX => block_on(poll_fn(ask)),
        limit => with_timeout(limit, || block_on(poll_fn(ask))),
    };
    waited.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => slow(),
        _ => Error::io(error, "the request was cancelled"),
    })
}

/// Makes an error of the engine one of the library.
pub(super) fn failed(error: h2::Error, what: &'static str) -> Error {
    match (
        error.is_io(),
        error.is_remote(),
        error.is_reset() || error.is_go_away(),
    ) {
        (true, ..) => match error.into_io() {
            Some(error) => Error::io(error, what),
            None => Error::closed(what),
        },
        // The client has cancelled the request, or ended the connection.
        (_, true, true) => Error::closed(what),
        _ => Error::peer(io::Error::other(error), what),
    }
}
