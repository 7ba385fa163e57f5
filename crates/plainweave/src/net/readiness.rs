//! Any descriptor that can be polled, waited for as sockets are.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{FileType, fstat};

use crate::io::op::{Interest, readable_or_writable};
use crate::sched::io_call::{Descriptor, wait_ready};
use crate::sched::wait;
use crate::sync::select::ReadinessBranch;

/// A descriptor of any kind that poll(2) knows (a pipe, an eventfd, a timerfd, a pidfd, inotify, a
/// raw socket, a C library's connection), as something that fibers wait for. It holds a duplicate
/// of the descriptor while it exists; the value itself stays accessible.
///
/// It does no I/O. What is called after a wait may still find nothing, if somebody else was faster:
/// so the descriptor should be in non-blocking mode, and [`Self::until_readable`] makes a call again and
/// again, with a wait in between.
///
/// ```
/// use std::fs::File;
/// use std::io::{self, Read};
/// use std::os::fd::OwnedFd;
/// use plainweave::net::Readiness;
/// use rustix::event::{EventfdFlags, eventfd};
///
/// let counter = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
/// plainweave::run(|| -> io::Result<()> {
///     let ready = Readiness::of(File::from(counter))?;
///     let adds = ready.get_ref().try_clone()?;
///     let adding = plainweave::spawn(move || {
///         use std::io::Write;
///         (&adds).write_all(&7u64.to_ne_bytes())
///     });
///     let mut sum = [0; 8];
///     ready.until_readable(|mut counter| counter.read(&mut sum))?;
///     assert_eq!(u64::from_ne_bytes(sum), 7);
///     adding.join().expect("no panic")
/// })
/// # ?; Ok::<(), io::Error>(())
/// ```
pub struct Readiness<T> {
    source: Descriptor,
    inner: T,
}

impl<T: AsFd> Readiness<T> {
    /// Makes a descriptor something that can be waited for. A borrowed one will do.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for what cannot be polled: a regular file, a directory, a
    /// block device. No descriptor is left for the duplicate.
    pub fn of(inner: T) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(&inner)?.st_mode);
        if matches!(
            kind,
            FileType::RegularFile | FileType::Directory | FileType::BlockDevice
        ) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a descriptor of this kind cannot be waited for: {kind:?}"),
            ));
        }
        let source = Descriptor::new(inner.as_fd().try_clone_to_owned()?);
        Ok(Self { source, inner })
    }

    /// Returns the value whose descriptor it is.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the value for changing. Its descriptor should stay what it is: the wait is for the
    /// one that it had.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Waits until a read would not block, for at most `limit`; `None`: for ever.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after `limit`; the caller was cancelled or ran into its
    /// deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait_readable(&self, limit: Option<Duration>) -> io::Result<()> {
        self.wait(Interest::Read, limit)
    }

    /// Waits until a write would not block, for at most `limit`.
    ///
    /// # Errors
    /// As for [`Self::wait_readable`].
    pub fn wait_writable(&self, limit: Option<Duration>) -> io::Result<()> {
        self.wait(Interest::Write, limit)
    }

    /// Waits for an exceptional condition (POLLPRI: urgent data of TCP, a pressure trigger of
    /// psi(7), a change of a file in sysfs), for at most `limit`.
    ///
    /// # Errors
    /// As for [`Self::wait_readable`].
    pub fn wait_priority(&self, limit: Option<Duration>) -> io::Result<()> {
        self.wait(Interest::Priority, limit)
    }

    fn wait(&self, interest: Interest, limit: Option<Duration>) -> io::Result<()> {
        // A driver notes edges since its registration: what came before is seen here.
        if readable_or_writable(self.source.as_fd(), interest) {
            return match wait::interrupted() {
                Some(interrupt) => Err(wait::failed_at_once(interrupt.into())),
                None => Ok(()),
            };
        }
        wait_ready(&self.source, interest, limit)
    }

    /// Calls `f` until it returns something else than [`io::ErrorKind::WouldBlock`] or
    /// [`io::ErrorKind::Interrupted`]; in between it waits until a read would not block.
    ///
    /// # Errors
    /// Those of `f` and of the wait.
    pub fn until_readable<R>(&self, f: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.until(Interest::Read, f)
    }

    /// Does the same for writes.
    ///
    /// # Errors
    /// Those of `f` and of the wait.
    pub fn until_writable<R>(&self, f: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.until(Interest::Write, f)
    }

    fn until<R>(
        &self,
        interest: Interest,
        mut f: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        if let Some(interrupt) = wait::interrupted() {
            return Err(wait::failed_at_once(interrupt.into()));
        }
        loop {
            match f(&self.inner) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(interest, None)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Returns what makes a read possible as a branch of a `select!`: `readable(ready)`.
    #[doc(hidden)]
    pub fn readable_branch(&self) -> ReadinessBranch<'_> {
        ReadinessBranch::new(&self.source, Interest::Read)
    }

    /// Returns what makes a write possible as a branch of a `select!`: `writable(ready)`.
    #[doc(hidden)]
    pub fn writable_branch(&self) -> ReadinessBranch<'_> {
        ReadinessBranch::new(&self.source, Interest::Write)
    }
}

impl<T> AsFd for Readiness<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl<T: fmt::Debug> fmt::Debug for Readiness<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.inner).finish()
    }
}
