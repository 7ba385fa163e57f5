//! An application with a database: a synchronous client over any `Read + Write`, here for Redis,
//! whose protocol the crate redis-protocol reads and writes. While a query waits, its fiber waits,
//! and the worker does something else.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plainweave::net::TcpStream;
use plainweave::time::with_timeout;
use plainweave_http::{Handler, Request, Response, Server, StatusCode};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::encode::encode;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

/// For a query, the connection to the database included.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to the database. It knows nothing of fibers.
struct Database<S> {
    stream: S,
    received: Vec<u8>,
}

impl<S: Read + Write> Database<S> {
    fn query(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        let words = words
            .iter()
            .map(|word| OwnedFrame::BulkString(word.as_bytes().to_vec()));
        let command = OwnedFrame::Array(words.collect());
        let mut out = vec![0; command.encode_len(false)];
        let len = encode(&mut out, &command, false).map_err(io::Error::other)?;
        self.stream.write_all(&out[..len])?;

        loop {
            if let Some((answer, len)) = decode(&self.received).map_err(io::Error::other)? {
                self.received.drain(..len);
                return Ok(answer);
            }

            let mut piece = [0; 4096];
            match self.stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.received.extend_from_slice(&piece[..len]),
            }
        }
    }
}

/// Connections that no query needs now.
struct Connections {
    address: SocketAddr,
    idle: Mutex<Vec<Database<TcpStream>>>,
}

impl Connections {
    fn query(&self, words: &[&str]) -> io::Result<OwnedFrame> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = idle().pop();
        with_timeout(PATIENCE, || {
            let mut database = match pooled {
                Some(database) => database,
                None => Database {
                    stream: TcpStream::connect(self.address)?,
                    received: Vec::new(),
                },
            };

            let answer = database.query(words)?;
            // One that failed is dropped: nobody knows what comes next on it.
            idle().push(database);
            Ok(answer)
        })
    }
}

pub(crate) fn handler(address: SocketAddr) -> impl Handler {
    let connections = Connections {
        address,
        idle: Mutex::default(),
    };

    move |request: &mut Request<'_>| {
        let key = format!("visits:{}", request.path());
        match connections.query(&["INCR", &key]) {
            Ok(OwnedFrame::Integer(visits)) => {
                Response::ok(format!("visit {visits} of {}\n", request.path()))
            }
            Ok(other) => Response::text(
                StatusCode::BAD_GATEWAY,
                format!("the database says {other:?}\n"),
            ),
            Err(error) => Response::text(
                StatusCode::BAD_GATEWAY,
                format!("the database does not answer: {error}\n"),
            ),
        }
    }
}

fn main() -> io::Result<()> {
    Server::run(
        "127.0.0.1:8080",
        handler(SocketAddr::from(([127, 0, 0, 1], 6379))),
    )
}
