//! The fuzz targets without a fuzzer: the corpus as it stands, and mutations of it by a fixed seed.

use std::path::PathBuf;

use super::{configuration, paths};

#[path = "../../../plainweave-http/fuzz/mutations.rs"]
mod mutations;

use mutations::{FuzzTarget, assert_complete, assert_corpora, mutations};

const TARGETS: [FuzzTarget; 2] = [
    FuzzTarget {
        name: "configuration",
        holds: configuration,
        // The flags' parser looks at each setting.
        cost: 10,
        pieces: &[
            b"\n",
            b"\"",
            b" = ",
            b"[[site]]\n",
            b"[[rule]]\n",
            b"[[site.rule]]\n",
            b"{",
            b"}",
            b"[",
            b"]",
            b"true",
            b"root = \"www\"\n",
            b"path = \"/**\"\n",
            b"\xc3\xa4",
            b"# ",
            b"\"\"\"",
            b"regex = \"",
            b"redirect = \"/$1\"\n",
            b"rate = { requests = 1 }\n",
        ],
    },
    FuzzTarget {
        name: "paths",
        holds: paths,
        cost: 5,
        pieces: &[
            b"\n",
            b"\n\n",
            b"/",
            b"**",
            b"*",
            b"?",
            b"[a-z]",
            b"{a,b}",
            b"~",
            b"(",
            b")",
            b"$1",
            b"$path",
            b" /",
            b"%2f",
            b"%61",
            b"..",
            b"//",
            b"\\",
            b"\xc3\xa4",
            b".*",
        ],
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
