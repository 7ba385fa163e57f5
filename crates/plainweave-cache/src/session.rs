//! One connection's place in the protocol: input in, replies out, no I/O.
//!
//! Input may be cut anywhere. What is not consumed is handed in again, with more behind it; a value
//! that has begun is taken at once and kept here. A get of many keys is answered in parts: its line
//! stays with the caller, and what is kept here is how much of it is left.

mod login; // Who a client is, for a cache that wants to know.
mod packets; // What is special about packets of the binary protocol.

use super::exec::{After, Exec};
use super::incoming::Incoming;
use super::memory_budget::Reservation;
use super::proto::{self, Command, Keys, Line, Protocol, Reject, Store};
use super::reply::OUTPUT;
use super::store::Expiry;

/// Keys of one line that are looked up in a row; then others have their turn.
const KEYS: usize = 256;
/// The least memory for a value that has not come in full. It grows as the value comes, to twice
/// what has, and to all of it once a quarter has.
const LEAST: usize = 1 << 10;

/// Where a connection is.
#[derive(Debug, Default)]
pub(crate) struct Session {
    state: State,
    /// `None`: nothing has come yet.
    protocol: Option<Protocol>,
    login: Login,
}

/// How far a client is with saying who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Login {
    /// It has not begun, if it has to at all.
    #[default]
    Not,
    /// Its proof is to come in another packet.
    Begun,
    Done,
}

#[derive(Debug, Default)]
enum State {
    /// At the beginning of a line.
    #[default]
    Line,
    /// In a value.
    Value(Box<Pending>),
    /// In a value to be dropped; this many bytes of it are still to come.
    Swallow(usize),
    /// In the line of a get, at a key. The line has come in full.
    Keys(Box<Remaining>),
    /// At the beginning of a line that is long and whose end has not come.
    Long(Box<Long>),
    /// In a line that was refused: it is dropped up to its end.
    Skip,
}

/// A get of very many keys that is coming in.
#[derive(Debug)]
struct Long {
    /// Bytes without the line's end.
    seen: usize,
    held: Reservation,
}

/// What is left of a get of many keys.
#[derive(Debug)]
struct Remaining {
    cas: bool,
    touch: Option<Expiry>,
    /// Bytes of keys.
    keys: usize,
    /// Bytes to the end of the line: keys, and what does not count.
    line: usize,
    /// What the whole line takes, if it is long; given back by its drop.
    _held: Option<Reservation>,
}

/// A storage command whose value has not come in full.
#[derive(Debug)]
struct Pending {
    /// The line, or the packet up to the value.
    line: Vec<u8>,
    value: Incoming,
    /// Bytes of the value, with its line end if it has one.
    want: usize,
    held: Reservation,
}

impl Pending {
    /// Takes what belongs to the value from the input. How much that is; `None`: there is no memory
    /// for it.
    fn take(&mut self, input: &[u8]) -> Option<usize> {
        let took = input.len().min(self.want - self.value.len());
        let need = self.value.len() + took;
        if need > self.value.room() {
            // The step to all of it is from half of it at most: until the old memory is given back,
            // the two together take no more than what is reserved.
            let room = if 4 * need > self.want {
                self.want
            } else {
                (2 * need).max(LEAST).min(self.want)
            };

            if !self.held.grow_to(self.line.len() + room) {
                return None;
            }
            self.value.grow(room, self.held.budget().is_crowded());
        }

        self.value.append(&input[..took]);
        Some(took)
    }
}

/// Why [`Session::run`] came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It needs more input.
    Hungry,
    /// Others should have their turn, or the replies should be sent; there is more to do.
    Busy,
    /// Send the replies and do this.
    End(After),
}

/// What was done with some input.
struct Taken {
    /// Bytes of it that are done with.
    bytes: usize,
    /// What follows the command; `None`: there is not enough input for one.
    after: Option<After>,
}

impl Taken {
    /// Takes what is no whole command.
    fn all_of(bytes: usize) -> Self {
        Self { bytes, after: None }
    }

    fn then(bytes: usize, after: After) -> Self {
        Self {
            bytes,
            after: Some(after),
        }
    }

    /// Counts what was taken before it, too.
    fn behind(self, bytes: usize) -> Self {
        Self {
            bytes: bytes + self.bytes,
            ..self
        }
    }
}

impl Session {
    /// Returns whether all that was handed in belongs to commands that are done.
    pub(super) fn is_between_commands(&self) -> bool {
        matches!(self.state, State::Line)
    }

    /// Carries out what is complete in `input`, `commands` of them at most. Says how much of the
    /// input is done with.
    pub(crate) fn run(
        &mut self,
        input: &[u8],
        exec: &mut Exec<'_>,
        commands: usize,
    ) -> (usize, Step) {
        if self.protocol.is_none()
            && let Some(first) = input.first()
        {
            self.protocol = exec.cache.settings.protocol.or(Some(Protocol::of(*first)));
        }

        let mut done = 0;
        let mut left = commands;
        loop {
            let taken = self.step(&input[done..], exec);
            done += taken.bytes;
            match taken.after {
                // A get of many keys pauses after each part, however many commands are left.
                Some(After::Next) if matches!(self.state, State::Keys(_)) => {
                    return (done, Step::Busy);
                }
                Some(After::Next) if done == input.len() => return (done, Step::Hungry),
                Some(After::Next) => left -= 1,
                Some(after) => return (done, Step::End(after)),
                None => return (done, Step::Hungry),
            }

            if left == 0 || exec.out.len() >= OUTPUT {
                return (done, Step::Busy);
            }
            // Once, behind the first: a command that comes alone, as most do, costs no look ahead.
            if left == commands - 1 {
                match self.protocol {
                    Some(Protocol::Binary) => exec.expect_packets(&input[done..]),
                    _ => exec.expect(&input[done..]),
                }
            }
        }
    }

    /// Takes one command, or a part of it.
    fn step(&mut self, input: &[u8], exec: &mut Exec<'_>) -> Taken {
        match &mut self.state {
            State::Line if self.protocol == Some(Protocol::Binary) => self.packet(input, exec),
            State::Line => self.line(input, None, exec),
            State::Swallow(left) => {
                let took = input.len().min(*left);
                *left -= took;
                if *left > 0 {
                    return Taken::all_of(took);
                }
                self.state = State::Line;
                Taken::then(took, After::Next)
            }
            State::Value(_) => self.value(input, exec),
            State::Keys(_) => self.keys(input, exec),
            State::Long(_) => {
                let State::Long(long) = std::mem::take(&mut self.state) else {
                    return Taken::all_of(0);
                };
                self.line(input, Some(*long), exec)
            }
            State::Skip => {
                let Some(end) = memchr::memchr(b'\n', input) else {
                    return Taken::all_of(input.len());
                };
                self.state = State::Line;
                Taken::then(end + 1, After::Next)
            }
        }
    }

    /// `long`: what is known of the line, if a part of it was looked at before and is long.
    fn line(&mut self, input: &[u8], long: Option<Long>, exec: &mut Exec<'_>) -> Taken {
        let (line, len) = match proto::take(input, long.as_ref().map_or(0, |long| long.seen)) {
            Line::Complete(line, len) => (line, len),
            Line::Partial if input.len() > proto::LONG && self.is_locked(exec) => {
                return Taken::then(input.len(), After::Close);
            }
            Line::Partial => return self.partial(input, long, exec),
            Line::NoCommand => return Taken::then(input.len(), After::Close),
            Line::TooLong if self.is_locked(exec) => return Taken::then(input.len(), After::Close),
            Line::TooLong => {
                exec.too_long();
                self.state = State::Skip;
                return Taken::then(input.len(), After::Next);
            }
        };

        if self.is_locked(exec) {
            return self.login_line(line, len, input, exec);
        }
        let command = match proto::parse(line) {
            Ok(command) => command,
            Err(reject) => return Taken::then(len, self.reject(&reject, exec)),
        };

        let value = match &command {
            Command::Get { keys, cas, touch } => {
                // Its name and arguments are done with; the keys may take several turns.
                let before = line.len() - keys.0.len();
                let touch = touch.map(|exptime| exec.expiry(exptime));
                let _held = long.map(|long| long.held);
                let left = Remaining {
                    cas: *cas,
                    touch,
                    keys: keys.0.len(),
                    line: len - before,
                    _held,
                };

                return self.get(*keys, left, exec).behind(before);
            }
            Command::Store(Store { len, .. }) | Command::MetaStore(_, len) => len + 2,
            _ => return Taken::then(len, exec.run(&command)),
        };

        // Before the value has come, so that none that is refused is kept.
        if let Err(reject) = exec.admit(&command, value - 2) {
            return Taken::then(len, self.reject(&reject, exec));
        }
        // The usual case: the value is in the same read, and is stored without another copy.
        if let Some(value) = input.get(len..len + value) {
            exec.store(&command, value);
            return Taken::then(len + value.len(), After::Next);
        }

        self.await_value(line, value, &input[len..], exec)
            .behind(len)
    }

    /// Takes what has come of a value of `want` bytes, which is not all of it. `line`: what came
    /// before it.
    fn await_value(
        &mut self,
        line: &[u8],
        want: usize,
        input: &[u8],
        exec: &mut Exec<'_>,
    ) -> Taken {
        let held = exec.cache.memory_budget.reserve();
        self.state = State::Value(Box::new(Pending {
            line: line.to_vec(),
            value: Incoming::new(),
            want,
            held,
        }));
        self.value(input, exec)
    }

    /// Takes a line whose end has not come.
    fn partial(&mut self, input: &[u8], long: Option<Long>, exec: &mut Exec<'_>) -> Taken {
        if input.len() > proto::LONG {
            let mut held =
                long.map_or_else(|| exec.cache.memory_budget.reserve(), |long| long.held);
            // It is in a buffer that grows by doubling.
            if !held.grow_to(2 * input.len()) {
                exec.say("SERVER_ERROR out of memory reading request", false);
                return Taken::then(input.len(), After::Close);
            }

            self.state = State::Long(Box::new(Long {
                seen: input.len(),
                held,
            }));
        }
        Taken::all_of(0)
    }

    /// Takes a part of a value.
    fn value(&mut self, input: &[u8], exec: &mut Exec<'_>) -> Taken {
        let State::Value(pending) = &mut self.state else {
            return Taken::all_of(0);
        };
        let took = pending.take(input);
        if took.is_some() && pending.value.len() < pending.want {
            return Taken::all_of(input.len());
        }
        let State::Value(pending) = std::mem::take(&mut self.state) else {
            return Taken::all_of(0);
        };

        // It was understood before; it borrows from the line, so it was not kept.
        if self.protocol == Some(Protocol::Binary) {
            return self.packet_value(&pending, took, exec);
        }
        if self.is_locked(exec) {
            return self.login_pending(pending.value.bytes(), took, exec);
        }
        let Ok(command) = proto::parse(&pending.line) else {
            return Taken::then(0, After::Close);
        };
        match took {
            Some(took) => {
                exec.store(&command, pending.value.bytes());
                Taken::then(took, After::Next)
            }
            None => {
                let reject = exec.no_memory(&command, pending.want - pending.value.len());
                Taken::then(0, self.reject(&reject, exec))
            }
        }
    }

    /// More keys of a get.
    fn keys(&mut self, input: &[u8], exec: &mut Exec<'_>) -> Taken {
        let State::Keys(left) = std::mem::take(&mut self.state) else {
            return Taken::all_of(0);
        };
        self.get(Keys(&input[..left.keys]), *left, exec)
    }

    /// As many keys as one turn may take.
    fn get(&mut self, keys: Keys<'_>, mut left: Remaining, exec: &mut Exec<'_>) -> Taken {
        let Some(rest) = exec.get(keys, left.cas, left.touch, KEYS) else {
            return Taken::then(left.line, After::Next);
        };
        let took = left.keys - rest.0.len();
        (left.keys, left.line) = (left.keys - took, left.line - took);
        self.state = State::Keys(Box::new(left));
        Taken::then(took, After::Next)
    }

    fn reject(&mut self, reject: &Reject, exec: &mut Exec<'_>) -> After {
        if reject.text.is_empty() {
            return After::Close;
        }
        exec.say(reject.text, reject.quiet);
        self.swallow(reject.swallow);
        After::Next
    }

    /// Drops what comes next.
    fn swallow(&mut self, bytes: usize) {
        if bytes > 0 {
            self.state = State::Swallow(bytes);
        }
    }

    /// Returns whether the client has said who it is.
    pub(super) fn is_known(&self) -> bool {
        self.login == Login::Done
    }

    /// Returns whether the client has to say who it is before anything else.
    fn is_locked(&self, exec: &Exec<'_>) -> bool {
        self.login != Login::Done && exec.cache.users.is_some()
    }
}
