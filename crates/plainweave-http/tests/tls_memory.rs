//! What an idle connection over TLS keeps.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

#[path = "common/self_signed.rs"]
mod self_signed;

use std::alloc::{GlobalAlloc, Layout, System};

use std::io::{self, ErrorKind, Read, Write};

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave_http::{Next, Request, Response, Server, Transport};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use self_signed::self_signed;

/// The system's allocator, with a count of what is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all of it is the system's allocator's work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A client that outlives the server's end of its connection.
#[derive(Clone)]
struct Client(Arc<Mutex<ClientConnection>>);

impl Read for Client {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self
            .0
            .lock()
            .expect("not poisoned")
            .write_tls(&mut &mut buf[..])
        {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            done => done,
        }
    }
}

impl Write for Client {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut client = self.0.lock().expect("not poisoned");
        let mut rest = buf;
        while !rest.is_empty() {
            client.read_tls(&mut rest)?;
            client.process_new_packets().map_err(io::Error::other)?;
            let mut chunk = [0; 4096];
            while client.reader().read(&mut chunk).is_ok() {}
        }

        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Client {
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

/// Between two requests: no buffers, only what rustls needs to go on.
#[test]
fn an_idle_connection_keeps_no_buffer() {
    let (acceptor, certificate) = self_signed("tls-memory");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS");
    let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    let server = Server::new(|_: &mut Request<'_>| Response::ok(vec![b'x'; 40_000]));

    const COUNT: usize = 50;
    let connections: Vec<_> = (0..COUNT)
        .map(|_| {
            let host = "localhost".try_into().expect("a name");
            let client = Arc::new(Mutex::new(
                ClientConnection::new(config.clone(), host).expect("a client"),
            ));
            let mut stream = acceptor.accept(Client(client.clone()));
            stream.handshake().expect("a handshake");
            let mut state = server.open(&mut stream).expect("open");

            for _ in 0..3 {
                let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
                client
                    .lock()
                    .expect("not poisoned")
                    .writer()
                    .write_all(request)
                    .expect("taken");
                assert!(matches!(
                    server.serve_ready(&mut stream, &mut state),
                    Next::Idle(_)
                ));
            }

            (stream, client)
        })
        .collect();
    let (streams, clients): (Vec<_>, Vec<_>) = connections.into_iter().unzip();
    let before = IN_USE.load(Relaxed);
    drop(streams);
    let each = (before - IN_USE.load(Relaxed)) / COUNT;

    assert!(
        (500..6000).contains(&each),
        "{each} bytes for each connection"
    );
    drop(clients);
}
