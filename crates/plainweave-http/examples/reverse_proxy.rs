//! A reverse proxy: `reverse_proxy UPSTREAM`. Bodies pass through in both directions as they come.

use std::io::{self, Cursor, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use plainweave::net::TcpStream;
use plainweave_http::{Body, Framing, Handler, HeaderName, HeaderValue, Method, Request, Response, Server, StatusCode};

/// For the upstream server to connect, to take a byte, and between two bytes of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a body that comes without a length, and of an answer's head.
const GATHERED: usize = 64 << 10;

/// Fields that are between two neighbours (RFC 9110, 7.6.1), also because `Connection` names them, and those that the
/// connection writes itself.
fn is_hop<'a>(name: &str, mut fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> bool {
    const HOP: &[u8] = b"connection,keep-alive,te,trailer,transfer-encoding,upgrade,expect,content-length,via";
    let is = |option: &[u8]| option.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    let names = |list: &[u8]| list.split(|byte| *byte == b',').any(is);
    names(HOP)
        || name.to_ascii_lowercase().starts_with("proxy-")
        || fields.any(|(field, list)| field.eq_ignore_ascii_case("connection") && names(list))
}

/// Sends the request as one of HTTP/1.0, whose answer ends by a length or with the connection.
fn send(request: &mut Request<'_>, upstream: &mut TcpStream) -> io::Result<()> {
    let head = request.head();
    let mut out = Vec::new();
    write!(out, "{} {} HTTP/1.0\r\n", head.method(), head.target_text())?;
    for (name, value) in head.headers().filter(|(name, _)| !is_hop(name, head.headers())) {
        out.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if let Some(peer) = request.peer() {
        write!(out, "X-Forwarded-For: {}\r\n", peer.ip())?;
    }
    let gathered = match head.framing() {
        Framing::Chunked => Some(request.read_body(GATHERED)?),
        Framing::Length(_) => None,
    };
    match (head.framing(), &gathered) {
        (_, Some(body)) => write!(out, "Content-Length: {}\r\n\r\n", body.len())?,
        (Framing::Length(0), _) => out.extend_from_slice(b"\r\n"),
        (Framing::Length(len), _) => write!(out, "Content-Length: {len}\r\n\r\n")?,
        (Framing::Chunked, None) => {}
    }
    upstream.write_all(&[out, gathered.unwrap_or_default()].concat())?;
    io::copy(request, upstream).map(drop)
}

/// Reads the head of the answer; its body is what follows.
fn receive(mut upstream: TcpStream, no_body: bool) -> io::Result<Response> {
    let mut got = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let len = upstream.read(&mut piece)?;
        got.extend_from_slice(&piece[..len]);
        let mut slots = [httparse::EMPTY_HEADER; 100];
        let mut head = httparse::Response::new(&mut slots);
        let end = match head.parse(&got).map_err(io::Error::other)? {
            httparse::Status::Complete(end) => end,
            httparse::Status::Partial if len == 0 || got.len() > GATHERED => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            httparse::Status::Partial => continue,
        };
        let status = StatusCode::from_u16(head.code.unwrap_or(0)).map_err(io::Error::other)?;
        let (mut response, mut body_len) = (Response::new(status), None);
        for field in head.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                body_len = str::from_utf8(field.value).ok().and_then(|text| text.parse().ok());
            } else if !is_hop(field.name, head.headers.iter().map(|field| (field.name, field.value))) {
                let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(io::Error::other)?;
                response.headers_mut().append(name, HeaderValue::from_bytes(field.value).map_err(io::Error::other)?);
            }
        }
        let rest = Cursor::new(got.split_off(end));
        // Of a body without a length HEAD says nothing, and nobody reads it.
        return Ok(response.with_body(match (no_body, body_len) {
            (true, Some(len)) => Body::Omitted(len),
            _ => Body::reader(rest.chain(upstream), body_len),
        }));
    }
}

pub(crate) fn handler(upstream: SocketAddr) -> impl Handler {
    move |request: &mut Request<'_>| {
        let no_body = *request.method() == Method::HEAD;
        let passed = TcpStream::connect_timeout(&upstream, PATIENCE).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            send(request, &mut stream)?;
            receive(stream, no_body)
        });
        passed.unwrap_or_else(|_| Response::plain(StatusCode::BAD_GATEWAY))
    }
}

fn main() -> io::Result<()> {
    let upstream = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let upstream = upstream.ok_or_else(|| io::Error::other("reverse_proxy ADDRESS:PORT"))?;
    Server::run("127.0.0.1:8080", handler(upstream))
}
