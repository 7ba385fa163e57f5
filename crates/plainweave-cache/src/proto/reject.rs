//! Commands that are not carried out, in memcached's words.

pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(crate) const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
pub(crate) const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
/// No such command, or the wrong number of words.
pub(super) const ERROR: Reject = Reject {
    text: "ERROR",
    swallow: 0,
    quiet: false,
};

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
        Self {
            text,
            swallow: 0,
            quiet: false,
        }
    }

    pub(crate) fn quiet(self, quiet: bool) -> Self {
        Self { quiet, ..self }
    }
}
