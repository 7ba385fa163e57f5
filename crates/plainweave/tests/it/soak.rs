//! Everything at once, again and again: locks, channels, streams that end in every way, idle
//! connections, storage of fibers' own, calls of the OS, signals, stalls, many fibers, runtimes
//! that end in the midst of it. In the suite a few seconds; as a command, an hour:
//!
//!     PLAINWEAVE_SOAK=3600 cargo test --release -p plainweave --test it soak -- --nocapture
//!
//! With another allocator: the same under `LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2`,
//! or `libmimalloc.so.2`. A run can be repeated: `PLAINWEAVE_SOAK_SEED=17` begins with round 17.
//! With the feature `sanitizer`, all fibers share their workers' storage and stay there:
//! AddressSanitizer cannot follow others.
//!
//! **A round** is a runtime of 1 to 8 workers, on a driver, under a policy and with a movement that
//! follow from the round's number. All jobs run in it side by side, each with an oracle of its own:
//! values are received once, permits come back, readers see a beginning of what was written,
//! thread-locals keep their values. Then the runtime ends, and what was made has been dropped just
//! once, no fiber is left, and descriptors are as many as before. Memory is read after every 64th
//! round, when free storage blocks have been freed and the allocator has given back what it keeps:
//! in the last quarter it may be a tenth and 16 MiB above the most in the second.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
#![expect(clippy::print_stderr, reason = "says how it goes")]

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener as OsListener, TcpStream as OsStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use plainweave::net::TcpStream;
use plainweave::policy::{Choice, PRESETS};
use plainweave::signal::Signals;
use plainweave::sync::{Mutex, Semaphore, channel, select};
use plainweave::{Io, JoinHandle, Movement, Runtime, Shutdown, net, time, yield_now};

/// A job's share of a round: the runtime, its random numbers, and the counts of what it makes.
struct Share<'a> {
    runtime: &'a Runtime,
    random: Random,
    counts: Arc<Counts>,
}

impl Share<'_> {
    /// Spawns `count` fibers, each with its own seed and something that is dropped with it.
    fn spawn<T: Send + 'static>(
        &mut self,
        count: usize,
        body: impl Fn(usize, Random) -> T + Send + Sync + 'static,
    ) -> Vec<JoinHandle<T>> {
        let body = Arc::new(body);
        let spawn = |n| {
            let body = body.clone();
            let random = Random::new(self.random.below(1 << 40));
            let counted = Counted::new(&self.counts);
            self.runtime.spawn(move || {
                let _counted = counted;
                body(n, random)
            })
        };
        (0..count).map(spawn).collect()
    }

    fn spawn_one<T: Send + 'static>(
        &mut self,
        body: impl FnOnce(Random) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let random = Random::new(self.random.below(1 << 40));
        let counted = Counted::new(&self.counts);
        self.runtime.spawn(move || {
            let _counted = counted;
            body(random)
        })
    }

    /// Waits a little, and cancels some.
    fn cancel_some<T>(&mut self, fibers: &[JoinHandle<T>]) {
        thread::sleep(Duration::from_micros(self.random.below(3000)));
        fibers
            .iter()
            .filter(|_| self.random.below(3) == 0)
            .for_each(JoinHandle::cancel);
    }
}

fn join_all<T>(fibers: Vec<JoinHandle<T>>) -> Vec<T> {
    fibers
        .into_iter()
        .map(|fiber| fiber.join().expect("no panic"))
        .collect()
}

fn short(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(800))
}

/// A lock guards a count; whoever is cancelled or late has not counted.
fn locks(share: &mut Share) {
    let lock = Arc::new(Mutex::new(0u64));
    let permits = Arc::new(Semaphore::new(3));
    let theirs = lock.clone();
    let tickets = permits.clone();
    let fibers = share.spawn(12, move |_, mut random| {
        let mut counted = 0;
        for _ in 0..60 {
            let limit = short(&mut random);
            let Ok(_permit) = time::with_timeout(limit, || tickets.acquire()) else {
                continue;
            };
            let Ok(mut guard) = theirs.lock() else { break };
            let before = *guard;
            if random.below(2) == 0 {
                yield_now();
            }
            *guard = before + 1;
            counted += 1;
        }
        counted
    });

    share.cancel_some(&fibers);
    let counted: u64 = join_all(fibers).into_iter().sum();
    assert_eq!(*lock.try_lock().expect("nobody holds it"), counted);
    assert_eq!(permits.available(), 3);
}

/// What is sent is received once or left in the channel.
fn channels(share: &mut Share) {
    let (sender, receiver) = channel::bounded(2);
    let sum = Arc::new(AtomicU64::new(0));
    let received = Arc::new(AtomicU64::new(0));
    let counts = share.counts.clone();
    let theirs = receiver.clone();
    let sent = sum.clone();
    let got = received.clone();
    let fibers = share.spawn(10, move |me, mut random| {
        for n in 0..40u64 {
            let limit = short(&mut random);
            if me % 2 == 0 {
                let value = (n + 1, Counted::new(&counts));
                if time::with_timeout(limit, || sender.send(value)).is_ok() {
                    sent.fetch_add(n + 1, Ordering::SeqCst);
                }
            } else {
                let taken = select! {
                    recv(theirs) -> value => value.map_or(0, |(n, _)| n),
                    after(limit) => 0,
                };
                got.fetch_add(taken.unwrap_or(0), Ordering::SeqCst);
            }
        }
    });

    share.cancel_some(&fibers);
    join_all(fibers);
    let left: u64 = std::iter::from_fn(|| receiver.try_recv().ok())
        .map(|(n, _)| n)
        .sum();
    assert_eq!(
        received.load(Ordering::SeqCst) + left,
        sum.load(Ordering::SeqCst)
    );
}

/// The byte at a place of every stream.
fn byte_at(place: u64) -> u8 {
    (place * 7 + (place >> 8)) as u8
}

/// Reads to the end, and checks each byte. Returns how many came, and whether the end was a regular
/// one.
fn read_all(stream: &mut impl Read, random: &mut Random) -> (u64, bool) {
    let mut place = 0;
    let mut buf = [0; 3000];
    loop {
        let most = 1 + random.below(buf.len() as u64) as usize;
        match stream.read(&mut buf[..most]) {
            Ok(0) => return (place, true),
            Ok(len) => {
                let is_right = |(n, byte): (usize, &u8)| *byte == byte_at(place + n as u64);
                assert!(
                    buf[..len].iter().enumerate().all(is_right),
                    "another byte than was sent, after {place}"
                );
                place += len as u64;
            }
            Err(_) => return (place, false),
        }
    }
}

/// Writes up to `total` bytes. Returns how many were taken.
fn write_some(stream: &mut TcpStream, total: u64, random: &mut Random) -> u64 {
    let mut place = 0;
    while place < total {
        let len = (1 + random.below(5000)).min(total - place);
        let bytes: Vec<u8> = (place..place + len).map(byte_at).collect();
        match stream.write(&bytes) {
            Ok(taken) => place += taken as u64,
            Err(_) => break,
        }
    }
    place
}

/// Pairs of a writer and a reader, whose connection ends regularly, by a reset, or by a
/// cancellation of either side.
fn streams(share: &mut Share) {
    for _ in 0..6 {
        const TOTAL: u64 = 200_000;
        let (mut ours, mut theirs) = stream_pair();
        let ending = share.random.below(4);
        let writer = share.spawn_one(move |mut random| {
            let written = write_some(&mut ours, TOTAL, &mut random);
            if ending == 1 {
                let _ = socket2::SockRef::from(&ours).set_linger(Some(Duration::ZERO));
            }
            written
        });

        let reader = share.spawn_one(move |mut random| read_all(&mut theirs, &mut random));
        match ending {
            2 => share.cancel_some(std::slice::from_ref(&writer)),
            3 => share.cancel_some(std::slice::from_ref(&reader)),
            _ => {}
        }

        let (written, (read, whole)) = (
            writer.join().expect("no panic"),
            reader.join().expect("no panic"),
        );
        assert!(read <= written, "{read} bytes of {written}");
        assert!(
            ending != 0 || (whole && read == TOTAL && written == TOTAL),
            "{read} bytes of {written}"
        );
    }
}

/// Connections without a fiber: each question is answered, and an idle time ends those that ask
/// none.
fn idle_connections(share: &mut Share) {
    const CONNECTIONS: usize = 6;
    let ended = Arc::new(AtomicUsize::new(0));
    let listener = OsListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| OsStream::connect(address).expect("connected"))
        .collect();
    let accepted: Vec<_> = (0..CONNECTIONS)
        .map(|_| listener.accept().expect("accepted").0)
        .collect();
    let count = ended.clone();
    let made = share.counts.clone();

    share.runtime.run(move || {
        for (n, stream) in accepted.into_iter().enumerate() {
            let ended = count.clone();
            let counted = Counted::new(&made);
            let idle = (n == 0).then(|| ms(20));
            net::each_readable(
                TcpStream::from_std(stream).expect("a stream"),
                idle,
                move |stream, outcome| {
                    let (_, mut byte) = (&counted, [0]);
                    let answered = outcome
                        .and_then(|()| stream.read_exact(&mut byte))
                        .and_then(|()| stream.write_all(&byte));
                    if answered.is_err() {
                        ended.fetch_add(1, Ordering::SeqCst);
                    }
                    answered.map_or(ControlFlow::Break(()), ControlFlow::Continue)
                },
            );
        }
    });
    for turn in 0..20u8 {
        let mut client = &clients[1 + share.random.below(CONNECTIONS as u64 - 1) as usize];
        client.set_read_timeout(Some(HANG)).expect("set");
        client.write_all(&[turn]).expect("sent");
        let mut answer = [0];
        client.read_exact(&mut answer).expect("answered");
        assert_eq!(answer, [turn]);
    }

    clients[0].set_read_timeout(Some(HANG)).expect("set");
    assert_eq!((&clients[0]).read(&mut [0]).expect("the end"), 0);
    drop(clients);
    eventually("all connections end", || {
        ended.load(Ordering::SeqCst) == CONNECTIONS
    });
}

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// A fiber's thread-locals are its own, whoever else runs on its worker and wherever it goes on.
fn storage(share: &mut Share) {
    let fibers = share.spawn(20, |me, mut random| {
        assert_eq!(OWN.replace(me + 1), 0, "the storage of another fiber");
        for _ in 0..20 {
            match random.below(3) {
                0 => time::sleep(short(&mut random)).expect("not cancelled"),
                _ => yield_now(),
            }
            assert_eq!(OWN.get(), me + 1);
        }
    });
    join_all(fibers);
}

/// Calls of the OS that block, on the blocking pool and in the fiber itself.
fn calls(share: &mut Share) {
    let fibers = share.spawn(8, |me, mut random| {
        for n in 0..10 {
            match (me + n) % 3 {
                0 => assert!(!std::fs::read("/proc/self/stat").expect("proc").is_empty()),
                1 => {
                    drop(plainweave::blocking(move || n * 2).map(|twice| assert_eq!(twice, n * 2)))
                }
                _ => thread::sleep(short(&mut random)),
            }
        }
    });

    share.cancel_some(&fibers);
    join_all(fibers);
}

/// Signals of the process reach whoever waits for them.
fn signals(share: &mut Share) {
    share.runtime.run(|| {
        let signals = Signals::new([libc::SIGUSR1]).expect("descriptors");
        for _ in 0..5 {
            // SAFETY: the signal is caught.
            unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
            assert_eq!(signals.wait_timeout(HANG).expect("it came"), libc::SIGUSR1);
        }
    });
}

/// Fibers that compute longer than the watchdog likes.
fn stalls(share: &mut Share) {
    let fibers = share.spawn(3, |_, mut random| {
        let until = Instant::now() + ms(3) + short(&mut random);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    });
    join_all(fibers);
}

/// Deadlines of all lengths; what is late says so.
fn deadlines(share: &mut Share) {
    let fibers = share.spawn(30, |_, mut random| {
        let limit = short(&mut random);
        let length = short(&mut random);
        match time::with_timeout(limit, || time::sleep(length)) {
            Ok(()) => {}
            Err(error) => {
                assert!(error.kind() == io::ErrorKind::TimedOut || plainweave::is_cancelled(&error))
            }
        }
    });

    share.cancel_some(&fibers);
    join_all(fibers);
}

/// Fibers that all wait at once, and are all let go.
fn many(share: &mut Share, count: usize) {
    let gate = Arc::new(Semaphore::new(0));
    let theirs = gate.clone();
    let fibers = share.spawn(count, move |_, _| {
        theirs.acquire().map(|permit| permit.forget()).is_ok()
    });
    (0..count).for_each(|_| gate.release());
    assert!(join_all(fibers).into_iter().all(|acquired| acquired));
    assert_eq!(gate.available(), 0);
}

/// Fibers that are still at it when the runtime ends.
fn left_behind(share: &mut Share) {
    let (ours, theirs) = stream_pair();
    let streams = Arc::new((ours, theirs));
    let fibers = share.spawn(9, move |n, _| match n % 3 {
        0 => time::sleep(Duration::from_secs(1000)),
        1 => plainweave::park(),
        _ => (&streams.0).read(&mut [0; 4]).map(drop),
    });

    drop(fibers);
}

type Job = fn(&mut Share);

const JOBS: [Job; 10] = [
    storage,
    locks,
    channels,
    streams,
    idle_connections,
    calls,
    signals,
    stalls,
    deadlines,
    left_behind,
];
/// Whether AddressSanitizer looks on.
const SANITIZED: bool = cfg!(feature = "sanitizer");

/// Runs all jobs in a runtime of the round's kind. Returns what it was.
fn round(number: u64, fibers: usize) -> String {
    let mut random = Random::new(number);
    let io = [Io::Epoll, Io::Uring][random.below(2) as usize];
    let is_usual = |name: &&str| {
        Choice::parse(name)
            .expect("a preset")
            .experiment()
            .is_none()
    };

    let fair: Vec<_> = PRESETS
        .iter()
        .filter(|preset| preset.bounded)
        .map(|preset| preset.name)
        .filter(is_usual)
        .collect();
    let policy = fair[random.below(fair.len() as u64) as usize];
    let movements = if SANITIZED {
        [Movement::BeforeStart; 2]
    } else {
        [Movement::Anytime, Movement::BeforeStart]
    };

    let movement = movements[random.below(2) as usize];
    let workers = 1 + random.below(8) as usize;
    let builder = Runtime::builder()
        .io(io)
        .policy(policy)
        .movement(movement)
        .workers(workers)
        .seed(number);
    let builder = builder
        .max_workers(workers + 4)
        .stall_after(Some(ms(2)))
        .report_stalls(false)
        .stack_size(64 << 10);
    let builder = match SANITIZED {
        // Its frames are larger. SAFETY: no job holds a guard of scoped storage.
        true => unsafe { builder.shared_storage() }.stack_size(256 << 10),
        false => builder,
    };

    let runtime = builder.build().expect("a runtime");
    let counts = Arc::new(Counts::default());
    let share = |seed| Share {
        runtime: &runtime,
        random: Random::new(number * 100 + seed),
        counts: counts.clone(),
    };

    thread::scope(|scope| {
        // The first one asserts what only storage of a fiber's own gives.
        for (seed, job) in (1..).zip(JOBS).skip(usize::from(SANITIZED)) {
            let mut share = share(seed);
            scope.spawn(move || job(&mut share));
        }

        let mut share = share(0);
        scope.spawn(move || many(&mut share, fibers));
    });
    let kind = format!(
        "{} {policy} {movement:?} {workers} workers {fibers} fibers",
        runtime.driver()
    );
    assert_eq!(
        runtime.shutdown(HANG / 2),
        Shutdown::default(),
        "round {number}: {kind}"
    );
    assert!(
        counts.balanced() && counts.made() > fibers,
        "round {number}: {kind}: {counts:?}"
    );

    kind
}

/// Resident memory in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("proc");
    text.split(' ')
        .nth(1)
        .expect("a field")
        .parse::<usize>()
        .expect("a number")
        * rustix::param::page_size()
}

/// Resident memory without what is kept for later: storage blocks of fibers that have ended, which
/// an idle worker has freed, and free memory that glibc leaves in the arenas of threads. How much
/// there is of either is chance.
fn settled_memory() -> usize {
    // More than the process and the workers' caches keep however idle they are.
    const FEW: usize = 2000;
    let runtime = Runtime::builder().workers(1).build().expect("a runtime");
    eventually("free storage blocks are freed", || {
        runtime.run(|| time::sleep(ms(10))).expect("not cancelled");
        runtime.metrics().storage_blocks < FEW
    });
    drop(runtime);
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }

    resident()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

#[test]
fn everything_at_once_leaves_nothing_behind() {
    if apart() {
        return;
    }

    let time = Duration::from_secs(number("PLAINWEAVE_SOAK", 4));
    let first = number("PLAINWEAVE_SOAK_SEED", 1);
    let large = if time >= Duration::from_secs(60) && !SANITIZED {
        100_000
    } else {
        5000
    };

    // The process's own descriptors, opened once.
    unless_it_hangs("the first round", || round(first, large));
    let start = Instant::now();
    let before = descriptors();
    let mut samples = Vec::new();
    let mut minute = 0;
    let mut rounds = 1;

    for n in first + 1.. {
        let name = format!("round {n}");
        let fibers = if n % 32 == 0 { large } else { 1000 };
        let kind = unless_it_hangs(&name, || round(n, fibers));
        rounds += 1;
        eventually("the descriptors from before", || descriptors() <= before);
        if n % 64 == 63 {
            samples.push(settled_memory());
        }
        if start.elapsed() >= time {
            break;
        }

        if start.elapsed().as_secs() / 60 > minute {
            minute += 1;
            eprintln!(
                "{minute} min, {name}: {kind}: {} MB, {before} descriptors",
                resident() >> 20
            );
        }
    }

    // What leaks stays, and raises the median; a single sample may find memory on its way back.
    let quarter = |n: usize| {
        let mut part = samples[samples.len() * n / 4..samples.len() * (n + 1) / 4].to_vec();
        part.sort_unstable();
        part.get(part.len() / 2).copied()
    };

    let [_, second, _, last] = [0, 1, 2, 3].map(|n| quarter(n).unwrap_or(0));
    let megabytes: Vec<_> = samples.iter().map(|bytes| bytes >> 20).collect();
    eprintln!("{rounds} rounds; MB, from time to time: {megabytes:?}");
    assert!(
        samples.len() < 8 || last <= second + second / 10 + (16 << 20),
        "memory grows: {megabytes:?}"
    );
}
