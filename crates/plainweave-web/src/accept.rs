//! Admission: what the library's acceptor does not know of. Connections of a crowd get small send
//! buffers, and many fibers may accept in turn. What becomes of them is in `serve`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use plainweave::net::TcpStream;
use plainweave::sync::Mutex;
use plainweave::time::now;
use plainweave_http::accept::{self, ConnectionLimit, ConnectionPermit};
use socket2::SockRef;

use super::faults::Faults;
use super::in_progress::InProgress;
use super::memory_bound::SendBuffers;
use plainweave_daemon::listening::Listening;

/// Bytes of an answer that the kernel takes ahead of what it can send to one of a crowd. To anybody
/// else it may take 4 MiB (`net.ipv4.tcp_wmem`), which saves a third of the CPU of a file of 1 MiB;
/// with thousands that do not read, that is all the memory the kernel has for TCP, and then it
/// drops what others send. See `docs/overload.md`.
const AHEAD: u32 = 128 << 10;
/// For `SO_SNDBUF`, which the kernel doubles: where the server would be killed for more, `AHEAD`
/// covers also what has been sent and not arrived.
const SEND_BUFFER: usize = AHEAD as usize / 2;

/// What all listeners admit by.
#[derive(Clone)]
pub(super) struct Admission {
    pub(super) connection_limit: Arc<ConnectionLimit>,
    pub(super) in_progress: Arc<InProgress>,
    /// Steps of TLS handshakes.
    pub(super) handshakes: Arc<InProgress>,
    pub(super) send_buffers: SendBuffers,
    pub(super) faults: Arc<Faults>,
}

/// Of one listener; its accepting fiber has it.
pub(super) struct Acceptor {
    acceptor: accept::Acceptor<Listening>,
    crowd: Crowd,
}

impl Acceptor {
    /// Gives the listener the longest queue.
    pub(super) fn new(listener: Listening, admission: &Admission) -> Self {
        let Admission {
            connection_limit,
            send_buffers,
            faults,
            ..
        } = admission.clone();
        // The log does.
        listener.report_no_exhaustion();
        let acceptor = accept::Acceptor::new(listener, connection_limit.clone());
        let acceptor = acceptor.on_fault(move |fault| faults.accept(fault));
        let crowd = Crowd {
            connection_limit,
            send_buffers,
        };

        Self { acceptor, crowd }
    }

    /// Waits for a connection and returns it. `None`: the server stops.
    pub(super) fn next(
        &mut self,
        stopping: impl Fn() -> bool,
    ) -> Option<(TcpStream, ConnectionPermit)> {
        let (stream, permit) = self.acceptor.next(stopping)?;
        self.crowd.bound_send_buffer(&stream);
        Some((stream, permit))
    }

    /// Gives each connection to `take`, on fresh fibers. Returns at once.
    pub(super) fn each(
        self,
        stopping: impl Fn() -> bool + Send + 'static,
        mut take: impl FnMut(TcpStream, ConnectionPermit) + Send + 'static,
    ) {
        let Self { acceptor, crowd } = self;
        acceptor.each(stopping, move |stream, permit| {
            crowd.bound_send_buffer(&stream);
            take(stream, permit);
            Ok(())
        });
    }
}

/// Who belongs to a crowd, and what its send buffers are to be.
struct Crowd {
    connection_limit: Arc<ConnectionLimit>,
    send_buffers: SendBuffers,
}

impl Crowd {
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
}

/// An [`Acceptor`] for many fibers, which accept in turn: if all of them waited at the socket, one
/// connection would wake them all.
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
        Self {
            turn: Mutex::new(Turn {
                acceptor,
                all_serve: None,
            }),
            free: AtomicUsize::new(0),
        }
    }

    /// As [`Acceptor::next`].
    pub(super) fn next(
        &self,
        stopping: impl Fn() -> bool,
    ) -> Option<(TcpStream, ConnectionPermit)> {
        self.free.fetch_add(1, Relaxed);
        let mut turn = self.turn.lock().ok()?;
        if let Some(since) = turn.all_serve.take() {
            turn.acceptor.acceptor.was_away(now() - since);
        }
        let next = turn.acceptor.next(stopping);
        if self.free.fetch_sub(1, Relaxed) == 1 {
            turn.all_serve = Some(now());
        }

        next
    }
}
