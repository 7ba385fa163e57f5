//! The access log, off the hot path.
//!
//! A fiber that has answered appends its line to a buffer in memory and goes on; a thread writes the buffers out, a few
//! times a second while there is something to write, and sleeps otherwise. When the disk cannot take the lines (it is
//! full, or slow), buffers fill up to a bound, further lines are dropped **whole** and counted, standard error is told
//! once a minute, and requests are served as before. SIGUSR1 opens the file anew, after it was moved away.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use plainweave_http::Exchange;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::SIGUSR1;

use super::line::{self, Format};
use crate::web::say;

/// Bytes that a buffer holds; each CPU has one.
const BOUND: usize = 1 << 20;
/// How long lines are gathered.
const GATHER: Duration = Duration::from_millis(200);
/// Between two complaints about the same thing.
const COMPLAIN: Duration = Duration::from_secs(60);

/// The side of the fibers.
#[derive(Debug)]
pub(super) struct AccessLog {
    buffers: Box<[Mutex<Buffer>]>,
    format: Format,
    dropped: AtomicU64,
    /// There is something to write, and the writer knows it.
    dirty: AtomicBool,
    ended: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    second: u64,
    /// The time of `second`, as the format writes it.
    time: String,
}

/// The side of the disk. Writes what is left when dropped.
#[derive(Debug)]
pub(super) struct Writer {
    log: Arc<AccessLog>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Starts a log in a file, which is created or appended to, or `-` for standard output.
    pub(super) fn start(path: &Path, format: Format) -> anyhow::Result<(Arc<Self>, Writer)> {
        let target = Target::open(path).with_context(|| {
            format!("cannot write the access log {} (give a writable file, or - for standard output)", path.display())
        })?;
        let reopen = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, reopen.clone()).context("SIGUSR1 could not be caught")?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let log = Arc::new(Self {
            buffers: (0..cpus).map(|_| Mutex::default()).collect(),
            format,
            dropped: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut out = Out { log: log.clone(), target, reopen, left: Vec::new(), complained: None, told: 0 };
        let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || out.run())?;
        Ok((log.clone(), Writer { log, thread: Some(thread) }))
    }

    /// Lines that the disk was too slow or too full for.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Appends a line.
    pub(super) fn record(&self, exchange: &Exchange<'_>) {
        let mut buffer = lock(&self.buffers[rustix::thread::sched_getcpu() % self.buffers.len()]);
        if buffer.bytes.len() >= BOUND {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let second = now.tv_sec.unsigned_abs();
        if second != buffer.second {
            buffer.second = second;
            buffer.time = line::time(self.format, SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        }
        let Buffer { bytes, time, .. } = &mut *buffer;
        line::append(bytes, self.format, time, exchange);
        drop(buffer);
        if !self.dirty.load(Ordering::Relaxed) && !self.dirty.swap(true, Ordering::AcqRel) {
            // The lock orders this with the writer's last look before it sleeps.
            drop(lock(&self.sleep));
            self.wake.notify_one();
        }
    }

    /// The writer: until there is something, or the end.
    fn wait(&self) {
        let mut guard = lock(&self.sleep);
        while !self.dirty.load(Ordering::Acquire) && !self.ended.load(Ordering::Acquire) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        if !self.ended.load(Ordering::Acquire) {
            // More will come; a write for each line is what this file is here to avoid.
            let ended = |(): &mut ()| !self.ended.load(Ordering::Acquire);
            drop(self.wake.wait_timeout_while(guard, GATHER, ended));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.log.ended.store(true, Ordering::Release);
        drop(lock(&self.log.sleep));
        self.log.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where the lines go.
enum Target {
    Stdout,
    File(File, PathBuf),
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        Ok(Self::File(File::options().create(true).append(true).open(path)?, path.to_owned()))
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
    target: Target,
    reopen: Arc<AtomicBool>,
    /// Taken from the buffers and not yet written.
    left: Vec<u8>,
    complained: Option<Instant>,
    /// Dropped lines that were complained of.
    told: u64,
}

impl Out {
    fn run(&mut self) {
        loop {
            self.log.wait();
            let last = self.log.ended.load(Ordering::Acquire);
            if self.reopen.swap(false, Ordering::AcqRel) {
                self.open_again();
            }
            self.log.dirty.store(false, Ordering::Release);
            for buffer in &self.log.buffers {
                let mut buffer = lock(buffer);
                // What could not be written waits for its turn; until then the buffers fill up to their bound.
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

    fn write(&mut self) {
        let mut done = 0;
        let failure = loop {
            if done == self.left.len() {
                break None;
            }
            match self.target.write(&self.left[done..]) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        self.left.drain(..done);
        if let Some(error) = failure {
            self.complain(&error);
            // Try again, with or without new lines.
            self.log.dirty.store(true, Ordering::Release);
        }
    }

    fn open_again(&mut self) {
        let Target::File(_, path) = &self.target else { return };
        match Target::open(path) {
            Ok(target) => self.target = target,
            Err(error) => self.complain(&error),
        }
    }

    fn complain(&mut self, error: &io::Error) {
        if self.complained.is_some_and(|then| then.elapsed() < COMPLAIN) {
            return;
        }
        let dropped = self.log.dropped();
        let (name, lost) = (self.target.name(), dropped - self.told);
        (self.complained, self.told) = (Some(Instant::now()), dropped);
        say(
            io::stderr(),
            &format!("plainweave web: access log {name}: {error}; {lost} lines lost so far, requests are served on"),
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
