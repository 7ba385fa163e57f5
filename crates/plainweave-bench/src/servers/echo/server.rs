//! The servers: the raw loops, and a fiber per connection.

use std::io::{Read, Write};
use std::net::TcpListener;

use plainweave::Io;

use super::{Kind, ServerFlags};
use crate::harness::machine;
use crate::harness::mode::Mode;
use crate::harness::report;
use crate::serving::driver::Driver;
use crate::serving::limit;
use crate::serving::limit::answers::Echo;

/// In a child process: serves until it is killed.
pub(crate) fn serve(flags: &ServerFlags) -> anyhow::Result<()> {
    machine::end_with_parent();
    let listener = limit::listen()?;
    let (io, mode) = match flags.kind {
        Kind::Raw => return limit::serve(&listener, Driver::Epoll, Echo),
        Kind::RawUring => return limit::serve(&listener, Driver::Uring, Echo),
        Kind::Epoll => (Io::Epoll, Mode::SHARED),
        Kind::Uring => (Io::Uring, Mode::SHARED),
        Kind::EpollAnytime => (Io::Epoll, Mode::DEFAULT),
        Kind::UringAnytime | Kind::UringAnytimeAgain => (Io::Uring, Mode::DEFAULT),
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
                let mut buffer = vec![0; limit::BUFFER];
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
