//! The client side of h2 on fibers, and servers to talk to.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response};
use plainweave::net::{AsyncTcpStream, TcpListener, TcpStream};
use plainweave::time::with_timeout;
use plainweave::{Io, JoinHandle, Runtime, block_on, spawn_future};
use plainweave_http::{Handler, Server};

/// What takes longer hangs.
pub(super) const HANG: Duration = Duration::from_secs(20);

/// Runs a test beside a server, on fibers of both drivers.
pub(super) fn beside<H: Handler>(
    server: impl Fn() -> Server<H>,
    test: impl Fn(&Arc<Server<H>>, SocketAddr) + Sync,
) {
    for io in [Io::Epoll, Io::Uring] {
        let runtime = Runtime::builder()
            .workers(2)
            .max_workers(2)
            .io(io)
            .report_stalls(false)
            .build();
        let runtime = runtime.expect("a runtime");
        let server = Arc::new(server());
        runtime.run(|| {
            let address = server
                .start(TcpListener::bind("127.0.0.1:0").expect("a port"))
                .expect("started");
            with_timeout(HANG, || test(&server, address.tcp().expect("of TCP")));
            assert!(server.shutdown(HANG), "a connection does not end");
        });
    }
}

/// A connection to the server.
pub(super) struct Client {
    pub(super) send: SendRequest<Bytes>,
    pub(super) driver: JoinHandle<std::io::Result<Result<(), h2::Error>>>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Self {
        Self::with(address, &client::Builder::new())
    }

    pub(super) fn with(address: SocketAddr, builder: &client::Builder) -> Self {
        let stream = AsyncTcpStream::from(TcpStream::connect(address).expect("connected"));
        let (send, connection) = block_on(builder.handshake(stream))
            .expect("not cancelled")
            .expect("shaken hands");
        Self {
            send,
            driver: spawn_future(connection),
        }
    }

    /// Sends a request, whose body follows by the stream.
    pub(super) fn begin(&mut self, request: Request<()>, end: bool) -> Answering {
        let (response, body) = self.send.send_request(request, end).expect("sent");
        Answering { response, body }
    }

    pub(super) fn get(&mut self, path: &str) -> Answer {
        self.begin(head(Method::GET, path), true)
            .answer()
            .expect("answered")
    }

    /// Waits until the server has ended the connection.
    pub(super) fn ended(self) -> Result<(), h2::Error> {
        let Self { send, driver } = self;
        drop(send);
        driver.join().expect("no panic").expect("not cancelled")
    }
}

pub(super) fn head(method: Method, path: &str) -> Request<()> {
    Request::builder()
        .method(method)
        .uri(format!("http://test{path}"))
        .body(())
        .expect("a request")
}

/// A request that waits for its answer.
pub(super) struct Answering {
    pub(super) response: client::ResponseFuture,
    pub(super) body: SendStream<Bytes>,
}

pub(super) struct Answer {
    pub(super) head: Response<()>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Option<HeaderMap>,
}

impl Answering {
    /// Sends as much of a body as the server takes.
    pub(super) fn send(&mut self, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
        while !bytes.is_empty() {
            self.body.reserve_capacity(bytes.len());
            let room = block_on(poll_fn(|cx| self.body.poll_capacity(cx))).expect("not cancelled");
            let part = bytes.split_to(room.expect("an open stream")?.min(bytes.len()));
            self.body.send_data(part, false)?;
        }
        if end {
            self.body.send_data(Bytes::new(), true)
        } else {
            Ok(())
        }
    }

    pub(super) fn head(self) -> Result<Response<RecvStream>, h2::Error> {
        block_on(self.response).expect("not cancelled")
    }

    pub(super) fn answer(self) -> Result<Answer, h2::Error> {
        let (head, mut stream) = self.head()?.into_parts();
        let mut body = Vec::new();
        while let Some(data) = block_on(stream.data()).expect("not cancelled") {
            let data = data?;
            stream.flow_control().release_capacity(data.len())?;
            body.extend_from_slice(&data);
        }
        let trailers = block_on(stream.trailers()).expect("not cancelled")?;
        Ok(Answer {
            head: Response::from_parts(head, ()),
            body,
            trailers,
        })
    }
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.head.status().as_u16()
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("text"))
    }
}

/// Looks until `done` says so; for what the server does in its own time.
pub(super) fn eventually(mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < HANG, "it has not come about");
        plainweave::time::sleep(Duration::from_millis(5)).expect("not cancelled");
    }
}
