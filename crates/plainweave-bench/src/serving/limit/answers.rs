//! What the loops know of a protocol: as much as they need to answer each request once, that is,
//! where one ends, on connections whose clients send it in one piece.

/// What is sent for what comes.
pub(crate) trait Answers {
    /// What a connection keeps between two reads.
    type State: Default;

    /// Returns what to send for these bytes: nothing until they end a request.
    fn answer<'a>(&'a mut self, state: &mut Self::State, input: &'a [u8]) -> &'a [u8];

    /// Returns the answer to all requests, if it is one and the same.
    fn fixed(&self) -> Option<&'static [u8]> {
        None
    }

    /// Returns the end of an answer that the socket has not taken yet, by its length: nothing if
    /// answers fit into what a socket takes at once, as long as clients read while they wait. Who
    /// does not is not waited for.
    fn rest(&self, unsent: usize) -> &'static [u8] {
        self.fixed()
            .map_or(&[], |answer| &answer[answer.len() - unsent..])
    }

    /// Returns whether an answer is the connection's last.
    fn closes(&self) -> bool {
        false
    }
}

/// Sends back what comes.
pub(crate) struct Echo;

impl Answers for Echo {
    type State = ();

    fn answer<'a>(&'a mut self, (): &mut (), input: &'a [u8]) -> &'a [u8] {
        input
    }
}

pub(super) struct Http {
    /// Until the process ends.
    answer: &'static [u8],
    close: bool,
}

impl Http {
    pub(super) fn new(bytes: usize, close: bool, chunked: bool) -> Self {
        let connection = if close { "close" } else { "keep-alive" };
        let (length, before, after) = match chunked {
            true => (
                "Transfer-Encoding: chunked".to_owned(),
                format!("{bytes:x}\r\n"),
                "\r\n0\r\n\r\n",
            ),
            false => (format!("Content-Length: {bytes}"), String::new(), ""),
        };

        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: limit\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\n\
             {length}\r\nConnection: {connection}\r\n\r\n{before}"
        );
        let body = "Hello, World!".bytes().cycle().take(bytes);
        let answer: Vec<u8> = head
            .into_bytes()
            .into_iter()
            .chain(body)
            .chain(after.bytes())
            .collect();

        Self {
            answer: answer.leak(),
            close,
        }
    }
}

impl Answers for Http {
    type State = ();

    fn answer<'a>(&'a mut self, (): &mut (), input: &'a [u8]) -> &'a [u8] {
        if input.ends_with(b"\r\n\r\n") {
            self.answer
        } else {
            &[]
        }
    }

    fn fixed(&self) -> Option<&'static [u8]> {
        Some(self.answer)
    }

    fn closes(&self) -> bool {
        self.close
    }
}

/// Gets hit and sets succeed, whatever the key.
pub(super) struct Cache {
    /// What follows the key in a hit.
    hit: Vec<u8>,
    out: Vec<u8>,
}

impl Cache {
    pub(super) fn new(bytes: usize) -> Self {
        let mut hit = format!(" 0 {bytes}\r\n").into_bytes();
        hit.resize(hit.len() + bytes, b'v');
        hit.extend_from_slice(b"\r\nEND\r\n");
        Self {
            hit,
            out: Vec::new(),
        }
    }

    /// Answers the whole requests at the beginning; returns how long these are.
    fn take(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(end) = input[taken..].iter().position(|byte| *byte == b'\n') {
            let line = &input[taken..taken + end];
            let (value, answer): (usize, [&[u8]; 3]) = match line.first() {
                Some(b's') => (length(line) + 2, [b"STORED\r\n", b"", b""]),
                Some(b'm') => (0, [b"MN\r\n", b"", b""]),
                // Clients look whether it is their key.
                _ => (
                    0,
                    [
                        b"VALUE ",
                        line.get(4..).unwrap_or_default().trim_ascii_end(),
                        &self.hit,
                    ],
                ),
            };

            let next = taken + end + 1 + value;
            if next > input.len() {
                break;
            }
            answer
                .into_iter()
                .for_each(|part| self.out.extend_from_slice(part));
            taken = next;
        }
        taken
    }
}

/// Returns the number at the end of a line.
fn length(line: &[u8]) -> usize {
    let digits = line
        .trim_ascii_end()
        .rsplit(|byte| *byte == b' ')
        .next()
        .unwrap_or_default();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

impl Answers for Cache {
    /// The beginning of a request.
    type State = Vec<u8>;

    fn answer<'a>(&'a mut self, kept: &mut Vec<u8>, input: &'a [u8]) -> &'a [u8] {
        self.out.clear();
        if kept.is_empty() {
            let taken = self.take(input);
            kept.extend_from_slice(&input[taken..]);
        } else {
            kept.extend_from_slice(input);
            let taken = self.take(kept);
            kept.drain(..taken);
        }
        &self.out
    }
}

#[cfg(test)]
mod tests {
    use super::{Answers, Cache, Http};

    #[test]
    fn a_cache_answers_each_request_once_however_it_is_cut() {
        let input =
            b"get key00000001\r\nset key00000002 0 0 5\r\nab\ncd\r\nget key00000003\r\nmn\r\n";
        let hit = |key| format!("VALUE key0000000{key} 0 3\r\nvvv\r\nEND\r\n");
        let expected = format!("{}STORED\r\n{}MN\r\n", hit(1), hit(3));

        for cut in 0..input.len() {
            let mut cache = Cache::new(3);
            let mut kept = Vec::new();
            let mut out = Vec::new();
            for part in [&input[..cut], &input[cut..]] {
                out.extend_from_slice(cache.answer(&mut kept, part));
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
            assert!(kept.is_empty());
        }
    }

    #[test]
    fn an_answer_has_as_many_bytes_as_it_says() {
        let mut http = Http::new(1024, false, false);
        let text =
            String::from_utf8(http.answer(&mut (), b"GET / HTTP/1.1\r\n\r\n").to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains("Content-Length: 1024")
                && body.len() == 1024
                && body.starts_with("Hello, World!Hello")
        );

        assert!(
            http.rest(3) == &text.as_bytes()[text.len() - 3..]
                && http.answer(&mut (), b"GET / HTT").is_empty()
        );
    }
}
