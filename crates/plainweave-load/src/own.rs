//! A protocol of one's own: how a connection begins, how it asks, how it reads an answer. All else
//! (connections, schedule, what is counted, objectives) is as for the protocols that the program
//! speaks.

use std::cell::{Cell, RefCell};
use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Read, Write};
use std::rc::Rc;

use super::engine::{self, Broken, Next, Reply};
use super::popularity::{Picker, Popularity};
use super::socket::{Place, Socket};
use super::tally::{Failure, Opening};
use super::target;

/// A protocol that `plainweave load` does not speak.
///
/// Its calls run on fibers, in which the stream's calls suspend; `--timeout` bounds them. No two
/// calls have the same connection at a time. `examples/redis.rs` speaks RESP by a crate that knows
/// it.
pub trait Protocol: Send + Sync + 'static {
    /// A connection, and what belongs to it: a decoder, a buffer.
    type Connection: 'static;

    /// Makes a connection of a stream that has been opened just now: perhaps by a greeting or a
    /// login.
    ///
    /// # Errors
    /// The server does not let this one in.
    fn open(&self, stream: Stream) -> Result<Self::Connection, Failed>;

    /// Asks, and reads the answer to its end. Requests are numbered: `item` goes in turn through
    /// the numbers below [`items`](Self::items).
    ///
    /// # Errors
    /// There was no answer, or one that is none. After [`Failed::Io`] and [`Failed::Garbage`] the
    /// connection is made again.
    fn ask(&self, connection: &mut Self::Connection, item: usize) -> Result<Answer, Failed>;

    /// Returns how many things there are to ask for, at least one.
    fn items(&self) -> usize {
        1
    }
}

/// What a server has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What was asked for.
    Done,
    /// That there is no such thing, which is no failure: the figure `misses` counts it.
    Missing,
}

/// Why there was no answer.
#[derive(Debug)]
pub enum Failed {
    /// The connection failed.
    Io(io::Error),
    /// The server said that it did not do as asked; the connection goes on.
    Refused,
    /// What came is no answer.
    Garbage,
}

/// A connection to the server, over TCP or a Unix socket.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// Bytes that have come so far.
    read: Rc<Cell<u64>>,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.socket.read(into)?;
        self.read.set(self.read.get() + len as u64);
        Ok(len)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Refused => f.write_str("the server did not do as asked"),
            Self::Garbage => f.write_str("what came is no answer"),
        }
    }
}

impl StdError for Failed {}

impl Failed {
    fn kind(self) -> Failure {
        match self {
            // `read_exact` and the like say so where the server has closed the connection.
            Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Failure::Closed,
            Self::Io(error) => error.into(),
            Self::Refused => Failure::ErrorReply,
            Self::Garbage => Failure::Garbage,
        }
    }
}

/// A user's protocol, as the engine has it.
pub(super) struct Own<P>(pub(super) P);

/// A user's connection.
pub(super) struct Connection<C> {
    own: C,
    read: Rc<Cell<u64>>,
}

impl<P: Protocol> engine::Protocol for Own<P> {
    type Connection = Connection<P::Connection>;
    type Memory = ();

    fn picker(&self, worker: usize, workers: usize, seed: u64) -> Picker {
        let items = self.0.items().max(1);
        // Workers begin apart, so that they do not ask for the same at a time.
        let first = items / workers.max(1) * worker;
        Picker::new(seed, vec![Popularity::new(items, None, first)])
    }

    fn connect(
        &self,
        _server: usize,
        address: &Place,
    ) -> Result<(Self::Connection, Opening), Failure> {
        let (socket, connect) = target::connect(address)?;
        let read = Rc::new(Cell::new(0));
        let stream = Stream {
            socket,
            read: read.clone(),
        };

        let own = self.0.open(stream).map_err(Failed::kind)?;
        let opening = Opening {
            connect,
            handshake: None,
        };
        Ok((Connection { own, read }, opening))
    }

    fn exchange(
        &self,
        connection: &mut Self::Connection,
        picker: &RefCell<Picker>,
        _memory: &mut (),
        _depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken> {
        let item = picker.borrow_mut().pick(0);
        let before = connection.read.get();
        let answer = self.0.ask(&mut connection.own, item);
        let bytes = connection.read.get() - before;

        let outcome = match answer {
            Ok(answer) => Ok(answer == Answer::Done),
            Err(Failed::Refused) => Err(Failure::ErrorReply),
            // A connection that has been idle may have been given up before the request: nothing
            // of an answer has come then.
            Err(failed) if bytes == 0 => return Err(Broken::silent(failed.kind())),
            Err(failed) => return Err(Broken::within(failed.kind())),
        };

        done(Reply {
            bytes,
            status: 0,
            outcome,
        });
        Ok(Next::Keep)
    }
}
