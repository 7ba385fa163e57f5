//! The listeners of the web server: what the library's do not know of. Connections of a crowd get
//! small send buffers, and may be dealt to event loops. With `--architecture acceptors` many fibers
//! accept in turn.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plainweave::net::{SocketRef, TcpStream};
use plainweave::sync::Mutex;
use plainweave::time::now;
use plainweave_serve::accept::{Acceptor, ConnectionLimit, ConnectionPermit, InProgress};
use plainweave_serve::{Address, Listener};
use socket2::SockRef;

use super::memory_bound::SendBuffers;
use plainweave_daemon::architecture::Loops;
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
}

/// One of its listeners, and where its connections run.
pub(super) struct Door {
    listener: Listening,
    crowd: Crowd,
    loops: Arc<Loops>,
}

impl Door {
    pub(super) fn new(listener: Listening, admission: &Admission, loops: Arc<Loops>) -> Self {
        let crowd = Crowd {
            connection_limit: admission.connection_limit.clone(),
            send_buffers: admission.send_buffers,
        };

        Self {
            listener,
            crowd,
            loops,
        }
    }
}

impl Listener for Door {
    type Stream = TcpStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let accepted = self.listener.accept(patience)?;
        self.crowd.bound_send_buffer(&accepted.0);
        Ok(accepted)
    }

    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        self.listener.idle_socket()
    }

    fn try_accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let accepted = self.listener.try_accept()?;
        self.crowd.bound_send_buffer(&accepted.0);
        Ok(accepted)
    }

    fn close(&self) {
        self.listener.close();
    }

    fn address(&self) -> Option<Address> {
        self.listener.address()
    }

    fn prepare(&self) -> io::Result<()> {
        // The log does.
        self.listener.report_no_exhaustion();
        self.listener.prepare()
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        self.listener.set_backlog(connections)
    }

    fn queued(&self) -> io::Result<u32> {
        self.listener.queued()
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.loops.deal(work);
        Ok(())
    }
}

/// Who belongs to a crowd, and what its send buffers are to be.
struct Crowd {
    connection_limit: Arc<ConnectionLimit>,
    send_buffers: SendBuffers,
}

impl Crowd {
    /// If it is one of a crowd; it is not counted yet. Where the kernel refuses, it is as for
    /// anybody else.
    fn bound_send_buffer(&self, stream: &TcpStream) {
        if self.connection_limit.connections() >= self.send_buffers.crowd {
            let socket = SockRef::from(stream);
            let _ = match self.send_buffers.hard {
                true => socket.set_send_buffer_size(SEND_BUFFER),
                false => socket.set_tcp_notsent_lowat(AHEAD),
            };
        }
    }
}

/// An acceptor for many fibers, which accept in turn: if all of them waited at the socket, one
/// connection would wake them all.
pub(super) struct SharedAcceptor<L> {
    turn: Mutex<Turn<L>>,
    /// Fibers that wait for a connection or for their turn.
    free: AtomicUsize,
}

struct Turn<L> {
    acceptor: Acceptor<L>,
    /// Since when all of them have been serving.
    all_serve: Option<Instant>,
}

impl<L: Listener> SharedAcceptor<L> {
    pub(super) fn new(acceptor: Acceptor<L>) -> Self {
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
    ) -> Option<(L::Stream, ConnectionPermit)> {
        self.free.fetch_add(1, Relaxed);
        let mut turn = self.turn.lock().ok()?;
        if let Some(since) = turn.all_serve.take() {
            turn.acceptor.was_away(now() - since);
        }
        let next = turn.acceptor.next(stopping);
        if self.free.fetch_sub(1, Relaxed) == 1 {
            turn.all_serve = Some(now());
        }

        next
    }
}
