//! The bodies of answers, read as the client takes them.

use std::io::{self, BufRead, ErrorKind, Read};

use plainweave_http::Framing;
use plainweave_http::body::{Decoder, Step};

use super::answer::End;
use super::connection::UpstreamConnection;
use super::server::ServerPlace;

/// A body, and the connection that it comes over, which is kept when it has come to its end.
pub(super) struct AnswerBody {
    /// `None`: the connection is kept, or lost.
    connection: Option<UpstreamConnection>,
    place: ServerPlace,
    left: Left,
    /// Whether the connection may have another request.
    keeps: bool,
}

/// What of a body is to come.
enum Left {
    Length(u64),
    Chunked(Box<Decoder>),
    Closed,
    Nothing,
}

impl AnswerBody {
    pub(super) fn new(
        mut connection: UpstreamConnection,
        place: ServerPlace,
        end: End,
        keeps: bool,
    ) -> Self {
        connection.expect_much();
        let left = match end {
            End::Length(length) => Left::Length(length),
            End::Chunked => match Decoder::new(Framing::Chunked, u64::MAX) {
                Ok(decoder) => Left::Chunked(Box::new(decoder)),
                Err(_) => Left::Nothing, // Only a length can be too long.
            },
            End::Closed => Left::Closed,
        };
        Self {
            connection: Some(connection),
            place,
            left,
            keeps,
        }
    }

    /// Returns how many bytes of content are at hand, having read until there are some. 0: the
    /// body is over.
    fn ready(&mut self) -> io::Result<usize> {
        let Some(connection) = &mut self.connection else {
            return Ok(0);
        };
        loop {
            let input = connection.input();
            let ready = match &mut self.left {
                Left::Nothing | Left::Length(0) => return Ok(0),
                Left::Length(left) => usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len()),
                Left::Closed => input.len(),
                Left::Chunked(decoder) => match decoder.run() {
                    0 => match decoder.step(input, usize::MAX).map_err(io::Error::other)? {
                        Step::Framing(len) | Step::Trailer(len) => {
                            connection.consume(len);
                            continue;
                        }
                        Step::Done => return Ok(0),
                        Step::Data(_) | Step::More => 0,
                    },
                    run => usize::try_from(run).unwrap_or(usize::MAX).min(input.len()),
                },
            };

            if ready > 0 {
                return Ok(ready);
            }
            if connection.fill()? == 0 {
                return match self.left {
                    Left::Closed => {
                        self.left = Left::Nothing;
                        Ok(0)
                    }
                    _ => {
                        let what = "the application has ended within its answer";
                        Err(io::Error::new(ErrorKind::UnexpectedEof, what))
                    }
                };
            }
        }
    }

    /// Keeps the connection if the body was read to its end.
    fn finish(&mut self) {
        if let Some(connection) = self.connection.take_if(|_| self.keeps) {
            self.place.server().keep(connection);
        }
        self.connection = None;
    }
}

impl BufRead for AnswerBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let ready = match self.ready() {
            Ok(ready) => ready,
            Err(error) => {
                self.connection = None;
                self.left = Left::Nothing;
                return Err(error);
            }
        };
        if ready == 0 {
            self.finish();
        }

        let connection = self.connection.as_ref();
        Ok(connection.map_or(&[], |connection| &connection.input()[..ready]))
    }

    fn consume(&mut self, len: usize) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        connection.consume(len);
        match &mut self.left {
            Left::Length(left) => *left -= len as u64,
            Left::Chunked(decoder) => decoder.took(len),
            Left::Closed | Left::Nothing => {}
        }
        // A length is known to be over without another look; so its reader does not look.
        if matches!(self.left, Left::Length(0)) {
            self.finish();
        }
    }
}

impl Read for AnswerBody {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(buf)?;
        self.consume(len);
        Ok(len)
    }
}
