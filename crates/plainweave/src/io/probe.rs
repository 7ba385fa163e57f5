//! Choosing a worker's driver: by the builder's setting, the environment, and what the kernel
//! allows.
//!
//! Containers often forbid io_uring (EPERM or ENOSYS from a seccomp filter, or the sysctl
//! `kernel.io_uring_disabled`), and a limit may be exhausted (ENOMEM, EMFILE). `Auto` then takes
//! epoll and returns the reason, for the log and the metrics. Requesting a driver by name fails if
//! it is unavailable; the error names the remedy.

use std::env;
use std::io;
use std::time::Instant;

use super::driver::{Access, Driver};
use super::epoll::Epoll;
use super::eventfd;
use super::sim::{Held, Sim};
use super::uring::Uring;

/// The environment variable that forces a driver.
pub(crate) const VARIABLE: &str = "PLAINWEAVE_IO";
/// Submission entries of a worker's ring: as many as a busy worker submits between two polls. More
/// operations than this can be in flight.
const ENTRIES: u32 = 256;

/// The I/O driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring if it is available, else epoll.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
    /// No kernel: a virtual clock that jumps to the next timer when nothing can run. One worker;
    /// sockets are not simulated yet.
    Sim {
        /// Seeds every random draw of the runtime.
        seed: u64,
    },
}

/// A worker's driver and, if it was not the first choice, the reason.
pub(crate) type Opened = (Box<dyn Driver>, Option<String>);

impl Io {
    /// Applies the environment to the builder's choice: `PLAINWEAVE_IO` decides where the program
    /// leaves the driver open (`Auto`). A driver that the program names stays. A value that names
    /// no driver is an error in either case.
    pub(crate) fn or_forced_by_environment(self) -> io::Result<Self> {
        match env::var_os(VARIABLE) {
            Some(value) => self.or_forced_by(&value.to_string_lossy()),
            None => Ok(self),
        }
    }

    pub(crate) fn or_forced_by(self, value: &str) -> io::Result<Self> {
        let forced = match value {
            "" => self,
            "uring" => Io::Uring,
            "epoll" => Io::Epoll,
            other => {
                let text = format!(
                    "{VARIABLE}={other:?} is not an I/O driver; valid values: \"uring\", \"epoll\""
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        Ok(if self == Io::Auto { forced } else { self })
    }
}

/// Opens the driver of one worker; `access` says which threads will call it, `held` what a virtual
/// clock stands for.
///
/// Context: the worker's own thread only.
pub(crate) fn open(
    choice: Io,
    epoch: Instant,
    worker: usize,
    access: Access,
    held: Held,
) -> io::Result<Opened> {
    match choice {
        Io::Epoll => Ok((epoll(epoch, worker)?, None)),
        Io::Sim { .. } => Ok((Box::new(Sim::new(held)?), None)),
        Io::Uring => match Uring::new(epoch, worker, access, ENTRIES) {
            Ok(driver) => Ok((Box::new(driver), None)),
            // No driver does without it, and the error says what to do.
            Err(error) if eventfd::is_forbidden(&error) => Err(error),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("{}; {}", reason(&error), remedy(&error)),
            )),
        },
        Io::Auto => match Uring::new(epoch, worker, access, ENTRIES) {
            Ok(driver) => Ok((Box::new(driver), None)),
            Err(error) => Ok((epoll(epoch, worker)?, Some(reason(&error)))),
        },
    }
}

fn epoll(epoch: Instant, worker: usize) -> io::Result<Box<dyn Driver>> {
    Ok(Box::new(Epoll::new(epoch, worker)?))
}

fn reason(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "it is forbidden here, by a seccomp filter or kernel.io_uring_disabled"
        }
        Some(libc::ENOSYS) => "the kernel, or a seccomp filter, does not have it",
        Some(libc::ENOMEM) => "it may not lock the memory for its queues",
        Some(libc::EMFILE | libc::ENFILE) => "too many descriptors are open",
        _ => return format!("io_uring is not available: {error}"),
    };
    format!("io_uring is not available: {why} ({error})")
}

fn remedy(error: &io::Error) -> String {
    let first = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile, \
             set the sysctl kernel.io_uring_disabled to 0"
        }
        Some(libc::ENOMEM) => "raise the limit on locked memory (ulimit -l)",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit on open files (ulimit -n)",
        _ => "use Linux 5.11 or later",
    };
    format!("{first}, or choose the epoll driver ({VARIABLE}=epoll)")
}
