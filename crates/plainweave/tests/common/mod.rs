//! What the test files share: one list of tests for every driver and policy, children, and
//! counters.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
#![allow(
    clippy::print_stderr,
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros
)]

mod gate;
mod panics;
mod seccomp;
mod skip;
mod tested;

use std::io::{Read, Write};
use std::net::{TcpListener as OsListener, TcpStream as OsStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

pub use gate::Gate;
use panics::{keep_panics, show_panics};
use plainweave::net::{TcpListener, TcpStream};
use plainweave::{Io, JoinHandle, Runtime, RuntimeBuilder};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};
pub(crate) use seccomp::{forbid, forbid_everywhere};
pub(crate) use skip::skip;
pub use tested::TestRuntime;

/// A test that takes longer hangs.
pub const HANG: Duration = Duration::from_secs(90);

/// On which driver and under which policy a test runs.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub io: Io,
    pub policy: &'static str,
    /// Whether it is a pool beside another; see [`TestRuntime`].
    pub pooled: bool,
}

impl Setup {
    pub fn builder(self) -> RuntimeBuilder {
        Runtime::builder()
            .io(self.io)
            .policy(self.policy)
            .workers(2)
            .report_stalls(false)
    }

    /// A runtime of that many workers, which really has the driver and the policy asked for. One
    /// stays one: whoever asks for it counts on what runs at a time, and a spare worker comes as
    /// soon as a busy machine holds the other up.
    pub fn workers(self, workers: usize) -> Runtime {
        self.check(exactly(self.builder(), workers))
    }

    pub fn runtime(self) -> Runtime {
        self.workers(2)
    }

    /// With no spare workers, which come on a busy machine and keep descriptors of their own.
    pub fn without_spares(self) -> Runtime {
        self.check(self.builder().max_workers(2).build().expect("a runtime"))
    }

    /// As [`Self::workers`]; their fibers share thread-local storage.
    pub fn shared_workers(self, workers: usize) -> Runtime {
        self.check(exactly(self.shared_builder(), workers))
    }

    pub fn shared_builder(self) -> RuntimeBuilder {
        // SAFETY: such tests hold no scoped guards across suspensions, or ones that store numbers.
        unsafe { self.builder().shared_storage() }
    }

    /// What a test runs on that holds for pools too.
    pub fn tested(self) -> TestRuntime {
        self.tested_with(self.builder())
    }

    pub fn tested_with(self, builder: RuntimeBuilder) -> TestRuntime {
        TestRuntime::new(self, builder)
    }

    pub fn check(self, runtime: Runtime) -> Runtime {
        self.check_names(&runtime);
        runtime
    }

    pub fn check_names(self, runtime: &Runtime) {
        let driver = match self.io {
            Io::Epoll => "epoll",
            Io::Uring => "uring",
            Io::Sim { .. } => "sim",
            Io::Auto => runtime.driver(),
        };

        assert_eq!(runtime.driver(), driver);
        assert_eq!(runtime.policy(), self.policy);
    }
}

fn exactly(builder: RuntimeBuilder, workers: usize) -> Runtime {
    let builder = builder.workers(workers);
    let builder = if workers == 1 {
        builder.max_workers(1)
    } else {
        builder
    };
    builder.build().expect("a runtime")
}

/// Runs each test on both drivers under both policies: `on_every_setup!(a, b)` for `fn a(setup:
/// Setup)`.
macro_rules! on_every_setup {
    ($($test:ident),+ $(,)?) => {
        crate::common::on_setup!(epoll_fifo, Epoll, "fifo", false, $($test),+);
        crate::common::on_setup!(epoll_lifo, Epoll, "lifo-slot", false, $($test),+);
        crate::common::on_setup!(uring_fifo, Uring, "fifo", false, $($test),+);
        crate::common::on_setup!(uring_lifo, Uring, "lifo-slot", false, $($test),+);
    };
}

/// As `on_every_setup`, and in pools of several policies: for `setup.tested()`.
macro_rules! in_pools_too {
    ($($test:ident),+ $(,)?) => {
        crate::common::on_every_setup!($($test),+);
        crate::common::on_setup!(pool_epoll_priority, Epoll, "priority", true, $($test),+);
        crate::common::on_setup!(pool_uring_lifo, Uring, "lifo", true, $($test),+);
        crate::common::on_setup!(pool_uring_helping, Uring, "helping", true, $($test),+);
    };
}

/// As `on_every_setup`, where the order of scheduling is of no concern.
macro_rules! on_every_driver {
    ($($test:ident),+ $(,)?) => {
        crate::common::on_setup!(epoll, Epoll, "fifo", false, $($test),+);
        crate::common::on_setup!(uring, Uring, "fifo", false, $($test),+);
    };
}

macro_rules! on_setup {
    ($module:ident, $io:ident, $policy:literal, $pooled:literal, $($test:ident),+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    let setup = crate::common::Setup { io: plainweave::Io::$io, policy: $policy, pooled: $pooled };
                    crate::common::unless_it_hangs(concat!(stringify!($module), "::", stringify!($test)), move || {
                        super::$test(setup)
                    });
                }
            )+
        }
    };
}
pub(crate) use {in_pools_too, on_every_driver, on_every_setup, on_setup};

/// Runs a test; if it takes too long, the process ends and says which it was. What fibers say when
/// they panic is shown if the test fails. A child says everything, for its parent reads it.
pub fn unless_it_hangs<T>(name: &str, test: impl FnOnce() -> T) -> T {
    let _kept = std::env::var_os(CHILD).is_none().then(keep_panics);
    let (done, finished) = mpsc::channel::<()>();
    let name = name.to_owned();
    std::thread::spawn(move || {
        if finished.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
            show_panics();
            let _ = writeln!(std::io::stderr(), "the test {name} hangs");
            if std::env::var_os("KEEP_HUNG").is_some() {
                std::thread::sleep(Duration::from_secs(3600));
            }
            std::process::abort();
        }
    });
    let result = test();

    drop(done);

    result
}

/// On a plain thread: polls until it is so, for a while.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG / 2, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A little while: long enough for another fiber to block.
pub fn pause() {
    plainweave::time::sleep(ms(5)).expect("not cancelled");
}

/// For tests that count or change what belongs to the process, first of all: runs the calling test
/// in a process of its own, and returns whether that has been done. What it says is shown if it
/// fails, and with `--nocapture`.
pub fn apart() -> bool {
    if is_child("apart") {
        return false;
    }

    let thread = std::thread::current();
    let mut command = command_for(thread.name().expect("a test's thread"), "apart");
    if std::env::args().any(|argument| argument == "--nocapture") {
        let status = command.stdin(Stdio::null()).status();
        assert!(status.expect("the child runs").success());
    } else {
        let output = run(command);
        assert!(
            output.status.success(),
            "{}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            stderr_of(&output)
        );
    }

    true
}

/// Open descriptors of the process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

/// The threads of the process, and their names.
pub fn threads() -> Vec<(Pid, String)> {
    let thread = |entry: std::fs::DirEntry| {
        // One that has ended meanwhile has no name.
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        let number = entry
            .file_name()
            .to_string_lossy()
            .parse()
            .expect("a number");
        Some((Pid::from_raw(number)?, name.trim().to_owned()))
    };

    let entries = std::fs::read_dir("/proc/self/task").expect("proc");
    entries
        .filter_map(|entry| thread(entry.expect("proc")))
        .collect()
}

/// One of the processors that the calling thread may run on.
pub fn one_processor() -> CpuSet {
    let all = sched_getaffinity(None).expect("known");
    let mut one = CpuSet::new();
    one.set(
        (0..CpuSet::MAX_CPU)
            .find(|&cpu| all.is_set(cpu))
            .expect("one at least"),
    );
    one
}

/// Two ends of a connection: ours, and a plain blocking one.
pub fn connected() -> (TcpStream, OsStream) {
    let listener = OsListener::bind("127.0.0.1:0").expect("bind");
    let theirs = OsStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (ours, _) = listener.accept().expect("accept");
    (TcpStream::from_std(ours).expect("from_std"), theirs)
}

/// Two ends of a connection, both ours.
pub fn stream_pair() -> (TcpStream, TcpStream) {
    let (ours, theirs) = connected();
    (ours, TcpStream::from_std(theirs).expect("from_std"))
}

pub fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("bind")
}

/// A listener that never accepts, its queue full: a further connect hangs.
pub struct FullListener {
    listener: OsListener,
    _fill: Vec<OsStream>,
}

impl FullListener {
    pub fn new() -> Self {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("address");
        socket.bind(&any.into()).expect("bind");
        socket.listen(0).expect("listen");
        let listener: OsListener = socket.into();
        let address = listener.local_addr().expect("address");
        let mut fill = Vec::new();

        // Full, once the kernel has twice kept a client waiting.
        let mut waits = 0;
        while waits < 2 {
            assert!(fill.len() < 16, "the queue has no end");
            match OsStream::connect_timeout(&address, ms(100)) {
                Ok(client) => fill.push(client),
                Err(_) => waits += 1,
            }
        }

        Self {
            listener,
            _fill: fill,
        }
    }

    pub fn address(&self) -> std::net::SocketAddr {
        self.listener.local_addr().expect("address")
    }
}

/// Small, seeded, good enough to vary the timing of a race.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// Spins for a random time of up to `most_us` microseconds.
    pub fn spin(&mut self, most_us: u64) {
        let until = Instant::now() + Duration::from_micros(self.below(most_us.max(1)));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

/// Counts those alive of its kind; a second drop of one would make the count wrong.
#[derive(Debug)]
pub struct Counted(Arc<Counts>);

#[derive(Debug, Default)]
pub struct Counts {
    pub made: AtomicUsize,
    pub dropped: AtomicUsize,
}

impl Counted {
    pub fn new(counts: &Arc<Counts>) -> Self {
        counts.made.fetch_add(1, Ordering::SeqCst);
        Self(counts.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counts {
    pub fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Whether each that was made has been dropped.
    pub fn balanced(&self) -> bool {
        self.made() == self.dropped()
    }
}

/// The variable that tells a test that it is the child.
pub const CHILD: &str = "PLAINWEAVE_TEST_CHILD";

/// Whether this process was started by [`in_child`] for `part`.
pub fn is_child(part: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|v| v == part)
}

/// Returns the command that runs this test binary again, with only the test `name` of the calling
/// file, as the child `part`.
#[track_caller]
pub fn child_command(name: &str, part: &str) -> Command {
    let file = std::path::Path::new(std::panic::Location::caller().file());
    let module = file.file_stem().expect("a file").to_string_lossy();
    command_for(&format!("{module}::{name}"), part)
}

/// Returns the command that runs only the test of that path, as the child `part`.
fn command_for(path: &str, part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args([
            "--exact",
            path,
            "--nocapture",
            "--include-ignored",
            "--test-threads=1",
        ])
        .env(CHILD, part);
    command
}

/// A process that ends with the test.
pub struct OwnChild(pub Child);

impl Drop for OwnChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Computes for this much processor time of its thread.
pub fn compute(time: Duration) {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time");
    let end = used() + time;
    while used() < end {
        std::hint::spin_loop();
    }
}

/// Runs this test binary again, with only the test `name` of the calling file, as the child `part`.
#[track_caller]
pub fn in_child(name: &str, part: &str, env: &[(&str, &str)]) -> Output {
    let mut command = child_command(name, part);
    command.envs(env.iter().copied());
    run(command)
}

/// Runs the child as [`in_child`] does, and expects it to die of `signal`. Returns its standard
/// error.
#[track_caller]
pub fn dies_of(name: &str, part: &str, signal: i32) -> String {
    use std::os::unix::process::ExitStatusExt;

    let output = in_child(name, part, &[]);
    let text = stderr_of(&output);
    assert_eq!(output.status.signal(), Some(signal), "{part}: {text}");
    text
}

fn run(mut command: Command) -> Output {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.output().expect("the child runs")
}

pub fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The text of a panic's payload.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Echoes until the end of the stream.
pub fn echo(mut stream: TcpStream) -> std::io::Result<u64> {
    let mut buf = [0; 4096];
    let mut total = 0;
    loop {
        let n = stream.read(&mut buf)?;
        if n == 0 {
            return Ok(total);
        }
        stream.write_all(&buf[..n])?;
        total += n as u64;
    }
}

/// Fibers that block their threads until they are let go.
pub struct Blocked {
    pub release: Vec<mpsc::Sender<()>>,
    pub fibers: Vec<JoinHandle<bool>>,
    running: Arc<AtomicUsize>,
}

impl Blocked {
    pub fn new(runtime: &Runtime, count: usize) -> Self {
        let running = Arc::new(AtomicUsize::new(0));
        let (release, fibers) = (0..count)
            .map(|_| {
                let (running, (release, released)) = (running.clone(), mpsc::channel::<()>());
                let body = move || {
                    running.fetch_add(1, Ordering::SeqCst);
                    released.recv().is_err()
                };
                (release, runtime.spawn(body))
            })
            .unzip();
        Self {
            release,
            fibers,
            running,
        }
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub fn end(self) {
        drop(self.release);
        self.fibers
            .into_iter()
            .for_each(|fiber| assert!(fiber.join().expect("no panic")));
    }
}
