//! Answers that are compressed as they are sent: of files that are too large for the cache.
//!
//! Each has an encoder, so their number is bounded; who finds no place gets the file as it
//! is. An encoder works on the pool for blocking work, a slice at a time, and travels there and
//! back with what it needs: a cancelled request leaves nothing borrowed behind, and a client that
//! reads slowly keeps no thread.

use std::io::{self, BufRead, ErrorKind, Read};
use std::os::unix::fs::FileExt;

use http::{Method, StatusCode};

use super::coding::Coding;
use super::compress::{Encoder, NewEncoder};
use super::condition::{self, Verdict};
use super::fields::Fields;
use super::look::{Content, FoundFile};
use super::partial;
use super::pieces::{Blocking, PIECE, read_piece};
use super::static_files::StaticFiles;
use crate::message::head::RequestHead;
use crate::message::response::{Body, Response};

/// Bytes of a file that are compressed in one trip to the pool, unless they make a piece sooner.
const SLICE: u64 = 8 * PIECE as u64;

impl<B: Blocking> StaticFiles<B> {
    /// Answers with a file that is compressed as it is sent. `None`: too many are.
    pub(super) fn streamed(
        &self,
        file: &FoundFile,
        coding: Coding,
        head: &RequestHead<'_>,
        fields: Fields,
    ) -> Option<Response> {
        let twin = file.streamed(coding);
        if fields.has(Fields::CONDITIONAL) {
            match condition::judge(head, fields, &twin.validators()) {
                Verdict::Whole | Verdict::Ranges => {}
                Verdict::NotModified => {
                    let unchanged = Response::new(StatusCode::NOT_MODIFIED);
                    return Some(unchanged.with_lines(twin.validator_lines()));
                }
                Verdict::Failed => return Some(Response::plain(StatusCode::PRECONDITION_FAILED)),
            }
        }

        let body: Box<dyn BufRead + Send> = match *head.method() {
            Method::HEAD => Box::new(io::empty()),
            _ => {
                let encoder = self.making()?.stream(coding, file.size())?;
                if !partial::admits(file, 0..file.size(), &self.disk) {
                    return Some(partial::busy());
                }
                Box::new(Streamed::new(self.disk.blocking.clone(), &twin, encoder))
            }
        };

        Some(Response::ok(Body::Stream(body, None)).with_lines(twin.lines()))
    }
}

/// A body that is compressed as it is read.
struct Streamed<B> {
    blocking: B,
    /// `None`: it is over, or was lost.
    work: Option<Work>,
    piece: Vec<u8>,
    used: usize,
}

/// What travels to the pool.
struct Work {
    content: Content,
    size: u64,
    done: u64,
    encoder: Option<Box<dyn Encoder>>,
    new: NewEncoder,
}

impl<B: Blocking> Streamed<B> {
    fn new(blocking: B, file: &FoundFile, new: NewEncoder) -> Self {
        let work = Work {
            content: file.content.clone(),
            size: file.size(),
            done: 0,
            encoder: None,
            new,
        };
        Self {
            blocking,
            work: Some(work),
            piece: Vec::new(),
            used: 0,
        }
    }
}

impl Work {
    /// Appends more of the compressed form, and returns whether that was the last of it.
    fn advance(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(self.new.make()?),
        };

        let end = self.size.min(self.done + SLICE);
        let mut buffer = Vec::new();
        while self.done < end && out.len() < PIECE {
            let len = (end - self.done).min(PIECE as u64) as usize;
            let content = match &self.content {
                Content::Whole(bytes) => &bytes[self.done as usize..][..len],
                Content::Open(file) => {
                    buffer.resize(len, 0);
                    let read = match file.read_at(&mut buffer, self.done) {
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        read => read?,
                    };
                    if read == 0 {
                        let what = "the file has become shorter";
                        return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
                    }
                    &buffer[..read]
                }
            };

            self.done += content.len() as u64;
            encoder.push(content, out)?;
        }

        let is_last = self.done == self.size;
        if is_last {
            encoder.finish(out)?;
        }

        Ok(is_last)
    }
}

impl<B: Blocking> BufRead for Streamed<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.used == self.piece.len() {
            let Some(mut work) = self.work.take() else {
                break;
            };
            let mut piece = std::mem::take(&mut self.piece);
            piece.clear();
            self.used = 0;
            let (work, piece, advanced) = self.blocking.run(move || {
                let advanced = work.advance(&mut piece);
                (work, piece, advanced)
            })?;

            self.piece = piece;
            let is_last = advanced?;
            self.work = (!is_last).then_some(work);
        }

        Ok(&self.piece[self.used..])
    }

    fn consume(&mut self, len: usize) {
        self.used += len;
    }
}

impl<B: Blocking> Read for Streamed<B> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        read_piece(self, buf)
    }
}
