//! The PROXY protocol: headers of both versions, split anywhere, and what is refused.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave_http::proxy::{Proxied, parse};
use plainweave_http::testing::in_memory;
use plainweave_http::{Request, Response, Server, Transport};
use proptest::prelude::*;

use crate::support::{Script, play, read_answers};
use crate::tls::conversations::{self, GET};
use crate::tls::peer::{Authority, BOTH, Peer, Silence};

/// A header of version 2.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap().to_be_bytes();
    [
        b"\r\n\r\n\0\r\nQUIT\n",
        &[0x20 | command, family][..],
        &len,
        body,
    ]
    .concat()
}

fn binary_of(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let ports = [client.port().to_be_bytes(), server.port().to_be_bytes()].concat();
    match (client, server) {
        (SocketAddr::V4(a), SocketAddr::V4(b)) => binary(
            1,
            0x11,
            &[&a.ip().octets()[..], &b.ip().octets(), &ports].concat(),
        ),
        (SocketAddr::V6(a), SocketAddr::V6(b)) => binary(
            1,
            0x21,
            &[&a.ip().octets()[..], &b.ip().octets(), &ports].concat(),
        ),
        _ => panic!("of two families"),
    }
}

fn line_of(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
    let a = client.ip();
    let b = server.ip();
    format!(
        "PROXY {family} {a} {b} {} {}\r\n",
        client.port(),
        server.port()
    )
    .into_bytes()
}

/// A client, a server of the same family, and headers that say so.
fn headers() -> Vec<(Option<SocketAddr>, Vec<u8>)> {
    let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
    let mut headers = Vec::new();
    for (client, server) in [
        ("192.0.2.1:56324", "192.0.2.2:443"),
        ("[2001:db8::1]:1", "[2001:db8::2]:65535"),
    ] {
        let client = addr(client);
        let server = addr(server);
        headers.push((Some(client), line_of(client, server)));
        headers.push((Some(client), binary_of(client, server)));

        // With an option behind the addresses.
        let mut longer = binary_of(client, server);
        longer.extend_from_slice(&[4, 0, 2, 9, 9]);
        longer[15] += 5;
        headers.push((Some(client), longer));
    }

    headers.push((None, b"PROXY UNKNOWN\r\n".to_vec()));
    headers.push((
        None,
        b"PROXY UNKNOWN ff::1 whatever it says 1 2\r\n".to_vec(),
    ));
    headers.push((None, binary(0, 0, b"")));
    headers.push((None, binary(0, 0x11, &[7; 12])));
    headers.push((None, binary(1, 0x31, &[7; 216])));

    headers
}

#[test]
fn headers_are_read_and_every_beginning_wants_more() {
    for (client, header) in headers() {
        let whole = Proxied::Header {
            len: header.len(),
            client,
        };

        assert_eq!(parse(&header).unwrap(), whole);
        assert_eq!(
            parse(&[&header[..], b"GET / HTTP/1.1"].concat()).unwrap(),
            whole
        );
        for len in 0..header.len() {
            assert_eq!(
                parse(&header[..len]).unwrap(),
                Proxied::More,
                "{len} bytes of {header:?}"
            );
        }
    }
}

#[test]
fn what_is_no_header_is_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    let bad: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n",
        b"PROXy",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        b"PROXY TCP4 ::1 ::2 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        long.as_bytes(),
        &binary(2, 0x11, &[0; 12]),
        &binary(1, 0x11, &[0; 11]),
        &binary(1, 0x21, &[0; 35]),
        &binary(1, 0x11, &[0; 4081]),
    ];
    for header in bad {
        assert!(
            parse(header).is_err_and(|error| error.is_parse()),
            "{:?}",
            String::from_utf8_lossy(header)
        );
    }

    let mut version_3 = binary(1, 0x11, &[0; 12]);
    version_3[12] = 0x31;
    assert!(parse(&version_3).is_err());
}

proptest! {
    #[test]
    fn addresses_survive(client: SocketAddr, port: u16) {
        let server = SocketAddr::new(client.ip(), port);
        let client = SocketAddr::new(client.ip(), client.port());
        for header in [line_of(client, server), binary_of(client, server)] {
            prop_assert_eq!(parse(&header).unwrap(), Proxied::Header { len: header.len(), client: Some(client) });
        }
    }

    #[test]
    fn nothing_panics_and_more_bytes_change_no_answer(
        start in prop::sample::select(vec![&b""[..], b"PROXY ", b"PROXY TCP4 ", b"\r\n\r\n\0\r\nQUIT\n\x21"]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0usize..200,
    ) {
        let all = [start, &rest].concat();
        let part = parse(&all[..cut.min(all.len())]);
        match (part, parse(&all)) {
            (Ok(Proxied::More), _) => {}
            (Ok(found), Ok(whole)) => prop_assert_eq!(found, whole),
            (Err(_), Err(_)) => {}
            (part, whole) => prop_assert!(false, "{:?}, then {:?}", part, whole),
        }
    }
}

fn server() -> Server<impl plainweave_http::Handler> {
    Server::new(|request: &mut Request<'_>| Response::ok(format!("{:?}", request.peer())))
        .with_proxy_protocol()
}

#[test]
fn a_server_behind_a_proxy_knows_its_clients() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let server = server().on_exchange(move |exchange| list.lock().unwrap().push(exchange.peer));
    let get = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

    for (client, header) in headers() {
        for read_max in [1, 7, header.len(), header.len() + 1, usize::MAX] {
            let mut script = Script {
                read_max,
                ..Script::of([&header[..], get, get].concat())
            };

            play(&server, &mut script);
            let answers = read_answers(&script.out);
            let expected = format!("{client:?}").into_bytes();
            assert_eq!(
                answers
                    .iter()
                    .map(|answer| &answer.body)
                    .collect::<Vec<_>>(),
                [&expected, &expected]
            );
            assert_eq!(
                std::mem::take(&mut *told.lock().unwrap()),
                [client; 2],
                "once for each request"
            );
        }
    }
}

#[test]
fn a_server_behind_a_proxy_answers_nobody_else() {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let list = errors.clone();
    let server = server().on_error(move |error| list.lock().unwrap().push(error.to_string()));
    assert!(in_memory(&server, "GET / HTTP/1.1\r\nHost: h\r\n\r\n").is_empty());
    assert_eq!(
        *errors.lock().unwrap(),
        ["the connection does not begin with a header of the PROXY protocol"]
    );

    // One that leaves in the middle of its header, and a health check that asks nothing.
    assert!(in_memory(&server, "PROXY TCP4 192").is_empty());
    assert!(in_memory(&server, binary(0, 0, b"")).is_empty());
}

/// A proxy that passes on TLS: its header, then what its client sends.
struct Behind {
    header: Vec<u8>,
    step: usize,
    peer: Peer,
}

impl Read for Behind {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // What comes together is read together.
        let held = self.header.len().min(buf.len()).min(self.step);
        buf[..held].copy_from_slice(&self.header[..held]);
        self.header.drain(..held);
        let room = buf.len().min(self.step) - held;
        let rest = if room > 0 {
            self.peer.read(&mut buf[held..held + room])?
        } else {
            0
        };

        Ok(held + rest)
    }
}

impl Write for Behind {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.peer.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Behind {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.peer.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.peer.set_write_timeout(timeout)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.peer.shutdown_write()
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(PROXY)
    }
}

const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)), 9);

/// Before the handshake, wherever reads end; a header that names nobody leaves the proxy's address.
#[test]
fn a_header_comes_before_tls() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let config = Arc::new(authority.client(BOTH));
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let server = server().on_exchange(move |exchange| list.lock().unwrap().push(exchange.peer));

    for (client, header) in headers() {
        for step in [1, 7, header.len(), header.len() + 1, usize::MAX] {
            let mut peer = Peer::new(&config, "localhost", GET.repeat(2));
            peer.then = Silence::Close;
            let mut stream = acceptor.accept(Behind {
                header: header.clone(),
                step,
                peer,
            });

            conversations::play(&server, &mut stream);
            let answers = read_answers(&stream.get_ref().peer.heard);
            let expected = Some(client.unwrap_or(PROXY));
            let body = format!("{expected:?}").into_bytes();
            assert_eq!(
                answers
                    .iter()
                    .map(|answer| &answer.body)
                    .collect::<Vec<_>>(),
                [&body, &body],
                "{step}"
            );
            assert_eq!(std::mem::take(&mut *told.lock().unwrap()), [expected; 2]);
        }
    }

    assert_eq!(acceptor.counts().failed, 0);
}

#[test]
fn a_handshake_without_a_header_is_refused() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let config = Arc::new(authority.client(BOTH));
    let failures = Arc::new(Mutex::new(Vec::new()));
    let list = failures.clone();
    acceptor.on_failure(move |error, peer| list.lock().unwrap().push((error.to_string(), peer)));
    let client = "192.0.2.1:56324".parse().unwrap();
    let cases: [(&[u8], &str, SocketAddr); 4] = [
        (
            b"",
            "the connection does not begin with a header of the PROXY protocol",
            PROXY,
        ),
        (
            b"PROXY TCP4 nobody\r\n",
            "a malformed header of the PROXY protocol",
            PROXY,
        ),
        (
            b"PROXY TCP4 192",
            "the peer left in the middle of the TLS handshake",
            PROXY,
        ),
        (
            b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
            "the peer left in the middle of the TLS handshake",
            client,
        ),
    ];

    for (header, says, from) in cases {
        let mut peer = Peer::new(&config, "localhost", GET);
        peer.cut = (!header.is_empty()).then_some((0, Silence::Vanish));
        let mut stream = acceptor.accept(Behind {
            header: header.to_vec(),
            step: usize::MAX,
            peer,
        });

        conversations::play(&server(), &mut stream);
        assert!(stream.get_ref().peer.heard.is_empty());
        assert_eq!(
            failures.lock().unwrap().pop(),
            Some((says.to_owned(), Some(from)))
        );
    }
}
