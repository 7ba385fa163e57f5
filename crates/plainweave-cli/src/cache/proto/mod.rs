//! memcached's text protocol without I/O: a line of bytes becomes a [`Command`] or a [`Reject`].
//!
//! The reference is memcached 1.6.18, down to the words of its errors and the order of its checks: clients match them.
//! A command that carries a value says how long it is; who calls reads so many bytes and two more for the line end. A
//! rejected command says how many bytes that follow it are its value, and are to be dropped unread.

pub(crate) mod base64;
mod classic;
mod line;
mod manage;
mod meta;
pub(crate) mod number;
mod tokens;

pub(crate) use classic::parse;
pub(crate) use line::{LONG, Line, take};
pub(crate) use manage::Manage;
pub(crate) use meta::Meta;
pub(crate) use tokens::{Keys, Tokens};

/// Longest key, in bytes.
pub(crate) const KEY_BYTES: usize = 250;

pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(crate) const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
pub(crate) const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";

/// What a client asks for.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    /// Values of some keys, with their CAS numbers or not; `touch`: set this expiry too.
    Get {
        keys: Keys<'a>,
        cas: bool,
        touch: Option<i32>,
    },
    /// A value follows.
    Store(Store<'a>),
    Delete {
        key: &'a [u8],
        quiet: bool,
    },
    /// Adds or subtracts.
    Count {
        key: &'a [u8],
        up: bool,
        delta: u64,
        quiet: bool,
    },
    Touch {
        key: &'a [u8],
        exptime: i32,
        quiet: bool,
    },
    MetaGet(Meta<'a>),
    /// A value follows.
    MetaStore(Meta<'a>, usize),
    MetaDelete(Meta<'a>),
    MetaCount(Meta<'a>),
    /// What is known of an item.
    MetaDebug {
        key: Key<'a>,
    },
    MetaNothing,
    /// About the server rather than an item.
    Manage(Manage<'a>),
}

/// The head of a storage command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store<'a> {
    pub(crate) verb: Verb,
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) exptime: i32,
    /// Bytes of the value, without its line end.
    pub(crate) len: usize,
    /// For [`Verb::Cas`].
    pub(crate) cas: u64,
    pub(crate) quiet: bool,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// A command that is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reject {
    /// The answer; empty: close the connection without one.
    pub(crate) text: &'static str,
    /// Bytes that follow and belong to it.
    pub(crate) swallow: usize,
    /// The client wants no answer.
    pub(crate) quiet: bool,
}

impl Reject {
    pub(crate) fn of(text: &'static str) -> Self {
        Self { text, swallow: 0, quiet: false }
    }

    pub(crate) fn quiet(self, quiet: bool) -> Self {
        Self { quiet, ..self }
    }
}

/// A key, as it came or decoded from base64.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key<'a> {
    Plain(&'a [u8]),
    /// Decoded bytes and their number: base64 of at most 250 characters.
    Binary([u8; KEY_BYTES / 4 * 3 + 3], usize),
}

impl<'a> Key<'a> {
    fn decode(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; KEY_BYTES / 4 * 3 + 3];
        base64::decode(text, &mut bytes).map(|len| Key::Binary(bytes, len))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Key::Plain(bytes) => bytes,
            Key::Binary(bytes, len) => &bytes[..*len],
        }
    }

    pub(crate) fn is_binary(&self) -> bool {
        matches!(self, Key::Binary(..))
    }
}
