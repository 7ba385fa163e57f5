//! What runs the connections. All of the glue between the server and a runtime is in this file.
//!
//! For now a thread per connection over `std::net`; fibers take its place here and nowhere else.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use plainweave_http::files::{Blocking, StaticFiles};
use plainweave_http::{Server, Transport};

use super::flags::RuntimeFlags;
use super::stop::Stop;

type WebServer = Server<StaticFiles<Pool>>;

/// How often an idle connection's thread looks whether the server stops.
const TICK: Duration = Duration::from_millis(100);
/// Pause after an accept that failed for want of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Where file operations run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool;

impl Blocking for Pool {
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        Ok(work())
    }
}

/// The chosen runtime, described by `Display` in the start-up line.
#[derive(Debug)]
pub(super) struct Engine;

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("driver: threads, workers: one per connection, policy: the kernel's")
    }
}

impl Engine {
    pub(super) fn choose(flags: &RuntimeFlags) -> anyhow::Result<Self> {
        if flags.io.is_some() || flags.policy.is_some() {
            bail!("this build runs connections on threads: it has no --io and no --policy to choose");
        }
        let _no_effect_on_threads = (flags.workers, flags.fiber_per_connection);
        Ok(Self)
    }

    /// Serves until `stop`, then gives requests in progress the time of `grace`. False: it was not enough.
    pub(super) fn run(
        &self,
        server: &Arc<WebServer>,
        listeners: Vec<TcpListener>,
        stop: Stop,
        grace: Duration,
    ) -> io::Result<bool> {
        // Every thread holds a sender: the channel is disconnected when the last one is done.
        let (alive, all_done) = mpsc::channel();
        for listener in &listeners {
            let (listener, server, alive) = (listener.try_clone()?, Arc::clone(server), alive.clone());
            thread::Builder::new().spawn(move || accept(&listener, &server, &alive))?;
        }
        drop(alive);
        stop.wait()?;
        server.stop();
        for listener in listeners {
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both)?; // Ends `accept`.
        }
        Ok(all_done.recv_timeout(grace) == Err(RecvTimeoutError::Disconnected))
    }
}

fn accept(listener: &TcpListener, server: &Arc<WebServer>, alive: &Sender<Infallible>) {
    while !server.is_stopping() {
        let Ok((stream, _peer)) = listener.accept() else {
            thread::sleep(BACK_OFF);
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (connection, alive) = (Connection { stream, server: Arc::clone(server) }, alive.clone());
        // Where no thread can be had, the connection is closed.
        let _ = thread::Builder::new().spawn(move || {
            Arc::clone(&connection.server).serve(connection);
            drop(alive);
        });
    }
}

/// A socket whose idle wait ends when the server stops.
struct Connection {
    stream: TcpStream,
    server: Arc<WebServer>,
}

impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf)
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Connection {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(timeout))
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        while !self.server.is_stopping() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if Transport::wait_readable(&mut self.stream, left.min(TICK))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
