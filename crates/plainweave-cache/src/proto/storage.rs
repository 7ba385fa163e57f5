//! The head of a storage command: what is to become of the value that follows it.

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

/// Returns the length of a value, unless it is negative, or overflows 31 bits with its line end.
pub(super) fn value_len(len: i32) -> Option<usize> {
    usize::try_from(len)
        .ok()
        .filter(|len| *len <= i32::MAX as usize - 2)
}
