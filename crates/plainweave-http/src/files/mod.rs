//! The static handler: files beneath a directory.
//!
//! GET and HEAD, index files, redirects of directories to their trailing slash, media types,
//! validators, conditional requests and ranges; if wanted, compression, compressed twins of files,
//! clean URLs, listings, a fallback page and error pages. Paths are decoded once and opened beneath
//! the root only (see `open`), which is followed when something else stands at its path (see
//! [`ServedRoot`]); dotfiles are hidden, except `/.well-known`. What is asked for often is answered
//! from memory (see [`Caching`]); what has to come from a disk comes by a [`Blocking`] pool.

mod accept; // What a client would rather have.
mod cache; // What was found behind recently asked paths.
mod clock; // The clock of the files' caches.
mod coding; // Content codings in which a file can be had, and the choice among them, sans I/O.
mod compress; // Compressed twins that stand nowhere.
// Validators of a file, and the preconditions that a request sets on them (RFC 9110, 8.8 and 13).
mod condition;
mod disk_waits; // Responses that wait for a disk.
mod entry; // An entry of the cache.
mod fields; // Which of a request's fields the file handler has to look at, found in one pass.
// Copies of small entries that a processor's requests ask for often, so that processors which serve
// the same files write to no memory of each other's: neither the lock of a shard, nor the counts of
// those who refer to an entry, to its header lines and to its content.
mod front;
mod listing; // Listings of directories.
mod look; // A look at what stands behind a name.
// Opens files beneath a root directory, and nothing else, whatever links and renames happen
// meanwhile.
mod open;
mod pages; // What is sent instead of a plain 404.
mod partial; // Answers with parts of a file.
mod path; // From a request's path to the name of a file beneath the root.
mod pieces; // Files, read in pieces.
mod range; // Byte ranges of a request (RFC 9110, 14.1.2 and 14.2), sans I/O.
mod served_root; // The directory that is served, found by its path.
mod static_files; // The handler that serves a directory.
mod streamed; // Answers that are compressed as they are sent.
mod variant; // Which representation of a file a request gets.

pub use cache::Caching;
pub use coding::Coding;
pub use compress::{Compression, Encoder};
pub use disk_waits::DiskWaits;
pub use pages::PAGED;
pub use path::{decoded, push_encoded};
pub use pieces::{Blocking, Inline};
pub use served_root::ServedRoot;
pub use static_files::{Passed, StaticFiles};
