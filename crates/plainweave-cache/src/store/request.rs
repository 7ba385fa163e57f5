//! What is asked of the store, and what it answers: plain data.
//!
//! One structure a family of commands holds everything that the classic and the meta protocol can
//! ask; the defaults are what the classic commands mean. Keys are any bytes, 1 to
//! [`super::KEY_MAX`] of them; the parser checks that.

use super::{Expiry, Item};

/// Whether [`super::Store::write`] wants the key to be there already, and what becomes of the old
/// value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Stores in any case.
    #[default]
    Set,
    /// Stores if the key is not there.
    Add,
    /// Stores if the key is there.
    Replace,
    /// Puts the new bytes behind the old ones. Flags and expiry stay as they were.
    Append,
    /// Puts the new bytes before the old ones. Flags and expiry stay as they were.
    Prepend,
}

/// A write: `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Whose value.
    pub key: &'a [u8],
    /// The value, without the line's end.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// When the item ends.
    pub expiry: Expiry,
    /// What must be there.
    pub mode: Mode,
    /// Store only if the item has this CAS value: `cas`, and `C` of `ms`.
    pub compare: Option<u64>,
    /// The CAS value that the item gets, in place of the next one: `E`.
    pub cas: Option<u64>,
    /// With `compare`: if that is *lower* than the item's CAS value, store nonetheless and mark the
    /// item stale; expiry, stale mark and token stay: `I` of `ms`.
    pub stale: bool,
    /// What is joined to a missing item creates it, with this expiry: `N` of `ms`.
    pub vivify: Option<Expiry>,
}

impl<'a> Write<'a> {
    /// Makes a plain `set` without flags or expiry.
    #[must_use]
    pub const fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            key,
            value,
            flags: 0,
            expiry: Expiry::NEVER,
            mode: Mode::Set,
            compare: None,
            cas: None,
            stale: false,
            vivify: None,
        }
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// `STORED`.
    Stored {
        /// The item's new CAS value.
        cas: u64,
        /// Bytes of the item's value now.
        len: usize,
    },
    /// `NOT_STORED`: the mode's condition does not hold, or the value would become too large by
    /// what is joined to it.
    NotStored,
    /// `EXISTS`: the item has another CAS value.
    Exists,
    /// `NOT_FOUND`: a CAS value was given and there is no such item.
    NotFound,
    /// `SERVER_ERROR object too large for cache`. For a plain set, an older value of the key is
    /// gone.
    TooLarge,
    /// `SERVER_ERROR out of memory storing object`. For a plain set, an older value of the key is
    /// gone.
    OutOfMemory,
}

/// A get: `get`, `gets`, `gat`, `gats`, `mg`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lookup {
    /// The item's new expiry: `gat`, `T` of `mg`. An item that this call creates has that of
    /// `vivify`.
    pub touch: Option<Expiry>,
    /// Creates a missing item, empty and with this expiry; its creator holds the token: `N` of
    /// `mg`.
    pub vivify: Option<Expiry>,
    /// The CAS value of an item that it creates, in place of the next one: `E` of `mg`.
    pub cas: Option<u64>,
    /// Hands out the token if the item expires in fewer seconds than this: `R` of `mg`.
    pub recache: Option<u32>,
    /// Has `recache` look at the expiry that `touch` gives instead of the one found: `T` before `R`
    /// of `mg`.
    pub touch_first: bool,
    /// Notes no access, so that the item counts as unread and as old as before: `u` of `mg`.
    pub no_update: bool,
    /// Looks without a trace: no access is noted and no token handed out.
    pub peek: bool,
}

/// A short value, lent by the store.
#[derive(Clone, Copy, Debug)]
pub struct Short<'a> {
    /// The client's flags.
    pub flags: u32,
    /// The CAS value.
    pub cas: u64,
    /// The value.
    pub value: &'a [u8],
}

/// What [`super::Store::read`] has found.
#[derive(Debug)]
pub enum Found {
    /// A value that has been lent.
    Short {
        /// Bytes of the value.
        len: usize,
        /// Bytes that the item takes, as in [`Item::size`].
        size: usize,
    },
    /// A longer one.
    Long(Item),
}

/// What `mg` says beside an item: which client is to fetch it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// `W`: this call has received the token.
    pub won: bool,
    /// `X`: the item is stale.
    pub stale: bool,
    /// `Z`: an earlier call has received the token.
    pub sent: bool,
}

/// An answered get.
#[derive(Debug)]
pub struct Hit {
    /// The item as it was found, or created.
    pub item: Item,
    /// This client is to fetch it again.
    pub token: Token,
    /// The item was not there; this call has created it.
    pub created: bool,
}

/// A removal: `delete`, `md`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Removal {
    /// Remove only if the item has this CAS value.
    pub compare: Option<u64>,
    /// Do not remove the item but its value; flags and expiry become these, and the CAS value stays
    /// unless `cas` or `invalidate` gives it another one: `x` of `md`.
    pub empty: Option<(u32, Expiry)>,
    /// Do not remove the item but mark it stale, take its token back and give it a new CAS value:
    /// `I` of `md`.
    pub invalidate: bool,
    /// With `invalidate`: the item's new expiry.
    pub expiry: Option<Expiry>,
    /// With `invalidate`: the new CAS value, in place of the next one: `E`.
    pub cas: Option<u64>,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// `DELETED`, or invalidated.
    Removed,
    /// `NOT_FOUND`.
    NotFound,
    /// `EXISTS`: the item has another CAS value.
    Exists,
}

/// A count: `incr`, `decr`, `ma`. Counting up wraps at 64 bits, counting down ends at 0.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// By how much.
    pub delta: u64,
    /// Down instead of up.
    pub down: bool,
    /// Creates a missing item with this value and expiry: `J` and `N` of `ma`.
    pub create: Option<(u64, Expiry)>,
    /// The item's new expiry: `T` of `ma`.
    pub touch: Option<Expiry>,
    /// Count only if the item has this CAS value.
    pub compare: Option<u64>,
    /// The CAS value that the item gets, in place of the next one: `E`.
    pub cas: Option<u64>,
}

impl Count {
    /// Makes a plain `incr` by `delta`.
    #[must_use]
    pub const fn up(delta: u64) -> Self {
        Self {
            delta,
            down: false,
            create: None,
            touch: None,
            compare: None,
            cas: None,
        }
    }

    /// Makes a plain `decr` by `delta`.
    #[must_use]
    pub const fn down(delta: u64) -> Self {
        Self {
            down: true,
            ..Self::up(delta)
        }
    }
}

/// What became of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The new value. In the store it is padded with spaces behind if it has become shorter, as
    /// memcached does.
    Value {
        /// The number.
        value: u64,
        /// The item's new CAS value.
        cas: u64,
        /// The item's expiry before [`Count::touch`].
        expiry: Expiry,
        /// The item was not there; this call has created it.
        created: bool,
    },
    /// `CLIENT_ERROR cannot increment or decrement non-numeric value`.
    NotANumber,
    /// `NOT_FOUND`.
    NotFound,
    /// `EXISTS`: the item has another CAS value.
    Exists,
    /// `SERVER_ERROR out of memory`.
    OutOfMemory,
}

/// One line of `lru_crawler metadump`. Valid during the call that it is handed to.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Whose.
    pub key: &'a [u8],
    /// When it ends.
    pub expiry: Expiry,
    /// The last access, or the write.
    pub access: super::Time,
    /// The CAS value.
    pub cas: u64,
    /// Whether it was read since it was written.
    pub fetched: bool,
    /// The size class, as in [`super::Stats::classes`].
    pub class: usize,
    /// Bytes that the item takes: key, value and what the store keeps with them.
    pub size: usize,
    /// The client's flags.
    pub flags: u32,
}
