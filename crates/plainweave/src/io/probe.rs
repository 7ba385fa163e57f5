//! Which driver a worker gets: the builder's choice, the environment's, and what the kernel allows.
//!
//! Containers often forbid io_uring (EPERM or ENOSYS from a seccomp filter, or the sysctl `kernel.io_uring_disabled`),
//! and a limit may be in the way (ENOMEM, EMFILE). `Auto` then takes epoll and hands back the reason, for the log and
//! the metrics. Who *forces* a driver wants to know that it is not to be had: that is an error, with the remedy in it.

use std::env;
use std::io;
use std::time::Instant;

use super::driver::{Access, Driver};
use super::epoll::Epoll;
use super::sim::Sim;
use super::uring::Uring;

/// The variable that forces a driver.
pub(crate) const VARIABLE: &str = "PLAINWEAVE_IO";
/// Submission entries of a worker's ring: as many as a worker submits between two polls when it is busy. More
/// operations than this can be in flight.
const ENTRIES: u32 = 256;

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// io_uring if it is to be had, else epoll.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
    /// No kernel: a virtual clock that jumps to the next timer when nothing can run. One worker; sockets are not
    /// simulated yet.
    Sim {
        /// Seeds every draw of the runtime's.
        seed: u64,
    },
}

/// A worker's driver and, if it was not the first choice, why.
pub(crate) type Opened = (Box<dyn Driver>, Option<String>);

impl Choice {
    /// The builder's choice after the environment has had its say: an operator's `PLAINWEAVE_IO` decides where
    /// the program leaves it open. What was asked for by name stays; a value that names no driver is an
    /// error all the same.
    pub(crate) fn or_forced_by_environment(self) -> io::Result<Self> {
        match env::var_os(VARIABLE) {
            Some(value) => self.or_forced_by(&value.to_string_lossy()),
            None => Ok(self),
        }
    }

    pub(crate) fn or_forced_by(self, value: &str) -> io::Result<Self> {
        let forced = match value {
            "" => self,
            "uring" => Choice::Uring,
            "epoll" => Choice::Epoll,
            other => {
                let text = format!("{VARIABLE}={other:?} is no I/O driver; valid values are \"uring\" and \"epoll\"");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        Ok(if self == Choice::Auto { forced } else { self })
    }
}

/// The worker's own thread only. Opens the driver of one worker; `users` will call it.
pub(crate) fn open(choice: Choice, epoch: Instant, worker: usize, access: Access) -> io::Result<Opened> {
    match choice {
        Choice::Epoll => Ok((epoll(epoch, worker)?, None)),
        Choice::Sim { .. } => Ok((Box::new(Sim::new()?), None)),
        Choice::Uring => match Uring::new(epoch, access, ENTRIES) {
            Ok(driver) => Ok((Box::new(driver), None)),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}; {}", reason(&error), remedy(&error)))),
        },
        Choice::Auto => match Uring::new(epoch, access, ENTRIES) {
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
        Some(libc::EPERM | libc::EACCES) => "it is forbidden here, by a seccomp filter or kernel.io_uring_disabled",
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
