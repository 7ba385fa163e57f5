//! Slow clients beside fast ones: half of them send a request byte by byte, a byte a second, each at its own time; the
//! others ask for a file of 1 MiB and do not read it. What does it do to the p99 of those who are neither?

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::catalog::Catalog;
use super::client::{load, run_load};
use super::server::{Kind, Server};
use super::site::{FIELDS, request};
use super::{Bench, descriptors, site};
use crate::report;

const CASE: &str = "slow-10000";
/// Of the fast clients, in all.
const RATE: &str = "2000";
const FAST: &str = "64";
/// A byte of each.
const DRIP: Duration = Duration::from_secs(1);

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if let Some(why) = Kind::Epoll.absence() {
        bench.missing(CASE, why);
        return Ok(());
    }
    if !descriptors::at_least(bench.idle) {
        bench.missing(CASE, descriptors::TOO_FEW);
        return Ok(());
    }
    let large = Catalog::of(&bench.site, 4, 1 << 20)?;
    let servers = bench.servers(&Kind::ALL, &[])?;
    for server in &servers {
        let (mut alone, mut beside, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=bench.runs.min(3) {
            report::progress(&format!("web: {CASE}, round {round}, {}", server.kind.name()));
            ask(bench, server)?; // Warms up.
            alone.push(ask(bench, server)?);
            let before = server.memory()?;
            let (ended, served) = (AtomicBool::new(false), AtomicU64::new(0));
            let (ended, served) = (&ended, &served);
            let result = std::thread::scope(|scope| {
                let (path, address, count) = (&large.items[0].path, server.address, bench.idle);
                let crowd = scope.spawn(move || crowd(address, path, count, ended, served));
                while served.load(Ordering::Relaxed) == 0 && !crowd.is_finished() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let result = ask(bench, server).and_then(|p99| Ok((p99, server.memory()?)));
                ended.store(true, Ordering::Relaxed);
                crowd.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                result
            });
            let (p99, after) = result?;
            beside.push(p99);
            memory.push((after - before) / bench.idle as f64);
        }
        let name = server.kind.name();
        let slower = beside.iter().zip(&alone).map(|(beside, alone)| beside / alone).collect();
        bench.row(CASE, name, "p99_us_alone", "us", alone);
        bench.row(CASE, name, "p99_us_beside", "us", beside);
        bench.row(CASE, name, "p99_beside_to_alone", "1", slower);
        bench.row(CASE, name, "bytes_per_slow_client", "B", memory);
    }
    let fact = format!("{} of them; fast ones {RATE}/s on {FAST} connections, Poisson", bench.idle);
    bench.facts.push(("slow clients", fact));
    Ok(())
}

/// p99 of the fast ones.
fn ask(bench: &Bench, server: &Server) -> anyhow::Result<f64> {
    let csv = bench.site.dir().join("load.csv");
    let url = format!("http://{}{}", server.address, site::path(0));
    let more = ["--connections", FAST, "--rate", RATE, "--arrivals", "poisson", "--warm-up", "300ms"];
    let figures = run_load(&mut load("epoll", &url, bench.turn, &csv, &more)?, &csv)?;
    figures.check(server.kind.name())?;
    figures.get("latency_p99")
}

/// The slow ones, on this thread, until `ended`. `served` counts rounds over all of them.
fn crowd(address: SocketAddr, path: &str, count: usize, ended: &AtomicBool, served: &AtomicU64) -> anyhow::Result<()> {
    let (drip, whole) = (request(&site::path(1), FIELDS[1]), request(path, FIELDS[0]));
    let connect = || -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(address).context("a slow client")?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let mut drippers = Vec::new();
    let mut deaf = Vec::new();
    for _ in 0..count / 2 {
        drippers.push((connect()?, 0));
        let mut stream = connect()?;
        // A server that sheds load may have closed it already.
        let _ = stream.write_all(whole.as_bytes());
        deaf.push(stream);
    }
    let (start, mut dripped) = (Instant::now(), 0);
    while !ended.load(Ordering::Relaxed) {
        // Evenly over the second: slow clients know nothing of each other.
        let due = start.elapsed().as_secs_f64() / DRIP.as_secs_f64() * drippers.len() as f64;
        while dripped < due as usize && !ended.load(Ordering::Relaxed) {
            let turn = dripped % drippers.len();
            let (stream, sent) = &mut drippers[turn];
            let byte = &drip.as_bytes()[*sent % drip.len()..][..1];
            // A server that has had enough answers 408 and closes: another one comes.
            let open = stream.read(&mut [0; 512]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if open && stream.write(byte).is_ok() {
                *sent += 1;
            } else {
                (*stream, *sent) = (connect()?, 0);
            }
            dripped += 1;
            served.store((dripped / drippers.len()) as u64, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(deaf);
    Ok(())
}
