//! The servers: ours in several modes, threads, Tokio, Go.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::process::{Child, Stdio};

use anyhow::{Context, ensure};
use plainweave::net;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::slow::Slow;
use crate::mode::Mode;

/// A system that is measured.
pub(super) struct System {
    pub(super) name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Driver, mode, and whether idle connections are parked (else each has its fiber).
    Ours(plainweave::Io, &'static str, bool),
    Threads,
    Tokio,
    Go,
}

const fn ours(name: &'static str, io: plainweave::Io, mode: &'static str, parked: bool) -> System {
    System { name, kind: Kind::Ours(io, mode, parked) }
}

pub(super) const SYSTEMS: [System; 9] = [
    ours("idle epoll before-start", plainweave::Io::Epoll, "before-start/shared", true),
    ours("idle uring before-start", plainweave::Io::Uring, "before-start/shared", true),
    ours("idle epoll anytime", plainweave::Io::Epoll, "anytime/own", true),
    ours("fibers epoll anytime", plainweave::Io::Epoll, "anytime/own", false),
    ours("fibers uring anytime", plainweave::Io::Uring, "anytime/own", false),
    ours("fibers epoll before-start", plainweave::Io::Epoll, "before-start/own", false),
    System { name: "threads", kind: Kind::Threads },
    System { name: "tokio", kind: Kind::Tokio },
    System { name: "go", kind: Kind::Go },
];

/// A running server; ends with this value.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _running: Running,
}

/// What keeps it running.
#[expect(dead_code, reason = "held for what dropping it does")]
enum Running {
    Fibers(plainweave::Runtime),
    Tasks(tokio::runtime::Runtime),
    /// Its threads end with their connections, and the acceptor with the process.
    Threads,
    Program(Program),
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// # Errors
    /// The system is not available here, and why.
    pub(super) fn start(system: &System, workers: usize, slow: Slow) -> anyhow::Result<Self> {
        match system.kind {
            Kind::Ours(io, mode, parked) => fibers(io, mode, parked, workers, slow),
            Kind::Threads => threads(slow),
            Kind::Tokio => tasks(workers, slow),
            Kind::Go => go(workers, slow),
        }
    }
}

/// What a request costs.
fn handle(byte: u8, slow: Slow) {
    if byte == b'S' {
        slow.run();
    }
}

fn fibers(io: plainweave::Io, mode: &str, parked: bool, workers: usize, slow: Slow) -> anyhow::Result<Server> {
    let runtime = Mode::parse(mode)?.builder().workers(workers).io(io).build()?;
    let listener = runtime.run(|| net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if parked {
                park(stream, slow);
            } else {
                plainweave::spawn(move || keep(stream, slow));
            }
        }
    });
    Ok(Server { address, _running: Running::Fibers(runtime) })
}

/// A fiber a connection.
fn keep(mut stream: net::TcpStream, slow: Slow) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        handle(byte[0], slow);
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

/// A fiber a request.
fn park(stream: net::TcpStream, slow: Slow) {
    net::each_readable(stream, None, move |stream, outcome| {
        let mut byte = [0];
        if outcome.is_err() || stream.read_exact(&mut byte).is_err() {
            return ControlFlow::Break(());
        }
        handle(byte[0], slow);
        stream.write_all(&byte).map_or(ControlFlow::Break(()), ControlFlow::Continue)
    });
}

/// Starts a server with a thread for each connection: the kernel shares out the CPUs.
fn threads(slow: Slow) -> anyhow::Result<Server> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    handle(byte[0], slow);
                    if stream.write_all(&byte).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(Server { address, _running: Running::Threads })
}

fn tasks(workers: usize, slow: Slow) -> anyhow::Result<Server> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_io().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    handle(byte[0], slow);
                    if stream.write_all(&byte).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(Server { address, _running: Running::Tasks(runtime) })
}

const GO: [(&str, &str); 2] = [
    ("go.mod", include_str!("../../peers/go-stall/go.mod")),
    ("main.go", include_str!("../../peers/go-stall/main.go")),
];

fn go(workers: usize, slow: Slow) -> anyhow::Result<Server> {
    let program = crate::program::Program::go(&GO)?;
    let mut command = program.command();
    let slow = [format!("-slow={}ms", slow.time.as_millis()), format!("-slow-by={}", slow.by.name())];
    command.arg(format!("-workers={workers}")).args(slow);
    let mut child = Program(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().context("no pipe")?).read_line(&mut line)?;
    let address = line.trim().parse();
    ensure!(address.is_ok(), "the Go program did not start");
    Ok(Server { address: address?, _running: Running::Program(child) })
}
