//! TLS without I/O: what was received goes in, plaintext comes out; plaintext goes in, what is to
//! be sent comes out.
//!
//! rustls's unbuffered interface leaves all buffers to us, so that a connection that has nothing in
//! hand holds none.

use std::io::IoSlice;
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{HandshakeKind, InvalidMessage, ProtocolVersion, ServerConfig};

use super::certificates::subject;
use crate::transport::session::TlsSession;

/// Plaintext in one record, at most (RFC 8446, 5.1).
pub(super) const RECORD: usize = 16 << 10;
/// Records that are made and sent together.
const RECORDS: usize = 4;
/// Room for what a record has beside its plaintext, and for a key update before it.
const OVERHEAD: usize = 64;
/// Length of a record's content that rustls refuses (the greatest of RFC 5246, 6.2.3; 1.3 has a
/// smaller bound).
const TOO_LONG: usize = RECORD + 2048;
/// What is kept of a message that comes in pieces, at most. rustls allows messages of 64 KiB and
/// needs their records until they are complete: a peer that sends one byte in each has us keep six
/// times as much.
const HELD: usize = 32 << 10;
/// The same after the handshake: a part of a record, by the size that TLS 1.2 allows. Messages of
/// handshakes are short there.
const HELD_OPEN: usize = HEADER + RECORD + 2048;
/// Bytes before a record's content: type, version, length.
const HEADER: usize = 5;
/// Bytes that a read asks for: a request's head is less.
const READ: usize = 4 << 10;
/// The same once a read was filled: a record of the largest size.
const LONG_READ: usize = RECORD + 256 + HEADER;

/// One connection.
pub(super) struct Engine {
    rustls: UnbufferedServerConnection,
    received: Received,
    plain: Plain,
    out: Out,
    /// rustls has taken a record.
    has_begun: bool,
    /// The peer has said that it sends no more.
    peer_has_ended: bool,
    /// Our own `close_notify` is made.
    ended: bool,
    /// Why it is of no use any more. If plaintext came before that, or the handshake was over, the
    /// next call says so.
    failure: Option<rustls::Error>,
}

/// What has arrived and is not decrypted yet: part of a record, after each call. `bytes[..filled]`.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    filled: usize,
    /// The last read has filled its room.
    more: bool,
}

/// What is decrypted and not taken yet: `bytes[start..]`.
#[derive(Default)]
struct Plain {
    bytes: Vec<u8>,
    start: usize,
}

/// What is to be sent: `bytes[sent..]`.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    sent: usize,
}

/// What to make once the connection is ready for it.
enum Write<'a> {
    Nothing,
    Data(&'a [u8]),
    End,
}

impl Engine {
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let rustls = UnbufferedServerConnection::new(config)?;
        let (received, plain, out) = Default::default();
        let [has_begun, peer_has_ended, ended] = [false; 3];
        Ok(Self {
            rustls,
            received,
            plain,
            out,
            has_begun,
            peer_has_ended,
            ended,
            failure: None,
        })
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.rustls.is_handshaking()
    }

    pub(super) fn peer_has_ended(&self) -> bool {
        self.peer_has_ended
    }

    /// Returns where the next read goes.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let Received {
            bytes,
            filled,
            more,
        } = &mut self.received;
        let room = if *more { LONG_READ } else { READ };
        // Not by doubling: there may be many of these.
        bytes.reserve_exact((*filled + room).saturating_sub(bytes.len()));
        bytes.resize(*filled + room, 0);
        &mut bytes[*filled..]
    }

    /// Notes that nothing has come for `space`. The connection may be idle from now on.
    pub(super) fn rest(&mut self) {
        let Received { bytes, filled, .. } = &mut self.received;
        bytes.truncate(*filled);
        bytes.shrink_to_fit();
    }

    /// Notes that `len` bytes were read into `space`.
    pub(super) fn extend(&mut self, len: usize) {
        let Received {
            bytes,
            filled,
            more,
        } = &mut self.received;
        *filled += len;
        *more = *filled == bytes.len();
    }

    /// Returns whether there is work in what has arrived: a whole record, or the beginning of what
    /// cannot be one: a type, version or length that none has.
    pub(super) fn has_record(&self) -> bool {
        match self.received() {
            [0x14..=0x17, 3, _, high, low, rest @ ..] => {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                len >= TOO_LONG || rest.len() >= len
            }
            [] | [0x14..=0x17] | [0x14..=0x17, _] | [0x14..=0x17, 3, ..] => false,
            _ => true,
        }
    }

    /// Returns whether the peer has begun with HTTP in place of TLS. To be asked when there is
    /// work.
    pub(super) fn is_plain_http(&self) -> bool {
        !self.has_begun && self.received().first().is_some_and(u8::is_ascii_uppercase)
    }

    /// Returns what has arrived and is not decrypted.
    pub(super) fn received(&self) -> &[u8] {
        &self.received.bytes[..self.received.filled]
    }

    /// Drops the first `len` bytes of it, which are no TLS.
    pub(super) fn discard(&mut self, len: usize) {
        self.received.discard(len);
        if self.received.filled == 0 {
            self.received = Received::default();
        }
    }

    /// Returns whether there is plaintext to take.
    pub(super) fn has_plain(&self) -> bool {
        !self.plain.bytes.is_empty()
    }

    /// Returns whether the next read finds something without anything more being received:
    /// plaintext, the end or an error.
    pub(super) fn has_news(&self) -> bool {
        self.has_plain() || self.peer_has_ended || self.failure.is_some()
    }

    /// Takes plaintext.
    pub(super) fn take(&mut self, buf: &mut [u8]) -> usize {
        let Plain { bytes, start } = &mut self.plain;
        let len = buf.len().min(bytes.len() - *start);
        buf[..len].copy_from_slice(&bytes[*start..*start + len]);
        *start += len;
        if *start == bytes.len() {
            self.plain = Plain::default();
        }
        len
    }

    /// Goes on by what has arrived. Plaintext goes to `buf`, and what has no room there is kept.
    /// Returns how much went there. An error behind it is returned by the next call.
    pub(super) fn advance(&mut self, buf: &mut [u8]) -> Result<usize, rustls::Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }

        let shook_hands = !self.is_handshaking();
        let (given, mut error) = self.drive(buf, &Write::Nothing);
        let most = if shook_hands { HELD_OPEN } else { HELD };
        if error.is_none() && self.received.filled > most {
            // rustls waits for the rest of a message, and leaves its records here until then.
            self.received.filled = 0;
            error = Some(InvalidMessage::HandshakePayloadTooLarge.into());
        }
        if self.received.filled == 0 {
            // The connection may be idle from now on, and then holds no buffer.
            self.received.bytes = Vec::new();
        }

        self.failure = error;
        // Whoever waits for the handshake has to hear that it is over, although nothing was read.
        let news = given > 0 || self.has_plain() || shook_hands == self.is_handshaking();
        match &self.failure {
            Some(error) if !news => Err(error.clone()),
            _ => Ok(given),
        }
    }

    /// After an error: makes the alert that tells the peer.
    pub(super) fn alert(&mut self) {
        // Not by `drive`: what was wrong must not be looked at again.
        while self.rustls.wants_write() {
            let received = &mut self.received.bytes[..self.received.filled];
            let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.rustls.process_tls_records(received).state
            else {
                return;
            };

            let _ = append(&mut self.out.bytes, 0, |room| {
                data.encode(room).map_err(|error| needed(&error))
            });
        }
    }

    /// Makes records of the first bytes of `bufs`: one that begins with the first and ends with the
    /// last buffer, if all is less than a record. Returns how many bytes are in them.
    pub(super) fn encrypt(&mut self, bufs: &[IoSlice<'_>]) -> Result<usize, rustls::Error> {
        let len = bufs
            .iter()
            .map(|buf| buf.len())
            .sum::<usize>()
            .min(RECORDS * RECORD);
        // At once: growing it for each record would copy the earlier ones.
        self.out
            .bytes
            .reserve(len + len.div_ceil(RECORD) * OVERHEAD);
        let mut gathered = Vec::new();
        let mut left = len;
        for buf in bufs {
            let mut rest = &buf[..buf.len().min(left)];
            left -= rest.len();
            while !rest.is_empty() {
                if gathered.is_empty() && rest.len() >= RECORD {
                    // A whole record is encrypted from where it is.
                    let (record, tail) = rest.split_at(RECORD);
                    self.write(&Write::Data(record))?;
                    rest = tail;
                } else {
                    // Short buffers, as a head and the body behind it, share a record.
                    let (part, tail) = rest.split_at(rest.len().min(RECORD - gathered.len()));
                    gathered.extend_from_slice(part);
                    rest = tail;
                    if gathered.len() == RECORD {
                        self.write(&Write::Data(&gathered))?;
                        gathered.clear();
                    }
                }
            }
        }
        if !gathered.is_empty() {
            self.write(&Write::Data(&gathered))?;
        }
        Ok(len)
    }

    /// Says that no more is sent, once.
    pub(super) fn end(&mut self) -> Result<(), rustls::Error> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.write(&Write::End)
    }

    fn write(&mut self, write: &Write<'_>) -> Result<(), rustls::Error> {
        if self.failure.is_none() {
            self.failure = self.drive(&mut [], write).1;
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns what is to be sent.
    pub(super) fn out(&self) -> &[u8] {
        &self.out.bytes[self.out.sent..]
    }

    /// Notes that `len` bytes of it were sent. The memory is given back with the last of them.
    pub(super) fn sent(&mut self, len: usize) {
        self.out.sent += len;
        if self.out.sent == self.out.bytes.len() {
            self.out = Out::default();
        }
    }

    /// Has rustls go on until it needs something: more from the peer, or, if it could send data, a
    /// reason to. Returns how much plaintext went to `buf`, and what has stopped it if not that.
    fn drive(&mut self, mut buf: &mut [u8], write: &Write<'_>) -> (usize, Option<rustls::Error>) {
        let mut given = 0;
        let mut written = false;
        loop {
            let received = &mut self.received;
            let UnbufferedStatus {
                mut discard, state, ..
            } = self
                .rustls
                .process_tls_records(&mut received.bytes[..received.filled]);
            let mut waits = false;
            let state = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                    match traffic.next_record() {
                        Some(Ok(record)) => {
                            discard += record.discard;
                            // To the reader where there is room, so that most is copied once.
                            let len = record.payload.len().min(buf.len());
                            buf[..len].copy_from_slice(&record.payload[..len]);
                            buf = &mut buf[len..];
                            given += len;
                            self.plain.bytes.extend_from_slice(&record.payload[len..]);
                        }
                        Some(Err(error)) => break Err(error),
                        None => break Ok(()),
                    }
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(&mut self.out.bytes, 0, |room| {
                        data.encode(room).map_err(|error| needed(&error))
                    })
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    // It is sent before anything else is waited for.
                    data.done();
                    Ok(())
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.peer_has_ended = true;
                    Ok(())
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) if !written => {
                    // rustls says so each time that it is asked and has nothing better to do.
                    written = true;
                    waits = matches!(write, Write::Nothing);
                    self.out.write(&mut traffic, write)
                }
                Ok(_) => {
                    waits = true;
                    let done = written || matches!(write, Write::Nothing);
                    if done {
                        Ok(())
                    } else {
                        Err(rustls::Error::HandshakeNotComplete)
                    }
                }
                Err(error) => Err(error),
            };

            // Only now: until here the state had the records borrowed.
            received.discard(discard);
            self.has_begun |= discard > 0;
            if state.is_err() || waits || (written && !matches!(write, Write::Nothing)) {
                return (given, state.err());
            }
        }
    }

    /// Returns what the handshake has found out. `name`: what the resolver has noted.
    pub(super) fn session(&self, name: Option<String>) -> TlsSession {
        let client_chain: Vec<Vec<u8>> = self
            .rustls
            .peer_certificates()
            .into_iter()
            .flatten()
            .map(|certificate| certificate.to_vec())
            .collect();
        let suite = self.rustls.negotiated_cipher_suite();
        TlsSession {
            version: match self.rustls.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher_suite: suite
                .and_then(|suite| suite.suite().as_str())
                .unwrap_or_default(),
            server_name: name,
            alpn: self.rustls.alpn_protocol().map(<[u8]>::to_vec),
            resumed: self.rustls.handshake_kind() == Some(HandshakeKind::Resumed),
            client_subject: client_chain
                .first()
                .and_then(|certificate| subject(certificate)),
            client_chain,
        }
    }
}

impl Received {
    fn discard(&mut self, len: usize) {
        self.bytes.copy_within(len..self.filled, 0);
        self.filled -= len;
    }
}

impl Out {
    fn write<D>(
        &mut self,
        traffic: &mut WriteTraffic<'_, D>,
        write: &Write<'_>,
    ) -> Result<(), rustls::Error> {
        let needed = |error: EncryptError| match error {
            EncryptError::InsufficientSize(size) => Ok(size.required_size),
            EncryptError::EncryptExhausted => Err(rustls::Error::EncryptError),
        };
        match write {
            Write::Nothing => Ok(()),
            Write::Data(plain) => append(&mut self.bytes, plain.len() + OVERHEAD, |room| {
                traffic.encrypt(plain, room).map_err(needed)
            }),
            Write::End => append(&mut self.bytes, OVERHEAD, |room| {
                traffic.queue_close_notify(room).map_err(needed)
            }),
        }
    }
}

/// Has `make` write behind what is in `out`, with room for `guess` bytes or as many as it asks for.
fn append(
    out: &mut Vec<u8>,
    guess: usize,
    mut make: impl FnMut(&mut [u8]) -> Result<usize, Result<usize, rustls::Error>>,
) -> Result<(), rustls::Error> {
    let start = out.len();
    out.resize(start + guess, 0);
    loop {
        match make(&mut out[start..]) {
            Ok(len) => {
                out.truncate(start + len);
                return Ok(());
            }
            Err(Ok(needed)) => out.resize(start + needed, 0),
            Err(Err(error)) => {
                out.truncate(start);
                return Err(error);
            }
        }
    }
}

fn needed(error: &rustls::unbuffered::EncodeError) -> Result<usize, rustls::Error> {
    match error {
        rustls::unbuffered::EncodeError::InsufficientSize(size) => Ok(size.required_size),
        rustls::unbuffered::EncodeError::AlreadyEncoded => Ok(0),
    }
}
