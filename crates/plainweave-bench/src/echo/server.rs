//! The servers: the loop that everybody writes, and a fiber per connection.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::Context;
use plainweave::Io;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use super::{Kind, ServerFlags};
use crate::mode::Mode;
use crate::{machine, report};

/// Every server reads into a buffer of this size, larger than a message: a server cannot know how long one is, and a
/// read that fills its buffer would make an edge-triggered server ask once more.
const BUFFER: usize = 4096;

/// In a child process: serves until it is killed.
pub(crate) fn serve(flags: &ServerFlags) -> anyhow::Result<()> {
    machine::pin_to(0);
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    let (io, mode) = match flags.kind {
        Kind::Raw => return raw_loop(&listener),
        Kind::Epoll => (Io::Epoll, Mode::SHARED),
        Kind::Uring => (Io::Uring, Mode::SHARED),
        Kind::EpollAnytime => (Io::Epoll, Mode::DEFAULT),
        Kind::UringAnytime => (Io::Uring, Mode::DEFAULT),
    };
    fibers(listener, io, mode)
}

fn fibers(listener: TcpListener, io: Io, mode: Mode) -> anyhow::Result<()> {
    let runtime = mode.builder().workers(1).io(io).build()?;
    let address = listener.local_addr()?;
    let listener = plainweave::net::TcpListener::from_std(listener)?;
    report::say(&address.to_string());
    runtime.run(|| {
        for stream in listener.incoming() {
            let mut stream = stream?;
            plainweave::spawn(move || {
                let mut buffer = vec![0; BUFFER];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(())
    })
}

/// Level-triggered: an event, a read, a write; nothing else.
fn raw_loop(listener: &TcpListener) -> anyhow::Result<()> {
    const LISTENER: u64 = u64::MAX;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    report::say(&listener.local_addr()?.to_string());
    let mut streams: HashMap<u64, TcpStream> = HashMap::new();
    let (mut next, mut events, mut buffer) = (0, Vec::with_capacity(256), vec![0; BUFFER]);
    loop {
        epoll::wait(&poll, spare_capacity(&mut events), None)?;
        for event in events.drain(..) {
            let key = event.data.u64();
            if key == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                epoll::add(&poll, &stream, epoll::EventData::new_u64(next), epoll::EventFlags::IN)?;
                streams.insert(next, stream);
                next += 1;
                continue;
            }
            let Some(stream) = streams.get_mut(&key) else { continue };
            let alive = match stream.read(&mut buffer) {
                Ok(n @ 1..) => stream.write_all(&buffer[..n]).is_ok(),
                Ok(_) => false,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            };
            if !alive {
                streams.remove(&key);
            }
        }
    }
}
