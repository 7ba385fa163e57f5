//! memcached's protocols without I/O: a line of bytes becomes a [`Command`] or a [`Reject`], and the
//! head of a packet a [`BinaryRequest`].
//!
//! The reference is memcached 1.6.18, down to the words of its errors and the order of its checks:
//! clients match them. A command that carries a value says how long it is; the caller reads that
//! many bytes, and two for the line end. A rejected command says how many bytes that follow it are
//! its value, and are to be dropped unread.

pub(crate) mod base64; // Base64 for binary keys, as lenient as memcached's decoder.
mod binary; // The binary protocol: packets in place of lines.
mod classic; // The classic commands.
mod command; // What a client asks for.
mod key; // Keys, plain or in base64.
mod line; // Where a line ends.
mod manage; // Commands about the server rather than an item.
mod meta; // The meta commands: a key and flags of one letter, some with an argument.
mod protocol; // Which protocol a client speaks.
mod reject; // Commands that are not carried out, in memcached's words.
mod storage; // The head of a storage command: what is to become of the value that follows it.
mod tokens; // A command line, cut at blanks.

pub(crate) use binary::{
    BinaryCommand, BinaryHead, BinaryRequest, HEAD, MECHANISM, PROOF, Parts, Status, keys,
};
pub(crate) use classic::parse;
pub(crate) use command::Command;
pub(crate) use key::Key;
pub(crate) use line::{LONG, Line, MAX, take};
pub(crate) use manage::{Listing, Manage};
pub(crate) use meta::Meta;
pub(crate) use protocol::Protocol;
pub(crate) use reject::{BAD_CHUNK, BAD_FORMAT, Reject};
pub(crate) use storage::{Store, Verb};
pub(crate) use tokens::{Keys, Tokens};
