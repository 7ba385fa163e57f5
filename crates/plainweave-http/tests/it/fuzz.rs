//! The fuzz targets without a fuzzer: the corpus as it stands, and mutations of it by a fixed seed.

use std::path::PathBuf;

#[path = "../../fuzz/entry.rs"]
mod entry;
#[path = "../../fuzz/mutations.rs"]
mod mutations;

use mutations::{FuzzTarget, assert_complete, assert_corpora, mutations};

/// Pieces that parsers take for something.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b":",
    b" ",
    b"\0",
    b"0\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"HTTP/1.1",
    b"chunked",
    b"Transfer-Encoding: chunked\r\n",
    b"ffffffffffffffff",
];

const fn target(name: &'static str, holds: fn(&[u8])) -> FuzzTarget {
    FuzzTarget {
        name,
        holds,
        cost: 1,
        pieces: PIECES,
    }
}

const TARGETS: [FuzzTarget; 6] = [
    target("request", entry::request),
    target("chunked", entry::chunked),
    target("response", entry::response),
    target("proxy", entry::proxy),
    target("http2", entry::http2),
    FuzzTarget {
        // Most of them compute a signature.
        cost: 20,
        ..target("tls", entry::tls)
    },
];

fn fuzz() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz").into()
}

#[test]
fn the_corpus_holds() {
    assert_corpora(&fuzz(), &TARGETS);
}

#[test]
fn every_target_is_here() {
    assert_complete(&fuzz(), &TARGETS);
}

#[test]
fn mutations_of_the_corpus_hold() {
    TARGETS.iter().for_each(|target| mutations(&fuzz(), target));
}
