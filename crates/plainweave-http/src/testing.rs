//! Servers for tests: on a port that the kernel chooses, or in memory without a socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use plainweave::{Runtime, net};
use plainweave_serve::Address;

use crate::message::request::Handler;
use crate::server::shared::Server;
use crate::transport::non_blocking::{NonBlocking, Wait};
use crate::transport::stream::Transport;

/// How long a test waits for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// For requests in progress when the test ends.
const LAST: Duration = Duration::from_secs(1);

/// A server on a port of its own of the loopback interface, until it is dropped.
///
/// ```
/// use plainweave_http::testing::TestServer;
/// use plainweave_http::{Request, Response, Server};
///
/// let server = TestServer::start(Server::new(|_: &mut Request<'_>| Response::ok("hello")))?;
/// let answer = server.exchange("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
/// assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"hello"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TestServer<H: Handler> {
    server: Arc<Server<H>>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl<H: Handler> TestServer<H> {
    /// Serves on fibers of a runtime of its own.
    ///
    /// # Errors
    /// No runtime can be started, or no port be bound.
    pub fn start(server: Server<H>) -> io::Result<Self> {
        let runtime = Runtime::builder().workers(2).report_stalls(false).build()?;
        let server = Arc::new(server);
        let address = runtime.run(|| server.start(net::TcpListener::bind("127.0.0.1:0")?))?;
        Self::of(server, &address, Some(runtime))
    }

    /// Serves on threads.
    ///
    /// # Errors
    /// No port can be bound, or no thread be started.
    pub fn on_threads(server: Server<H>) -> io::Result<Self> {
        let server = Arc::new(server);
        let address = server.start(TcpListener::bind("127.0.0.1:0")?)?;
        Self::of(server, &address, None)
    }

    fn of(server: Arc<Server<H>>, address: &Address, runtime: Option<Runtime>) -> io::Result<Self> {
        let address = address.tcp().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            server,
            address,
            runtime,
        })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the server, for its counts.
    pub fn server(&self) -> &Arc<Server<H>> {
        &self.server
    }

    /// Connects to it. Reads and writes wait for ten seconds at most.
    ///
    /// # Errors
    /// The system call fails.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        stream.set_write_timeout(Some(ANSWER_WAIT))?;
        Ok(stream)
    }

    /// Sends a request on a connection of its own, and returns all that comes until the server
    /// closes it: the last request should say `Connection: close`.
    ///
    /// # Errors
    /// The system call fails; nothing comes for ten seconds.
    pub fn exchange(&self, request: impl AsRef<[u8]>) -> io::Result<Vec<u8>> {
        let mut stream = self.connect()?;
        stream.write_all(request.as_ref())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

impl<H: Handler> Drop for TestServer<H> {
    fn drop(&mut self) {
        self.server.shutdown(LAST);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown(Duration::ZERO);
        }
    }
}

/// Serves bytes as a connection whose peer then ends its direction, without a socket and on the
/// calling thread. Returns all that the server has sent.
///
/// ```
/// use plainweave_http::{Request, Response, Server, testing::in_memory};
///
/// let server = Server::new(|request: &mut Request<'_>| Response::ok(request.path().to_owned()));
/// assert!(in_memory(&server, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n").ends_with(b"/a"));
/// ```
pub fn in_memory<H: Handler>(server: &Server<H>, sent: impl AsRef<[u8]>) -> Vec<u8> {
    let mut answers = Vec::new();
    server.serve_stream(Memory::new(sent.as_ref(), &mut answers));
    answers
}

/// A connection in memory to a peer that has sent everything, then ended its direction, and takes
/// every answer. For [`Server::serve_stream`]; [`in_memory`] is the short form.
///
/// ```
/// use plainweave_http::{Request, Response, Server, testing::Memory};
///
/// let server = Server::new(|_: &mut Request<'_>| Response::ok("hello"));
/// let mut answers = Vec::new();
/// // The request comes byte by byte.
/// server.serve_stream(Memory::new(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &mut answers).with_step(1));
/// assert!(answers.ends_with(b"hello"));
/// ```
#[derive(Debug)]
pub struct Memory<'a> {
    input: &'a [u8],
    step: usize,
    answers: &'a mut Vec<u8>,
}

impl<'a> Memory<'a> {
    /// Makes a connection on which these bytes have come. What is sent is appended to `answers`.
    pub fn new(sent: &'a [u8], answers: &'a mut Vec<u8>) -> Self {
        Self {
            input: sent,
            step: usize::MAX,
            answers,
        }
    }

    /// Has the bytes arrive in pieces: a read gets at most `step` of them, and at least one.
    #[must_use]
    pub fn with_step(self, step: usize) -> Self {
        Self {
            step: step.max(1),
            ..self
        }
    }
}

impl Read for Memory<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.step.min(buf.len());
        self.input.read(&mut buf[..len])
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.answers.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NonBlocking for Memory<'_> {
    fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read(buf)
    }

    fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write(buf)
    }

    fn wait(&mut self, wait: &Wait<'_>) -> io::Result<()> {
        if wait.reads || wait.writes {
            Ok(())
        } else {
            wait.wakeups.wait(wait.limit)
        }
    }
}

impl Transport for Memory<'_> {
    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
        Some(self)
    }

    fn set_read_timeout(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn set_write_timeout(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        Ok(())
    }
}
