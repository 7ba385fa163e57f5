//! A measurement, not a test: what one echo costs the server's thread, with a raw epoll loop and
//! with the drivers.
//!
//!     cargo test --release -p plainweave io::tests::echo -- --ignored --nocapture
//!
//! 64 connections over loopback play ping-pong with 128 bytes; the client is a separate process on
//! the other core. Runs are interleaved; on a shared machine compare the lowest of many.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::os::fd::RawFd;

use super::*;

const CONNECTIONS: usize = 64;
const MESSAGE: usize = 128;
const WARM_UP: usize = 10_000;
const MEASURED: usize = 150_000;

/// Returns the CPU time that this thread has used, in nanoseconds.
fn thread_cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Counts echoes; knows the CPU time per echo after enough of them.
struct Meter {
    seen: usize,
    start: u64,
    cost: Option<u64>,
}

impl Meter {
    fn new() -> Self {
        Self {
            seen: 0,
            start: 0,
            cost: None,
        }
    }

    fn echo(&mut self) {
        self.seen += 1;
        if self.seen == WARM_UP {
            self.start = thread_cpu();
        } else if self.seen == WARM_UP + MEASURED {
            self.cost = Some((thread_cpu() - self.start) / MEASURED as u64);
        }
    }
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn wait(epoll: RawFd, events: &mut [libc::epoll_event]) -> usize {
    // SAFETY: the kernel writes into our buffer, at most as many as it holds.
    let n = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, -1) };
    n.max(0) as usize
}

fn add(epoll: RawFd, fd: RawFd, flags: i32) {
    let mut event = libc::epoll_event {
        events: flags as u32,
        u64: fd as u64,
    };

    // SAFETY: the event lives across the call.
    let found = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) };
    assert_eq!(found, 0);
}

/// Receives once and sends back what came. Returns whether anything came.
fn answer(fd: RawFd, buf: &mut [u8]) -> bool {
    // SAFETY: the buffer is ours.
    unsafe {
        let n = libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT);
        n > 0
            && libc::send(
                fd,
                buf.as_ptr().cast(),
                n as usize,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            ) == n
    }
}

/// Loops over all descriptors until `enough`, called after each echo, returns true.
fn raw_loop(fds: &[RawFd], enough: &mut dyn FnMut() -> bool) {
    // SAFETY: plain call.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    fds.iter()
        .for_each(|fd| add(epoll, *fd, libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET));
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
    let mut buf = [0; 1024];

    loop {
        let count = wait(epoll, &mut events);
        for event in &events[..count] {
            if answer(event.u64 as RawFd, &mut buf) && enough() {
                // SAFETY: ours.
                unsafe { libc::close(epoll) };
                return;
            }
        }
    }
}

/// Does the same with a driver, in a worker's steps: poll, then for each completion a send and the
/// next receive.
fn driver_loop(driver: Box<dyn Driver>, sources: &[Source], meter: &mut Meter) {
    let mut rig = Rig {
        driver,
        reports: Vec::new(),
    };

    let mut bufs = vec![[0u8; 1024]; sources.len()];
    let ops: Vec<Operation> = sources
        .iter()
        .zip(&mut bufs)
        .map(|(source, buf)| recv(source, buf))
        .collect();
    let mut serve = |rig: &mut Rig, op: &Operation, mut submitted: Submitted| {
        while let Submitted::Done(n) = submitted {
            let Op::Recv { buf, .. } = op.op else {
                unreachable!()
            };
            // SAFETY: the sources live until the end of this function, by when all operations have
            // been cancelled.
            let reply = Operation::new(
                Op::Send {
                    buf,
                    len: n as usize,
                },
                unsafe { op.source.as_ref() },
            );
            assert_eq!(rig.submit(&reply), Submitted::Done(n));
            meter.echo();

            // SAFETY: as above, also for the operation and its buffer.
            submitted = unsafe { rig.driver.submit(OpRef::from(op)) };
        }
        meter.cost.is_some()
    };

    for op in &ops {
        // SAFETY: as above.
        let submitted = unsafe { rig.driver.submit(OpRef::from(op)) };
        serve(&mut rig, op, submitted);
    }

    let mut done = Vec::with_capacity(256);
    let mut enough = false;
    while !enough {
        rig.driver.poll(Wait::Forever, &mut done).unwrap();
        for Completion { op, result } in done.drain(..) {
            // SAFETY: as above.
            enough |= serve(&mut rig, unsafe { op.as_ref() }, Submitted::Done(result));
        }
    }

    ops.iter().for_each(|op| rig.cancel(op));
    for op in &ops {
        rig.wait_for(op);
    }
}

/// Runs one server against a client process.
fn measure(serve: impl FnOnce(Vec<Source>, &mut Meter)) -> u64 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut peers: Vec<TcpStream> = Vec::new();
    let mut sources = Vec::new();

    for _ in 0..CONNECTIONS {
        peers.push(TcpStream::connect(address).unwrap());
        let (ours, _) = listener.accept().unwrap();
        ours.set_nodelay(true).unwrap();
        sources.push(source(ours));
        peers.last().unwrap().set_nodelay(true).unwrap();
    }

    peers.iter().for_each(|peer| write(peer, &[1; MESSAGE]));
    // SAFETY: the child makes system calls only, until it is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain call: the child does not outlive us.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        pin(1);
        let fds: Vec<RawFd> = peers.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
        raw_loop(&fds, &mut || false);
    }

    pin(0);
    drop(peers);
    let mut meter = Meter::new();
    serve(sources, &mut meter);

    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }

    meter.cost.expect("measured")
}

#[test]
#[ignore = "a measurement of some seconds"]
#[expect(clippy::print_stderr, reason = "the figures are what it is for")]
fn cost_of_an_echo() {
    let mut costs: [Vec<u64>; 4] = Default::default();
    let raw = |sources: Vec<Source>, meter: &mut Meter| {
        raw_loop(
            &sources.iter().map(Source::raw).collect::<Vec<_>>(),
            &mut || {
                meter.echo();
                meter.cost.is_some()
            },
        );
    };

    for _ in 0..12 {
        costs[0].push(measure(raw));
        costs[1].push(measure(|s, meter| {
            driver_loop(named("epoll", Epoll::new(Instant::now(), 0)), &s, meter)
        }));
        for (n, access) in [(2, Access::OwnerThread), (3, Access::AnyThread)] {
            let uring = || named("uring", Uring::new(Instant::now(), 0, access, 256));
            costs[n].push(measure(|s, meter| driver_loop(uring(), &s, meter)));
        }
    }

    costs.iter_mut().for_each(|runs| runs.sort_unstable());
    for (name, runs) in [
        "raw epoll loop",
        "epoll driver",
        "uring driver",
        "for any thread",
    ]
    .into_iter()
    .zip(&costs)
    {
        let ratio = |n: usize| runs[n] as f64 / costs[0][n] as f64;
        eprintln!(
            "{name:<15} ns per echo: least {} ({:.3}), median {} ({:.3})",
            runs[0],
            ratio(0),
            runs[6],
            ratio(6)
        );
    }
}
