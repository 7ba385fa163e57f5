//! The cases: what a client sends, and what answers it.

use anyhow::{bail, ensure};
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Case {
    /// A byte, which comes back
    Echo,
    /// A GET over HTTP/1.1, answered by a body of a word
    Web,
}

/// More than an answer over HTTP takes.
const ANSWER_BYTES: usize = 1024;

impl Case {
    /// Returns its name on the command line and in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Web => "web",
        }
    }

    pub(super) fn request(self, slow: bool) -> &'static [u8] {
        match (self, slow) {
            (Self::Echo, false) => b"F",
            (Self::Echo, true) => b"S",
            (Self::Web, false) => b"GET /fast HTTP/1.1\r\nHost: localhost\r\n\r\n",
            (Self::Web, true) => b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n",
        }
    }

    /// Returns whether `received` is the whole answer.
    ///
    /// # Errors
    /// It is not the start of one.
    pub(super) fn is_answered(self, slow: bool, received: &[u8]) -> anyhow::Result<bool> {
        let (start, end): (&[u8], &[u8]) = match (self, slow) {
            (Self::Echo, _) => {
                ensure!(received == self.request(slow), "another byte came back");
                return Ok(true);
            }
            (Self::Web, false) => (b"HTTP/1.1 200 OK\r\n", b"\r\n\r\nfast"),
            (Self::Web, true) => (b"HTTP/1.1 200 OK\r\n", b"\r\n\r\nslow"),
        };

        let read = received.len().min(start.len());
        if received[..read] != start[..read] || received.len() > ANSWER_BYTES {
            bail!(
                "another answer came back: {}",
                String::from_utf8_lossy(received).escape_debug()
            );
        }

        Ok(received.ends_with(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_byte_sent() {
        assert!(Case::Echo.is_answered(true, b"S").unwrap());
        assert!(Case::Echo.is_answered(true, b"F").is_err());
    }

    #[test]
    fn an_answer_may_come_in_pieces_and_ends_in_the_body_that_was_asked_for() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow";
        for end in 0..answer.len() {
            assert!(
                !Case::Web.is_answered(true, &answer[..end]).unwrap(),
                "{end}"
            );
        }

        assert!(Case::Web.is_answered(true, answer).unwrap());
        assert!(
            !Case::Web.is_answered(false, answer).unwrap(),
            "the other body"
        );
        assert!(Case::Web.is_answered(true, b"HTTP/1.1 503 ").is_err());
        assert!(
            Case::Web
                .is_answered(true, &[answer, &[b' '; ANSWER_BYTES][..]].concat())
                .is_err()
        );
    }
}
