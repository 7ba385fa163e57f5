//! HTTP, TLS and WebSockets.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use plainweave::net::{AsyncTcpStream, TcpStream};
use plainweave::{block_on, spawn_future};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tungstenite::Message;

use super::{Opened, Outcome, Row, Waits, expect, session};
use crate::servers::Servers;

pub const ROWS: &[Row] = &[
    Row {
        name: "rustls",
        by: "over `net::TcpStream`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: rustls,
    },
    Row {
        name: "native-tls",
        by: "over `net::TcpStream`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: native_tls,
    },
    Row {
        name: "tungstenite",
        by: "over `net::TcpStream`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: websocket,
    },
    Row {
        name: "ureq 3",
        by: "`plainweave_ureq::agent`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: |servers| {
            ureq(
                servers,
                plainweave_ureq::agent(ureq::config::Config::default()),
            )
        },
    },
    Row {
        name: "ureq 3",
        by: "",
        waits: Waits::Worker,
        has_deadline: false,
        open: |servers| ureq(servers, ureq::Agent::new_with_defaults()),
    },
    Row {
        name: "reqwest",
        by: "a Tokio runtime entered, `block_on`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: reqwest,
    },
    Row {
        name: "reqwest, `blocking`",
        by: "",
        waits: Waits::Worker,
        has_deadline: false,
        open: reqwest_blocking,
    },
    Row {
        name: "hyper, HTTP/2",
        by: "over `AsyncTcpStream`, `spawn_future`, `block_on`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: hyper,
    },
];

/// Makes a request by hand on a connection that stays, and checks the answer.
fn exchange(stream: &mut (impl Read + Write), path: &str) -> Outcome {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    stream.flush()?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let mut body = [0; 5];
    stream.read_exact(&mut body)?;
    expect(answer.starts_with(b"HTTP/1.1 200 "), true)?;
    expect(&body, b"hello")
}

fn over<S: Read + Write + Send + 'static>(stream: S) -> Opened {
    session(
        stream,
        |stream| exchange(stream, "/"),
        |stream| exchange(stream, "/slow"),
    )
}

fn rustls(servers: &Servers) -> Opened {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(
        servers.certificate.as_bytes(),
    )?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?;
    over(StreamOwned::new(
        session,
        TcpStream::connect(("127.0.0.1", servers.https))?,
    ))
}

fn native_tls(servers: &Servers) -> Opened {
    let root = native_tls::Certificate::from_pem(servers.certificate.as_bytes())?;
    let connector = native_tls::TlsConnector::builder()
        .add_root_certificate(root)
        .build()?;
    let stream = TcpStream::connect(("127.0.0.1", servers.https))?;
    over(connector.connect("localhost", stream)?)
}

fn websocket(servers: &Servers) -> Opened {
    let stream = TcpStream::connect(("127.0.0.1", servers.websocket))?;
    let (socket, _) = tungstenite::client("ws://localhost/", stream)?;
    let say = |socket: &mut tungstenite::WebSocket<TcpStream>, text: &str| {
        socket.send(Message::text(text))?;
        expect(socket.read()?.to_text()?, text)
    };
    session(
        socket,
        move |socket| say(socket, "hello"),
        move |socket| say(socket, "slow"),
    )
}

fn ureq(servers: &Servers, agent: ureq::Agent) -> Opened {
    let get = |agent: &ureq::Agent, url: &str| {
        expect(
            agent.get(url).call()?.body_mut().read_to_string()?.as_str(),
            "hello",
        )
    };
    let quick = format!("http://127.0.0.1:{}/", servers.http);
    let slow = format!("{quick}slow");
    session(
        agent,
        move |agent| get(agent, &quick),
        move |agent| get(agent, &slow),
    )
}

/// What reqwest's sockets and clock run on, on a thread of its own.
static TOKIO: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
});

fn reqwest(servers: &Servers) -> Opened {
    let get = |client: &reqwest::Client, url: &str| {
        let _entered = TOKIO.enter();
        let asked = async { client.get(url).send().await?.text().await };
        expect(block_on(asked)??.as_str(), "hello")
    };
    let quick = format!("http://127.0.0.1:{}/", servers.http);
    let slow = format!("{quick}slow");
    let client = reqwest::Client::new();
    session(
        client,
        move |client| get(client, &quick),
        move |client| get(client, &slow),
    )
}

fn reqwest_blocking(servers: &Servers) -> Opened {
    let get = |client: &reqwest::blocking::Client, url: &str| {
        expect(client.get(url).send()?.text()?.as_str(), "hello")
    };
    let quick = format!("http://127.0.0.1:{}/", servers.http);
    let slow = format!("{quick}slow");
    let client = reqwest::blocking::Client::new();
    session(
        client,
        move |client| get(client, &quick),
        move |client| get(client, &slow),
    )
}

/// Runs hyper's own tasks on fibers.
#[derive(Clone)]
struct Fibers;

impl<F> hyper::rt::Executor<F> for Fibers
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        spawn_future(future);
    }
}

fn hyper(servers: &Servers) -> Opened {
    let stream = AsyncTcpStream::from(TcpStream::connect(("127.0.0.1", servers.http2))?);
    let (sender, connection) = block_on(handshake(Fibers, TokioIo::new(stream)))??;
    spawn_future(connection);
    let base = format!("http://localhost:{}", servers.http2);
    let get = |sender: &mut SendRequest<Empty<Bytes>>, url: &str| {
        let request = hyper::Request::get(url).body(Empty::new())?;
        let body = block_on(async {
            let answer = sender.send_request(request).await?;
            answer.into_body().collect().await
        })??;
        expect(&*body.to_bytes(), b"hello")
    };
    let (quick, slow) = (format!("{base}/"), format!("{base}/slow"));
    session(
        sender,
        move |sender| get(sender, &quick),
        move |sender| get(sender, &slow),
    )
}
