//! Sending replies, and what becomes of those that a client does not take.
//!
//! Long values are written from where they are stored, and while a reply holds them, their segments
//! of the store cannot be used again. A value of 9 KB can hold three segments of 64 KiB; so forty
//! clients that do not read would hold most of a store of 64 MB, and it would take nothing new.
//! Therefore, when a socket is full:
//!
//! 1. what holds little more memory than it has bytes stays where it is, within a bound for all
//!    connections together. Segments that others hold already cost nothing more: a crowd that reads
//!    one large value slowly holds it once;
//! 2. what holds much more is copied, and lets go of the store; or if there is no room for that,
//!    stays, within the same bound;
//! 3. else the client is cut, which is counted and, the first time, said.
//!
//! `stats conns` has the bytes that each client has left unread.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::sync::atomic::Ordering::Relaxed;

use plainweave::net::TcpStream;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send as send_bytes, sendmsg};

use super::clients::Client;
use super::pinned::Pins;
use super::reply::Replies;
use super::shared::Cache;
use super::stream::{Layered, Stream};

/// Bytes in a record of TLS.
const RECORD: usize = 16 << 10;
/// The most that the kernel takes in one call.
const PIECES: usize = 1024;

/// Sends all replies; waits for a client that has no room for them, for as long as the stream's
/// timeout says.
///
/// # Errors
/// Those of the stream; [`ErrorKind::OutOfMemory`]: there was no room for what the client leaves
/// unread.
pub(super) fn send(
    cache: &Cache,
    stream: &mut Stream,
    client: &Client,
    out: &mut Replies,
) -> io::Result<()> {
    let (sent, is_over) = match stream {
        Stream::Plain(stream) => {
            let sent = send_some(stream, out)?;
            (sent, sent == out.len())
        }
        Stream::Layered(stream) => take_some(&mut **stream, out)?,
    };
    if is_over {
        return Ok(());
    }
    let (_held, sent) = hold(cache, client, out, sent)?;
    let waited = send_rest(stream, client, out, sent);
    client.unread.store(0, Relaxed);
    waited
}

/// Sends what the socket takes at once, and says how much that is.
fn send_some(stream: &TcpStream, out: &Replies) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if let Some(bytes) = out.one_piece() {
        return or_none(send_bytes(stream, bytes, flags));
    }
    let pieces = out.pieces();
    let mut sent = 0;

    for some in pieces.chunks(PIECES) {
        let len: usize = some.iter().map(|piece| piece.len()).sum();
        let took = or_none(sendmsg(
            stream,
            some,
            &mut SendAncillaryBuffer::default(),
            flags,
        ))?;

        sent += took;
        if took < len {
            break;
        }
    }

    Ok(sent)
}

/// Has a stream take what it can at once. Says how much of `out` that is, and whether all has left.
fn take_some(stream: &mut dyn Layered, out: &Replies) -> io::Result<(usize, bool)> {
    let stream = stream.without_waiting()?;
    let mut pieces = out.pieces();
    let mut pieces = &mut pieces[..];
    let mut taken = 0;
    let mut is_full = false;

    while !pieces.is_empty() && !is_full {
        match stream.try_write_vectored(pieces) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => {
                taken += len;
                IoSlice::advance_slices(&mut pieces, len);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => is_full = true,
            Err(error) => return Err(error),
        }
    }
    match stream.push() {
        Ok(()) => Ok((taken, !is_full)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok((taken, false)),
        Err(error) => Err(error),
    }
}

/// No room is no error; nor is a signal, after which the rest is sent in another way.
fn or_none(sent: rustix::io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}

/// Makes what is left of the replies fit to wait. Returns the segments that it holds, and how much
/// of `out` was sent.
#[cold]
fn hold(
    cache: &Cache,
    client: &Client,
    out: &mut Replies,
    sent: usize,
) -> io::Result<(Option<Pins>, usize)> {
    let left = out.len() - sent;
    let segments = out.segments();
    if segments.is_empty() {
        return Ok((None, sent));
    }
    if let Some(held) = cache.pinned.hold(&segments, 2 * left) {
        return Ok((Some(held), sent));
    }
    let mut copy = cache.memory_budget.reserve();

    if copy.grow_within_half(left) {
        out.copy_rest(sent, copy);
        return Ok((None, 0));
    }

    if let Some(held) = cache.pinned.hold(&segments, usize::MAX) {
        return Ok((Some(held), sent));
    }
    if cache.clients.cut.fetch_add(1, Relaxed) == 0 {
        cache.tell(&format!(
            "client {} leaves {left} bytes of replies unread, as others do, and is cut (a higher -m has room for more; \
             logged once, see cut_connections)",
            client.peer_address()
        ));
    }

    Err(ErrorKind::OutOfMemory.into())
}

/// Sends what follows the first `sent` bytes.
fn send_rest(stream: &mut Stream, client: &Client, out: &Replies, sent: usize) -> io::Result<()> {
    let mut left = out.len() - sent;
    let mut pieces = out.pieces();
    let mut pieces = &mut pieces[..];
    IoSlice::advance_slices(&mut pieces, sent);

    while !pieces.is_empty() {
        client.unread.store(left, Relaxed);
        let written = match stream {
            Stream::Plain(stream) => stream.write_vectored(pieces),
            // A record at a time, so that others see it going on.
            Stream::Layered(stream) => stream.write(&pieces[0][..pieces[0].len().min(RECORD)]),
        };

        match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => {
                left -= len;
                IoSlice::advance_slices(&mut pieces, len);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }

    // What a layer has taken and still holds, a record at most.
    client.unread.store(1, Relaxed);
    stream.flush()
}
