//! Signals that fibers and threads can wait for.

#![expect(unsafe_code, reason = "hands a buffer to `sched/io_call`")]

mod branch; // A signal as a branch of a select.
mod hold; // The default action of a signal that nobody catches any more.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use signal_hook::low_level::{pipe, unregister};
use signal_hook::{SigId, consts};

use crate::io::op::Op;
use crate::sched::io_call::{Descriptor, perform};
pub use branch::SignalBranch;
use hold::Hold;

/// "Terminate", as `kill` sends it.
pub const SIGTERM: i32 = consts::SIGTERM;
/// "Interrupt", as Ctrl-C sends it.
pub const SIGINT: i32 = consts::SIGINT;
/// "Hang up", by convention "reload".
pub const SIGHUP: i32 = consts::SIGHUP;
/// "Quit", as Ctrl-\ sends it, by convention "say what you are doing".
pub const SIGQUIT: i32 = consts::SIGQUIT;
/// A child process has ended or stopped.
pub const SIGCHLD: i32 = consts::SIGCHLD;
/// The terminal has another size.
pub const SIGWINCH: i32 = consts::SIGWINCH;
/// The process goes on after a stop.
pub const SIGCONT: i32 = consts::SIGCONT;
/// "Stop", as Ctrl-Z sends it.
pub const SIGTSTP: i32 = consts::SIGTSTP;
/// A timer of alarm(2) or setitimer(2) has run out.
pub const SIGALRM: i32 = consts::SIGALRM;
/// A pipe or socket was written to that nobody reads any more. Rust's runtime ignores it from the
/// start.
pub const SIGPIPE: i32 = consts::SIGPIPE;
/// Free for the application.
pub const SIGUSR1: i32 = consts::SIGUSR1;
/// Free for the application.
pub const SIGUSR2: i32 = consts::SIGUSR2;

/// Catches signals while it exists; their default actions do not take place. When the last that
/// catches a signal is dropped, the signal does what it did before the first: by default SIGTERM
/// ends the process again. (A user of `signal-hook` that begins to handle the same signal later
/// does not change that.)
///
/// ```
/// use plainweave::signal::{SIGINT, SIGTERM, Signals};
///
/// plainweave::run(|| {
///     let signals = Signals::new([SIGINT, SIGTERM]).unwrap();
///     # rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
///     assert_eq!(signals.wait().unwrap(), SIGTERM);
/// });
/// ```
#[derive(Debug)]
pub struct Signals {
    caught: Vec<Caught>,
    bell: Mutex<()>,
    pipe: Descriptor,
}

#[derive(Debug)]
struct Caught {
    signal: i32,
    _hold: Hold,
    ids: [SigId; 2],
    pipe: Descriptor,
}

impl Signals {
    /// Starts to catch these signals.
    ///
    /// # Errors
    /// A signal cannot be caught, or no descriptor is left.
    pub fn new(signals: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        let (bell, rung) = nonblocking_pair()?;
        let mut this = Self {
            caught: Vec::new(),
            bell: Mutex::new(()),
            pipe: Descriptor::new(rung),
        };

        for signal in signals {
            if consts::FORBIDDEN.contains(&signal) {
                let message = format!("signal {signal} cannot be caught");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }

            let hold = Hold::take(signal)?;
            let (write, read) = nonblocking_pair()?;
            // The signal's own pipe tells which signal it was; the common one wakes a waiter.
            let own = pipe::register(signal, write)?;
            let common = pipe::register(signal, bell.try_clone()?).inspect_err(|_| {
                unregister(own);
            })?;
            this.caught.push(Caught {
                signal,
                _hold: hold,
                ids: [own, common],
                pipe: Descriptor::new(read),
            });
        }

        Ok(this)
    }

    /// Waits for one of the signals and returns its number; several of one kind that come together
    /// count once.
    ///
    /// # Errors
    /// The caller was cancelled or ran into its deadline.
    pub fn wait(&self) -> io::Result<i32> {
        self.wait_for(None)
    }

    /// Waits like [`Signals::wait`], for at most `limit`.
    ///
    /// # Errors
    /// As for `wait`; [`io::ErrorKind::TimedOut`] after `limit`.
    pub fn wait_timeout(&self, limit: Duration) -> io::Result<i32> {
        self.wait_for(Some(limit))
    }

    fn wait_for(&self, limit: Option<Duration>) -> io::Result<i32> {
        loop {
            if let Some(signal) = self.pending() {
                return Ok(signal);
            }
            // One byte, one signal, one waiter: the remaining bytes in the common pipe are for
            // other waiters.
            let mut buf = [0u8; 1];
            let op = Op::Recv {
                buf: buf.as_mut_ptr(),
                len: buf.len(),
            };

            // SAFETY: `perform` does not return while the kernel may write to the buffer.
            unsafe { perform(&self.pipe, op, limit) }?;
        }
    }

    /// Returns the number of a signal if one has come. Like a waiter it takes a byte before it
    /// looks: to poll for another byte, with one left here, would not wait.
    pub(crate) fn try_wait(&self) -> Option<i32> {
        while matches!(rustix::io::read(&self.pipe, &mut [0_u8; 1]), Ok(1)) {
            if let Some(signal) = self.pending() {
                return Some(signal);
            }
        }
        None
    }

    /// Returns what becomes readable when a signal comes.
    pub(crate) fn pipe(&self) -> &Descriptor {
        &self.pipe
    }

    /// Returns the signals as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&self) -> SignalBranch<'_> {
        SignalBranch::new(self)
    }

    fn pending(&self) -> Option<i32> {
        let _one = self.bell.lock().unwrap_or_else(|e| e.into_inner());
        self.caught
            .iter()
            .find(|c| drain(&c.pipe))
            .map(|c| c.signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.caught.iter().flat_map(|c| c.ids) {
            unregister(id);
        }
    }
}

fn nonblocking_pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (write, read) = UnixStream::pair()?;
    write.set_nonblocking(true)?;
    read.set_nonblocking(true)?;
    Ok((write, read.into()))
}

/// Empties a pipe. Returns whether there was anything in it.
fn drain(pipe: &Descriptor) -> bool {
    let mut some = false;
    let mut buf = [0u8; 64];
    while matches!(rustix::io::read(pipe, &mut buf), Ok(1..)) {
        some = true;
    }
    some
}
