//! The static handler: files beneath a directory.
//!
//! GET and HEAD, index files, redirects of directories to their trailing slash, media types,
//! validators, conditional requests and ranges; if wanted, compressed twins of files, listings, a
//! fallback page and error pages. Paths are decoded once and opened beneath the root only (see
//! `open`), which is followed when something else stands at its path (see [`ServedRoot`]); dotfiles
//! are hidden, except `/.well-known`. What is asked for often is answered from memory (see
//! [`Caching`]); what has to come from a disk comes by a [`Blocking`] pool.

mod accept;
mod cache;
mod clock;
mod coding;
mod condition;
mod disk_waits;
mod entry;
mod fields;
mod front;
mod listing;
mod look;
mod open;
mod pages;
mod partial;
mod path;
mod pieces;
mod range;
mod served_root;
mod static_files;
mod variant;

pub use cache::Caching;
pub use disk_waits::DiskWaits;
pub use pages::PAGED;
pub use pieces::{Blocking, Inline};
pub use served_root::ServedRoot;
pub use static_files::StaticFiles;
