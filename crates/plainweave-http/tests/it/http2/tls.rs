//! Over TLS: the protocol is agreed on where it can be spoken.

use std::io::{Read, Write};
use std::net::TcpStream as OsStream;
use std::sync::Arc;

use plainweave::net::{TcpListener, TcpStream};
use plainweave::time::with_timeout;
use plainweave::{Io, Runtime};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::client::HANG;
use super::raw::{DATA, GOAWAY, Raw};
use crate::support::server;
use crate::tls::peer::{Authority, BOTH};

const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

fn client(authority: &Authority) -> Arc<ClientConfig> {
    let mut config = authority.client(BOTH);
    config.alpn_protocols = PROTOCOLS
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

fn connect<S: Read + Write>(
    stream: S,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, S> {
    let host = ServerName::try_from("localhost").expect("a name");
    StreamOwned::new(
        ClientConnection::new(config.clone(), host).expect("a client"),
        stream,
    )
}

#[test]
fn it_is_agreed_on_and_large_answers_arrive() {
    let authority = Authority::new("authority");
    let config = client(&authority);
    for io in [Io::Epoll, Io::Uring] {
        let acceptor = plainweave_http::tls::Acceptor::new(authority.config().with_alpn(PROTOCOLS))
            .expect("files");
        let runtime = Runtime::builder()
            .workers(2)
            .max_workers(2)
            .io(io)
            .report_stalls(false)
            .build();
        let server = Arc::new(server());
        runtime.expect("a runtime").run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("bound");
            server.start(acceptor.listen(listener)).expect("started");
            with_timeout(HANG, || {
                let mut raw = Raw {
                    stream: connect(TcpStream::connect(address).expect("connected"), &config),
                };
                raw.begin();
                for id in [1, 3, 5] {
                    raw.get(id, "/a");
                    assert_eq!(raw.next_of(DATA).expect("an answer").payload, b"/a");
                }

                assert_eq!(raw.stream.conn.alpn_protocol(), Some(&b"h2"[..]));
                // More than the windows and the socket hold at once is not needed: all streams
                // share 64 KiB.
                raw.get(7, "/big");
                let mut came = 0;
                while came < 65_535 - 6 {
                    came += raw.next_of(DATA).expect("data").payload.len();
                }
                server.stop();
                assert!(raw.next_of(GOAWAY).is_some_and(|goaway| goaway.code() == 0));
                drop(raw);
            });
            assert!(server.shutdown(HANG), "a connection does not end");
        });
    }
}

#[test]
fn threads_do_not_offer_it() {
    let authority = Authority::new("authority");
    let config = client(&authority);
    let acceptor = plainweave_http::tls::Acceptor::new(authority.config().with_alpn(PROTOCOLS))
        .expect("files");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = Arc::new(server());

    server.start(acceptor.listen(listener)).expect("started");
    let stream = OsStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(HANG)).expect("set");
    let mut stream = connect(stream, &config);
    stream
        .write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = Vec::new();

    stream.read_to_end(&mut answer).expect("answered");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
    assert!(server.shutdown(HANG));
}
