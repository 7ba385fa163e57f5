//! Idle connections without a fiber.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use super::TcpStream;
use crate::fiber::{self, NEVER};
use crate::sched::idle_conn::{self, Resume};
use crate::sched::pool;
use crate::sched::wait;

/// Connection state that contains the stream.
pub trait HasStream {
    /// Returns the connection.
    fn stream(&self) -> &TcpStream;
}

impl HasStream for TcpStream {
    fn stream(&self) -> &TcpStream {
        self
    }
}

/// Hands an idle connection to the worker's driver and returns at once. When the connection becomes
/// readable (or `idle` has passed, or the runtime ends), a *fresh* fiber calls `f` with it.
///
/// While it waits, the connection costs its state and some 300 bytes: no stack, no buffer, no
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
    C: HasStream + Send + 'static,
    F: FnOnce(C, io::Result<()>) + Send + 'static,
{
    let Some(me) = fiber::current() else {
        pool::no_runtime("net::on_readable")
    };
    let source = conn.stream().source().clone();
    let idle = idle.map_or(NEVER, wait::nanos);
    idle_conn::register(
        me,
        source,
        idle,
        Resume::Once(Box::new(move |outcome| f(conn, outcome))),
    );
}

/// Does the same as [`on_readable`], repeatedly: `f` serves what has arrived and returns whether to
/// wait again. Every call runs in a fresh fiber; nothing is allocated between two of them.
///
/// After [`ControlFlow::Break`], or if `f` panics, `conn` is dropped.
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
    C: HasStream + Send + 'static,
    F: FnMut(&mut C, io::Result<()>) -> ControlFlow<()> + Send + 'static,
{
    let Some(me) = fiber::current() else {
        pool::no_runtime("net::each_readable")
    };
    let source = conn.stream().source().clone();
    let idle = idle.map_or(NEVER, wait::nanos);
    idle_conn::register(
        me,
        source,
        idle,
        Resume::Each(Box::new(move |outcome| f(&mut conn, outcome))),
    );
}
