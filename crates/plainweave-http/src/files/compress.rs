//! Compressed twins that stand nowhere: made of a file when they are first asked for, and kept
//! beside it in the cache.
//!
//! A twin belongs to one state of its file, and is made again when that changes; until then a
//! request for it costs what one for any file in memory does. So the work is bounded by how often
//! files change, and where a site has more text than the cache has room for, by
//! [`Compression::at_once`]: who finds no place gets the file as it is. It runs on the pool for
//! blocking work, and one request does it for all that ask meanwhile.
//!
//! What is too large for the cache is compressed for each request, as it is sent (`streamed`).
//!
//! *Rejected:* compressing every answer like that. It costs a hundred times what sending does, for
//! each request, and has no length.

use std::io;
use std::sync::Arc;

use plainweave_serve::accept::{InProgress, Permit};

use super::coding::{Coding, Codings};

/// How files are compressed. See
/// [`StaticFiles::with_compression`](super::StaticFiles::with_compression).
#[derive(Clone, Debug)]
pub struct Compression {
    /// In which codings.
    pub codings: Vec<Coding>,
    /// Files with fewer bytes are sent as they are.
    pub least_bytes: u64,
    /// Bounds how many are compressed at once, each of which takes a thread of the pool.
    pub at_once: Arc<InProgress>,
    /// Compresses content in a coding.
    pub compress: fn(Coding, &[u8]) -> io::Result<Vec<u8>>,
    /// Bounds how many answers are compressed as they are sent, each of which has an encoder.
    pub streams: Arc<InProgress>,
    /// Makes an encoder for one answer with content of this many bytes.
    pub encoder: fn(Coding, u64) -> io::Result<Box<dyn Encoder>>,
}

/// Compresses content as it comes. Each call may take long.
pub trait Encoder: Send {
    /// Takes more content, and appends what is ready of its compressed form to `out`.
    fn push(&mut self, content: &[u8], out: &mut Vec<u8>) -> io::Result<()>;

    /// Appends the rest. Nothing is pushed behind it.
    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()>;
}

/// What a cache makes twins by.
#[derive(Clone, Debug)]
pub(super) struct Making {
    compression: Compression,
    codings: Codings,
    /// The most bytes of a file: what is made of it has room in the cache.
    most_bytes: u64,
}

impl Making {
    pub(super) fn new(compression: Compression, most_bytes: u64) -> Self {
        let mut codings = Codings::default();
        for coding in &compression.codings {
            codings.insert(*coding);
        }

        Self {
            compression,
            codings,
            most_bytes,
        }
    }

    /// Returns the codings in which a file of this type and size can be had.
    pub(super) fn of(&self, content_type: &str, size: u64) -> Codings {
        match size >= self.compression.least_bytes && is_compressible(content_type) {
            true => self.codings,
            false => Codings::default(),
        }
    }

    /// Returns whether what is made of a file of this size is kept.
    pub(super) fn keeps(&self, size: u64) -> bool {
        size <= self.most_bytes
    }

    /// Returns the place and the maker of an encoder, if one more answer may be compressed as it is
    /// sent.
    pub(super) fn stream(&self, coding: Coding, size: u64) -> Option<NewEncoder> {
        let place = self.compression.streams.begin_owned()?;
        let make = self.compression.encoder;
        Some(NewEncoder {
            make,
            coding,
            size,
            _place: place,
        })
    }

    /// Returns what bounds the work.
    pub(super) fn at_once(&self) -> &Arc<InProgress> {
        &self.compression.at_once
    }

    /// Compresses what is sent once, as a stream would be. `None`: it fails, or too many are.
    pub(super) fn compress_once(&self, coding: Coding, content: &[u8]) -> Option<Vec<u8>> {
        let stream = self.stream(coding, content.len() as u64)?;
        let mut encoder = stream.make().ok()?;
        let mut made = Vec::new();
        encoder.push(content, &mut made).ok()?;
        encoder.finish(&mut made).ok()?;
        Some(made)
    }

    pub(super) fn compress(&self, coding: Coding, content: &[u8]) -> io::Result<Vec<u8>> {
        (self.compression.compress)(coding, content)
    }
}

/// An encoder to be, and the right to have one.
pub(super) struct NewEncoder {
    make: fn(Coding, u64) -> io::Result<Box<dyn Encoder>>,
    coding: Coding,
    size: u64,
    _place: Permit<Arc<InProgress>>,
}

impl NewEncoder {
    /// Makes it, for once. May take memory, and long.
    pub(super) fn make(&self) -> io::Result<Box<dyn Encoder>> {
        (self.make)(self.coding, self.size)
    }
}

/// Types of text beside those that begin with `text/`, and others that are not compressed by
/// themselves.
const COMPRESSIBLE: [&str; 16] = [
    "application/javascript",
    "application/json",
    "application/manifest+json",
    "application/rtf",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/svg+xml",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// Returns whether it is worth the while for content of this type, which may have parameters.
fn is_compressible(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || COMPRESSIBLE.contains(&essence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_already_is_not_again() {
        for (content_type, is) in [
            ("text/html; charset=utf-8", true),
            ("application/json", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("image/png", false),
            ("font/woff2", false),
            ("application/zip", false),
            ("application/octet-stream", false),
            ("video/mp2t", false),
        ] {
            assert_eq!(is_compressible(content_type), is, "{content_type}");
        }
    }
}
