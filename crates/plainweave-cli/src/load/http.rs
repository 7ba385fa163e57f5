//! HTTP/1.1 requests: written out once, sent as they are; answers checked to their last byte.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use http::{HeaderName, HeaderValue, Uri};
use plainweave::net::TcpStream;

use super::engine::{Broken, Next, Protocol, Reply};
use super::flags::{HttpFlags, Method};
use super::popularity::{Picker, Popularity};
use super::response::{self, Body, Head};
use super::tally::Failure;
use super::target::Target;

/// A connection's buffer at first.
const BUFFER: usize = 4096;
/// And at most: for large bodies, and for heads.
const LARGE: usize = 64 * 1024;

/// What is asked, and what is expected.
#[derive(Debug)]
pub(super) struct Http {
    requests: Vec<Box<[u8]>>,
    zipf: Option<f64>,
    no_body: bool,
    keep_alive: bool,
    status: Vec<u16>,
    body_length: Option<u64>,
}

impl Http {
    /// Reads the URLs and writes the requests.
    pub(super) fn prepare(flags: &HttpFlags) -> anyhow::Result<(Target, Self)> {
        let mut urls = flags.urls.clone();
        if let Some(list) = &flags.list {
            urls.extend(read_list(list)?);
        }
        let first = urls.first().context("no URL to ask for")?;
        let authority = parse(first)?.authority().cloned().context("no host")?;
        let fields = fields(flags)?;
        let requests = urls.iter().map(|url| {
            let uri = parse(url)?;
            ensure!(
                uri.authority() == Some(&authority),
                "{url} is not on {authority}: all URLs are asked of one server"
            );
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            let host = if fields.to_ascii_lowercase().contains("\r\nhost:") { "" } else { authority.as_str() };
            let host = if host.is_empty() { String::new() } else { format!("Host: {host}\r\n") };
            let method = match flags.method {
                Method::Get => "GET",
                Method::Head => "HEAD",
                Method::Options => "OPTIONS",
            };
            let fields = fields.trim_start_matches("\r\n");
            Ok(format!("{method} {path} HTTP/1.1\r\n{host}{fields}\r\n").into_bytes().into_boxed_slice())
        });
        let client = Self {
            requests: requests.collect::<anyhow::Result<_>>()?,
            zipf: flags.zipf,
            no_body: flags.method == Method::Head,
            keep_alive: !flags.no_keep_alive,
            status: flags.status.clone(),
            body_length: flags.body_length,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let target = Target { name: format!("http://{authority}"), host, port: authority.port_u16().unwrap_or(80) };
        Ok((target, client))
    }

    fn judge(&self, head: &Head, body: u64) -> Result<(), Failure> {
        let accepted =
            if self.status.is_empty() { (200..400).contains(&head.status) } else { self.status.contains(&head.status) };
        match self.body_length {
            _ if !accepted => Err(Failure::Status(head.status)),
            Some(length) if length != body => Err(Failure::WrongLength),
            _ => Ok(()),
        }
    }
}

fn read_list(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn parse(url: &str) -> anyhow::Result<Uri> {
    let uri: Uri = url.parse().with_context(|| format!("{url} is no URL; write http://HOST[:PORT]/PATH"))?;
    match uri.scheme_str() {
        Some("http") => Ok(uri),
        Some("https") => bail!("{url}: there is no TLS here yet; write http://"),
        _ => bail!("{url} is no URL; write http://HOST[:PORT]/PATH"),
    }
}

/// Returns the header fields asked for, each line behind a line end.
fn fields(flags: &HttpFlags) -> anyhow::Result<String> {
    let mut text = "\r\n".to_owned();
    for field in &flags.headers {
        let (name, value) = field.split_once(':').with_context(|| format!("--header '{field}': write NAME: VALUE"))?;
        let valid = name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value.trim()).is_ok();
        ensure!(valid, "--header '{field}' is no valid header field");
        ensure!(
            !["content-length", "transfer-encoding", "connection"].contains(&name.to_ascii_lowercase().as_str()),
            "--header '{field}': this program sets {name} itself"
        );
        text += &format!("{name}: {}\r\n", value.trim());
    }
    if flags.no_keep_alive {
        text += "Connection: close\r\n";
    }
    Ok(text)
}

/// A connection and the buffer that answers are read into.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Protocol for Http {
    type Connection = Connection;

    fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    fn picker(&self, worker: usize, workers: usize, seed: u64) -> Picker {
        let first = self.requests.len() * worker / workers;
        Picker::new(seed, Popularity::new(self.requests.len(), self.zipf, first))
    }

    fn connect(&self, address: SocketAddr) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; BUFFER], filled: 0 })
    }

    fn exchange(
        &self,
        connection: &mut Connection,
        picker: &RefCell<Picker>,
        _depth: usize,
        done: &mut dyn FnMut(Reply),
    ) -> Result<Next, Broken> {
        let chosen = {
            let Picker { random, popularity } = &mut *picker.borrow_mut();
            popularity.pick(random)
        };
        connection.filled = 0;
        connection.stream.write_all(&self.requests[chosen]).map_err(Broken::before)?;
        let head = connection.head(self.no_body)?;
        let (mut head, close) = (head, !self.keep_alive);
        let (wire, body) = connection.body(&mut head)?;
        done(Reply { bytes: wire, status: head.status, outcome: self.judge(&head, body).map(|()| true) });
        Ok(if head.close || close { Next::Close } else { Next::Keep })
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
                return Err(if self.filled == 0 { Broken::CLOSED } else { Broken::within(Failure::Short) });
            }
            while let Some(head) = response::parse(&self.buffer[..self.filled], no_body).map_err(Broken::within)? {
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
        let mut taken = body.feed(&self.buffer[head.len..self.filled]).map_err(Broken::within)?;
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
            taken = body.feed(&self.buffer[..self.filled]).map_err(Broken::within)?;
            over = self.filled - taken;
            bytes += taken as u64;
            wire += self.filled as u64;
        }
        if over > 0 {
            return Err(Broken::within(Failure::Garbage));
        }
        let data = if let Body::Chunked(chunks) = body { chunks.data } else { bytes };
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

    fn prepare(args: &[&str]) -> anyhow::Result<(Target, Http)> {
        Http::prepare(&Cli::try_parse_from([&["load"], args].concat())?.flags)
    }

    #[test]
    fn requests_are_written_once() {
        let (target, http) = prepare(&["http://h:81", "http://h:81/a?b=c", "--header", "X-Y: 1"]).unwrap();
        assert_eq!((target.host.as_str(), target.port, target.name.as_str()), ("h", 81, "http://h:81"));
        assert_eq!(&*http.requests[0], b"GET / HTTP/1.1\r\nHost: h:81\r\nX-Y: 1\r\n\r\n");
        assert_eq!(&*http.requests[1], b"GET /a?b=c HTTP/1.1\r\nHost: h:81\r\nX-Y: 1\r\n\r\n");
        let (target, http) = prepare(&["http://[::1]/", "--no-keep-alive", "--header", "host: other"]).unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 80));
        assert_eq!(&*http.requests[0], b"GET / HTTP/1.1\r\nhost: other\r\nConnection: close\r\n\r\n");
    }

    #[test]
    fn wrong_usage_names_the_remedy() {
        for (args, said) in [
            (&["example"][..], "write http://"),
            (&["/x"], "write http://"),
            (&["https://h/"], "no TLS"),
            (&["http://h/", "http://g/"], "one server"),
            (&["http://h/", "--header", "X"], "NAME: VALUE"),
            (&["http://h/", "--header", "X Y: 1"], "no valid header field"),
            (&["http://h/", "--header", "X: 1\r\nZ: 2"], "no valid header field"),
            (&["http://h/", "--header", "Content-Length: 1"], "itself"),
            (&["--urls", "/no/such/file"], "/no/such/file"),
            (&[], "URL"),
        ] {
            let error = format!("{:#}", prepare(args).map(|_| ()).unwrap_err());
            assert!(error.contains(said), "{args:?}: {error}");
        }
    }
}
