//! The access log, off the hot path.
//!
//! A fiber that has answered appends its line to a buffer in memory and goes on; a thread writes
//! the buffers out, a few times a second while there is something to write, sooner when one fills
//! up, and sleeps otherwise. When the disk cannot take the lines (it is full, or slow), buffers
//! fill up to a bound, further lines are dropped **whole** and counted, and reported on standard
//! error once a minute; requests are served as before. A thread that is blocked in a write cannot
//! report it: the thread that drops a line does.
//!
//! The thread sleeps in a read from a socket: a byte there wakes it. A thread that has something
//! for it sets a flag first; it checks the flags after each read.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use plainweave_http::Exchange;
use plainweave_serve::PerCpu;
use rustix::fs::{Access, access};
use rustix::time::{ClockId, clock_gettime};

use super::faults::Faults;
use super::line::{self, Format};
use super::rotation::{Rotation, first_line};

/// Bytes that a buffer holds; each CPU has one.
const BOUND: usize = 2 << 20;
/// Bytes in a buffer that are reason enough to write. The rest is for those that come until the
/// thread has its turn.
const PRESSING: usize = BOUND / 8;
/// How long lines are gathered.
const GATHER: Duration = Duration::from_millis(200);
/// For what is left to be written when the server ends.
const ENDING: Duration = Duration::from_secs(2);

/// The side of the fibers.
#[derive(Debug)]
pub(super) struct AccessLog {
    buffers: PerCpu<Mutex<Buffer>>,
    format: Format,
    /// As in the complaints.
    name: String,
    faults: Arc<Faults>,
    dropped: AtomicU64,
    /// There is something to write, and the writer knows it.
    dirty: AtomicBool,
    /// A buffer holds enough: lines are not gathered any longer.
    pressing: AtomicBool,
    /// The last write failed, and this was reported.
    failing: AtomicBool,
    ended: AtomicBool,
    /// The file is to be reopened.
    reopen: AtomicBool,
    wake: UnixStream,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    second: u64,
    /// The time of `second`, as the format writes it.
    time: String,
}

/// Finds out whether a log could be written in a file, and makes none.
pub(super) fn check(path: &Path, rotation: Option<Rotation>) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    may_make(path).with_context(|| remedy(path))?;
    // What is no file is not rotated, nor is there one yet that could not be moved.
    if rotation.is_some() && path.is_file() {
        let moved = access(folder(path), Access::WRITE_OK);
        moved.with_context(|| {
            format!(
                "cannot rotate {} (make its directory writable, or drop --access-log-size)",
                path.display()
            )
        })?;
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// Looks whether a file may be written, or made.
pub(super) fn may_make(path: &Path) -> io::Result<()> {
    let may_write = |path: &Path| access(path, Access::WRITE_OK).map_err(io::Error::from);
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(_) => may_write(path),
        Err(error) if error.kind() == ErrorKind::NotFound => may_write(folder(path)),
        Err(error) => Err(error),
    }
}

fn remedy(path: &Path) -> String {
    format!(
        "cannot write the access log {} (give a writable file, or - for standard output; a reload \
         brings no new directory: start it again by --replace, or with --no-confinement)",
        path.display()
    )
}

/// The side of the disk. Writes what is left when dropped.
#[derive(Debug)]
pub(super) struct Writer {
    log: Arc<AccessLog>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Starts a log in a file, which is created or appended to, or `-` for standard output.
    pub(super) fn start(
        path: &Path,
        format: Format,
        faults: Arc<Faults>,
        rotation: Option<Rotation>,
    ) -> anyhow::Result<(Arc<Self>, Writer)> {
        let target = Target::open(path).with_context(|| remedy(path))?;
        let (asleep, wake) = UnixStream::pair()?;
        // A fiber must not wait for the thread that it wakes.
        wake.set_nonblocking(true)?;
        let log = Arc::new(Self {
            buffers: PerCpu::new(Mutex::default),
            format,
            name: target.name(),
            faults,
            dropped: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            pressing: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            wake,
        });

        let mut out = Out {
            log: log.clone(),
            asleep,
            target,
            rotation,
            left: Vec::new(),
            is_within_line: false,
        };

        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || out.run())?;
        Ok((
            log.clone(),
            Writer {
                log,
                thread: Some(thread),
            },
        ))
    }

    /// Reopens the file, after it was moved away.
    pub(super) fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Lines that the disk was too slow or too full for.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns whether lines say how long an exchange took.
    pub(super) fn wants_times(&self) -> bool {
        self.format == Format::Json
    }

    /// Appends a line.
    pub(super) fn record(&self, exchange: &Exchange<'_>) {
        let mut buffer = lock(self.buffers.own());
        if buffer.bytes.len() >= BOUND {
            drop(buffer);
            let lost = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // Whoever could not write has complained already, with the reason.
            if !self.failing.load(Ordering::Relaxed) {
                self.faults.log_is_slow(&self.name, lost);
            }
            return;
        }

        let before = buffer.bytes.len();
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let second = now.tv_sec.unsigned_abs();
        if second != buffer.second {
            buffer.second = second;
            buffer.time = line::time(
                self.format,
                SystemTime::UNIX_EPOCH + Duration::from_secs(second),
            );
        }

        let Buffer { bytes, time, .. } = &mut *buffer;
        line::append(bytes, self.format, time, exchange);
        // Once, by whoever crosses the mark.
        let pressing = before < PRESSING && bytes.len() >= PRESSING;
        drop(buffer);
        if pressing {
            self.pressing.store(true, Ordering::Release);
            self.wake();
        }

        // Read before it is exchanged: of many lines one finds it unset, and the others leave the
        // cache line alone.
        if !self.dirty.load(Ordering::Relaxed) && !self.dirty.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        // A socket that takes no more has bytes enough to wake anybody.
        let _ = (&self.wake).write(&[0]);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.log.ended.store(true, Ordering::Release);
        self.log.wake();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let start = Instant::now();

        while !thread.is_finished() {
            if start.elapsed() >= ENDING {
                // A pipe without a reader, for instance: the process ends without it.
                return self
                    .log
                    .faults
                    .log_has_ended(&self.log.name, self.log.dropped());
            }
            std::thread::sleep(Duration::from_millis(1));
        }

        let _ = thread.join();
    }
}

/// Where the lines go.
enum Target {
    Stdout,
    /// Open, by its name.
    File(File, PathBuf),
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        Ok(Self::File(
            File::options().create(true).append(true).open(path)?,
            path.to_owned(),
        ))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                let written = out.write(bytes)?;
                out.flush().map(|()| written)
            }
            Self::File(file, _) => file.write(bytes),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".to_owned(),
            Self::File(_, path) => path.display().to_string(),
        }
    }
}

struct Out {
    log: Arc<AccessLog>,
    /// A byte comes when there may be something to do.
    asleep: UnixStream,
    target: Target,
    rotation: Option<Rotation>,
    /// Taken from the buffers and not yet written.
    left: Vec<u8>,
    /// Its first bytes are the rest of a line, whose beginning was written.
    is_within_line: bool,
}

impl Out {
    fn run(&mut self) {
        loop {
            self.wait();
            // Read before the buffers: what was recorded before the end is then in them.
            let last = self.log.ended.load(Ordering::Acquire);
            if self.log.reopen.swap(false, Ordering::AcqRel) {
                self.open_again();
            }
            // Cleared before the buffers are emptied: a line that comes meanwhile sets it again.
            self.log.pressing.store(false, Ordering::Release);
            self.log.dirty.store(false, Ordering::Release);

            for buffer in self.log.buffers.iter() {
                let mut buffer = lock(buffer);
                // What could not be written waits for its turn; until then the buffers fill up to
                // their bound.
                if self.left.len() < BOUND {
                    self.left.append(&mut buffer.bytes);
                } else {
                    self.log.dirty.store(true, Ordering::Release);
                }
            }

            self.write();
            if last {
                return;
            }
        }
    }

    /// Until there is something, or the end.
    fn wait(&mut self) {
        while !self.log.dirty.load(Ordering::Acquire) && !self.is_urgent() {
            self.sleep(None);
        }
        // More will come; a write for each line is what this file is here to avoid.
        let start = Instant::now();
        while let Some(left) = GATHER
            .checked_sub(start.elapsed())
            .filter(|left| !left.is_zero())
            && !self.is_urgent()
        {
            self.sleep(Some(left));
        }
    }

    fn is_urgent(&self) -> bool {
        let log = &self.log;
        log.pressing.load(Ordering::Acquire)
            || log.ended.load(Ordering::Acquire)
            || log.reopen.load(Ordering::Acquire)
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        // The sender lives as long as `log`, so that this fails by its timeout only.
        let _ = self
            .asleep
            .set_read_timeout(limit)
            .and_then(|()| self.asleep.read(&mut [0; 64]));
    }

    fn write(&mut self) {
        let mut done = 0;
        let left = std::mem::take(&mut self.left);
        let failure = loop {
            if done == left.len() {
                break None;
            }
            let share = self.share(&left[done..]);
            match self.target.write(&left[done..][..share]) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    done += len;
                    self.is_within_line = left[done - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };

        self.left = left;
        self.left.drain(..done);
        self.log.failing.store(failure.is_some(), Ordering::Relaxed);
        if let Some(error) = failure {
            self.complain(&error);
            // Try again, with or without new lines.
            self.log.dirty.store(true, Ordering::Release);
        }
    }

    /// Returns how many of these bytes go to the file as it is, after rotating it if need be.
    fn share(&mut self, left: &[u8]) -> usize {
        let Some(rotation) = self.rotation else {
            return left.len();
        };
        let Target::File(file, path) = &self.target else {
            return left.len();
        };
        if self.is_within_line {
            return first_line(left);
        }
        let len = match file.metadata() {
            // A pipe, for instance.
            Ok(metadata) if !metadata.is_file() => return left.len(),
            metadata => metadata.map_or(0, |metadata| metadata.len()),
        };
        if let Some(share) = rotation.share(len, left) {
            return share;
        }

        // Not a link to it.
        let real = path.canonicalize();
        if let Err(error) = rotation.turn(file, real.as_ref().unwrap_or(path)) {
            let text = format!("it cannot be rotated in its directory: {error}");
            self.complain(&io::Error::new(error.kind(), text));
            return left.len();
        }
        self.open_again();
        // Of the new file, even if it could not be opened: all goes somewhere.
        rotation.share(0, left).unwrap_or(left.len())
    }

    fn open_again(&mut self) {
        let Target::File(_, path) = &self.target else {
            return;
        };
        match Target::open(path) {
            Ok(target) => self.target = target,
            // It goes on writing to the old one: nothing is lost.
            Err(error) => self.complain(&error),
        }
    }

    fn complain(&self, error: &io::Error) {
        self.log
            .faults
            .log(&self.log.name, error, self.log.dropped());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
