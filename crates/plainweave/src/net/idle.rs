//! Idle connections without a fiber, and listeners whose connections come to fresh fibers.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use super::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::fiber::{self, NEVER};
use crate::io::op::{Interest, readable_or_writable};
use crate::sched::idle_conn::{self, Kind, Resume};
use crate::sched::io_call::Descriptor;
use crate::sched::pool;
use crate::sched::wait;

/// A socket of this module, of whatever type: what is waited for without a fiber.
#[derive(Clone, Copy)]
pub struct SocketRef<'a> {
    source: &'a Arc<Descriptor>,
    kind: Kind,
}

impl SocketRef<'_> {
    /// Returns whether there is something to read, the end of the stream included, or a connection
    /// to accept.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let found = readable_or_writable(self.source.as_fd(), Interest::Read);
        if found {
            self.source.note_readable();
        }
        found
    }
}

impl fmt::Debug for SocketRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SocketRef")
            .field(&self.source.as_fd().as_raw_fd())
            .finish()
    }
}

/// State that contains the socket whose events it is for.
pub trait HasSocket {
    /// Returns the socket; always the same one.
    fn socket(&self) -> SocketRef<'_>;
}

macro_rules! sockets {
    ($($socket:ident is a $kind:ident,)*) => {$(
        impl HasSocket for $socket {
            fn socket(&self) -> SocketRef<'_> {
                SocketRef {
                    source: self.source(),
                    kind: Kind::$kind,
                }
            }
        }
    )*};
}

sockets!(
    TcpStream is a Connection,
    UnixStream is a Connection,
    TcpListener is a Listener,
    UnixListener is a Listener,
);

/// Hands an idle connection to the worker's driver and returns at once. When the connection becomes
/// readable (or `idle` has passed, or the runtime ends), a *fresh* fiber calls `f` with it.
///
/// While it waits, a connection costs its state and some 300 bytes: no stack, no buffer, no
/// posted receive. The fresh fiber may run on another worker, which is why `conn` is `Send`.
///
/// `f` gets `Ok` when there is something to read (or the end of the stream); an error of kind
/// [`io::ErrorKind::TimedOut`] after `idle`; one that [`crate::is_cancelled`] recognises when the
/// runtime ends.
///
/// # Panics
/// If called outside a fiber.
///
/// ```
/// # use std::{io::Write, time::Duration};
/// use plainweave::net::{TcpListener, TcpStream, on_readable};
///
/// plainweave::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0").unwrap();
///     let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
///     let (server, _) = listener.accept().unwrap();
///     let me = plainweave::current();
///     on_readable(server, Some(Duration::from_secs(60)), move |_server, outcome| {
///         assert!(outcome.is_ok());
///         me.unpark();
///     });
///     client.write_all(b"hello").unwrap();
///     plainweave::park().unwrap();
/// });
/// ```
#[track_caller]
pub fn on_readable<C, F>(conn: C, idle: Option<Duration>, f: F)
where
    C: HasSocket + Send + 'static,
    F: FnOnce(C, io::Result<()>) + Send + 'static,
{
    let Some(me) = fiber::current() else {
        pool::no_runtime("net::on_readable")
    };
    let SocketRef { source, kind } = conn.socket();
    let source = source.clone();
    let idle = idle.map_or(NEVER, wait::nanos);
    idle_conn::register(
        me,
        (source, kind),
        idle,
        Resume::Once(Box::new(move |outcome| f(conn, outcome))),
    );
}

/// Does the same as [`on_readable`], repeatedly: `f` serves what has arrived and returns whether to
/// wait again. Every call runs in a fresh fiber; nothing is allocated between two of them.
///
/// For a listener, that is when connections wait to be accepted, and `try_accept` takes them. A
/// fiber that waits in `accept` has started, so under [`Movement::BeforeStart`](crate::Movement) it
/// stays with its worker when another fiber holds that up; a fresh one may start anywhere.
///
/// After [`ControlFlow::Break`], or if `f` panics, `conn` is dropped.
///
/// As with poll(2) it may, rarely, be called for what has been read already, if that came in parts:
/// then a read waits.
///
/// # Panics
/// If called outside a fiber.
///
/// ```
/// # use std::{io::{Read, Write}, ops::ControlFlow};
/// use plainweave::net::{TcpListener, TcpStream, each_readable};
///
/// plainweave::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0").unwrap();
///     let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
///     let (server, _) = listener.accept().unwrap();
///     each_readable(server, None, |stream, outcome| {
///         let mut buf = [0; 64];
///         match outcome.and_then(|()| stream.read(&mut buf)) {
///             Ok(len @ 1..) if stream.write_all(&buf[..len]).is_ok() => ControlFlow::Continue(()),
///             _ => ControlFlow::Break(()),
///         }
///     });
///     let mut echo = [0; 2];
///     for word in [b"hi", b"ho"] {
///         client.write_all(word).unwrap();
///         client.read_exact(&mut echo).unwrap();
///         assert_eq!(&echo, word);
///     }
/// });
/// ```
#[track_caller]
pub fn each_readable<C, F>(mut conn: C, idle: Option<Duration>, mut f: F)
where
    C: HasSocket + Send + 'static,
    F: FnMut(&mut C, io::Result<()>) -> ControlFlow<()> + Send + 'static,
{
    let Some(me) = fiber::current() else {
        pool::no_runtime("net::each_readable")
    };
    let SocketRef { source, kind } = conn.socket();
    let source = source.clone();
    let idle = idle.map_or(NEVER, wait::nanos);
    idle_conn::register(
        me,
        (source, kind),
        idle,
        Resume::Each(Box::new(move |outcome| f(&mut conn, outcome))),
    );
}
