//! The two halves of a connection that a handler has taken over: one fiber reads while another
//! writes.
//!
//! # Why it is hard
//! Below may be one socket or a TLS connection, whose reads may have to write and whose state is
//! one. So the stream is used by one half at a time, and must not be held while that half waits:
//! else the other waited as long.
//!
//! # Protocol
//! Calls do not wait ([`NonBlocking`]). A half that finds nothing, or no room, waits *with* the
//! stream ([`NonBlocking::wait`]), for the other half too if that is aside.
//!
//! 1. [`Duplex::take`]: a half that has a call to make counts itself as a caller, wakes the other
//!    one if that waits with the stream, and locks it.
//! 2. It makes its call. If that is done, the half unlocks the stream, wakes the other one if that
//!    is aside, and returns.
//! 3. Otherwise it waits with the stream, for what it needs and for what the other one needs that
//!    is aside.
//! 4. If it finds a caller then, it goes aside: it unlocks the stream, and sleeps until the other
//!    one wakes it (2 or 5, or when it gives up).
//! 5. Else something has come, or its time is over: it wakes the one aside, which is not waited for
//!    any more, and starts again.
//!
//! # Why nobody waits for ever
//! Of two halves that wait, one has the stream and waits for both; the one aside is woken when that
//! one goes on, for whatever reason. A half goes aside only for a caller, who has the stream next,
//! and wakes it afterwards or waits for it. The wake-up may come before the sleep: it is kept
//! (`Notify`).
//!
//! # Why they do not chase each other
//! A half interrupts another only with a call of its own to make, once for each call and each time
//! that it is woken; whoever is interrupted goes aside, and does not try again.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant};

use plainweave::sync::{Mutex, MutexGuard, Notify};
use plainweave::time::{now, with_timeout};

use super::raw::{Raw, timed_out, unsupported};
use crate::transport::non_blocking::{NonBlocking, Wait, Wakeups};

/// The half that reads; see [`Upgraded::split`](super::Upgraded::split). A read that outlasts its
/// timeout fails with [`io::ErrorKind::TimedOut`] and may be repeated.
pub struct ReadHalf<'a> {
    duplex: Arc<Duplex<'a>>,
    early: &'a [u8],
    timeout: Duration,
}

/// The half that writes; see [`Upgraded::split`](super::Upgraded::split). What a write has taken is
/// sent by [`flush`](Write::flush) at the latest. A write that outlasts its timeout fails with
/// [`io::ErrorKind::TimedOut`] and may be repeated.
pub struct WriteHalf<'a> {
    duplex: Arc<Duplex<'a>>,
    timeout: Duration,
}

/// What the halves share.
struct Duplex<'a> {
    stream: Mutex<&'a mut dyn Raw>,
    /// Wakes whoever waits with the stream.
    wakeups: Arc<Wakeups>,
    /// Halves that have a call to make.
    callers: AtomicUsize,
    /// Whether one waits with the stream.
    is_waited_with: AtomicBool,
    aside: [Aside; 2],
}

#[derive(Clone, Copy)]
enum Half {
    Reads = 0,
    Writes = 1,
}

impl Half {
    fn other(self) -> Self {
        match self {
            Self::Reads => Self::Writes,
            Self::Writes => Self::Reads,
        }
    }
}

/// A half that waits for its turn.
#[derive(Default)]
struct Aside {
    is_there: AtomicBool,
    turn: Notify,
}

/// Splits a stream; `early` is what a read finds first.
pub(super) fn split<'a>(
    stream: &'a mut dyn Raw,
    early: &'a [u8],
    (read_timeout, write_timeout): (Duration, Duration),
) -> io::Result<(ReadHalf<'a>, WriteHalf<'a>)> {
    if stream.non_blocking().is_none() {
        return Err(unsupported());
    }
    let duplex = Arc::new(Duplex {
        stream: Mutex::new(stream),
        wakeups: Wakeups::new(),
        callers: AtomicUsize::new(0),
        is_waited_with: AtomicBool::new(false),
        aside: Default::default(),
    });

    let writer = WriteHalf {
        duplex: duplex.clone(),
        timeout: write_timeout,
    };

    Ok((
        ReadHalf {
            duplex,
            early,
            timeout: read_timeout,
        },
        writer,
    ))
}

impl<'a> Duplex<'a> {
    /// Performs step 1. Fails if the caller is cancelled, or its deadline has come.
    fn take(&self, me: Half) -> io::Result<MutexGuard<'_, &'a mut dyn Raw>> {
        self.callers.fetch_add(1, Ordering::SeqCst);
        // Counted before this is read; whoever waits says so before it looks for callers.
        if self.is_waited_with.load(Ordering::SeqCst) {
            self.wakeups.wake_by_ref();
        }
        let stream = self.stream.lock();
        self.callers.fetch_sub(1, Ordering::SeqCst);
        if stream.is_err() {
            // The other one may have gone aside for this one.
            self.wake_other(me);
        }
        stream
    }

    /// Goes aside, if there is a caller, and returns whether it has.
    ///
    /// Context: the half that has the stream, so no caller gets it meanwhile; but one may give up.
    fn goes_aside(&self, me: Half) -> bool {
        if self.callers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let aside = &self.aside[me as usize].is_there;
        aside.store(true, Ordering::SeqCst);

        // A caller that gives up looks here after it is no caller any more.
        self.callers.load(Ordering::SeqCst) > 0 || !aside.swap(false, Ordering::SeqCst)
    }

    /// Makes a call that does not wait, as often as it takes, for at most `limit`.
    fn call<R>(
        &self,
        me: Half,
        limit: Duration,
        mut attempt: impl FnMut(&mut dyn NonBlocking) -> io::Result<R>,
    ) -> io::Result<R> {
        let deadline = now().checked_add(limit);
        loop {
            let mut stream = self.take(me)?;
            let done = self.attempt_or_wait(me, &mut stream, deadline, &mut attempt);
            // Before the stream is free: whoever has it next sees it.
            let goes_aside = done.is_none() && self.goes_aside(me);
            drop(stream);
            if !goes_aside {
                self.wake_other(me);
            }
            if let Some(done) = done {
                return done;
            }

            if goes_aside {
                let waited = with_timeout(left(deadline).unwrap_or_default(), || {
                    self.aside[me as usize].turn.wait()
                });
                self.aside[me as usize]
                    .is_there
                    .store(false, Ordering::SeqCst);
                waited?;
            }
        }
    }

    /// Performs steps 2 and 3. `None`: something may have come, or the other half wants the stream.
    fn attempt_or_wait<R>(
        &self,
        me: Half,
        stream: &mut MutexGuard<'_, &'a mut dyn Raw>,
        deadline: Option<Instant>,
        attempt: &mut impl FnMut(&mut dyn NonBlocking) -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        let Some(stream) = stream.non_blocking() else {
            return Some(Err(unsupported()));
        };
        match attempt(stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return None,
            done => return Some(done),
        }

        let Some(left) = left(deadline) else {
            return Some(Err(io::ErrorKind::TimedOut.into()));
        };
        let other_waits = self.aside[me.other() as usize]
            .is_there
            .load(Ordering::SeqCst);
        let mut wait = Wait::new(&self.wakeups, left);
        wait.reads = matches!(me, Half::Reads) || other_waits;
        wait.writes = matches!(me, Half::Writes) || other_waits;
        self.is_waited_with.store(true, Ordering::SeqCst);
        let waited = if self.callers.load(Ordering::SeqCst) > 0 {
            Ok(())
        } else {
            stream.wait(&wait)
        };

        self.is_waited_with.store(false, Ordering::SeqCst);
        // One that has come too late would end the next wait.
        self.wakeups.take();
        waited.err().map(Err)
    }

    fn wake_other(&self, me: Half) {
        let other = &self.aside[me.other() as usize];
        // From here on nobody waits for it: what it needs may be there for long before it runs.
        if other.is_there.swap(false, Ordering::SeqCst) {
            other.turn.notify_one();
        }
    }
}

/// Returns how much time is left; `None` if it is over.
fn left(deadline: Option<Instant>) -> Option<Duration> {
    let Some(deadline) = deadline else {
        return Some(Duration::MAX);
    };
    Some(deadline.saturating_duration_since(now())).filter(|left| !left.is_zero())
}

impl ReadHalf<'_> {
    /// Bounds every following read.
    pub fn set_read_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}

impl Read for ReadHalf<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.early.is_empty() {
            return self.early.read(buf);
        }
        self.duplex
            .call(Half::Reads, self.timeout, |stream| stream.try_read(buf))
    }
}

impl WriteHalf<'_> {
    /// Bounds every following write.
    pub fn set_write_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends what was written and ends our direction; the peer reads all of it, then the end of the
    /// stream.
    ///
    /// # Errors
    /// The transport's.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        self.flush()?;
        let ended = self.duplex.take(Half::Writes)?.shutdown_write();
        self.duplex.wake_other(Half::Writes);
        ended.map_err(timed_out)
    }
}

impl Write for WriteHalf<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.duplex
            .call(Half::Writes, self.timeout, |stream| stream.try_write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.duplex
            .call(Half::Writes, self.timeout, |stream| stream.push())
    }
}

impl fmt::Debug for ReadHalf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadHalf")
            .field("early", &self.early.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WriteHalf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteHalf").finish_non_exhaustive()
    }
}
