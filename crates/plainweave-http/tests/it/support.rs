//! A stream that follows a script, a handler to call, a reader of answers.

use std::collections::VecDeque;
use std::io::{self, Cursor, ErrorKind, IoSlice, Read, Write};
use std::time::Duration;

use plainweave_http::{Body, Handler, Next, Request, Response, Server, StatusCode, Transport};

/// What a read meets next.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Data(Vec<u8>),
    /// Silence until the timeout.
    Stall,
    Fail(ErrorKind),
}

/// The server's side of a connection whose other side is a list of events, then end of file.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) events: VecDeque<Event>,
    /// Most bytes of one read and of one write.
    pub(crate) read_max: usize,
    pub(crate) write_max: usize,
    /// Bytes after which the peer takes no more, and how writes then fail.
    pub(crate) deaf_after: Option<(usize, ErrorKind)>,
    pub(crate) out: Vec<u8>,
    /// Length of each write.
    pub(crate) writes: Vec<usize>,
    pub(crate) ended: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) timeouts_set: usize,
    pub(crate) write_timeouts: Vec<Duration>,
}

impl Script {
    pub(crate) fn new(events: impl IntoIterator<Item = Event>) -> Self {
        Self {
            events: events.into_iter().collect(),
            read_max: usize::MAX,
            write_max: usize::MAX,
            deaf_after: None,
            out: Vec::new(),
            writes: Vec::new(),
            ended: false,
            timeout: None,
            timeouts_set: 0,
            write_timeouts: Vec::new(),
        }
    }

    /// Everything at once.
    pub(crate) fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self::new([Event::Data(bytes.as_ref().to_vec())])
    }
}

impl Read for Script {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        assert!(
            !buf.is_empty(),
            "a read without room would look like end of file"
        );
        assert!(self.timeout.is_some(), "a read without a timeout");
        match self.events.pop_front() {
            None => Ok(0),
            Some(Event::Stall) => Err(ErrorKind::WouldBlock.into()),
            Some(Event::Fail(kind)) => Err(kind.into()),
            Some(Event::Data(mut data)) => {
                let len = data.len().min(buf.len()).min(self.read_max);
                buf[..len].copy_from_slice(&data[..len]);
                data.drain(..len);
                if !data.is_empty() {
                    self.events.push_front(Event::Data(data));
                }
                Ok(len)
            }
        }
    }
}

impl Write for Script {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        assert!(!self.ended, "a write after the end");
        let mut len = buf.len().min(self.write_max);
        if let Some((limit, kind)) = self.deaf_after {
            len = len.min(limit - self.out.len());
            if len == 0 {
                return Err(kind.into());
            }
        }

        self.out.extend_from_slice(&buf[..len]);
        self.writes.push(len);
        Ok(len)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied());
        self.write(&bytes.take(self.write_max).collect::<Vec<u8>>())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Script {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.timeout = Some(timeout);
        self.timeouts_set += 1;
        Ok(())
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.write_timeouts.push(timeout);
        Ok(())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.ended = true;
        Ok(())
    }
}

/// Plays a script in turns, as a driver with idle connections does. Returns the turns taken.
pub(crate) fn play<H: Handler>(server: &Server<H>, script: &mut Script) -> usize {
    let mut state = server.open(script).unwrap();
    for turn in 1.. {
        if server.serve_ready(script, &mut state) == Next::Close {
            return turn;
        }
        if matches!(script.events.front(), Some(Event::Stall)) {
            return turn; // Idle for too long: the driver drops it.
        }
    }
    unreachable!()
}

/// The answers to these bytes.
pub(crate) fn answers_to(bytes: impl AsRef<[u8]>) -> Vec<Answer> {
    let mut script = Script::of(bytes);
    play(&server(), &mut script);
    read_answers(&script.out)
}

/// The status of each answer to these bytes.
pub(crate) fn statuses(bytes: impl AsRef<[u8]>) -> Vec<u16> {
    answers_to(bytes)
        .iter()
        .map(|answer| answer.status)
        .collect()
}

pub(crate) fn server() -> Server<fn(&mut Request<'_>) -> Response> {
    Server::new(handle as fn(&mut Request<'_>) -> Response)
}

/// Says which path was asked for, unless the path means more.
fn handle(request: &mut Request<'_>) -> Response {
    let stream = |bytes: &'static [u8], len| Response::ok(Body::reader(Cursor::new(bytes), len));
    match request.path() {
        "/echo" => match request.read_body(1 << 20) {
            Ok(body) => Response::ok(body),
            Err(error) => Response::text(StatusCode::IM_A_TEAPOT, error.to_string()),
        },
        "/half" => {
            let mut byte = [0];
            Response::ok(
                request
                    .read(&mut byte)
                    .map(|len| byte[..len].to_vec())
                    .unwrap_or_default(),
            )
        }
        "/panic" => panic!("asked to panic"),
        "/close" => {
            Response::ok("bye").with_header("connection".parse().unwrap(), "close".parse().unwrap())
        }
        "/stream" => stream(b"streamed", None),
        "/known" => stream(b"known", Some(5)),
        "/short" => stream(b"short", Some(9)),
        "/long" => stream(b"longer than it says", Some(6)),
        "/broken" => Response::ok(Body::Stream(Box::new(io::BufReader::new(Broken)), Some(5))),
        "/big" => Response::ok(vec![b'x'; 100_000]),
        "/none" => Response::new(StatusCode::NO_CONTENT).with_body("not to be sent"),
        "/same" => Response::new(StatusCode::NOT_MODIFIED).with_body("not to be sent"),
        "/interim" => Response::new(StatusCode::SWITCHING_PROTOCOLS),
        path => Response::ok(path.to_owned()),
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _buf: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

/// One answer as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Takes whole answers apart; one that was cut short is left out. Bodies by length, chunks or the
/// end of the stream.
pub(crate) fn read_answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((answer, rest)) = read_answer(bytes) {
        answers.push(answer);
        bytes = rest;
    }
    answers
}

pub(crate) fn read_answer(bytes: &[u8]) -> Option<(Answer, &[u8])> {
    let mut slots = [httparse::EMPTY_HEADER; 32];
    let mut raw = httparse::Response::new(&mut slots);
    let httparse::Status::Complete(head) = raw.parse(bytes).unwrap() else {
        return None;
    };
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    let headers = raw
        .headers
        .iter()
        .map(|header| (header.name.to_owned(), text(header.value)))
        .collect();
    let mut answer = Answer {
        status: raw.code.unwrap(),
        headers,
        body: Vec::new(),
    };

    let mut rest = &bytes[head..];
    if matches!(answer.status, 100 | 204 | 304) {
        return Some((answer, rest));
    }
    if let Some(len) = answer.header("content-length") {
        let len: usize = len.parse().unwrap();
        answer.body = rest.get(..len)?.to_vec();
        rest = &rest[len..];
    } else if answer.header("transfer-encoding") == Some("chunked") {
        loop {
            let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
            let len = usize::from_str_radix(str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            answer
                .body
                .extend_from_slice(rest.get(line + 2..line + 2 + len)?);
            rest = rest.get(line + 4 + len..)?;
            if len == 0 {
                break;
            }
        }
    } else {
        answer.body = rest.to_vec();
        rest = &[];
    }

    Some((answer, rest))
}
