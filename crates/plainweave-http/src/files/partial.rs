//! Answers with parts of a file: 206 with one part or several, 416 (RFC 9110, 14.4, 14.6 and
//! 15.3.7).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufRead, ErrorKind, Read};
use std::ops::Range;
use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};

use super::look::{Content, FoundFile};
use super::pieces::{Blocking, Disk, Opened, Pieces, read_piece};
use super::range::{self, Ranges};
use crate::message::response::{Body, Response};
use bytes::Bytes;

/// Returns the response to a request for these ranges. `None`: the whole file is to be sent.
pub(super) fn respond<B: Blocking>(
    file: &FoundFile,
    value: &[u8],
    disk: &Disk<B>,
) -> Option<Response> {
    let size = file.size();
    match range::parse(value, size) {
        Ranges::Ignored => None,
        Ranges::Unsatisfiable => {
            let response = Response::plain(StatusCode::RANGE_NOT_SATISFIABLE);
            Some(response.with_header(header::CONTENT_RANGE, text(format!("bytes */{size}"))))
        }
        Ranges::Satisfiable(ranges) => Some(match &ranges[..] {
            [range] => single(file, range.clone(), disk),
            _ => multiple(file, &ranges, disk),
        }),
    }
}

fn single<B: Blocking>(file: &FoundFile, range: Range<u64>, disk: &Disk<B>) -> Response {
    let Some(body) = content(file, range.clone(), disk) else {
        return busy();
    };
    let place = text(content_range(&range, file.size()));
    let response = Response::new(StatusCode::PARTIAL_CONTENT).with_lines(file.lines());
    response
        .with_header(header::CONTENT_RANGE, place)
        .with_body(body)
}

/// Returns the bytes of a file within `range`, or `None` if too many wait for the disk.
pub(super) fn content<B: Blocking>(
    file: &FoundFile,
    range: Range<u64>,
    disk: &Disk<B>,
) -> Option<Body> {
    Some(match &file.content {
        Content::Whole(bytes) => Body::Bytes(slice(bytes, &range)),
        Content::Open(file) if disk.admits(file, &range) => {
            let len = range.end - range.start;
            Body::File(
                Box::new(Pieces::new(disk.clone(), Arc::clone(file), range)),
                len,
            )
        }
        Content::Open(_) => return None,
    })
}

/// Returns whether a response may begin that reads these bytes of a file.
pub(super) fn admits<B: Blocking>(file: &FoundFile, range: Range<u64>, disk: &Disk<B>) -> bool {
    match &file.content {
        Content::Whole(_) => true,
        Content::Open(file) => disk.admits(file, &range),
    }
}

/// Returns the response where too many wait for the disk.
pub(super) fn busy() -> Response {
    Response::plain(StatusCode::SERVICE_UNAVAILABLE).with_retry()
}

/// `multipart/byteranges`.
fn multiple<B: Blocking>(file: &FoundFile, ranges: &[Range<u64>], disk: &Disk<B>) -> Response {
    let size = file.size();
    let boundary = boundary();
    let mut segments = Vec::with_capacity(2 * ranges.len() + 1);
    let mut begin = "--";

    for range in ranges {
        let kind = file.content_type();
        let place = content_range(range, size);
        let head =
            format!("{begin}{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {place}\r\n\r\n");
        segments.extend([
            Segment::Text(head.into_bytes()),
            Segment::File(range.clone()),
        ]);
        begin = "\r\n--";
    }

    segments.push(Segment::Text(
        format!("\r\n--{boundary}--\r\n").into_bytes(),
    ));
    let len = segments.iter().map(Segment::len).sum();
    let body = match &file.content {
        Content::Whole(bytes) => Body::Bytes(joined(&segments, len, bytes)),
        Content::Open(file) if !ranges.iter().all(|range| disk.admits(file, range)) => {
            return busy();
        }
        Content::Open(file) => {
            let parts = Multipart::new(segments, disk.clone(), Arc::clone(file));
            Body::Stream(Box::new(parts), Some(len))
        }
    };

    let kind = text(format!("multipart/byteranges; boundary={boundary}"));
    let response = Response::new(StatusCode::PARTIAL_CONTENT).with_lines(file.lines_but_type());
    response
        .with_header(header::CONTENT_TYPE, kind)
        .with_body(body)
}

/// A piece of a multipart body.
#[derive(Debug)]
enum Segment {
    Text(Vec<u8>),
    File(Range<u64>),
}

impl Segment {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

fn joined(segments: &[Segment], len: u64, file: &Bytes) -> Bytes {
    let mut body = Vec::with_capacity(len as usize); // No more than the file, and the parts' heads.
    for segment in segments {
        match segment {
            Segment::Text(text) => body.extend_from_slice(text),
            Segment::File(range) => body.extend_from_slice(&slice(file, range)),
        }
    }
    body.into()
}

/// A multipart body of an open file, read as it is sent.
struct Multipart<B> {
    left: std::vec::IntoIter<Segment>,
    now: Current<B>,
    disk: Disk<B>,
    file: Arc<Opened>,
}

enum Current<B> {
    Text { text: Vec<u8>, used: usize },
    File(Pieces<B>),
}

impl<B: Blocking> Multipart<B> {
    fn new(segments: Vec<Segment>, disk: Disk<B>, file: Arc<Opened>) -> Self {
        Self {
            left: segments.into_iter(),
            now: Current::Text {
                text: Vec::new(),
                used: 0,
            },
            disk,
            file,
        }
    }

    /// Returns whether the current segment is over. May wait for the disk.
    fn is_over(&mut self) -> io::Result<bool> {
        match &mut self.now {
            Current::Text { text, used } => Ok(*used == text.len()),
            Current::File(pieces) => match (pieces.fill_buf()?.is_empty(), pieces.is_complete()) {
                // What follows would be taken for the rest of this part.
                (true, false) => Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the file has become shorter",
                )),
                (over, _) => Ok(over),
            },
        }
    }
}

impl<B: Blocking> BufRead for Multipart<B> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.is_over()? {
            self.now = match self.left.next() {
                Some(Segment::Text(text)) => Current::Text { text, used: 0 },
                Some(Segment::File(range)) => Current::File(Pieces::new(
                    self.disk.clone(),
                    Arc::clone(&self.file),
                    range,
                )),
                None => return Ok(&[]),
            };
        }

        match &mut self.now {
            Current::Text { text, used } => Ok(&text[*used..]),
            Current::File(pieces) => pieces.fill_buf(),
        }
    }

    fn consume(&mut self, len: usize) {
        match &mut self.now {
            Current::Text { used, .. } => *used += len,
            Current::File(pieces) => pieces.consume(len),
        }
    }
}

impl<B: Blocking> Read for Multipart<B> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        read_piece(self, buf)
    }
}

/// 128 bits that the author of a file cannot guess.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// Ranges of a file in memory lie within it.
fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    bytes.slice(range.start as usize..range.end as usize)
}

fn text(value: String) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(value)).expect("letters and digits of ours")
}
