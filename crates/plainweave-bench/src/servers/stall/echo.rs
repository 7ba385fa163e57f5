//! Servers of bytes: fibers in several modes, threads, Tokio's tasks.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::ControlFlow;

use plainweave::net;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::slow::Slow;
use crate::harness::mode::Mode;

/// What a request costs.
fn handle(byte: u8, slow: Slow) {
    if byte == b'S' {
        slow.run();
    }
}

pub(super) fn fibers(
    io: plainweave::Io,
    mode: &str,
    parked: bool,
    workers: usize,
    slow: Slow,
) -> anyhow::Result<(SocketAddr, plainweave::Runtime)> {
    let runtime = Mode::parse(mode)?
        .builder()
        .workers(workers)
        .io(io)
        .build()?;
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

    Ok((address, runtime))
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
        stream
            .write_all(&byte)
            .map_or(ControlFlow::Break(()), ControlFlow::Continue)
    });
}

/// Starts a server with a thread for each connection: the kernel shares out the CPUs.
pub(super) fn threads(slow: Slow) -> anyhow::Result<SocketAddr> {
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
    Ok(address)
}

pub(super) fn tasks(
    workers: usize,
    slow: Slow,
) -> anyhow::Result<(SocketAddr, tokio::runtime::Runtime)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_io()
        .build()?;
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

    Ok((address, runtime))
}
