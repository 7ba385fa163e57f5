//! Datagrams that a server sends back.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, ensure};
use plainweave::Io;
use plainweave::net::Batch;
use rustix::event::epoll;

use super::turn::{RUNTIMES, Systems, Turn, cpu_ns, runtime};
use crate::harness::machine;
use crate::harness::program::{PeerServer, Program};

const PEERS: usize = 64;
const LEN: usize = 64;
/// For what is lost: the loopback device drops nothing unless a buffer is full.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a server looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Serves a socket until the flag is set.
type Serve = fn(UdpSocket, &AtomicBool) -> anyhow::Result<()>;

const GO: [(&str, &str); 2] = [
    ("go.mod", include_str!("../../../peers/go-datagrams/go.mod")),
    (
        "main.go",
        include_str!("../../../peers/go-datagrams/main.go"),
    ),
];

/// Returns the systems, and notes which is not there, and why.
pub(super) fn systems(datagrams: usize, absent: &mut Vec<(String, String)>) -> Systems<'static> {
    let [(default, _), (epoll, _)] = RUNTIMES;
    let fibers: [(&str, Serve); 3] = [
        (default, |socket, end| {
            serve_fibers(socket, end, Io::Auto, echo)
        }),
        (epoll, |socket, end| {
            serve_fibers(socket, end, Io::Epoll, echo)
        }),
        ("plainweave-many", |socket, end| {
            serve_fibers(socket, end, Io::Auto, echo_many)
        }),
    ];
    let mut systems: Systems<'static> = Vec::new();
    for (name, serve) in fibers {
        systems.push((name, Box::new(move || turn(datagrams, serve))));
    }
    systems.push(("tokio", Box::new(move || turn(datagrams, serve_tokio))));
    match Program::go(&GO) {
        Ok(program) => systems.push(("go", Box::new(move || turn_of_go(datagrams, &program)))),
        Err(error) => absent.push(("go".to_owned(), format!("{error:#}"))),
    }
    systems.push(("thread", Box::new(move || turn(datagrams, serve_thread))));
    systems.push(("again", Box::new(move || turn(datagrams, serve_epoll))));
    systems.push(("limit", Box::new(move || turn(datagrams, serve_epoll))));
    systems
}

/// Has peers send, and measures the server's CPU time for each datagram: the process's without
/// that of the peers, which this thread is.
fn turn(datagrams: usize, serve: Serve) -> anyhow::Result<Turn> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = socket.local_addr()?;
    let end = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&end);
    let (result, ended) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        machine::pin_to(0);
        _ = result.send(serve(socket, &ends));
    })?;

    machine::pin_to(1);
    let cpu = || {
        let own = machine::thread_cpu_time().as_nanos() as u64;
        Ok(cpu_ns().saturating_sub(own))
    };
    let sent = peers(address, datagrams, cpu);
    machine::pin_to_first(machine::cpus());
    end.store(true, Ordering::Relaxed);
    let served = ended
        .recv_timeout(PATIENCE)
        .context("the server does not end")?;
    served?;
    Ok(vec![("cpu", "ns", sent?)])
}

/// The same with a server that is a process.
fn turn_of_go(datagrams: usize, program: &Program) -> anyhow::Result<Turn> {
    machine::pin_to(0);
    let server = PeerServer::start(&mut program.command());
    machine::pin_to(1);
    let server = server?;
    let pid = server.pid();
    let sent = peers(server.address, datagrams, || machine::cpu_ns(pid));
    machine::pin_to_first(machine::cpus());
    Ok(vec![("cpu", "ns", sent?)])
}

/// Returns the server's CPU nanoseconds for each datagram; `cpu` is what it has had so far.
fn peers(
    address: SocketAddr,
    datagrams: usize,
    cpu: impl Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<f64> {
    let mut sockets = Vec::new();
    for _ in 0..PEERS {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        sockets.push(socket);
    }

    let rounds = datagrams.div_ceil(PEERS);
    let mut before = 0;
    // The first tenth is to warm up.
    let warm = rounds / 10;
    for round in 0..=rounds {
        if round == warm {
            before = cpu()?;
        }

        let text = [round as u8; LEN];
        for socket in &sockets {
            socket.send(&text)?;
        }

        for socket in &sockets {
            let mut buf = [0; LEN + 1];
            let len = socket
                .recv(&mut buf)
                .context("a datagram did not come back")?;
            ensure!(
                len == LEN && buf[..len] == text,
                "another datagram came back"
            );
        }
    }

    let spent = cpu()?.saturating_sub(before);
    Ok(spent as f64 / ((rounds + 1 - warm) * PEERS) as f64)
}

/// Sends back one at a time.
fn echo(socket: &plainweave::net::UdpSocket) -> anyhow::Result<()> {
    let mut buf = [0; LEN];
    loop {
        let (len, peer) = socket.recv_from(&mut buf)?;
        socket.send_to(&buf[..len], peer)?;
    }
}

/// Sends back as many as there are, in one system call.
fn echo_many(socket: &plainweave::net::UdpSocket) -> anyhow::Result<()> {
    let mut batch = Batch::new(PEERS, LEN);
    loop {
        socket.recv_many(&mut batch)?;
        let all: Vec<_> = batch
            .iter()
            .map(|(bytes, it)| (bytes, Some(it.from)))
            .collect();
        let mut sent = 0;
        while sent < all.len() {
            sent += socket.send_many(&all[sent..])?;
        }
    }
}

fn serve_fibers(
    socket: UdpSocket,
    end: &AtomicBool,
    io: Io,
    echo: fn(&plainweave::net::UdpSocket) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = runtime(io)?;
    runtime.scope(|scope| {
        let server = scope.spawn(|| -> anyhow::Result<()> {
            echo(&plainweave::net::UdpSocket::from_std(socket)?)
        });

        while !end.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }

        server.cancel();
        match server.join().expect("no panic") {
            Err(error) if is_cancelled(&error) => Ok(()),
            other => other,
        }
    })
}

fn is_cancelled(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(plainweave::is_cancelled)
}

fn serve_tokio(socket: UdpSocket, end: &AtomicBool) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        let serve = async {
            let mut buf = [0; LEN];
            loop {
                let (len, peer) = socket.recv_from(&mut buf).await?;
                socket.send_to(&buf[..len], peer).await?;
            }
        };

        let ended = async {
            while !end.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK).await;
            }
        };

        tokio::select! {
            served = serve => served,
            () = ended => Ok(()),
        }
    })
}

fn serve_thread(socket: UdpSocket, end: &AtomicBool) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    let mut buf = [0; LEN];
    while !end.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buf) {
            Ok((len, peer)) => _ = socket.send_to(&buf[..len], peer)?,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives until there is nothing, then waits.
fn serve_epoll(socket: UdpSocket, end: &AtomicBool) -> anyhow::Result<()> {
    socket.set_nonblocking(true)?;
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(0);
    epoll::add(&events, &socket, data, epoll::EventFlags::IN)?;
    let look = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.as_nanos() as i64,
    };
    let mut buf = [0; LEN];
    while !end.load(Ordering::Relaxed) {
        let mut ready = [std::mem::MaybeUninit::uninit(); 8];
        epoll::wait(&events, &mut ready, Some(&look))?;
        loop {
            match socket.recv_from(&mut buf) {
                Ok((len, peer)) => _ = socket.send_to(&buf[..len], peer)?,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
