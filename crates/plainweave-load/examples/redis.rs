//! A load on a server that speaks RESP, the protocol of Redis and Valkey: one request in ten stores
//! a value, the others ask for one.
//!
//!     cargo run --release -p plainweave-load --example redis -- 127.0.0.1:6379

use std::error::Error;
use std::io::{Read, Write};
use std::time::Duration;

use plainweave_load::{Answer, Failed, Load, Protocol, Stream};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::encode::encode;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

/// Keys that are asked for.
const KEYS: usize = 1000;

/// RESP, version 2.
pub(crate) struct Resp;

/// A connection, and what has come and was not read yet.
pub(crate) struct Connection {
    stream: Stream,
    received: Vec<u8>,
}

impl Protocol for Resp {
    type Connection = Connection;

    fn open(&self, stream: Stream) -> Result<Connection, Failed> {
        Ok(Connection {
            stream,
            received: Vec::new(),
        })
    }

    fn ask(&self, connection: &mut Connection, item: usize) -> Result<Answer, Failed> {
        let key = format!("key:{item}");
        let words: &[&str] = if item.is_multiple_of(10) {
            &["SET", &key, "a value"]
        } else {
            &["GET", &key]
        };
        connection.send(words)?;

        match connection.receive()? {
            OwnedFrame::Error(_) => Err(Failed::Refused),
            OwnedFrame::Null => Ok(Answer::Missing),
            _ => Ok(Answer::Done),
        }
    }

    fn items(&self) -> usize {
        KEYS
    }
}

impl Connection {
    fn send(&mut self, words: &[&str]) -> Result<(), Failed> {
        let word = |word: &&str| OwnedFrame::BulkString(word.as_bytes().to_vec());
        let command = OwnedFrame::Array(words.iter().map(word).collect());
        let mut bytes = vec![0; command.encode_len(false)];
        encode(&mut bytes, &command, false).map_err(|_| Failed::Garbage)?;
        Ok(self.stream.write_all(&bytes)?)
    }

    fn receive(&mut self) -> Result<OwnedFrame, Failed> {
        loop {
            if let Some((frame, len)) = decode(&self.received).map_err(|_| Failed::Garbage)? {
                self.received.drain(..len);
                return Ok(frame);
            }

            let mut more = [0; 4096];
            let len = self.stream.read(&mut more)?;
            if len == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            self.received.extend_from_slice(&more[..len]);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1);
    let measured = Load::speaking(Resp, server.as_deref().unwrap_or("127.0.0.1:6379"))
        .rate(2000)
        .duration(Duration::from_secs(5))
        .require("p99<=5ms,errors<=0")
        .run()?;

    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:.0} answers a second, p99 {:?}",
        measured.rate(),
        measured.latency(99.0)
    )?;
    Ok(measured.check()?)
}
