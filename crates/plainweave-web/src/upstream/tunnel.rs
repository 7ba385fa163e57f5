//! What a client and an application say to each other after an upgrade: bytes, both ways.
//!
//! One fiber waits for both and passes on what has come. While it writes to one side it does not
//! read from the other: who does not read is not written to without bound.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use plainweave_http::Upgraded;

use super::connection::{UpstreamConnection, UpstreamStream};

/// Bytes that are passed on at once.
const PIECE: usize = 16 << 10;

/// Who has something to say, or has ended.
enum Side {
    Client,
    Application,
    Nobody,
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
    client.set_nonblocking_reads(true)?;
    let mut stream = connection.stream;
    let mut buf = vec![0; PIECE];
    let mut client_says = true;

    loop {
        match next(client, &stream, client_says, limit)? {
            Side::Nobody => return Ok(()),
            Side::Client => match client.read(&mut buf) {
                Ok(0) => {
                    client_says = false;
                    stream.shutdown_write()?;
                }
                Ok(len) => stream.write_all(&buf[..len])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            },
            Side::Application => match stream.try_read(&mut buf) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    client.write_all(&buf[..len])?;
                    client.flush()?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            },
        }
    }
}

/// Waits for either side. `client_says`: the client has not ended.
fn next(
    client: &Upgraded<'_>,
    stream: &UpstreamStream,
    client_says: bool,
    limit: Duration,
) -> io::Result<Side> {
    match stream {
        UpstreamStream::Tcp(stream) => plainweave::select! {
            readable(client), if client_says => Side::Client,
            readable(stream) => Side::Application,
            after(limit) => Side::Nobody,
        },
        UpstreamStream::Unix(stream) => plainweave::select! {
            readable(client), if client_says => Side::Client,
            readable(stream) => Side::Application,
            after(limit) => Side::Nobody,
        },
    }
}
