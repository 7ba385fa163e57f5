//! The life of a connection: read commands, execute, write replies.
//!
//! A turn begins when the connection is readable and ends when everything received is answered and
//! sent. All commands of one read are executed together and answered with one send, unless the
//! answers grow beyond [`OUTPUT`]. Between turns a connection is its stream, its place in the
//! protocol and the bytes of a command that has not come in full; buffers are borrowed for the turn
//! (`scratch`).

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use plainweave::net::{HasSocket, SocketRef};

use super::clients::Place;
use super::exec::{After, Exec};
use super::proto::Listing;
use super::reply::OUTPUT;
use super::scratch::Scratch;
use super::session::{Session, Step};
use super::shared::Cache;
use super::store::Time;
use super::stream::Stream;
use super::tally::{Count, KINDS, Kind};
use super::unread;
use super::watch::{self, Event};

/// One turn in this many is timed for the latency histograms.
const TIMED: u32 = 16;

/// Bytes of a refused request that are read; a longer one may be reset before its client has seen
/// the answer.
const REFUSED: usize = 2048;
/// The answer to it, and how long it may wait for a client that has not read its last answers.
const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory reading request\r\n";
const REFUSAL_WAIT: Duration = Duration::from_millis(10);

/// Why a silent connection ends.
const IDLE: &str = "idle_timeout";

/// A connection between turns.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: Stream,
    session: Session,
    /// Received, and not yet a command.
    rest: Vec<u8>,
    /// A command may have come already, in `rest` or behind it: the last turn ended before it.
    unanswered: bool,
    pub(crate) place: Place,
    /// Second of the last command, as `place` says it for others.
    last: Time,
    reason: &'static str,
}

/// What becomes of a connection after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Everything is answered: call again when there is something to read.
    Idle,
    Close,
    Watch(u16),
    List(Listing),
    RefreshCertificates,
    Stop,
}

impl HasSocket for Conn {
    fn socket(&self) -> SocketRef<'_> {
        self.stream.socket()
    }
}

impl Conn {
    pub(crate) fn new(stream: Stream, place: Place) -> Self {
        let session = Session::default();
        let last = Time::START;
        Self {
            stream,
            session,
            rest: Vec::new(),
            unanswered: false,
            place,
            last,
            reason: "normal",
        }
    }

    /// Returns whether the client has said who it is.
    pub(crate) fn is_known(&self) -> bool {
        self.session.is_known()
    }

    /// Returns whether another turn would find commands that have come already.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Returns whether everything received is answered.
    pub(crate) fn is_between_commands(&self) -> bool {
        self.rest.is_empty() && self.session.is_between_commands() && !self.stream.holds_part()
    }
}

impl Cache {
    /// Serves what has arrived, or refuses it if there is memory for no more turns. To be called
    /// when the stream is readable.
    pub(crate) fn turn(&self, conn: &mut Conn) -> Next {
        let served = self.scratch.with(|scratch| {
            scratch.input.restore(&mut conn.rest);
            let next = self
                .serve(conn, scratch)
                .unwrap_or_else(|error| self.failed(conn, scratch, &error));
            scratch.input.keep(&mut conn.rest);
            next
        });

        served.unwrap_or_else(|| self.refuse(conn))
    }

    /// Says that there is no memory, without waiting for the client, and has the connection closed.
    #[cold]
    fn refuse(&self, conn: &mut Conn) -> Next {
        // What has come already asks for something, whether more comes or not.
        let asks = std::mem::take(&mut conn.unanswered) || !conn.rest.is_empty();
        // A close over unread bytes could destroy the answer.
        if !asks || conn.stream.is_readable() {
            match conn.stream.read(&mut [0; REFUSED]) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && asks => {}
                // A part of a record, which asks for nothing yet.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Idle,
                _ => return Next::Close,
            }
        }
        conn.reason = "out_of_memory";
        if self.clients.shed.fetch_add(1, Relaxed) == 0 {
            let turns = self.settings.turns;
            self.tell(&format!(
                "{turns} connections are being served, and there is memory for no more; others are \
                closed (a higher memory limit or --max-memory, or a lower -m; logged once, see shed_connections)"
            ));
        }

        let _ = conn
            .stream
            .set_write_timeout(REFUSAL_WAIT)
            .and_then(|()| conn.stream.write_all(NO_MEMORY));
        Next::Close
    }

    fn serve(&self, conn: &mut Conn, scratch: &mut Scratch) -> io::Result<Next> {
        let mut has_input = std::mem::take(&mut conn.unanswered);
        loop {
            let more = match has_input {
                true => Ok(Some(true)),
                false => read_commands(conn, scratch),
            };

            has_input = false;
            let more = match more {
                Ok(Some(more)) => more,
                Ok(None) => return Ok(Next::Close),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Ok(silent(conn, scratch));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Idle),
                Err(error) => return Err(error),
            };

            let arrived = self.begins(scratch);
            loop {
                let (step, kinds) = self.handling.call(|| self.execute(conn, scratch))?;
                // One that is merely busy has more to answer, and the answers go out together.
                if step != Step::Busy || scratch.work.out.len() >= OUTPUT {
                    write_replies(self, conn, scratch)?;
                }

                record(scratch, arrived, kinds);

                match step {
                    Step::Hungry => break,
                    Step::Busy => yield_turn(scratch),
                    Step::End(after) => {
                        conn.unanswered = more || !scratch.input.filled().is_empty();
                        return Ok(next(after));
                    }
                }
            }

            // What filled the buffer may have been all there was: to wait for more is not a turn's
            // business.
            if !more {
                return Ok(Next::Idle);
            }

            yield_turn(scratch);
            if !conn.stream.is_readable() {
                return Ok(Next::Idle);
            }
        }
    }

    fn execute(&self, conn: &mut Conn, scratch: &mut Scratch) -> (Step, [u32; KINDS.len()]) {
        let mut exec = Exec::new(self, &mut scratch.work, conn.place.id);
        // Others read it (`stats conns`): written once a second, its line stays in this cache.
        if conn.last != exec.now {
            conn.last = exec.now;
            conn.place.client.last.store(exec.now.0, Relaxed);
        }

        let (done, step) =
            conn.session
                .run(scratch.input.filled(), &mut exec, self.settings.commands);
        let kinds = exec.kinds;
        scratch.input.consume(done);
        (step, kinds)
    }

    /// Returns the time, if this turn is one of those that are timed.
    fn begins(&self, scratch: &mut Scratch) -> Option<Instant> {
        scratch.turns = scratch.turns.wrapping_add(1);
        scratch.turns.is_multiple_of(TIMED).then(Instant::now)
    }

    fn failed(&self, conn: &mut Conn, scratch: &Scratch, error: &io::Error) -> Next {
        // Over TLS many leave without a word, and a stop ends what can be read. Between two commands
        // that is an end like any other.
        let has_left = error.kind() == ErrorKind::UnexpectedEof;
        if has_left && scratch.input.filled().is_empty() && conn.is_between_commands() {
            return Next::Close;
        }

        conn.reason = "error";
        if error.kind() == ErrorKind::TimedOut {
            scratch.work.tally.count(Count::SlowReaders);
        }

        Next::Close
    }

    /// A connection that has been silent for too long.
    pub(crate) fn kick(&self, conn: &mut Conn) {
        conn.reason = IDLE;
        // Without scratch it is not counted.
        let _ = self
            .scratch
            .with(|scratch| scratch.work.tally.count(Count::IdleKicks));
    }

    /// Reports an event to watchers of connections, and with -vv.
    pub(crate) fn opened(&self, conn: &Conn) {
        if self.verbosity() >= 2 {
            let client = &conn.place.client;
            self.tell(&format!(
                "connection {} from {} opened",
                client.id,
                client.peer_address()
            ));
        }

        if self.watchers.kinds() & watch::CONNEVENTS != 0 {
            let client = conn.place.id;
            let peer = conn.place.client.peer_words();
            self.watchers.send(
                watch::CONNEVENTS,
                &Event::Opened {
                    client,
                    peer: &peer,
                },
            );
        }
    }

    pub(crate) fn closed(&self, conn: &mut Conn) {
        conn.stream.end();
        if self.verbosity() >= 2 {
            self.tell(&format!(
                "connection {} closed ({})",
                conn.place.id, conn.reason
            ));
        }

        if self.watchers.kinds() & watch::CONNEVENTS != 0 {
            let client = conn.place.id;
            let peer = conn.place.client.peer_words();
            self.watchers.send(
                watch::CONNEVENTS,
                &Event::Closed {
                    client,
                    peer: &peer,
                    reason: conn.reason,
                },
            );
        }
    }
}

fn silent(conn: &mut Conn, scratch: &Scratch) -> Next {
    conn.reason = IDLE;
    scratch.work.tally.count(Count::IdleKicks);
    Next::Close
}

/// Reads once. `None`: the peer has ended. `Some(true)`: there may be more.
fn read_commands(conn: &mut Conn, scratch: &mut Scratch) -> io::Result<Option<bool>> {
    let space = scratch.input.space();
    let room = space.len();
    let len = loop {
        match conn.stream.read(space) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => break other?,
        }
    };

    scratch.input.extend(len);
    scratch.work.tally.add(Count::BytesRead, len as u64);
    let more = len == room || conn.stream.holds_input();
    Ok((len > 0).then_some(more))
}

/// Sends the replies.
fn write_replies(cache: &Cache, conn: &mut Conn, scratch: &mut Scratch) -> io::Result<()> {
    let out = &mut scratch.work.out;
    if out.is_empty() {
        return Ok(());
    }
    scratch
        .work
        .tally
        .add(Count::BytesWritten, out.len() as u64);
    let sent = unread::send(cache, &mut conn.stream, &conn.place.client, out);
    out.clear();

    sent
}

/// Others have their turn.
fn yield_turn(scratch: &Scratch) {
    scratch.work.tally.count(Count::ConnYields);
    plainweave::yield_now();
}

fn record(scratch: &Scratch, arrived: Option<Instant>, kinds: [u32; KINDS.len()]) {
    const ALL: [Kind; KINDS.len()] = [
        Kind::Get,
        Kind::Set,
        Kind::Delete,
        Kind::Count,
        Kind::Touch,
        Kind::MetaGet,
        Kind::MetaSet,
        Kind::MetaDelete,
        Kind::MetaCount,
        Kind::Other,
    ];
    let Some(arrived) = arrived else { return };
    let time = arrived.elapsed();
    for (kind, n) in ALL.into_iter().zip(kinds).filter(|(_, n)| *n > 0) {
        scratch.work.tally.took(kind, time, n.into());
    }
}

fn next(after: After) -> Next {
    match after {
        After::Next => Next::Idle,
        After::Close => Next::Close,
        After::Watch(kinds) => Next::Watch(kinds),
        After::List(listing) => Next::List(listing),
        After::RefreshCertificates => Next::RefreshCertificates,
        After::Stop => Next::Stop,
    }
}
