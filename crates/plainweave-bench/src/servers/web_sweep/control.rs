//! Three ways to send a file that fail when memory is short, as servers: negative controls, which
//! nobody should use.
//!
//! All three serve on fibers of one worker and send with one of these: `sendfile` on a blocking
//! socket, so that the worker waits for the client and for the disk; `sendfile` on a non-blocking
//! one, tried again until the client has taken all, which waits for the disk and spins for the
//! client; linked splices on io_uring, each of which waits on a thread of the kernel, without a
//! bound on their number.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::Args;
use plainweave::Io;
use plainweave::net::{TcpListener, TcpStream};
use rustix::io::Errno;

use crate::harness::descriptors;
use crate::harness::machine;
use crate::harness::mode::Mode;
use crate::harness::report;
use crate::servers::files::Splices;
use crate::serving::control::Method;
use crate::serving::limit;

/// Descriptors that are asked for; with fewer, a server serves fewer connections.
const CONNECTIONS: usize = 16_384;
/// A request's head, at most.
const HEAD: usize = 4096;

/// One server, told by its parent how to send.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    method: Method,
    root: PathBuf,
}

/// In a child process: serves until it is killed.
pub(crate) fn serve(flags: &Flags) -> anyhow::Result<()> {
    machine::end_with_parent();
    descriptors::at_least(CONNECTIONS);
    let (method, root): (_, Arc<Path>) = (flags.method, flags.root.as_path().into());
    let splices = if method == Method::Splicing {
        Some(Splices::new()?)
    } else {
        None
    };

    let listener = limit::listen()?;
    let address = listener.local_addr()?;
    let runtime = Mode::SHARED.builder().workers(1).io(Io::Epoll).build()?;
    let listener = TcpListener::from_std(listener)?;
    report::say(&address.to_string());

    runtime.run(|| {
        loop {
            // What fails to be accepted has gone, or comes again when there are descriptors.
            let Ok((stream, _)) = listener.accept() else {
                plainweave::yield_now();
                continue;
            };

            let root = Arc::clone(&root);
            // It ends when its client is gone.
            drop(plainweave::spawn(move || {
                converse(stream, &root, method, splices)
            }));
        }
    })
}

/// Answers the requests of a connection.
fn converse(
    mut stream: TcpStream,
    root: &Path,
    method: Method,
    splices: Option<&Splices>,
) -> anyhow::Result<()> {
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut head = Vec::new();
    let mut buffer = [0; HEAD];
    loop {
        head.clear();
        while !head.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            head.extend_from_slice(&buffer[..read]);
            ensure!(head.len() <= HEAD, "a head that is too long");
        }

        let file = File::open(root.join(path(&head)?))?;
        let len = file.metadata()?.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nContent-Type: text/plain\r\n\r\n");
        stream.write_all(answer.as_bytes())?;

        match (method, splices) {
            (Method::Splicing, Some(splices)) => {
                rustix::io::ioctl_fionbio(&stream, false)?;
                let mut sent = 0;
                while sent < len {
                    sent += splices.send(&file, sent, len - sent, &pipe, &stream)?;
                }
                rustix::io::ioctl_fionbio(&stream, true)?;
            }
            (Method::Blocking, _) => {
                rustix::io::ioctl_fionbio(&stream, false)?;
                send_file(&stream, &file, len)?;
                rustix::io::ioctl_fionbio(&stream, true)?;
            }
            _ => send_file(&stream, &file, len)?,
        }
    }
}

/// Returns the path of a request, below the root.
fn path(head: &[u8]) -> anyhow::Result<&str> {
    let line = std::str::from_utf8(head)?
        .lines()
        .next()
        .unwrap_or_default();
    let path = line
        .strip_prefix("GET /")
        .and_then(|rest| rest.split(' ').next());
    let path = path.with_context(|| format!("not a request for a file: {line}"))?;
    ensure!(!path.contains(".."), "{path} leaves the root");

    Ok(path)
}

/// Sends all of it; where the socket has no room, other fibers run before it is tried again.
fn send_file(stream: &TcpStream, file: &File, len: u64) -> anyhow::Result<()> {
    let mut offset = 0;
    while offset < len {
        let left = (len - offset) as usize;
        match rustix::fs::sendfile(stream, file, Some(&mut offset), left) {
            Ok(0) => anyhow::bail!("a file has become shorter"),
            Err(Errno::AGAIN) => plainweave::yield_now(),
            sent => drop(sent?),
        }
    }
    Ok(())
}
