//! A run of one method: streams, sinks, and the clock.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

use super::{Method, SIZE, epoll, ring};
use crate::{machine, report};

/// One method, measured by this process.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    method: Method,
    dir: PathBuf,
    files: usize,
    streams: usize,
    seconds: f64,
}

/// What is sent at a time, at most.
pub(super) const PIECE: usize = 64 << 10;

/// The file of this number.
pub(super) fn path(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{number:05}"))
}

/// What a file has at this offset.
pub(super) fn byte(offset: usize) -> u8 {
    (offset / 4096 * 7 + offset % 13) as u8
}

/// A stream from file to file.
pub(super) struct Sender {
    pub(super) socket: TcpStream,
    pub(super) file: File,
    /// Of the file, sent so far.
    pub(super) offset: u64,
}

/// What the methods share: the files, the end, and the measure of the worker's absence.
pub(super) struct Course {
    dir: PathBuf,
    files: usize,
    random: SmallRng,
    end: Instant,
    looked: Instant,
    away: Histogram<u64>,
    threads: usize,
    looks: u64,
}

impl Course {
    /// A file drawn at random.
    pub(super) fn next_file(&mut self) -> anyhow::Result<File> {
        let path = path(&self.dir, self.random.random_range(0..self.files));
        File::open(&path).with_context(|| format!("cannot open {}", path.display()))
    }

    /// Counts bytes as sent; at the end of a file the next one follows.
    pub(super) fn sent(&mut self, sender: &mut Sender, len: usize) -> anyhow::Result<()> {
        ensure!(len > 0, "a file has become shorter");
        sender.offset += len as u64;
        if sender.offset == SIZE as u64 {
            (sender.file, sender.offset) = (self.next_file()?, 0);
        }
        Ok(())
    }

    /// The worker has events in hand.
    pub(super) fn looking(&mut self) {
        self.looked = Instant::now();
    }

    /// It has handled them and looks for others. False: the time is over.
    pub(super) fn looks_again(&mut self) -> bool {
        let now = Instant::now();
        let _ = self.away.record((now - self.looked).as_nanos() as u64);
        self.looks += 1;
        if self.looks.is_multiple_of(64) {
            self.threads = self.threads.max(threads());
        }
        now < self.end
    }
}

/// Threads of this process, those of the kernel among them.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

pub(crate) fn run_child(flags: &ChildFlags) -> anyhow::Result<()> {
    let received: &'static AtomicU64 = Box::leak(Box::default());
    let (mut senders, sinks) = streams(flags, received)?;
    machine::pin_to(0);
    let before = threads();
    let start = Instant::now();
    let mut course = Course {
        dir: flags.dir.clone(),
        files: flags.files,
        random: SmallRng::seed_from_u64(1),
        end: start + Duration::from_secs_f64(flags.seconds),
        looked: start,
        away: Histogram::new(3)?,
        threads: before,
        looks: 0,
    };
    let cpu = process_cpu();
    match flags.method {
        Method::Sendfile => epoll::run(&mut course, &mut senders, &mut epoll::Sendfile)?,
        Method::Splice => epoll::run(&mut course, &mut senders, &mut epoll::Splice::new(flags.streams)?)?,
        Method::LinkedSplice => ring::linked_splice(&mut course, &mut senders, None)?,
        Method::LinkedSpliceCapped => ring::linked_splice(&mut course, &mut senders, Some(4))?,
        Method::ReadSend => ring::read_send(&mut course, &mut senders)?,
    }
    course.threads = course.threads.max(threads());
    let (elapsed, cpu) = (start.elapsed(), process_cpu() - cpu);
    drop(senders);
    let mut sinks_cpu = Duration::ZERO;
    for sink in sinks {
        sinks_cpu += sink.join().map_err(|_| anyhow!("a sink panicked"))??;
    }
    let mib = received.load(Ordering::Relaxed) as f64 / SIZE as f64;
    ensure!(mib > 0.0, "nothing was sent");
    let micros = |quantile| course.away.value_at_quantile(quantile) as f64 / 1000.0;
    report::say(&format!("mib_per_s {}", mib / elapsed.as_secs_f64()));
    report::say(&format!("cpu_us_per_mib {}", cpu.saturating_sub(sinks_cpu).as_secs_f64() * 1e6 / mib));
    report::say(&format!("away_p50_us {}\naway_p99_us {}\naway_max_us {}", micros(0.5), micros(0.99), micros(1.0)));
    report::say(&format!("threads_max {}", course.threads - before + 1));
    Ok(())
}

/// Streams, and the threads that take what they bring.
#[expect(clippy::type_complexity, reason = "two lists")]
fn streams(
    flags: &ChildFlags,
    received: &'static AtomicU64,
) -> anyhow::Result<(Vec<Sender>, Vec<JoinHandle<anyhow::Result<Duration>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut senders, mut sinks) = (Vec::new(), Vec::new());
    for number in 0..flags.streams {
        let mut taker = TcpStream::connect(listener.local_addr()?)?;
        let (socket, _) = listener.accept()?;
        senders.push(Sender { socket, file: File::open(path(&flags.dir, number % flags.files))?, offset: 0 });
        sinks.push(std::thread::spawn(move || {
            machine::pin_to(1);
            let (mut buf, mut at) = (vec![0; 256 << 10], 0);
            loop {
                let len = taker.read(&mut buf)?;
                if len == 0 {
                    let used = clock_gettime(ClockId::ThreadCPUTime);
                    return Ok(Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32));
                }
                for n in [0, len / 2, len - 1] {
                    ensure!(buf[n] == byte((at + n) % SIZE), "another byte than the file's");
                }
                at += len;
                received.fetch_add(len as u64, Ordering::Relaxed);
            }
        }));
    }
    Ok((senders, sinks))
}

fn process_cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}
