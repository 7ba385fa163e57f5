//! Child processes in the shape of `std::process`: a wait for one suspends the fiber.
//!
//! A child is waited for by its pidfd (Linux 5.3), like any other descriptor, so cancellation,
//! deadlines and `select!` work as for a socket. Its standard streams are pipes that do not hold up
//! a worker. To start one is a call of `std`, which takes half a millisecond and holds up the
//! worker that long.
//!
//! # No zombies
//! A [`Child`] that is dropped before it has ended goes on, as with `std`, but a fiber stays behind
//! that waits for it, so that the kernel can forget it. [`Command::kill_on_drop`] kills it first.
//! Without a runtime, on a plain thread, there is nobody to wait, as with `std`.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::io::op::Interest;
use crate::pipe::{PipeReader, PipeWriter, read_both};
use crate::sched::io_call::{Descriptor, wait_ready};
use crate::sched::pool;
use crate::sync::select::ReadinessBranch;
use crate::time;

/// A process to be started, in the shape of [`std::process::Command`].
///
/// ```
/// use plainweave::process::Command;
///
/// plainweave::run(|| {
///     let output = Command::new("echo").arg("hello").output().unwrap();
///     assert!(output.status.success() && output.stdout == b"hello\n");
/// });
/// ```
#[derive(Debug)]
pub struct Command {
    inner: process::Command,
    /// Which of its streams have been set: input, output, errors.
    set: [bool; 3],
    kill_on_drop: bool,
}

impl From<process::Command> for Command {
    /// Takes over a command. Whether its streams have been set is not known here: [`Self::output`]
    /// sets those that this type's methods have not.
    fn from(inner: process::Command) -> Self {
        Self {
            inner,
            set: [false; 3],
            kill_on_drop: false,
        }
    }
}

impl Command {
    /// Begins a command that runs `program`, which is looked for in `PATH` unless it has a slash.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        process::Command::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = S>) -> &mut Self {
        self.inner.args(args);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env(key, value);
        self
    }

    /// Removes a variable from its environment.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env_remove(key);
        self
    }

    /// Removes all variables from its environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.inner.env_clear();
        self
    }

    /// Sets its working directory.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Self {
        self.inner.current_dir(dir);
        self
    }

    /// Sets its standard input.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.inner.stdin(stdin);
        self.set[0] = true;
        self
    }

    /// Sets its standard output.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.inner.stdout(stdout);
        self.set[1] = true;
        self
    }

    /// Sets its standard error.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.inner.stderr(stderr);
        self.set[2] = true;
        self
    }

    /// Sets the process group that it joins; 0: one of its own, to which [`Child::signal_group`] is
    /// addressed.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.inner.process_group(group);
        self
    }

    /// Sets whether the child is killed (SIGKILL) when its [`Child`] is dropped before it has
    /// ended: also by a panic, and when the fiber that waits for it is cancelled and gives up.
    /// Default: false, as with `std`.
    pub fn kill_on_drop(&mut self, on: bool) -> &mut Self {
        self.kill_on_drop = on;
        self
    }

    /// Returns what has no method here, such as `pre_exec`.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.inner
    }

    /// Starts it. Its streams are this process's, unless they have been set.
    ///
    /// # Errors
    /// As for [`std::process::Command::spawn`]; no descriptor is left for its pidfd (the child is
    /// killed then).
    pub fn spawn(&mut self) -> io::Result<Child> {
        Child::of(self.inner.spawn()?, self.kill_on_drop)
    }

    /// Starts it and waits until it has ended.
    ///
    /// # Errors
    /// As for [`Self::spawn`] and [`Child::wait`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts it, waits until it has ended, and returns what it has written. Streams that have not
    /// been set are an empty input ([`filter`] gives it some) and pipes that are read, as with
    /// `std`.
    ///
    /// # Errors
    /// As for [`Self::spawn`] and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        let [stdin, stdout, stderr] = self.set;
        if !stdin {
            self.inner.stdin(Stdio::null());
        }
        if !stdout {
            self.inner.stdout(Stdio::piped());
        }
        if !stderr {
            self.inner.stderr(Stdio::piped());
        }
        self.spawn()?.wait_with_output()
    }
}

/// A process that was started.
#[derive(Debug)]
pub struct Child {
    /// Its standard input, if that was `Stdio::piped()`. [`Self::wait`] closes it.
    pub stdin: Option<PipeWriter>,
    /// Its standard output, if that was `Stdio::piped()`.
    pub stdout: Option<PipeReader>,
    /// Its standard error, if that was `Stdio::piped()`.
    pub stderr: Option<PipeReader>,
    process: Option<Process>,
    kill_on_drop: bool,
}

/// A process, until the kernel has been told to forget it.
#[derive(Debug)]
struct Process {
    inner: process::Child,
    pidfd: Descriptor,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Waits until it has ended, for at most `limit`.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            wait_ready(&self.pidfd, Interest::Read, limit)?;
        }
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.inner.try_wait()?;
        }
        Ok(self.ended)
    }
}

impl Child {
    fn of(mut inner: process::Child, kill_on_drop: bool) -> io::Result<Self> {
        let opened = Pid::from_raw(inner.id().cast_signed())
            .ok_or(io::ErrorKind::NotFound.into())
            .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?));
        let pidfd = match opened {
            Ok(pidfd) => Descriptor::new(pidfd),
            Err(error) => {
                // Nobody could wait for it.
                let _ = inner.kill();
                let _ = inner.wait();
                return Err(error);
            }
        };
        let writer = |end: process::ChildStdin| PipeWriter::from_fd(OwnedFd::from(end));
        let stdin = inner.stdin.take().map(writer).transpose()?;
        let stdout = inner.stdout.take().map(PipeReader::from_fd).transpose()?;
        let stderr = inner.stderr.take().map(PipeReader::from_fd).transpose()?;
        Ok(Self {
            stdin,
            stdout,
            stderr,
            process: Some(Process {
                inner,
                pidfd,
                ended: None,
            }),
            kill_on_drop,
        })
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("taken when it is dropped")
    }

    /// Returns its process number. Once the child has been waited for, it may be another's.
    #[must_use]
    pub fn id(&self) -> u32 {
        let process = self.process.as_ref().expect("taken when it is dropped");
        process.inner.id()
    }

    /// Closes its standard input and waits until it has ended.
    ///
    /// # Errors
    /// The caller was cancelled or ran into its deadline, and the child goes on; call it again, or
    /// [`Self::kill`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.process().wait(None)
    }

    /// Does the same for at most `limit`.
    ///
    /// # Errors
    /// As for [`Self::wait`]; [`io::ErrorKind::TimedOut`].
    pub fn wait_timeout(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let deadline = time::saturating_add(time::now(), limit);
        time::with_deadline(deadline, || self.process().wait(None))
    }

    /// Returns how it has ended; `None`: it has not.
    ///
    /// # Errors
    /// The system call fails.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process().try_wait()
    }

    /// Closes its standard input, reads all that it writes to pipes, and waits until it has ended.
    ///
    /// # Errors
    /// As for [`Self::wait`] and for a read; then the child is dropped.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = read_both(self.stdout.take(), self.stderr.take())?;
        let status = self.wait()?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }

    /// Kills it (SIGKILL), unless it has ended. It has still to be waited for.
    ///
    /// # Errors
    /// The system call fails.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }

    /// Sends it a signal, unless it has ended: no other process can get it.
    ///
    /// # Errors
    /// There is no such signal; the system call fails.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        let signal = known(signal)?;
        let process = self.process();
        if process.try_wait()?.is_some() {
            return Ok(());
        }
        Ok(pidfd_send_signal(&process.pidfd, signal)?)
    }

    /// Sends a signal to its process group, of which it must be the leader
    /// ([`Command::process_group`] 0): also to children of its own that it has left behind.
    ///
    /// # Errors
    /// As for [`Self::signal`]; there is no such group.
    pub fn signal_group(&mut self, signal: i32) -> io::Result<()> {
        let signal = known(signal)?;
        let group = Pid::from_raw(self.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        Ok(rustix::process::kill_process_group(group, signal)?)
    }

    /// Returns its end as a branch of a `select!`: `readable(child)`.
    #[doc(hidden)]
    pub fn readable_branch(&self) -> ReadinessBranch<'_> {
        let process = self.process.as_ref().expect("taken when it is dropped");
        ReadinessBranch::new(&process.pidfd, Interest::Read)
    }
}

fn known(signal: i32) -> io::Result<Signal> {
    Signal::from_named_raw(signal).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no signal {signal}"),
        )
    })
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.kill_on_drop {
            let _ = self.kill();
        }
        let Some(mut process) = self.process.take() else {
            return;
        };
        if matches!(process.try_wait(), Ok(None)) && pool::try_current_pool().is_some() {
            // Detached: it ends with the child, or with the runtime. If it cannot start, the child
            // is left as `std` leaves it.
            drop(crate::thread::Builder::new().spawn(move || drop(process.wait(None))));
        }
    }
}

/// Writes all of `input` to a child's standard input while what it writes is read: a filter, as
/// `sort` or `gzip` is.
///
/// # Errors
/// As for [`Command::spawn`], [`Child::wait`], a read and a write; a child that does not read all
/// is no error.
///
/// Context: any thread or fiber; may suspend.
pub fn filter(command: &mut Command, input: &[u8]) -> io::Result<Output> {
    command
        .as_std_mut()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let write = move || -> io::Result<()> {
        let Some(mut stdin) = stdin else {
            return Ok(());
        };
        match stdin.write_all(input) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    };
    if !crate::on_fiber() {
        return std::thread::scope(|threads| {
            let writing = threads.spawn(write);
            let output = child.wait_with_output();
            writing.join().expect("no panic")?;
            output
        });
    }
    crate::scope(|scope| {
        let writing = scope.spawn(write);
        let output = child.wait_with_output();
        writing.join().expect("no panic")?;
        output
    })
}
