//! How any thread interrupts a sleeping worker: by an eventfd that its driver waits on or, when the
//! driver has nothing pending, by a futex, which saves the sleeper two system calls and a pass
//! through the driver. Which of the two, and whether a call is needed at all, is decided by
//! [`WakeFlag`].

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::Timespec;
use rustix::io::Errno;

use crate::atomics::wake_flag::{Call, WakeFlag};
use crate::shim::{futex_wait, futex_wake};

/// Where no worker can be woken from the sleep in its driver.
#[derive(Debug)]
struct Forbidden(Errno);

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "eventfd2(2), by which a sleeping worker is woken, is forbidden here ({}): allow it in the \
             seccomp profile",
            io::Error::from(self.0)
        )
    }
}

impl std::error::Error for Forbidden {}

fn explained(errno: Errno) -> io::Error {
    match errno {
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
            io::Error::new(io::Error::from(errno).kind(), Forbidden(errno))
        }
        other => other.into(),
    }
}

/// Returns whether a driver could not be opened because of that, whichever driver it was.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Forbidden>())
}

/// A non-blocking eventfd, and the flag that saves most calls. The worker's driver waits on it; any
/// thread may wake.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// The eventfd of a worker with a driver; one without only ever dozes.
    fd: Option<OwnedFd>,
    flag: WakeFlag,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(explained)?;
        Ok(Self {
            fd: Some(fd),
            flag: WakeFlag::new(),
        })
    }

    /// Creates one for a worker without a driver: it costs no descriptor.
    pub(crate) fn without_descriptor() -> Self {
        Self {
            fd: None,
            flag: WakeFlag::new(),
        }
    }

    /// Makes the worker return from its sleep, now or at the next one.
    pub(crate) fn wake(&self) {
        match self.flag.raise() {
            Call::None => {}
            Call::Futex => futex_wake(self.flag.futex()),
            Call::Eventfd => {
                // Without one, the worker looks at the flag before it dozes.
                if let Some(fd) = &self.fd {
                    // EAGAIN means the counter is full, so the worker is being woken anyway.
                    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
                }
            }
        }
    }

    /// Sleeps until a wake-up or for `limit`, while the driver has nothing pending. May return
    /// early.
    ///
    /// Context: the worker only.
    pub(crate) fn doze(&self, limit: Option<Duration>) {
        // A limit that does not fit is longer than any run: wait for ever.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        self.flag
            .doze(|pending| futex_wait(pending, 0, limit.as_ref()));
    }

    /// Takes note of a wake-up; called on an edge of the eventfd, before the poller looks for what
    /// it was woken for. The counter stays: the next write is an edge of its own.
    pub(crate) fn acknowledge(&self) {
        self.flag.lower();
    }

    /// Does the same as `acknowledge` and resets the counter, for drivers that look at the counter
    /// and not at edges.
    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(self, &mut count);
        self.acknowledge();
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Of one that has a descriptor: drivers ask, which all have one.
impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("a driver's wake-up").as_fd()
    }
}
