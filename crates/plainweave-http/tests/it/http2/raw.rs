//! A client that writes frames by hand, also those that no library would.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use plainweave::net::TcpStream;

use super::client::HANG;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113, 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Flags.
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// Codes of errors (RFC 9113, 7).
pub(super) const NO_ERROR: u32 = 0;
pub(super) const REFUSED_STREAM: u32 = 7;
pub(super) const CANCEL: u32 = 8;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) id: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// The code of a RST_STREAM or GOAWAY.
    pub(super) fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

pub(super) fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(id.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The fields of a GET, without an entry in any table (RFC 7541, 6.2.2).
pub(super) fn get(path: &str) -> Vec<u8> {
    fields(0x82, path, &[])
}

pub(super) fn post(path: &str) -> Vec<u8> {
    fields(0x83, path, &[])
}

pub(super) fn fields(method: u8, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    // The method and the scheme http are entries of the static table, and so are these two names.
    let mut block = vec![method, 0x86, 0x04];
    string(&mut block, path);
    block.push(0x01);
    string(&mut block, "test");
    block.extend(literals(more));
    block
}

/// Fields and pseudo-headers by their names alone.
pub(super) fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(&mut block, name);
        string(&mut block, value);
    }
    block
}

fn string(block: &mut Vec<u8>, text: &str) {
    // Seven bits, then the rest in groups of seven (RFC 7541, 5.1).
    match text.len() {
        len @ ..127 => block.push(len as u8),
        len => {
            let mut rest = len - 127;
            block.push(127);
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }

            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text.as_bytes());
}

/// A connection.
pub(super) struct Raw<S> {
    pub(super) stream: S,
}

impl Raw<TcpStream> {
    /// Connects, and says what a client says first.
    pub(super) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &[])
    }

    /// Sends more in one piece with the preface.
    pub(super) fn connect_with(address: SocketAddr, more: &[u8]) -> Self {
        let mut raw = Self {
            stream: TcpStream::connect(address).expect("connected"),
        };
        raw.stream.set_read_timeout(Some(HANG)).expect("set");
        raw.begin_with(more);
        raw
    }
}

impl<S: Read + Write> Raw<S> {
    pub(super) fn begin(&mut self) {
        self.begin_with(&[]);
    }

    fn begin_with(&mut self, more: &[u8]) {
        self.bytes(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), more].concat())
            .expect("sent");
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(super) fn send(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        self.bytes(&frame(kind, flags, id, payload)).expect("sent");
    }

    /// Begins a request without a body.
    pub(super) fn get(&mut self, id: u32, path: &str) {
        self.send(HEADERS, END_STREAM | END_HEADERS, id, &get(path));
    }

    /// Sends the same again and again, until the server has had enough of it or `most` are sent.
    pub(super) fn flood(&mut self, bytes: &[u8], most: usize) {
        for _ in 0..most {
            if self.bytes(bytes).is_err() {
                return;
            }
        }
    }

    /// The next frame; `None` at the end of the connection, however it ends.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let [high, middle, low, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        self.stream.read_exact(&mut payload).ok()?;

        Some(Frame {
            kind,
            flags,
            id: u32::from_be_bytes(id),
            payload,
        })
    }

    /// The next frame of a type.
    pub(super) fn next_of(&mut self, kind: u8) -> Option<Frame> {
        std::iter::from_fn(|| self.next()).find(|frame| frame.kind == kind)
    }

    /// Reads to the end; the code of the last GOAWAY.
    pub(super) fn ends_by(&mut self) -> Option<u32> {
        std::iter::from_fn(|| self.next())
            .filter(|frame| frame.kind == GOAWAY)
            .last()
            .map(|frame| frame.code())
    }
}
