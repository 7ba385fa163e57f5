//! A run of one method: streams, sinks, and the clock.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustix::time::{ClockId, clock_gettime};

use super::course::{Course, SIZE, Sender, byte, path, threads};
use super::{epoll, ring};
use crate::harness::machine;
use crate::harness::report;

/// A way to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Method {
    Sendfile,
    Splice,
    /// With the kernel's own bound on io_uring's threads.
    LinkedSplice,
    /// With at most four for files, which the kernel bounds by itself too.
    LinkedSpliceBoundedCapped,
    /// With at most four for what may wait for ever, say sockets and pipes: all splices.
    LinkedSpliceUnboundedCapped,
    /// From files to pipes on a second ring, with at most four.
    SecondRing,
    ReadSend,
}

impl Method {
    /// As the child is called with.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("none is skipped");
        value.get_name().to_owned()
    }
}

/// One method, measured by this process.
#[derive(Args, Debug)]
pub(crate) struct ChildFlags {
    method: Method,
    dir: PathBuf,
    files: usize,
    streams: usize,
    seconds: f64,
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
        Method::Splice => epoll::run(
            &mut course,
            &mut senders,
            &mut epoll::Splice::new(flags.streams)?,
        )?,
        Method::LinkedSplice => ring::linked_splice(&mut course, &mut senders, [0, 0])?,
        Method::LinkedSpliceBoundedCapped => {
            ring::linked_splice(&mut course, &mut senders, [4, 0])?;
        }
        Method::LinkedSpliceUnboundedCapped => {
            ring::linked_splice(&mut course, &mut senders, [0, 4])?;
        }
        Method::SecondRing => ring::two_rings(&mut course, &mut senders, [0, 4])?,
        Method::ReadSend => ring::read_send(&mut course, &mut senders)?,
    }

    course.threads = course.threads.max(threads());
    let elapsed = start.elapsed();
    let cpu = process_cpu() - cpu;
    drop(senders);
    let mut sinks_cpu = Duration::ZERO;
    for sink in sinks {
        sinks_cpu += sink.join().map_err(|_| anyhow!("a sink panicked"))??;
    }
    let mib = received.load(Ordering::Relaxed) as f64 / SIZE as f64;

    ensure!(mib > 0.0, "nothing was sent");
    let micros = |quantile| course.away.value_at_quantile(quantile) as f64 / 1000.0;
    report::say(&format!("mib_per_s {}", mib / elapsed.as_secs_f64()));
    report::say(&format!(
        "cpu_us_per_mib {}",
        cpu.saturating_sub(sinks_cpu).as_secs_f64() * 1e6 / mib
    ));
    report::say(&format!(
        "away_p50_us {}\naway_p99_us {}\naway_max_us {}",
        micros(0.5),
        micros(0.99),
        micros(1.0)
    ));
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
    let mut senders = Vec::new();
    let mut sinks = Vec::new();
    for number in 0..flags.streams {
        let mut taker = TcpStream::connect(listener.local_addr()?)?;
        let (socket, _) = listener.accept()?;
        senders.push(Sender {
            socket,
            file: File::open(path(&flags.dir, number % flags.files))?,
            offset: 0,
        });
        sinks.push(std::thread::spawn(move || {
            machine::pin_to(1);
            let mut buf = vec![0; 256 << 10];
            let mut at = 0;
            loop {
                let len = taker.read(&mut buf)?;
                if len == 0 {
                    let used = clock_gettime(ClockId::ThreadCPUTime);
                    return Ok(Duration::new(
                        used.tv_sec.unsigned_abs(),
                        used.tv_nsec as u32,
                    ));
                }

                for n in [0, len / 2, len - 1] {
                    ensure!(
                        buf[n] == byte((at + n) % SIZE),
                        "another byte than the file's"
                    );
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
