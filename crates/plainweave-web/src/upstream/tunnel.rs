//! What a client and an application say to each other after an upgrade: bytes, both ways.
//!
//! Each direction has a fiber, so that one which waits for a side to read does not hold up the
//! other. A direction that finds nothing for as long as the limit ends both, unless the other one
//! has passed something on meanwhile.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plainweave_http::Upgraded;

use super::connection::{UpstreamConnection, coarse_now};

/// Bytes that are passed on at once.
const PIECE: usize = 16 << 10;
/// Silence of the application that a client's end is followed by, before both are over.
const AFTER_CLIENT: Duration = Duration::from_secs(10);

/// When something was last passed on, in milliseconds.
struct LastPassed(AtomicU64);

impl LastPassed {
    fn new() -> Self {
        Self(AtomicU64::new(Self::now()))
    }

    fn now() -> u64 {
        coarse_now().as_millis() as u64
    }

    fn note(&self) {
        self.0.store(Self::now(), Relaxed);
    }

    /// Returns whether that was within this time.
    fn is_within(&self, limit: Duration) -> bool {
        u128::from(Self::now().saturating_sub(self.0.load(Relaxed))) < limit.as_millis()
    }
}

/// Passes on what both sides say, until the application ends, one fails, or neither says anything
/// for as long as `limit`.
pub(super) fn tunnel(client: &mut Upgraded<'_>, connection: UpstreamConnection, limit: Duration) {
    // Either side's failure is the end, of which both learn.
    let _ = pass_on(client, connection, limit);
}

fn pass_on(
    client: &mut Upgraded<'_>,
    connection: UpstreamConnection,
    limit: Duration,
) -> io::Result<()> {
    client.write_all(connection.input())?;
    client.flush()?;
    client.set_read_timeout(limit)?;
    let mut stream = connection.stream;
    stream.set_read_timeout(limit)?;
    let mut application = stream.try_clone()?;
    let last = LastPassed::new();
    let (mut from_client, mut to_client) = client.split()?;

    plainweave::scope(|scope| {
        let up = scope.spawn(|| {
            let ended = copy(&mut from_client, &mut application, &last, limit);
            // The application reads the end, or is not read from any more.
            let _ = match ended {
                Ok(()) => {
                    let limited = application.set_read_timeout(AFTER_CLIENT);
                    limited.and_then(|()| application.shutdown(Shutdown::Write))
                }
                Err(_) => application.shutdown(Shutdown::Both),
            };
        });
        let ended = copy(&mut stream, &mut to_client, &last, limit);
        up.cancel();
        ended
    })
}

/// Passes on what one side says, until it ends.
fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    last: &LastPassed,
    limit: Duration,
) -> io::Result<()> {
    let mut buf = vec![0; PIECE];
    loop {
        match from.read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                to.write_all(&buf[..len])?;
                to.flush()?;
                last.note();
            }
            Err(error) if error.kind() == ErrorKind::TimedOut && last.is_within(limit) => {}
            Err(error) => return Err(error),
        }
    }
}
