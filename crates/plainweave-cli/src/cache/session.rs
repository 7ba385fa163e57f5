//! One connection's place in the protocol: input in, replies out, no I/O.
//!
//! Input may be cut anywhere. What is not consumed is handed in again, with more behind it; a value that has begun is
//! taken at once and kept here. A get of many keys is answered in parts: its line stays with the caller, and what is
//! kept here is how much of it is left.

use super::exec::{After, Exec};
use super::proto::{self, Command, Keys, Line, Reject, Store};
use super::store::Expiry;

/// Replies that have piled up so far are sent before more commands are looked at.
pub(crate) const OUTPUT: usize = 64 << 10;
/// Keys of one line that are looked up in a row; then others have their turn.
const KEYS: usize = 256;
/// Of a value that has not come, so much memory is taken in advance.
const ADVANCE: usize = 64 << 10;
/// The first byte of a request in the binary protocol, and the bytes of its head.
const BINARY: (u8, usize) = (0x80, 24);

/// Where a connection is.
#[derive(Debug, Default)]
pub(crate) struct Session {
    state: State,
    /// The protocol is known.
    begun: bool,
}

#[derive(Debug, Default)]
enum State {
    /// At the beginning of a line.
    #[default]
    Line,
    /// In a value.
    Value(Box<Pending>),
    /// In a value that nobody wants; so many bytes of it are to come.
    Swallow(usize),
    /// In the line of a get, at a key. The line has come in full.
    Keys(Box<Remaining>),
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
}

/// A storage command whose value has not come in full.
#[derive(Debug)]
struct Pending {
    line: Vec<u8>,
    value: Vec<u8>,
    /// Bytes of the value, with its line end.
    want: usize,
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

impl Session {
    /// Carries out what is complete in `input`, `commands` of them at most. Says how much of the input is done with.
    pub(crate) fn run(&mut self, input: &[u8], exec: &mut Exec<'_>, commands: usize) -> (usize, Step) {
        if !self.begun && !input.is_empty() {
            if input[0] == BINARY.0 {
                return refuse_binary(input, exec);
            }
            self.begun = true;
        }
        let (mut done, mut left) = (0, commands);
        loop {
            let (took, step) = self.step(&input[done..], exec);
            done += took;
            match step {
                Some(After::Next) if matches!(self.state, State::Keys(_)) => return (done, Step::Busy),
                Some(After::Next) if done == input.len() => return (done, Step::Hungry),
                Some(After::Next) => left -= 1,
                Some(after) => return (done, Step::End(after)),
                None => return (done, Step::Hungry),
            }
            if left == 0 || exec.out.len() >= OUTPUT {
                return (done, Step::Busy);
            }
            if left == commands - 1 {
                exec.expect(&input[done..]);
            }
        }
    }

    /// One command, or a part of its value. `None`: there is not enough input.
    fn step(&mut self, input: &[u8], exec: &mut Exec<'_>) -> (usize, Option<After>) {
        match &mut self.state {
            State::Line => self.line(input, exec),
            State::Swallow(left) => {
                let took = input.len().min(*left);
                *left -= took;
                if *left > 0 {
                    return (took, None);
                }
                self.state = State::Line;
                (took, Some(After::Next))
            }
            State::Value(pending) => {
                let took = input.len().min(pending.want - pending.value.len());
                pending.value.extend_from_slice(&input[..took]);
                if pending.value.len() < pending.want {
                    return (took, None);
                }
                if let State::Value(pending) = std::mem::take(&mut self.state)
                    && let Ok(command) = proto::parse(&pending.line)
                {
                    exec.store(&command, &pending.value);
                }
                (took, Some(After::Next))
            }
            State::Keys(left) => {
                let (keys, len, cas, touch) = (Keys(&input[..left.keys]), left.line, left.cas, left.touch);
                self.state = State::Line;
                self.get(keys, len, cas, touch, exec)
            }
        }
    }

    /// As many keys as one turn may take. `len`: bytes from the first of them to the end of the line.
    fn get(
        &mut self,
        keys: Keys<'_>,
        len: usize,
        cas: bool,
        touch: Option<Expiry>,
        exec: &mut Exec<'_>,
    ) -> (usize, Option<After>) {
        let Some(rest) = exec.get(keys, cas, touch, KEYS) else { return (len, Some(After::Next)) };
        let took = keys.0.len() - rest.0.len();
        self.state = State::Keys(Box::new(Remaining { cas, touch, keys: rest.0.len(), line: len - took }));
        (took, Some(After::Next))
    }

    fn line(&mut self, input: &[u8], exec: &mut Exec<'_>) -> (usize, Option<After>) {
        let (line, len) = match proto::take(input) {
            Line::Complete(line, len) => (line, len),
            Line::Partial => return (0, None),
            Line::TooLong => return (input.len(), Some(After::Close)),
        };
        let command = match proto::parse(line) {
            Ok(command) => command,
            Err(reject) => return (len, Some(self.reject(&reject, exec))),
        };
        let value = match &command {
            Command::Get { keys, cas, touch } => {
                let before = line.len() - keys.0.len();
                let touch = touch.map(|exptime| exec.expiry(exptime));
                let (took, after) = self.get(*keys, len - before, *cas, touch, exec);
                return (before + took, after);
            }
            Command::Store(Store { len, .. }) | Command::MetaStore(_, len) => len + 2,
            _ => return (len, Some(exec.run(&command))),
        };
        if let Err(reject) = exec.admit(&command, value - 2) {
            return (len, Some(self.reject(&reject, exec)));
        }
        if let Some(value) = input.get(len..len + value) {
            exec.store(&command, value);
            return (len + value.len(), Some(After::Next));
        }
        let mut have = Vec::with_capacity(value.min(ADVANCE));
        have.extend_from_slice(&input[len..]);
        self.state = State::Value(Box::new(Pending { line: line.to_vec(), value: have, want: value }));
        (input.len(), None)
    }

    fn reject(&mut self, reject: &Reject, exec: &mut Exec<'_>) -> After {
        if reject.text.is_empty() {
            return After::Close;
        }
        exec.say(reject.text, reject.quiet);
        if reject.swallow > 0 {
            self.state = State::Swallow(reject.swallow);
        }
        After::Next
    }
}

/// Answers the first request as the binary protocol words a refusal, and ends the connection.
fn refuse_binary(input: &[u8], exec: &mut Exec<'_>) -> (usize, Step) {
    const TEXT: &[u8] = b"plainweave cache has no binary protocol: use the text or the meta protocol";
    let Some(head) = input.get(..BINARY.1) else { return (0, Step::Hungry) };
    let mut answer = [0; BINARY.1];
    // Magic, opcode, key length, extras length, data type, status (unknown command), body length, opaque, CAS.
    (answer[0], answer[1], answer[7], answer[11]) = (0x81, head[1], 0x81, TEXT.len() as u8);
    answer[12..16].copy_from_slice(&head[12..16]);
    exec.out.push(&answer);
    exec.out.push(TEXT);
    (input.len(), Step::End(After::Close))
}
