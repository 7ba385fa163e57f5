//! Who a client is, for a cache that wants to know ([`Users`](super::super::users::Users)). Until
//! it has said that, nothing else is carried out, and it can hold no memory that others need: its
//! lines and proofs are short.

use super::super::exec::{After, Exec};
use super::super::number;
use super::super::proto::{BinaryHead, PROOF, Status, Tokens};
use super::{Login, Session, Taken};

const UNKNOWN: &str = "CLIENT_ERROR unauthenticated";

impl Session {
    /// Takes a line, which is to be `set ANY 0 0 LEN`: a name and a password follow.
    pub(super) fn login_line(
        &mut self,
        line: &[u8],
        len: usize,
        input: &[u8],
        exec: &mut Exec<'_>,
    ) -> Taken {
        let words = Tokens::cut(line);
        let want = number::unsigned32(words.word(4)).filter(|_| words.word(0) == b"set");

        let want = match want {
            None if words.word(0) == b"quit" => return Taken::then(len, After::Close),
            None => {
                exec.say(UNKNOWN, false);
                return Taken::then(len, After::Next);
            }
            Some(want) => want as usize,
        };
        if want > PROOF {
            // As there, what follows is taken for lines, none of which is carried out.
            exec.say("CLIENT_ERROR auth token too long", false);
            return Taken::then(len, After::Next);
        }

        let want = want + 2;
        match input.get(len..len + want) {
            Some(value) => Taken::then(len + want, self.login_value(value, exec)),
            None => self
                .await_value(line, want, &input[len..], exec)
                .behind(len),
        }
    }

    /// Goes on once all has come, or there is no memory for it.
    pub(super) fn login_pending(
        &mut self,
        value: &[u8],
        took: Option<usize>,
        exec: &mut Exec<'_>,
    ) -> Taken {
        match took {
            Some(took) => Taken::then(took, self.login_value(value, exec)),
            None => {
                exec.say("SERVER_ERROR out of memory reading request", false);
                Taken::then(0, After::Close)
            }
        }
    }

    /// Takes `name password` and the line's end.
    pub(super) fn login_value(&mut self, value: &[u8], exec: &mut Exec<'_>) -> After {
        let Some(value) = value.strip_suffix(b"\r\n") else {
            exec.say("CLIENT_ERROR bad command line termination", false);
            return After::Next;
        };

        let Some(blank) = memchr::memchr(b' ', value) else {
            exec.say("CLIENT_ERROR bad authentication token format", false);
            return After::Next;
        };

        let text = match self.login(&value[..blank], &value[blank + 1..], exec) {
            true => "STORED",
            false => "CLIENT_ERROR authentication failure",
        };
        exec.say(text, false);
        After::Next
    }

    /// Takes a part of SASL's exchange: the mechanism PLAIN has one, which may come late.
    pub(super) fn login_packet(
        &mut self,
        head: &BinaryHead,
        mechanism: &[u8],
        begins: bool,
        proof: &[u8],
        exec: &mut Exec<'_>,
    ) -> After {
        let has_begun = begins || self.login == Login::Begun;
        // Whoever tries again is nobody until it has been right.
        self.login = Login::Not;
        if mechanism != b"PLAIN" || !has_begun {
            exec.fail(head, Status::NotAuthenticated);
        } else if begins && proof.is_empty() {
            self.login = Login::Begun;
            exec.answer(head, Status::Continue, 0, &[]);
        } else {
            // For whom the client asks, which may be empty; its name; the password.
            let mut parts = proof.splitn(3, |byte| *byte == 0).skip(1);
            let (name, password) = (parts.next(), parts.next());
            match name.zip(password) {
                Some((name, password)) if self.login(name, password, exec) => {
                    exec.answer(head, Status::Success, 0, &[b"Authenticated"]);
                }
                _ => exec.fail(head, Status::NotAuthenticated),
            }
        }
        After::Next
    }

    /// Returns whether the client is known, from now on.
    fn login(&mut self, name: &[u8], password: &[u8], exec: &mut Exec<'_>) -> bool {
        let knows = exec.knows(name, password);
        self.login = if knows { Login::Done } else { Login::Not };
        knows
    }
}
