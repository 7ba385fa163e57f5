//! What a `select!` waits for on a connection that a handler has taken over.

#[cfg(feature = "http2")]
use std::pin::Pin;

#[cfg(feature = "http2")]
use plainweave::sync::select::FutureBranch;
use plainweave::sync::select::{Case, ReadinessBranch, TimerBranch};

/// A read that may find something, as a branch of a `select!`; see
/// [`Upgraded::readable_branch`](super::Upgraded::readable_branch).
#[derive(Debug)]
pub struct Readable<'a>(pub(super) Branch<'a>);

#[derive(Debug)]
pub(crate) enum Branch<'a> {
    Socket(ReadinessBranch<'a>),
    #[cfg(feature = "http2")]
    Stream(FutureBranch<Pin<Box<dyn Future<Output = ()> + 'a>>>),
    Now(TimerBranch),
}

impl Readable<'_> {
    /// Returns it as one of the select's cases.
    #[doc(hidden)]
    pub fn case(&mut self) -> Case<'_> {
        match &mut self.0 {
            Branch::Socket(branch) => branch.case(),
            #[cfg(feature = "http2")]
            Branch::Stream(branch) => branch.case(),
            Branch::Now(branch) => branch.case(),
        }
    }

    /// Returns something if it was chosen.
    #[doc(hidden)]
    pub fn output(self) -> Option<()> {
        match self.0 {
            Branch::Socket(branch) => branch.output(),
            #[cfg(feature = "http2")]
            Branch::Stream(branch) => branch.output(),
            Branch::Now(branch) => branch.output(),
        }
    }
}
