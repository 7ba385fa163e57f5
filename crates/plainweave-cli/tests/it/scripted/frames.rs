//! Servers that speak HTTP/2 frame by frame, as a script says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::server;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200`, from HPACK's own table.
const OK: &[u8] = &[0x88];

/// Writes a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A whole answer: `hello`.
pub(crate) fn answer(stream: u32) -> Vec<u8> {
    [begun(stream), frame(DATA, END_STREAM, stream, b"llo")].concat()
}

/// The head of an answer, and some of its body.
pub(crate) fn begun(stream: u32) -> Vec<u8> {
    [
        frame(HEADERS, END_HEADERS, stream, OK),
        frame(DATA, 0, stream, b"he"),
    ]
    .concat()
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(crate) fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(
        GOAWAY,
        0,
        0,
        &[last.to_be_bytes(), code.to_be_bytes()].concat(),
    )
}

/// Reads the next request, and returns its stream; `None` at the connection's end.
pub(crate) fn request(stream: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).ok()?;
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; len];
        stream.read_exact(&mut payload).ok()?;
        if head[3] == HEADERS {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

/// A server whose connections greet, and then have a thread that runs `script` with them and their
/// number, from 0.
pub(crate) fn http2(script: impl Fn(&mut TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    server(move |mut stream, number| {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut preface = [0; 24];
        // The probe connects and leaves.
        if stream.read_exact(&mut preface).is_err() {
            return;
        }
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        script(&mut stream, number - 1);
    })
}
