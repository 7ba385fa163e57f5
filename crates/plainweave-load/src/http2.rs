//! HTTP/2: each request is a stream of a connection that the streams of a [`Group`](super::group)
//! share.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::header::{HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Uri, Version};

use super::engine::{Broken, Next, Protocol, Reply};
use super::files::Files;
use super::flags::HttpFlags;
use super::http::{Http, Memory};
use super::link::Link;
use super::popularity::Picker;
use super::request::Request;
use super::socket::Place;
use super::tally::{Failure, Opening};
use super::target::Target;

/// Fields of a request, at most.
const FIELDS: usize = 256;
/// Fields that are of a connection over HTTP/1.
const FOREIGN: [HeaderName; 5] = [
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What is asked over HTTP/2, and what is expected.
pub(super) struct Http2 {
    http: Http,
    /// Of each server.
    requests: Vec<Vec<Asked>>,
    streams: usize,
}

/// A request as h2 takes it.
struct Asked {
    head: http::Request<()>,
    body: Bytes,
}

/// A stream's hold on its connection.
pub(super) struct Stream {
    server: usize,
    link: Rc<Link>,
}

impl Http2 {
    /// Reads the URLs or session logs, and writes the requests.
    pub(super) fn prepare(flags: &HttpFlags, files: &Files) -> anyhow::Result<(Vec<Target>, Self)> {
        let streams = flags.streams.map_or(1, usize::from);
        ensure!(
            streams == 1 || flags.sessions.is_empty(),
            "--streams {streams} with --sessions: a session has a connection of its own; leave out --streams"
        );
        ensure!(
            streams == 1 || !flags.no_keep_alive,
            "--streams {streams} with --no-keep-alive: each request has a connection of its own; leave out --streams"
        );
        let (targets, http) = Http::prepare(flags, files)?;
        let of = |(requests, target): (&Vec<Request>, &Target)| {
            requests
                .iter()
                .map(|request| Asked::new(&request.bytes, target.secure))
                .collect::<anyhow::Result<_>>()
        };

        let requests = http
            .requests()
            .iter()
            .zip(&targets)
            .map(of)
            .collect::<anyhow::Result<_>>()?;
        Ok((
            targets,
            Self {
                http,
                requests,
                streams,
            },
        ))
    }
}

impl Asked {
    /// Makes it of a request as HTTP/1.1 writes it.
    fn new(bytes: &[u8], secure: bool) -> anyhow::Result<Self> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        let len = match parsed
            .parse(bytes)
            .with_context(|| format!("HTTP/2 takes at most {FIELDS} header fields"))?
        {
            httparse::Status::Complete(len) => len,
            httparse::Status::Partial => bytes.len(),
        };
        let mut head = http::Request::new(());

        *head.version_mut() = Version::HTTP_2;
        *head.method_mut() = parsed.method.unwrap_or_default().parse()?;
        let mut host = "";

        for field in parsed.headers.iter() {
            let name = field.name.parse::<HeaderName>()?;
            let value = HeaderValue::from_bytes(field.value)?;
            ensure!(
                !FOREIGN.contains(&name),
                "--header '{name}': HTTP/2 has no such field; leave it out"
            );

            match name {
                HOST => {
                    host = std::str::from_utf8(field.value).context("--header 'Host': no text")?
                }
                // It says that the connection ends with the request; over HTTP/2 it just does.
                http::header::CONNECTION => {}
                _ => drop(head.headers_mut().append(name, value)),
            }
        }

        let scheme = if secure { "https" } else { "http" };
        let url = format!("{scheme}://{host}{}", parsed.path.unwrap_or("/"));
        *head.uri_mut() = url
            .parse::<Uri>()
            .with_context(|| format!("HTTP/2 cannot ask for {url}"))?;
        Ok(Self {
            head,
            body: Bytes::copy_from_slice(&bytes[len..]),
        })
    }
}

impl Protocol for Http2 {
    type Connection = Stream;
    type Memory = Memory;

    fn streams(&self) -> usize {
        self.streams
    }

    fn each(&self) -> f64 {
        self.http.each()
    }

    fn outlives_starts(&self) -> bool {
        self.http.outlives_starts()
    }

    fn picker(&self, worker: usize, workers: usize, seed: u64) -> Picker {
        self.http.picker(worker, workers, seed)
    }

    fn connect(&self, server: usize, address: &Place) -> Result<(Stream, Opening), Failure> {
        let (stream, opening) = self.http.open(server, address)?;
        Ok((
            Stream {
                server,
                link: Rc::new(Link::open(stream)?),
            },
            opening,
        ))
    }

    fn join(&self, other: &Stream) -> Option<Stream> {
        other.link.takes_streams().then(|| Stream {
            server: other.server,
            link: other.link.clone(),
        })
    }

    fn pause(&self, memory: &mut Memory) -> Option<Duration> {
        self.http.pause(memory)
    }

    fn exchange(
        &self,
        connection: &mut Stream,
        picker: &RefCell<Picker>,
        memory: &mut Memory,
        _depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken> {
        let (number, last) = self.http.choose(picker, connection.server, memory);
        let Asked { head, body } = &self.requests[connection.server][number];
        let (status, bytes) = connection.link.ask(head, body)?;
        done(Reply {
            bytes,
            status,
            outcome: self.http.judge(status, bytes).map(|()| true),
        });
        if last || !self.http.keep_alive {
            connection.link.close();
            return Ok(Next::Close);
        }
        Ok(Next::Keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http_1_become_those_of_http_2() {
        let text = b"POST /a?b HTTP/1.1\r\nHost: h:81\r\nX-Y: 1\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
        let Asked { head, body } = Asked::new(text, true).unwrap();
        assert_eq!(
            (head.method().as_str(), head.uri().to_string().as_str()),
            ("POST", "https://h:81/a?b")
        );
        let names: Vec<_> = head.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(
            (names, &body[..]),
            (vec!["x-y", "content-length"], &b"hello"[..])
        );
        let Asked { head, body } =
            Asked::new(b"GET / HTTP/1.1\r\nhost: other\r\n\r\n", false).unwrap();

        assert_eq!(
            (head.uri().to_string().as_str(), body.len()),
            ("http://other/", 0)
        );
        let error = Asked::new(b"GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\n\r\n", false)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("'te': HTTP/2 has no such field"),
            "{error}"
        );
    }
}
