//! Compressed twins that stand nowhere: made of a file when they are first asked for, and kept
//! beside it in the cache.
//!
//! A twin belongs to one state of its file, and is made again when that changes; until then a
//! request for it costs what one for any file in memory does. So the work is bounded by how often
//! files change, and where a site has more text than the cache has room for, by
//! [`Compression::at_once`]: who finds no place gets the file as it is. It runs on the pool for
//! blocking work, and one request does it for all that ask meanwhile.
//!
//! *Rejected:* compressing each answer as it is sent. It costs a hundred times what sending does,
//! for each request, and has no length.

use std::io;
use std::sync::Arc;

use plainweave_serve::accept::InProgress;

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
        let fits = size >= self.compression.least_bytes && size <= self.most_bytes;
        match fits && is_compressible(content_type) {
            true => self.codings,
            false => Codings::default(),
        }
    }

    /// Returns what bounds the work.
    pub(super) fn at_once(&self) -> &Arc<InProgress> {
        &self.compression.at_once
    }

    pub(super) fn compress(&self, coding: Coding, content: &[u8]) -> io::Result<Vec<u8>> {
        (self.compression.compress)(coding, content)
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
