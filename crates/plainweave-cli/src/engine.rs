//! What all servers choose of the runtime, and how they say so in their first line.

use std::fmt;
use std::num::NonZeroUsize;

use anyhow::Context;
use clap::ValueEnum;
use plainweave::Runtime;
use plainweave::policy::Choice;

/// An I/O driver by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Io {
    /// io_uring
    Uring,
    /// epoll
    Epoll,
}

/// A scheduling policy by name, perhaps with parameters; the message tells what is valid.
pub(crate) fn policy(text: &str) -> Result<String, String> {
    Choice::parse(text).map(|_| text.to_owned())
}

/// A runtime as the flags ask for; what they leave open is the runtime's to choose. Fibers share their worker's
/// thread-local storage, for the faster switch: our servers keep the contract that this has.
pub(crate) fn start(
    name: &str,
    workers: Option<NonZeroUsize>,
    io: Option<Io>,
    policy: Option<&str>,
) -> anyhow::Result<Runtime> {
    // SAFETY: the servers' fibers hold no guard of scoped thread-local storage: neither they nor the HTTP library use
    // `tracing`, `scoped-tls` or the like; what `std` and the compressors keep in thread-locals is used within calls
    // that do not suspend.
    let builder = unsafe { Runtime::builder().shared_tls() };
    let mut builder = builder.thread_name(name).io(match io {
        None => plainweave::Io::Auto,
        Some(Io::Uring) => plainweave::Io::Uring,
        Some(Io::Epoll) => plainweave::Io::Epoll,
    });
    if let Some(workers) = workers {
        builder = builder.workers(workers.get());
    }
    if let Some(policy) = policy {
        builder = builder.policy(policy);
    }
    builder.build().context("cannot start the runtime")
}

/// Driver, workers and policy in words.
pub(crate) struct Described<'a>(pub(crate) &'a Runtime);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (driver, workers, policy) = (self.0.driver(), self.0.workers(), self.0.policy());
        write!(f, "driver {driver}, {workers} worker{}, policy {policy}", if workers == 1 { "" } else { "s" })?;
        match self.0.fallback_reason() {
            Some(reason) => write!(f, "; not io_uring: {reason}"),
            None => Ok(()),
        }
    }
}
