//! HTTP/1.1: requests written out once and sent as they are, alone or in sessions, over TLS or
//! without; answers checked to their last byte.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use anyhow::ensure;

use super::data;
use super::engine::{Broken, Next, Protocol, Reply};
use super::files::Files;
use super::flags::HttpFlags;
use super::popularity::{Picker, Popularity};
use super::redirect;
use super::request::{Request, Writer};
use super::response::{self, Body, Head};
use super::session_log;
use super::socket::Place;
use super::stream::Stream;
use super::tally::{Failure, Opening};
use super::target::{self, Target, Via};
use super::tls::{self, Tls};

/// A connection's buffer at first.
const BUFFER: usize = 4096;
/// And at most: for large bodies, and for heads.
const LARGE: usize = 64 * 1024;

/// What is asked, and what is expected.
#[derive(Debug)]
pub(super) struct Http {
    /// Of each server.
    requests: Vec<Vec<Request>>,
    /// Which requests follow each other, for how long the client is off after each; empty without
    /// session logs.
    sessions: Vec<Vec<(usize, Duration)>>,
    zipf: Option<f64>,
    pub(super) keep_alive: bool,
    status: Vec<u16>,
    body_length: Option<u64>,
    /// That are followed for a request, at most.
    redirects: u8,
    targets: Vec<Target>,
    tls: Option<Tls>,
}

impl Http {
    /// Reads the URLs or session logs, and writes the requests.
    pub(super) fn prepare(flags: &HttpFlags, files: &Files) -> anyhow::Result<(Vec<Target>, Self)> {
        let mut urls = flags.urls.clone();
        if let Some(list) = &flags.list {
            let text = files.text(list)?;
            let lines = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            urls.extend(lines.map(str::to_owned));
        }

        let mut writer = Writer::new(flags, files)?;
        let mut client = Self {
            requests: Vec::new(),
            sessions: Vec::new(),
            zipf: flags.zipf,
            keep_alive: !flags.no_keep_alive,
            status: flags.status.clone(),
            body_length: flags.body_length,
            redirects: flags.redirects,
            targets: Vec::new(),
            tls: None,
        };

        if let Some(path) = &flags.data {
            let rows = data::parse(&path.display().to_string(), &files.text(path)?)?;
            client.requests = writer.rows(&urls, &rows)?;
        } else if flags.sessions.is_empty() {
            client.requests = writer.urls(&urls)?;
        } else {
            client.read_sessions(flags, files, &mut writer, &urls)?;
        }

        let bytes: usize = client
            .requests
            .iter()
            .flatten()
            .map(|request| request.bytes.len())
            .sum();
        ensure!(
            bytes <= MEMORY,
            "{bytes} bytes of requests, and {MEMORY} at most: name fewer URLs or a shorter body"
        );
        let mut targets = writer.into_targets();
        target::lead_elsewhere(&flags.connect_to, &mut targets)?;

        if let Some(path) = &flags.unix_socket {
            for target in &mut targets {
                target.via = Via::Unix(path.clone());
            }
        }

        let mut by_tls = targets.iter().filter(|target| target.secure);
        by_tls
            .clone()
            // Before any connection, so that a name that no certificate can be checked against is
            // an error of usage, not a failure of every request.
            .try_for_each(|target| tls::check_host(&target.host))?;
        let protocol = if flags.http2 { "h2" } else { "http/1.1" };
        client.tls = Tls::new(&flags.tls, files, by_tls.next().is_some(), Some(protocol))?;
        client.targets.clone_from(&targets);

        Ok((targets, client))
    }

    fn read_sessions(
        &mut self,
        flags: &HttpFlags,
        files: &Files,
        writer: &mut Writer,
        urls: &[String],
    ) -> anyhow::Result<()> {
        ensure!(
            flags.zipf.is_none(),
            "--zipf chooses among URLs; with --sessions the logs say what is asked for"
        );
        writer.servers(urls)?;
        let mut logs = Vec::new();

        for path in &flags.sessions {
            for log in files.within(path, "log")? {
                logs.push(
                    session_log::parse(&log.display().to_string(), &files.text(&log)?)?.into_iter(),
                );
            }
        }

        // One session of each log, then the next of each: logs are clients, and go on side by side.
        while !logs.is_empty() {
            logs.retain_mut(|log| {
                let Some(session) = log.next() else {
                    return false;
                };
                self.sessions.push(
                    session
                        .iter()
                        .map(|visit| (writer.number(visit), visit.think))
                        .collect(),
                );
                true
            });
        }

        self.requests = writer.visits()?;
        Ok(())
    }

    /// Returns all requests, by server.
    #[cfg(feature = "http2")]
    pub(super) fn requests(&self) -> &[Vec<Request>] {
        &self.requests
    }

    /// Returns the number of the request that comes next on a connection to a server, and whether
    /// the connection ends with it.
    pub(super) fn choose(
        &self,
        picker: &RefCell<Picker>,
        server: usize,
        memory: &mut Memory,
    ) -> (usize, bool) {
        if self.sessions.is_empty() {
            return (picker.borrow_mut().pick(server), false);
        }
        // In a session the picker chooses only where to begin.
        let at = *memory
            .at
            .get_or_insert_with(|| (picker.borrow_mut().pick(server), 0));
        let session = &self.sessions[at.0];
        (session[at.1].0, at.1 + 1 == session.len())
    }

    /// Judges an answer by its status and the length of its body.
    pub(super) fn judge(&self, status: u16, body: u64) -> Result<(), Failure> {
        let accepted = if self.status.is_empty() {
            (200..400).contains(&status)
        } else {
            self.status.contains(&status)
        };
        match self.body_length {
            _ if !accepted => Err(Failure::Status(status)),
            Some(length) if length != body => Err(Failure::WrongLength),
            _ => Ok(()),
        }
    }

    /// Returns where an answer leads whose head has just been read, if redirects are followed.
    fn location(&self, connection: &Connection, head: &Head) -> Option<String> {
        if self.redirects == 0 || !redirect::is_redirect(head.status) {
            return None;
        }
        response::location(&connection.buffer[..head.len])
    }

    /// Connects to a server, over TLS if it is asked so.
    pub(super) fn open(
        &self,
        server: usize,
        address: &Place,
    ) -> Result<(Stream, Opening), Failure> {
        let target = &self.targets[server];
        let tls = self.tls.as_ref().filter(|_| target.secure);
        Stream::open(address, tls.map(|tls| (tls, target.host.as_str())))
    }
}

/// Bytes of all requests, at most.
const MEMORY: usize = 256 << 20;

/// Where a connection is in a session: which one, and which of its requests.
#[derive(Debug, Default)]
pub(super) struct Memory {
    at: Option<(usize, usize)>,
}

/// A connection and the buffer that answers are read into.
#[derive(Debug)]
pub(super) struct Connection {
    server: usize,
    stream: Stream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Protocol for Http {
    type Connection = Connection;
    type Memory = Memory;

    fn each(&self) -> f64 {
        let requests: usize = self.sessions.iter().map(Vec::len).sum();
        if self.sessions.is_empty() {
            1.0
        } else {
            requests as f64 / self.sessions.len() as f64
        }
    }

    fn outlives_starts(&self) -> bool {
        self.keep_alive && self.sessions.is_empty()
    }

    fn picker(&self, worker: usize, workers: usize, seed: u64) -> Picker {
        let of = |requests: &Vec<Request>| {
            let items = if self.sessions.is_empty() {
                requests.len()
            } else {
                self.sessions.len()
            };
            Popularity::new(items, self.zipf, items * worker / workers)
        };
        Picker::new(seed, self.requests.iter().map(of).collect())
    }

    fn connect(&self, server: usize, address: &Place) -> Result<(Connection, Opening), Failure> {
        let (stream, opening) = self.open(server, address)?;
        Ok((
            Connection {
                server,
                stream,
                buffer: vec![0; BUFFER],
                filled: 0,
            },
            opening,
        ))
    }

    fn pause(&self, memory: &mut Memory) -> Option<Duration> {
        let (session, at) = memory.at?;
        let session_len = self.sessions[session].len();
        memory.at = (at + 1 < session_len).then_some((session, at + 1));
        memory.at.map(|_| self.sessions[session][at].1)
    }

    fn exchange(
        &self,
        connection: &mut Connection,
        picker: &RefCell<Picker>,
        memory: &mut Memory,
        _depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken> {
        let (number, last) = self.choose(picker, connection.server, memory);
        let request = &self.requests[connection.server][number];
        // What is left there belongs to an answer that has been read to its end.
        connection.filled = 0;
        connection
            .stream
            .send(&request.bytes)
            .map_err(Broken::before)?;
        let mut head = connection.head(request.no_body)?;
        let mut location = self.location(connection, &head);
        let (mut wire, mut body) = connection.body(&mut head)?;

        let mut next = None;
        let mut left = self.redirects;
        while let Some(place) = location.take().filter(|_| left > 0 && !head.close) {
            let asked: &[u8] = next.as_deref().unwrap_or(&request.bytes);
            let server = &self.targets[connection.server];
            let Some((bytes, no_body)) = redirect::follow(asked, head.status, &place, server)
            else {
                break;
            };
            left -= 1;
            connection.filled = 0;
            // The server has answered: a request that breaks now is not as if it had not been sent.
            let within = |error: io::Error| Broken::within(error.into());
            connection.stream.send(&bytes).map_err(within)?;
            head = connection
                .head(no_body)
                .map_err(|broken| Broken::within(broken.failure))?;
            location = self.location(connection, &head);
            let more;
            (more, body) = connection.body(&mut head)?;
            wire += more;
            next = Some(bytes);
        }

        let outcome = if self.redirects > 0 && redirect::is_redirect(head.status) {
            Err(Failure::Status(head.status))
        } else {
            self.judge(head.status, body)
        };
        done(Reply {
            bytes: wire,
            status: head.status,
            outcome: outcome.map(|()| true),
        });
        Ok(match head.close {
            _ if last || !self.keep_alive => Next::Close,
            true => Next::Lost,
            false => Next::Keep,
        })
    }
}

impl Connection {
    /// Reads more behind what is there; false at the end of the stream.
    fn fill(&mut self) -> Result<bool, Broken> {
        let nothing_yet = self.filled == 0;
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(n) => {
                self.filled += n;
                Ok(n > 0)
            }
            Err(error) if nothing_yet => Err(Broken::before(error)),
            Err(error) => Err(Broken::within(error.into())),
        }
    }

    /// Reads the head of the final answer; interim ones are passed over.
    fn head(&mut self, no_body: bool) -> Result<Head, Broken> {
        loop {
            if !self.fill()? {
                return Err(if self.filled == 0 {
                    Broken::CLOSED
                } else {
                    Broken::within(Failure::Short)
                });
            }
            while let Some(head) =
                response::parse(&self.buffer[..self.filled], no_body).map_err(Broken::within)?
            {
                if head.status >= 200 {
                    return Ok(head);
                }
                self.buffer.copy_within(head.len..self.filled, 0);
                self.filled -= head.len;
            }
            if self.filled == self.buffer.len() {
                if self.filled >= LARGE {
                    return Err(Broken::within(Failure::Garbage));
                }
                self.buffer.resize(self.filled * 4, 0);
            }
        }
    }

    /// Reads the body. Bytes of the whole answer, and of the body alone.
    fn body(&mut self, head: &mut Head) -> Result<(u64, u64), Broken> {
        let mut wire = self.filled as u64;
        let body = &mut head.body;
        let mut taken = body
            .feed(&self.buffer[head.len..self.filled])
            .map_err(Broken::within)?;
        let mut over = self.filled - head.len - taken;
        let mut bytes = taken as u64;
        if matches!(body, Body::Length(left) if *left as usize > self.buffer.len()) {
            self.buffer.resize(LARGE, 0);
        }
        while !body.is_done() {
            self.filled = 0;
            let more = match self.fill() {
                Ok(more) => more,
                Err(broken) => return Err(Broken::within(broken.failure)),
            };
            if !more {
                if *body == Body::UntilClose {
                    break;
                }
                return Err(Broken::within(Failure::Short));
            }
            taken = body
                .feed(&self.buffer[..self.filled])
                .map_err(Broken::within)?;
            over = self.filled - taken;
            bytes += taken as u64;
            wire += self.filled as u64;
        }
        if over > 0 {
            return Err(Broken::within(Failure::Garbage));
        }
        let data = if let Body::Chunked(chunks) = body {
            chunks.data
        } else {
            bytes
        };
        Ok((wire, data))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: HttpFlags,
    }

    fn prepare(args: &[&str]) -> anyhow::Result<(Vec<Target>, Http)> {
        Http::prepare(
            &Cli::try_parse_from([&["load"], args].concat())?.flags,
            &Files::own(),
        )
    }

    #[test]
    fn requests_are_written_once() {
        let (targets, http) =
            prepare(&["http://h:81", "http://h:81/a?b=c", "--header", "X-Y: 1"]).unwrap();
        let [target] = targets.as_slice() else {
            panic!("{targets:?}")
        };
        assert_eq!(
            (target.host.as_str(), target.port, target.name.as_str()),
            ("h", 81, "http://h:81")
        );
        assert_eq!(
            &*http.requests[0][0].bytes,
            b"GET / HTTP/1.1\r\nHost: h:81\r\nX-Y: 1\r\n\r\n"
        );
        assert_eq!(
            &*http.requests[0][1].bytes,
            b"GET /a?b=c HTTP/1.1\r\nHost: h:81\r\nX-Y: 1\r\n\r\n"
        );
        let (targets, http) = prepare(&[
            "http://[::1]/",
            "--no-keep-alive",
            "--header",
            "host: other",
        ])
        .unwrap();

        assert_eq!((targets[0].host.as_str(), targets[0].port), ("::1", 80));
        assert_eq!(
            &*http.requests[0][0].bytes,
            b"GET / HTTP/1.1\r\nhost: other\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn servers_are_told_apart() {
        let (targets, http) =
            prepare(&["http://h/1", "http://g/2", "http://h:80/3", "http://h:81/4"]).unwrap();
        let names: Vec<_> = targets
            .iter()
            .map(|target| (target.name.as_str(), target.port))
            .collect();
        assert_eq!(
            names,
            [("http://h", 80), ("http://g", 80), ("http://h:81", 81)]
        );
        assert_eq!(
            http.requests.iter().map(Vec::len).collect::<Vec<_>>(),
            [2, 1, 1]
        );

        assert!(
            http.requests[1][0]
                .bytes
                .starts_with(b"GET /2 HTTP/1.1\r\nHost: g\r\n")
        );
    }

    #[test]
    fn bodies_come_with_their_length() {
        let (_, http) = prepare(&["http://h/", "--body", "hello"]).unwrap();
        assert_eq!(
            &*http.requests[0][0].bytes,
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
        );
        let (_, http) = prepare(&["http://h/", "--method", "PUT", "--body", ""]).unwrap();
        assert_eq!(
            &*http.requests[0][0].bytes,
            b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
        );
        let (_, http) = prepare(&["http://h/", "--method", "DELETE"]).unwrap();

        assert_eq!(
            &*http.requests[0][0].bytes,
            b"DELETE / HTTP/1.1\r\nHost: h\r\n\r\n"
        );

        assert!(
            prepare(&["http://h/", "--method", "HEAD"])
                .unwrap()
                .1
                .requests[0][0]
                .no_body
        );
    }

    #[test]
    fn wrong_usage_names_the_remedy() {
        for (args, said) in [
            (&["example"][..], "write http://"),
            (&["/x"], "write http://"),
            (&["https://h_/x y/"], "not a URL"),
            (&["ftp://h/"], "write http://"),
            (&["http://h/", "--header", "X"], "NAME: VALUE"),
            (
                &["http://h/", "--header", "X Y: 1"],
                "no valid header field",
            ),
            (
                &["http://h/", "--header", "X: 1\r\nZ: 2"],
                "no valid header field",
            ),
            (&["http://h/", "--header", "Content-Length: 1"], "itself"),
            (&["http://h/", "--method", "GE T"], "no method"),
            (&["http://h/", "--method", "CONNECT"], "no method"),
            (
                &["http://h/", "--body-file", "/no/such/file"],
                "/no/such/file",
            ),
            (
                &["http://h/", "--header-file", "/no/such/file"],
                "/no/such/file",
            ),
            (
                &["http://h/", "--sessions", "/no/such/file"],
                "/no/such/file",
            ),
            (
                &["http://h/", "--sessions", "/no/such/file", "--zipf", "1"],
                "--zipf",
            ),
            (
                &["http://h/index", "--sessions", "/no/such/file"],
                "the logs name the paths",
            ),
            (&["--urls", "/no/such/file"], "/no/such/file"),
            (&[], "URL"),
        ] {
            let error = format!("{:#}", prepare(args).map(|_| ()).unwrap_err());
            assert!(error.contains(said), "{args:?}: {error}");
        }
    }
}
