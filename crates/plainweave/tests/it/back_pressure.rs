//! Back-pressure from end to end: memory stays bounded, however much a slow side is asked to do.
//!
//! The full sizes:
//!
//!     cargo test --release -p plainweave --test it back_pressure -- --include-ignored

use std::fs::File as OsFile;
use std::io::{Read, Write};
use std::net::{TcpListener as OsListener, TcpStream as OsStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::fs::File;
use plainweave::net::TcpStream;
use plainweave::pools::{PoolSpec, Pools, Stage};
use plainweave::{Runtime, time};

/// Bytes a disk stage reads at once.
const CHUNK: usize = 64 << 10;
/// What memory may grow by.
const GROWTH: usize = 8 << 20;
/// The same with 100,000 spawned fibers, which would take 800 MB if they did not wait for room.
/// Where the machine takes its processors away for long, spare workers allocate, too, each in an
/// arena of its own: 11 MB were seen.
const GROWTH_OF_SPAWNS: usize = 64 << 20;

/// The process's resident memory, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .expect("resident")
        .parse()
        .expect("a number");
    pages * 4096
}

/// FNV-1a, 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hash(u64);

impl Hash {
    const NEW: Self = Self(0xCBF2_9CE4_8422_2325);

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

/// A file of random bytes, removed when dropped.
struct Random64k {
    path: PathBuf,
    hash: Hash,
}

impl Random64k {
    fn new(bytes: usize) -> Self {
        let path =
            std::env::temp_dir().join(format!("plainweave-back-pressure-{}", std::process::id()));
        let made = Self {
            path,
            hash: Hash::NEW,
        };

        let mut file = OsFile::create(&made.path).expect("a file");
        let mut made = made;
        let mut random = Random::new(7);

        for _ in 0..bytes / CHUNK {
            let words = (0..CHUNK / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes());
            let chunk: Vec<u8> = words.collect();
            made.hash.add(&chunk);
            file.write_all(&chunk).expect("written");
        }

        made
    }
}

impl Drop for Random64k {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads to the end at this rate. Returns what it has read, how many bytes, and the most memory in
/// use meanwhile.
fn read_slowly(mut stream: OsStream, bytes_per_second: f64) -> (Hash, usize, usize) {
    let start = Instant::now();
    let mut hash = Hash::NEW;
    let mut total = 0;
    let mut most = 0;
    let mut buf = vec![0; CHUNK];
    loop {
        let n = stream.read(&mut buf).expect("read");
        if n == 0 {
            return (hash, total, most);
        }
        hash.add(&buf[..n]);
        total += n;
        most = most.max(resident());
        let due = Duration::from_secs_f64(total as f64 / bytes_per_second);

        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

/// Sends a file through a disk stage and a socket stage to a reader of 20 MB/s.
fn a_file_to_a_slow_reader(bytes: usize) {
    if apart() {
        return;
    }
    let spec =
        |name| PoolSpec::new(name).runtime(Runtime::builder().workers(1).report_stalls(false));
    let pools =
        Pools::build([spec("disk").max_fibers(4), spec("net").max_fibers(4)]).expect("pools");
    let file = Random64k::new(bytes);
    let listener = OsListener::bind("127.0.0.1:0").expect("bind");
    let stream = TcpStream::from_std(
        OsStream::connect(listener.local_addr().expect("bound")).expect("connect"),
    );
    let stream = stream.expect("nonblocking");
    let reader = listener.accept().expect("accept").0;
    let opened = File::from_std(OsFile::open(&file.path).expect("the file"));
    let before = resident();
    let reader = std::thread::spawn(move || read_slowly(reader, 20e6));

    let write = move |chunk: Vec<u8>| (&stream).write_all(&chunk);
    let socket = Stage::new(pools.get("net").expect("built"), 4, 1, write).expect("a stage");
    let read = move |offset: u64, next: &plainweave::pools::Next<Vec<u8>>| {
        let mut chunk = vec![0; CHUNK];
        let mut filled = 0;
        while filled < CHUNK {
            match opened.read_at(&mut chunk[filled..], offset + filled as u64)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => filled += n,
            }
        }

        Ok(next.send(chunk)?)
    };

    let disk = socket
        .fed_by(pools.get("disk").expect("built"), 4, 1, read)
        .expect("a stage");
    let start = Instant::now();
    (0..bytes / CHUNK).for_each(|n| disk.send((n * CHUNK) as u64).expect("open"));
    let disk = disk.join().expect("all is read");
    let elapsed = start.elapsed();
    let socket = socket.join().expect("all is sent");

    let (hash, total, most) = reader.join().expect("no panic");
    assert_eq!((total, hash), (bytes, file.hash));
    assert_eq!(
        (disk.done, socket.done),
        ((bytes / CHUNK) as u64, (bytes / CHUNK) as u64)
    );
    let growth = most.saturating_sub(before);
    assert!(growth < GROWTH, "memory has grown by {growth} bytes");
    assert!(
        disk.blocked > elapsed / 2,
        "the disk stage was blocked for {:?} of {elapsed:?}",
        disk.blocked
    );

    assert_eq!(
        socket.blocked,
        Duration::ZERO,
        "it waits for the socket, and for no stage"
    );
}

#[test]
fn memory_stays_bounded_with_a_slow_reader() {
    unless_it_hangs("memory_stays_bounded_with_a_slow_reader", || {
        a_file_to_a_slow_reader(16 << 20)
    });
}

#[test]
#[ignore = "takes 13 s of reading; in release mode"]
fn memory_stays_bounded_with_a_slow_reader_of_256_mb() {
    unless_it_hangs("memory_stays_bounded_with_a_slow_reader_of_256_mb", || {
        a_file_to_a_slow_reader(256 << 20)
    });
}

/// One fiber spawns that many into a pool of 1,000, each of which yields once.
fn spawn_into_a_full_pool(fibers: u64) {
    if apart() {
        return;
    }
    let builder = |workers| Runtime::builder().workers(workers).report_stalls(false);
    let specs = [
        PoolSpec::new("from").runtime(builder(1)),
        PoolSpec::new("to").runtime(builder(1)).max_fibers(1000),
    ];
    let pools = Pools::build(specs).expect("pools");
    let from = pools.get("from").expect("built");
    let to = pools.get("to").expect("built").clone();
    let ended = Arc::new(AtomicU64::new(0));
    let count = ended.clone();
    let spawner = from.spawn(move || {
        let mut before = 0;
        let mut most = 0;
        for n in 0..fibers {
            let count = count.clone();
            let body = move || {
                plainweave::yield_now();
                count.fetch_add(1, Ordering::Relaxed);
            };

            drop(to.spawn(body).expect("room, in the end"));
            // With a pool that has been full, everything is allocated that it takes.
            if n == fibers / 10 {
                before = resident();
            }
            if n % 1024 == 0 {
                most = most.max(resident());
                // A fiber gives its place back a little before it ends: one for each worker, spare
                // ones included.
                assert!(to.metrics().live_fibers <= 1064, "{:?}", to.metrics());
            }
        }
        (before, most)
    });

    let (before, most) = spawner.expect("open").join().expect("no panic");
    eventually("all have ended", || ended.load(Ordering::Relaxed) == fibers);
    assert!(
        most.saturating_sub(before) < GROWTH_OF_SPAWNS,
        "memory has grown from {before} to {most} bytes"
    );
}

#[test]
fn spawns_into_a_full_pool_take_bounded_memory() {
    unless_it_hangs("spawns_into_a_full_pool_take_bounded_memory", || {
        spawn_into_a_full_pool(100_000)
    });
}

#[test]
#[ignore = "takes a while; in release mode"]
fn ten_million_spawns_take_bounded_memory() {
    unless_it_hangs("ten_million_spawns_take_bounded_memory", || {
        spawn_into_a_full_pool(10_000_000)
    });
}

/// A fiber that waits for room takes no time from the others of its worker.
#[test]
fn other_fibers_go_on_while_one_waits_for_room() {
    if apart() {
        return;
    }
    let spec =
        |name| PoolSpec::new(name).runtime(Runtime::builder().workers(1).report_stalls(false));
    let pools = Pools::build([spec("from"), spec("to").max_fibers(1)]).expect("pools");
    let from = pools.get("from").expect("built");
    let to = pools.get("to").expect("built").clone();
    let inside = to.spawn(plainweave::park).expect("room");
    let waits = from.spawn(move || to.spawn(|| ()).map(drop)).expect("open");

    for _ in 0..100 {
        from.call(|| time::sleep(Duration::from_micros(10)))
            .expect("open")
            .expect("slept");
    }

    assert!(!waits.is_finished());
    inside.fiber().unpark();
    waits.join().expect("no panic").expect("room");
}
