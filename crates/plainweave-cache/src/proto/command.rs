//! What a client asks for.

use super::key::Key;
use super::manage::Manage;
use super::meta::Meta;
use super::storage::Store;
use super::tokens::Keys;

/// A command, without the value that may follow it.
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
