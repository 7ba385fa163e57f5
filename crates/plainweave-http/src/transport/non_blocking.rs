//! What HTTP/2 needs of a stream beside what every connection needs: calls that do not wait, and
//! one wait for everything, since a connection that has many requests in progress waits for its
//! peer and for its handlers.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use plainweave::net;
use plainweave::sync::{Receiver, Sender, select};
use rustix::net::SendFlags;

/// Longer waits than this are cut: whoever waits looks around and waits again.
const LONGEST: Duration = Duration::from_secs(3600);

/// A stream that can be used without waiting for it; see
/// [`Transport::non_blocking`](crate::Transport::non_blocking).
pub trait NonBlocking {
    /// Reads what is there; 0 is the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: there is nothing. Any other is the stream's.
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes what there is room for. After [`io::ErrorKind::WouldBlock`] the next call must begin
    /// with the same bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: there is no room. Any other is the stream's.
    fn try_write(&mut self, buf: &[u8]) -> io::Result<usize>;

    /// Does the same for several buffers; the default writes the first that is not empty.
    ///
    /// # Errors
    /// As for [`NonBlocking::try_write`].
    fn try_write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        first.map_or(Ok(0), |buf| self.try_write(buf))
    }

    /// Sends what `try_write` has taken and the stream still holds, as TLS may.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: there is no room for all of it. Any other is the stream's.
    fn push(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Waits until one of the things that `wait` names has come; may return sooner.
    ///
    /// # Errors
    /// The caller was cancelled, or ran into its deadline.
    fn wait(&mut self, wait: &Wait<'_>) -> io::Result<()>;
}

/// What [`NonBlocking::wait`] waits for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Wait<'a> {
    /// That a read finds something.
    pub reads: bool,
    /// That a write finds room.
    pub writes: bool,
    /// A wake-up by another fiber.
    pub wakeups: &'a Wakeups,
    /// The time that has passed.
    pub limit: Duration,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(wakeups: &'a Wakeups, limit: Duration) -> Self {
        Self {
            reads: false,
            writes: false,
            wakeups,
            limit,
        }
    }

    /// Waits for a future that has what a stream offers, and for the rest.
    #[cfg(feature = "http2")]
    pub(crate) fn beside(&self, something: impl Future<Output = ()>) -> io::Result<()> {
        select! {
            future(something) -> () => (),
            recv(self.wakeups.receiver) -> _ => (),
            after(self.limit.min(LONGEST)) => (),
        }
    }
}

/// Wake-ups of a connection by its requests; several are remembered as one.
pub struct Wakeups {
    sender: Sender<()>,
    receiver: Receiver<()>,
}

impl Wakeups {
    pub(crate) fn new() -> Arc<Self> {
        let (sender, receiver) = plainweave::sync::channel::bounded(1);
        Arc::new(Self { sender, receiver })
    }

    /// Waits for a wake-up, for at most `limit`. For streams that have nothing else to wait for.
    ///
    /// # Errors
    /// The caller was cancelled, or ran into its deadline.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        select! {
            recv(self.receiver) -> _ => (),
            after(limit.min(LONGEST)) => (),
        }
    }

    /// Returns whether there was a wake-up since the last call or wait.
    pub(crate) fn take(&self) -> bool {
        self.receiver.try_recv().is_ok()
    }
}

impl Wake for Wakeups {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Full: it is awake already.
        let _ = self.sender.try_send(());
    }
}

impl fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeups")
            .field("woken", &!self.receiver.is_empty())
            .finish()
    }
}

/// Implements [`NonBlocking`] for a socket of `plainweave`.
macro_rules! fibers {
    ($stream:ty) => {
        impl NonBlocking for $stream {
            fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                Self::try_read(self, buf)
            }

            fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
                try_write(self, buf)
            }

            fn wait(&mut self, wait: &Wait<'_>) -> io::Result<()> {
                select! {
                    readable(self), if wait.reads => (),
                    writable(self), if wait.writes => (),
                    recv(wait.wakeups.receiver) -> _ => (),
                    after(wait.limit.min(LONGEST)) => (),
                }
            }
        }
    };
}

fibers!(net::TcpStream);
fibers!(net::UnixStream);

fn try_write(socket: &impl AsFd, buf: &[u8]) -> io::Result<usize> {
    retried(|| rustix::net::send(socket, buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
}

fn retried(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}
