//! Admission: accepts one listener's connections, each with a permit, and reports when too many come. The loop around
//! `Acceptor::next` is `accept` in `serve`.
//!
//! Two things may delay a new connection, and they are distinguished: the connection limit, or a busy accepting fiber.
//! The second one is overload, and shortens the kernel's queue; see `backlog`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plainweave::net::{TcpListener, TcpStream};
use plainweave::sync::Mutex;
use plainweave::time::{now, sleep, with_timeout};
use socket2::SockRef;

use super::backlog::{Backlog, Finding};
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::faults::Faults;
use super::in_progress::InProgress;
use super::memory_bound::SendBuffers;

/// Pause after an accept that failed for lack of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Interval between two looks at the queue while the connection limit is reached.
const FULL_LOOK: Duration = Duration::from_secs(1);

/// Bytes of an answer that the kernel takes ahead of what it can send to one of a crowd. To anybody else it may take
/// 4 MiB (`net.ipv4.tcp_wmem`), which saves a third of the CPU of a file of 1 MiB; with thousands that do not read,
/// that is all the memory the kernel has for TCP, and then it drops what others send. See `docs/overload.md`.
const AHEAD: u32 = 128 << 10;
/// For `SO_SNDBUF`, which the kernel doubles: where the server would be killed for more, `AHEAD` covers also what has
/// been sent and not arrived.
const SEND_BUFFER: usize = AHEAD as usize / 2;

/// What all listeners admit by.
#[derive(Clone)]
pub(super) struct Admission {
    pub(super) connection_limit: Arc<ConnectionLimit>,
    pub(super) in_progress: Arc<InProgress>,
    pub(super) send_buffers: SendBuffers,
    pub(super) faults: Arc<Faults>,
}

/// Of one listener; its accepting fiber has it.
pub(super) struct Acceptor {
    listener: TcpListener,
    address: Option<SocketAddr>,
    connection_limit: Arc<ConnectionLimit>,
    send_buffers: SendBuffers,
    faults: Arc<Faults>,
    backlog: Backlog,
}

impl Acceptor {
    /// Gives the listener the longest queue.
    pub(super) fn new(listener: TcpListener, admission: &Admission) -> Self {
        let Admission { connection_limit, send_buffers, faults, .. } = admission.clone();
        let (backlog, address) = (Backlog::new(now()), listener.local_addr().ok());
        let acceptor = Self { listener, address, connection_limit, send_buffers, faults, backlog };
        acceptor.set_backlog();
        acceptor
    }

    /// Waits for a connection and returns it. `None`: the server stops.
    pub(super) fn next(&mut self, stopping: impl Fn() -> bool) -> Option<(TcpStream, ConnectionPermit)> {
        while !stopping() {
            match self.wait() {
                Ok((stream, peer)) => {
                    let now = now();
                    if self.backlog.accepted(now) {
                        self.look(now);
                    }
                    let mut permit = self.connection_limit.acquire();
                    if permit.charge(peer) {
                        self.bound_send_buffer(&stream);
                        return Some((stream, permit));
                    }
                    // Established connections come before those that are refused, too.
                    plainweave::yield_now();
                }
                Err(_) if stopping() => break,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.look(now()),
                Err(error) => {
                    self.connection_limit.failed.fetch_add(1, Relaxed);
                    self.faults.accept(&error);
                    if sleep(BACK_OFF).is_err() {
                        break;
                    }
                }
            }
        }
        // A look may have had it listen again after it was closed.
        self.listener.close();
        None
    }

    /// If it is one of a crowd. Where the kernel refuses, it is as for anybody else.
    fn bound_send_buffer(&self, stream: &TcpStream) {
        if self.connection_limit.connections() > self.send_buffers.crowd {
            let socket = SockRef::from(stream);
            let _ = match self.send_buffers.hard {
                true => socket.set_send_buffer_size(SEND_BUFFER),
                false => socket.set_tcp_notsent_lowat(AHEAD),
            };
        }
    }

    /// `TimedOut`: it is time for a look.
    fn wait(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        if self.connection_limit.is_reached() {
            self.connection_limit.full.fetch_add(1, Relaxed);
            self.wait_for_permit()?;
        }
        match self.backlog.patience() {
            Some(limit) => with_timeout(limit, || self.listener.accept()),
            None => self.listener.accept(),
        }
    }

    fn wait_for_permit(&mut self) -> io::Result<()> {
        loop {
            let start = now();
            let waited = with_timeout(FULL_LOOK, || self.connection_limit.wait());
            let now = now();
            self.backlog.waited_for_permit(now - start);
            match waited {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.look(now),
                waited => return waited,
            }
        }
    }

    fn look(&mut self, now: Instant) {
        let Ok(queued) = self.listener.queued() else { return };
        let before = self.backlog.limit();
        let finding = self.backlog.look(now, queued);
        if self.backlog.limit() != before {
            self.set_backlog();
        }
        match finding {
            Finding::Nothing => {}
            Finding::Overload => self.faults.overload(self.backlog.limit()),
            Finding::AtConnectionLimit => self.faults.connection_limit(self.connection_limit.max(), queued),
        }
    }

    fn set_backlog(&self) {
        let limit = self.backlog.limit();
        // What the listener has is a bound too.
        if self.listener.set_backlog(limit).is_ok()
            && let Some(address) = self.address
        {
            self.connection_limit.set_backlog(address, limit);
        }
    }
}

/// An [`Acceptor`] for many fibers, which accept in turn: if all of them waited at the socket, one connection would
/// wake them all.
pub(super) struct SharedAcceptor {
    turn: Mutex<Turn>,
    /// Fibers that wait for a connection or for their turn.
    free: AtomicUsize,
}

struct Turn {
    acceptor: Acceptor,
    /// Since when all of them have been serving.
    all_serve: Option<Instant>,
}

impl SharedAcceptor {
    pub(super) fn new(acceptor: Acceptor) -> Self {
        Self { turn: Mutex::new(Turn { acceptor, all_serve: None }), free: AtomicUsize::new(0) }
    }

    /// As [`Acceptor::next`].
    pub(super) fn next(&self, stopping: impl Fn() -> bool) -> Option<(TcpStream, ConnectionPermit)> {
        self.free.fetch_add(1, Relaxed);
        let mut turn = self.turn.lock().ok()?;
        if let Some(since) = turn.all_serve.take() {
            // As at the connection limit: the queue says nothing of the CPU.
            turn.acceptor.backlog.waited_for_permit(now() - since);
        }
        let next = turn.acceptor.next(stopping);
        if self.free.fetch_sub(1, Relaxed) == 1 {
            turn.all_serve = Some(now());
        }
        next
    }
}
