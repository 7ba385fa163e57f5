//! What asks the kernel for I/O.

use clap::ValueEnum;

/// An I/O driver of ours, or what a raw loop uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Driver {
    Epoll,
    Uring,
}

impl Driver {
    /// Returns its name, as flags have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        }
    }

    /// Returns why it cannot be measured here.
    pub(crate) fn absence(self) -> Option<&'static str> {
        let ring = || {
            plainweave::Runtime::builder()
                .workers(1)
                .io(plainweave::Io::Uring)
                .build()
        };
        (self == Self::Uring && ring().is_err()).then_some("io_uring is not available here")
    }
}
