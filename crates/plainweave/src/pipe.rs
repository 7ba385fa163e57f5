//! Pipes, FIFOs and standard input and output, without holding up a worker.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::blocking::blocking;
use crate::io::op::{Interest, readable_or_writable};
use crate::net::Connection;
use crate::sched::io_call::{Descriptor, wait_ready};
use crate::sched::wait;
use crate::sync::select::ReadinessBranch;
use crate::time;

/// Makes a pipe: what is written to the second is read from the first.
///
/// ```
/// use std::io::{Read, Write};
///
/// plainweave::run(|| {
///     let (mut reader, mut writer) = plainweave::pipe::pipe().unwrap();
///     plainweave::spawn(move || writer.write_all(b"hello").unwrap());
///     let mut text = String::new();
///     reader.read_to_string(&mut text).unwrap();
///     assert_eq!(text, "hello");
/// });
/// ```
///
/// # Errors
/// The system call fails (out of descriptors: `EMFILE`).
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (reader, writer) = rustix::pipe::pipe_with(flags)?;
    Ok((PipeReader(End::new(reader)), PipeWriter(End::new(writer))))
}

/// The end of a pipe or a FIFO that is read. Its end comes when no writer is left.
pub struct PipeReader(End);

/// The end of a pipe or a FIFO that is written. Without a reader, writes fail with
/// [`io::ErrorKind::BrokenPipe`].
pub struct PipeWriter(End);

/// A descriptor in non-blocking mode that read(2) and write(2) are for.
struct End(Arc<Connection>);

impl End {
    fn new(fd: OwnedFd) -> Self {
        Self(Connection::new(Descriptor::new(fd)))
    }

    /// Takes over a descriptor of any mode.
    fn take_over(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Self::new(fd))
    }

    /// Reads what is there into a vector; returns whether the end has come.
    fn take(&self, to: &mut Vec<u8>) -> io::Result<bool> {
        let mut buf = [0; 8192];
        loop {
            match rustix::io::read(&*self.0.source, &mut buf) {
                Ok(0) => return Ok(true),
                Ok(len) => to.extend_from_slice(&buf[..len]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

macro_rules! end {
    ($end:ident, $interest:ident, $branch:ident) => {
        impl $end {
            /// Takes over a descriptor, and puts it into non-blocking mode, for all who share it.
            ///
            /// # Errors
            /// The system call fails.
            pub fn from_fd(fd: impl Into<OwnedFd>) -> io::Result<Self> {
                Ok(Self(End::take_over(fd.into())?))
            }

            /// Returns another handle to the same end.
            ///
            /// # Errors
            /// None today; the signature is `std`'s.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self(End(self.0.0.clone())))
            }

            /// Returns what makes a call possible as a branch of a select.
            #[doc(hidden)]
            pub fn $branch(&self) -> ReadinessBranch<'_> {
                ReadinessBranch::new(&self.0.0.source, Interest::$interest)
            }
        }

        impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.0.source.as_fd()
            }
        }

        impl fmt::Debug for $end {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($end))
                    .field(&self.as_fd())
                    .finish()
            }
        }
    };
}

end!(PipeReader, Read, readable_branch);
end!(PipeWriter, Write, writable_branch);

impl PipeReader {
    /// Opens a FIFO for reading, and waits until somebody opens it for writing.
    ///
    /// # Errors
    /// As for [`std::fs::File::open`]; the caller was cancelled.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        Self::from_fd(blocking(move || std::fs::File::open(path))??)
    }

    /// Returns whether a read would return at once.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        readable_or_writable(self.as_fd(), Interest::Read)
    }
}

impl PipeWriter {
    /// Opens a FIFO for writing, and waits until somebody reads it; `None`: for ever.
    ///
    /// # Errors
    /// As for [`OpenOptions::open`]; [`io::ErrorKind::TimedOut`]; the caller was cancelled or ran
    /// into its deadline.
    pub fn open(path: impl AsRef<Path>, limit: Option<Duration>) -> io::Result<Self> {
        const PAUSE: Duration = Duration::from_millis(5);
        let mut options = OpenOptions::new();
        options
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32);
        let deadline = limit.map(|limit| time::saturating_add(time::now(), limit));
        loop {
            match options.open(path.as_ref()) {
                // No event says that a reader has come.
                Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                    if deadline.is_some_and(|deadline| time::now() >= deadline) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    time::sleep(PAUSE)?;
                }
                opened => return Ok(Self(End::new(opened?.into()))),
            }
        }
    }
}

impl Read for &PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Connection { source, .. } = &*self.0.0;
        let read = || rustix::io::read(&**source, &mut *buf);
        self.0.0.transfer(Interest::Read, read)
    }
}

impl Read for PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for &PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let Connection { source, .. } = &*self.0.0;
        let write = || rustix::io::write(&**source, buf);
        self.0.0.transfer(Interest::Write, write)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads two pipes to their ends, whichever has something first.
pub(crate) fn read_both(
    mut one: Option<PipeReader>,
    mut other: Option<PipeReader>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut read = (Vec::new(), Vec::new());
    loop {
        if let Some(end) = &one
            && end.0.take(&mut read.0)?
        {
            one = None;
        }
        if let Some(end) = &other
            && end.0.take(&mut read.1)?
        {
            other = None;
        }
        match (&one, &other) {
            (Some(one), Some(other)) => crate::select! {
                readable(one) => (),
                readable(other) => (),
            }?,
            (Some(end), None) | (None, Some(end)) => {
                wait_ready(&end.0.0.source, Interest::Read, None)?
            }
            (None, None) => return Ok(read),
        }
    }
}

/// Standard input, without a buffer of its own: each read waits until something is there, and then
/// takes it. `std::io::stdin` reads ahead, so use one of the two.
#[derive(Debug)]
pub struct Stdin(Option<Descriptor>);

/// Returns the process's standard input.
///
/// What cannot be waited for (a file) is read at once. The mode of the descriptor, which other
/// processes may share, stays as it is.
///
/// # Errors
/// No descriptor is left for a duplicate.
pub fn stdin() -> io::Result<Stdin> {
    use rustix::fs::{FileType, fstat};

    let own = io::stdin();
    let is_file = FileType::from_raw_mode(fstat(&own)?.st_mode) == FileType::RegularFile;
    let source = (!is_file)
        .then(|| own.as_fd().try_clone_to_owned().map(Descriptor::new))
        .transpose()?;
    Ok(Stdin(source))
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(interrupt) = wait::interrupted() {
            return Err(wait::failed_at_once(interrupt.into()));
        }
        if let Some(source) = &self.0
            && !readable_or_writable(source.as_fd(), Interest::Read)
        {
            wait_ready(source, Interest::Read, None)?;
        }
        let read = || rustix::io::read(io::stdin(), &mut *buf);
        Ok(rustix::io::retry_on_intr(read)?)
    }
}
