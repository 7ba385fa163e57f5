//! Clients that vanish, stall, drip, refuse and cheat, at any byte.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave_http::tls::{Acceptor, Error as TlsError, TlsStream};
use plainweave_http::{Error, Layer, Limits, Server, Transport};

use super::conversations::{GET, play};
use super::peer::{Authority, BOTH, EACH, Peer, Silence};
use crate::support::{Event, Script, read_answers, server};

/// The failed handshakes of an acceptor.
fn failures(acceptor: &Acceptor) -> Arc<Mutex<Vec<TlsError>>> {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let record = failures.clone();
    acceptor.on_failure(move |error, _| record.lock().unwrap().push(error.clone()));
    failures
}

type Plain = Server<fn(&mut plainweave_http::Request<'_>) -> plainweave_http::Response>;

/// A server with a short farewell and a record of its errors.
fn recorded() -> (Plain, Arc<Mutex<Vec<Error>>>) {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let record = errors.clone();
    let limits = Limits {
        linger_timeout: Duration::from_millis(20),
        ..Limits::default()
    };

    let server = server()
        .with_limits(limits)
        .on_error(move |error| record.lock().unwrap().push(error.clone()));
    (server, errors)
}

/// Each way to go, at each byte: of the handshake, of the request, of the farewell.
#[test]
fn a_client_that_goes_at_any_byte() {
    let authority = Authority::new("authority");
    for versions in EACH {
        let config = Arc::new(authority.client(versions));
        for how in [Silence::Vanish, Silence::Reset, Silence::Stall] {
            let acceptor = authority.acceptor();
            let failures = failures(&acceptor);
            let (server, errors) = recorded();
            let mut cut = 0;
            let mut end = 1;
            let mut handshakes = 0;
            let mut answered = 0;

            while cut <= end {
                let mut peer = Peer::new(&config, "localhost", GET);
                (peer.cut, peer.then) = (Some((cut, how)), how);
                let mut stream = acceptor.accept(peer);
                play(&server, &mut stream);
                let peer = stream.get_ref();
                let done = stream.session().is_some();

                handshakes += usize::from(!done);
                let answers = read_answers(&peer.heard);

                // A request is answered when all of it has come.
                let whole = done && peer.says.is_empty() && peer.sent.is_empty();
                assert_eq!(answers.len(), usize::from(whole), "{cut} {how:?}");
                answered += answers.len();
                end = end.max(peer.read + peer.sent.len());
                cut += 1;
            }

            assert!(answered >= 1 && handshakes > 100, "{answered} {handshakes}");
            let failures = failures.lock().unwrap();
            assert_eq!(failures.len(), handshakes);
            assert_eq!(acceptor.counts().failed, handshakes as u64);

            for error in failures.iter() {
                assert_eq!(
                    (error.is_closed(), error.is_timeout()),
                    (how != Silence::Stall, how == Silence::Stall)
                );
            }

            for error in errors.lock().unwrap().iter() {
                assert!(error.is_closed() || error.is_timeout(), "{error}");
            }
        }
    }
}

#[test]
fn a_client_that_takes_no_more_after_any_byte() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let config = Arc::new(authority.client(BOTH));

    for kind in [ErrorKind::BrokenPipe, ErrorKind::WouldBlock] {
        let (server, _) = recorded();
        let mut deaf = 0;
        let mut end = 1;
        while deaf < end {
            let mut peer = Peer::new(&config, "localhost", GET);
            peer.then = Silence::Close;
            // How long all of it is differs a little from one handshake to the next.
            if deaf > 0 || end > 1 {
                peer.deaf = Some((deaf, kind));
            }
            let mut stream = acceptor.accept(peer);
            play(&server, &mut stream);

            let peer = stream.get_ref();
            if peer.deaf.is_none() {
                assert!(peer.heard_end);
                end = peer.written - 8;
                continue;
            }

            assert_eq!(peer.written, deaf);
            assert!(!peer.heard_end);
            deaf += 1;
        }
    }
}

#[test]
fn a_silent_client_costs_the_handshake_its_time() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let mut stream = acceptor.accept(Script::new([Event::Stall]));
    stream.set_handshake_timeout(Duration::ZERO);
    let error = stream.handshake().unwrap_err();
    assert!(
        error.is_timeout() && error.to_string() == "the TLS handshake takes too long",
        "{error}"
    );

    // The failure stays, and is counted once.
    assert!(stream.handshake().unwrap_err().is_timeout());
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    assert_eq!(stream.write(&[0]).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(acceptor.counts().failed, 1);
}

/// Bytes that are no TLS end the handshake at once, whatever their length seems to be.
#[test]
fn what_is_no_tls_is_refused() {
    let authority = Authority::new("authority");
    for (bytes, says) in [
        (
            &b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..],
            Some(&b"HTTP/1.1 400 Bad Request\r\n"[..]),
        ),
        (b"\x80\x2e\x01\x03\x01", None),
        (b"\x16\x03\x01\xff\xff\x00", None),
        (b"\x16\x03\x01\x48\x00", None),
        (b"\x16\x03\x01\x47\xff\x00", Some(b"")),
        (b"\x16\x02\x05", None),
        (b"\x16\x03\x01\x00\x04\x63\x00\x00\x00", None),
        (b"\x17\x03\x03\x00\x01\x00", None),
        (b"\0", None),
    ] {
        let acceptor = authority.acceptor();
        let mut stream = acceptor.accept(Script::of(bytes));
        let error = stream.handshake().unwrap_err();
        let out = &stream.get_ref().out;

        match says {
            Some(b"") => assert!(error.is_closed(), "a record that never comes: {error}"),
            Some(says) => {
                assert!(error.is_handshake() && out.starts_with(says), "{error}");
                let answers = read_answers(out);
                assert!(
                    String::from_utf8_lossy(&answers[0].body).ends_with("https:// and try again")
                );
            }
            None => assert!(
                error.is_handshake() && out.first() == Some(&0x15),
                "{bytes:?}: {error} {out:?}"
            ),
        }
    }
}

/// A message of 64 KiB, a byte in each record: its records are kept until it is complete, so it is
/// refused sooner.
#[test]
fn a_message_in_many_small_records_is_refused() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let message = [&[1, 0, 0xff, 0xff][..], &[0; 0xffff]].concat();
    let records: Vec<u8> = message
        .iter()
        .flat_map(|byte| [0x16, 3, 1, 0, 1, *byte])
        .collect();

    for read_max in [usize::MAX, 6] {
        let mut script = Script::of(&records[..60_000]);
        script.read_max = read_max;
        let mut stream = acceptor.accept(script);

        // Ten thousand records take their time where others compute.
        stream.set_handshake_timeout(Duration::from_secs(600));
        let error = stream.handshake().unwrap_err();
        assert!(
            error.is_handshake() && error.to_string().contains("HandshakePayloadTooLarge"),
            "{error}"
        );
        assert!(!stream.get_ref().events.is_empty(), "all of it was read");
    }
}

#[test]
fn a_client_that_does_not_trust_us() {
    let authority = Authority::new("authority");
    let other = Authority::new("another");
    for (client, host) in [
        (other.client(BOTH), "localhost"),
        (authority.client(BOTH), "example.com"),
    ] {
        let acceptor = authority.acceptor();
        let failures = failures(&acceptor);
        let mut stream = acceptor.accept(Peer::new(&Arc::new(client), host, GET));
        play(&server(), &mut stream);
        assert!(stream.get_ref().gave_up.is_some() && stream.get_ref().heard.is_empty());
        let failures = failures.lock().unwrap();

        assert!(
            failures.len() == 1 && failures[0].is_handshake(),
            "{failures:?}"
        );
        assert!(failures[0].to_string().contains("alert"), "{failures:?}");
    }
}

/// A byte of a record is changed on the way: nothing of it is believed, and the client learns why.
#[test]
fn a_record_that_was_tampered_with() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let mut stream = acceptor.accept(Tampering(
        Peer::new(&Arc::new(authority.client(BOTH)), "localhost", GET),
        false,
    ));
    stream.set_read_timeout(Duration::from_secs(1)).unwrap();
    stream.handshake().unwrap();
    let error = loop {
        match stream.read(&mut [0; 100]) {
            Ok(len) => assert_eq!(len, 0, "believed"),
            Err(error) => break error,
        }
    };

    let error = error.get_ref().unwrap().downcast_ref::<TlsError>().unwrap();
    assert!(error.is_protocol(), "{error}");
    let gave_up = stream.get_ref().0.gave_up.clone();
    assert!(
        matches!(gave_up, Some(rustls::Error::AlertReceived(_))),
        "{gave_up:?}"
    );
}

/// Changes the last byte of the first read after the handshake.
struct Tampering(Peer, bool);

impl Read for Tampering {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        // The handshake is not spoilt: it goes by itself first.
        let hand = self.0.client.is_handshaking();
        let held = std::mem::take(&mut self.0.says);
        let says = if hand { Vec::new() } else { held.clone() };
        self.0.says = says;
        let len = self.0.read(buf)?;

        if hand {
            self.0.says = held;
        } else if !std::mem::replace(&mut self.1, true) {
            buf[len - 1] ^= 1;
        }

        Ok(len)
    }
}

impl Write for Tampering {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Transport for Tampering {
    fn set_read_timeout(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.0.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, _timeout: Duration) -> std::io::Result<()> {
        Ok(())
    }

    fn shutdown_write(&mut self) -> std::io::Result<()> {
        self.0.shutdown_write()
    }
}

#[test]
fn a_break_is_told_from_an_end() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    for (then, kind) in [
        (Silence::Close, None),
        (Silence::Vanish, Some(ErrorKind::UnexpectedEof)),
    ] {
        let mut peer = Peer::new(&Arc::new(authority.client(BOTH)), "localhost", "all of it");
        peer.then = then;
        let mut stream = acceptor.accept(peer);
        stream.set_read_timeout(Duration::from_secs(1)).unwrap();
        let mut all = Vec::new();
        let end = stream.read_to_end(&mut all);

        assert_eq!(all, b"all of it");
        assert_eq!(end.as_ref().err().map(std::io::Error::kind), kind);

        if let Err(error) = end {
            let error = error.get_ref().unwrap().downcast_ref::<TlsError>().unwrap();
            assert!(
                error.is_truncated() && error.to_string().contains("cut short"),
                "{error}"
            );
        }

        // Once and for all.
        assert_eq!(stream.read(&mut [0]).err().map(|error| error.kind()), kind);
    }
}

/// What a write has taken arrives once, and nothing else does, whatever the caller offers after a
/// write that took less or none of it: the contract of `Write`.
#[test]
fn what_a_write_has_taken_arrives_and_nothing_else() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let mut peer = Peer::new(&Arc::new(authority.client(BOTH)), "localhost", "");
    peer.then = Silence::Stall;
    let mut stream = acceptor.accept(Moody {
        peer,
        calls: 0,
        stuck: Arc::default(),
    });

    stream.set_read_timeout(Duration::from_secs(1)).unwrap();
    stream.handshake().unwrap();
    let mut taken = Vec::new();
    let mut failed = 0;
    let mut partial = 0;

    for n in 0..80_usize {
        // Never the same bytes again.
        let offered = vec![u8::try_from(n).unwrap(); [100_000, 1, 16_385, 70_000, 3][n % 5]];
        match stream.write(&offered) {
            Ok(len) => {
                partial += usize::from(len < offered.len());
                taken.extend_from_slice(&offered[..len]);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                failed += 1;
            }
        }
    }

    assert!(failed > 10 && partial > 0, "{failed} {partial}");
    while let Err(error) = stream.flush() {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    stream.shutdown_write().unwrap();
    assert!(stream.get_ref().peer.heard == taken && stream.get_ref().peer.heard_end);
}

/// A peer that has taken nothing when the time was over may take it later.
#[test]
fn what_is_stuck_is_sent_by_the_next_call() {
    type Next = fn(&mut TlsStream<Moody>);
    let next: [Next; 3] = [
        |stream| stream.flush().unwrap(),
        |stream| {
            assert_eq!(
                stream.read(&mut [0]).unwrap_err().kind(),
                ErrorKind::WouldBlock
            )
        },
        |stream| assert!(stream.wait_readable(Duration::from_secs(1)).unwrap()),
    ];
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();

    for (n, next) in next.into_iter().enumerate() {
        let mut peer = Peer::new(&Arc::new(authority.client(BOTH)), "localhost", "");
        peer.then = Silence::Stall;
        let stuck = Arc::new(AtomicBool::new(false));
        let mut stream = acceptor.accept(Moody {
            peer,
            calls: 0,
            stuck: stuck.clone(),
        });

        stream.set_read_timeout(Duration::from_secs(1)).unwrap();
        stream.handshake().unwrap();
        stuck.store(true, Ordering::Relaxed);
        assert_eq!(stream.write(b"all of it").unwrap(), 9, "taken");
        assert_eq!(
            stream.flush().unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "and not sent"
        );
        assert_eq!(
            stream.write(b"more").unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        stuck.store(false, Ordering::Relaxed);
        next(&mut stream);
        assert_eq!(stream.get_ref().peer.heard, b"all of it", "{n}");
    }
}

/// Takes a few thousand bytes of every other long write after the handshake; nothing while it is
/// stuck.
struct Moody {
    peer: Peer,
    calls: usize,
    stuck: Arc<AtomicBool>,
}

impl Read for Moody {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.peer.read(buf)
    }
}

impl Write for Moody {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        if self.stuck.load(Ordering::Relaxed) {
            return Err(ErrorKind::WouldBlock.into());
        }
        if self.peer.client.is_handshaking() || buf.len() < 100 {
            return self.peer.write(buf);
        }
        self.calls += 1;

        if self.calls.is_multiple_of(2) {
            Err(ErrorKind::WouldBlock.into())
        } else {
            self.peer.write(&buf[..buf.len().min(7000)])
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Transport for Moody {
    fn set_read_timeout(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.peer.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, _timeout: Duration) -> std::io::Result<()> {
        Ok(())
    }

    fn shutdown_write(&mut self) -> std::io::Result<()> {
        self.peer.shutdown_write()
    }
}

/// A byte at a time, each soon enough: the whole call is bounded, in both directions, and the
/// stream below has its own timeouts again afterwards.
#[test]
fn a_client_that_drips() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let limit = Duration::from_millis(40);
    let mut peer = Peer::new(
        &Arc::new(authority.client(BOTH)),
        "localhost",
        "x".repeat(10_000),
    );
    peer.then = Silence::Stall;
    let mut stream = acceptor.accept(Dripping {
        peer,
        read_timeout: limit,
        write_timeout: limit,
    });

    stream.set_read_timeout(limit).unwrap();
    stream.set_write_timeout(limit).unwrap();
    stream.handshake().unwrap();
    assert_eq!(
        stream.read(&mut [0; 10]).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    assert!(
        !stream.get_ref().peer.sent.is_empty(),
        "cut off before all had come"
    );

    // Taken, and not sent in time.
    assert_eq!(stream.write(&[b'y'; 10_000]).unwrap(), 10_000);
    assert_eq!(stream.flush().unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(stream.get_ref().peer.heard.is_empty());
    assert_eq!(
        (
            stream.get_ref().read_timeout,
            stream.get_ref().write_timeout
        ),
        (limit, limit)
    );
}

struct Dripping {
    peer: Peer,
    read_timeout: Duration,
    write_timeout: Duration,
}

impl Read for Dripping {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.peer.client.is_handshaking() {
            return self.peer.read(buf);
        }
        std::thread::sleep(Duration::from_millis(2).min(self.read_timeout));
        self.peer.read(&mut buf[..1])
    }
}

impl Write for Dripping {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        if buf.len() < 5000 && self.write_timeout > Duration::from_secs(1) {
            return self.peer.write(buf);
        }
        std::thread::sleep(Duration::from_millis(2).min(self.write_timeout));
        self.peer.write(&buf[..1])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Transport for Dripping {
    fn set_read_timeout(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.read_timeout = timeout;
        self.peer.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> std::io::Result<()> {
        self.write_timeout = timeout;
        Ok(())
    }

    fn shutdown_write(&mut self) -> std::io::Result<()> {
        self.peer.shutdown_write()
    }
}
