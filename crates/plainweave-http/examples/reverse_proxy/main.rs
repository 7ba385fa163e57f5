//! A reverse proxy: `reverse_proxy UPSTREAM`. Bodies pass through in both directions as they come,
//! and connections to the upstream server are kept, by the client of the example `client`.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use plainweave_http::header::{CONTENT_LENGTH, HOST};
use plainweave_http::{
    Body, Framing, Handler, HeaderValue, Method, Request, Response, Server, StatusCode,
};
use ureq::config::AutoHeaderValue;
use ureq::{Agent, Error, SendBody};

#[path = "../client/main.rs"]
#[allow(dead_code, reason = "its `main`")]
mod client;
mod hops;

use hops::drop_hops;

/// For the upstream server to connect, to take a byte, and between two bytes of it.
const UPSTREAM_TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

/// A body of this length, read on at its end: that is where the client takes its connection back.
struct ToTheEnd<R>(R, u64);

impl<R: Read> Read for ToTheEnd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(buf)?;
        self.1 -= len as u64;
        if self.1 == 0 {
            let _ = self.0.read(&mut [0]);
        }
        Ok(len)
    }
}

fn pass(agent: &Agent, upstream: SocketAddr, request: &mut Request<'_>) -> Result<Response, Error> {
    let head = request.head();
    let query = head
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut asked = ureq::http::Request::new(());
    *asked.uri_mut() = format!("http://{upstream}{}{query}", head.path())
        .parse()
        .map_err(ureq::http::Error::from)?;
    *asked.method_mut() = head.method().clone();
    let mut fields = head.to_header_map();
    drop_hops(&mut fields);
    // HTTP/2 has it in another place.
    if let (false, Some(host)) = (fields.contains_key(HOST), head.host()) {
        fields.insert(
            HOST,
            HeaderValue::from_str(host).map_err(ureq::http::Error::from)?,
        );
    }
    if let Some(peer) = request.peer() {
        let peer =
            HeaderValue::from_str(&peer.ip().to_string()).map_err(ureq::http::Error::from)?;
        fields.insert("x-forwarded-for", peer);
    }
    let no_body = *head.method() == Method::HEAD;
    let answer = match head.framing() {
        Framing::Length(0) => {
            fields.remove(CONTENT_LENGTH);
            *asked.headers_mut() = fields;
            agent.run(asked)
        }
        // Chunked, if there is no length.
        _ => {
            *asked.headers_mut() = fields;
            agent.run(asked.map(|()| SendBody::from_reader(request)))
        }
    };
    let (head, body) = answer?.into_parts();
    let length = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|len| len.to_str().ok()?.parse().ok());
    let mut response = Response::new(head.status);
    *response.headers_mut() = head.headers;
    drop_hops(response.headers_mut());
    // Of a body without a length HEAD says nothing, and nobody reads it.
    Ok(response.with_body(match (no_body, length) {
        (true, Some(len)) => Body::Omitted(len),
        (_, Some(len)) => Body::reader(ToTheEnd(body.into_reader(), len), length),
        (_, None) => Body::reader(body.into_reader(), None),
    }))
}

pub(crate) fn handler(upstream: SocketAddr) -> impl Handler {
    let config = Agent::config_builder()
        .timeout_connect(UPSTREAM_TIMEOUT)
        .timeout_per_read(UPSTREAM_TIMEOUT);
    let config = config
        .timeout_per_write(UPSTREAM_TIMEOUT)
        .http_status_as_error(false)
        .max_redirects(0);
    let config = config
        .max_redirects_will_error(false)
        .allow_non_standard_methods(true);
    let config = config
        .user_agent(AutoHeaderValue::None)
        .accept(AutoHeaderValue::None);
    let agent = client::agent(config.accept_encoding(AutoHeaderValue::None));

    move |request: &mut Request<'_>| match request.path() {
        // `OPTIONS *`, `CONNECT`.
        "" => Response::plain(StatusCode::NOT_IMPLEMENTED),
        _ => pass(&agent, upstream, request)
            .unwrap_or_else(|_| Response::plain(StatusCode::BAD_GATEWAY)),
    }
}

fn main() -> io::Result<()> {
    let upstream = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let upstream = upstream.ok_or_else(|| io::Error::other("reverse_proxy ADDRESS:PORT"))?;
    Server::run("127.0.0.1:8080", handler(upstream))
}
