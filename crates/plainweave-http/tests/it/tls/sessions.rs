//! Resumption, and certificates of clients.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave::Runtime;
use plainweave_http::tls::Acceptor;
use plainweave_http::{Request, Response, Server, TlsSession, Transport};
use rustls::ClientConfig;
use rustls::client::{Resumption, Tls12Resumption};

use super::conversations::{GET, play};
use super::peer::{Authority, EACH, NOW, Peer, Silence};

/// Connects once more; returns whether the session was resumed.
fn resumed(acceptor: &Acceptor, config: &Arc<ClientConfig>) -> bool {
    let mut peer = Peer::new(config, "localhost", "x");
    peer.then = Silence::Close;
    let mut stream = acceptor.accept(peer);
    stream.set_read_timeout(Duration::from_secs(1)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream.session().unwrap().resumed
}

#[test]
fn sessions_are_resumed_also_over_a_reload() {
    let authority = Authority::new("authority");
    for (versions, by) in [
        (EACH[0], Tls12Resumption::Disabled),
        (EACH[1], Tls12Resumption::SessionIdOrTickets),
        (EACH[1], Tls12Resumption::SessionIdOnly),
    ] {
        let acceptor = authority.acceptor();
        let mut config = authority.client(versions);
        config.resumption = Resumption::in_memory_sessions(8).tls12_resumption(by);
        let config = Arc::new(config);
        let turns: Vec<bool> = (0..3).map(|_| resumed(&acceptor, &config)).collect();
        assert_eq!(turns, [false, true, true]);
        authority.write("localhost", &["localhost"], NOW);
        acceptor.reload().unwrap();
        assert!(resumed(&acceptor, &config));
        let counts = acceptor.counts();

        assert_eq!((counts.completed, counts.resumed, counts.failed), (4, 3, 0));
    }
}

/// Who was let in once is judged again each time: the certificate may have expired, or the
/// authorities be others.
#[test]
fn sessions_of_clients_with_certificates_are_not_resumed() {
    let authority = Authority::new("authority");
    let ca = authority.file("ca.pem");
    for config in [
        authority.config().with_required_client_certificates(&ca),
        authority.config().with_client_certificates(&ca),
    ] {
        for (versions, by) in [
            (EACH[0], Tls12Resumption::Disabled),
            (EACH[1], Tls12Resumption::SessionIdOrTickets),
            (EACH[1], Tls12Resumption::SessionIdOnly),
        ] {
            let acceptor = Acceptor::new(config.clone()).unwrap();
            let mut client = authority.client_as(versions, Some((&authority, "alice")));
            client.resumption = Resumption::in_memory_sessions(8).tls12_resumption(by);
            let client = Arc::new(client);
            assert!(!resumed(&acceptor, &client) && !resumed(&acceptor, &client));
            acceptor.reload().unwrap();
            assert!(!resumed(&acceptor, &client));
            let counts = acceptor.counts();

            assert_eq!((counts.completed, counts.resumed, counts.failed), (3, 0, 0));
        }
    }
}

/// A client has a ticket of a server that took early data, which was in this one's place: what it
/// sends by it is skipped, and the handshake goes on.
#[test]
fn early_data_for_another_server_is_skipped() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    for length in [1, 16 << 10] {
        let mut config = authority.client(EACH[0]);
        config.enable_early_data = true;
        config.resumption = Resumption::in_memory_sessions(8);
        let config = Arc::new(config);
        authority.give_ticket_for_early_data(&config);

        let mut peer = Peer::new(&config, "localhost", GET);
        let mut early = peer.client.early_data().expect("the ticket allows it");
        early.write_all(&vec![b'x'; length]).unwrap();
        let server = Server::new(|_: &mut Request<'_>| Response::ok("x"));
        let mut stream = acceptor.accept(peer);
        play(&server, &mut stream);
        let heard = &stream.get_ref().heard;

        assert!(
            heard.starts_with(b"HTTP/1.1 200 OK\r\n"),
            "{length}: {heard:?}"
        );
        assert!(!stream.session().unwrap().resumed);
        assert!(!stream.get_ref().client.is_early_data_accepted());
    }
    assert_eq!(acceptor.counts().failed, 0);
}

/// What a handler sees of the client; `None`: it is not asked.
fn seen(acceptor: &Acceptor, config: ClientConfig) -> Option<TlsSession> {
    let seen = Arc::new(Mutex::new(None));
    let record = seen.clone();
    let server = Server::new(move |request: &mut Request<'_>| {
        *record.lock().unwrap() = request.tls().cloned();
        Response::ok("x")
    });

    let mut stream = acceptor.accept(Peer::new(&Arc::new(config), "localhost", GET));
    play(&server, &mut stream);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.is_some(), !stream.get_ref().heard.is_empty());

    seen
}

#[test]
fn clients_show_certificates_or_not() {
    let authority = Authority::new("authority");
    let other = Authority::new("another");
    let ca = authority.file("ca.pem");
    let nobody = Some(None);
    let subject = |name: &str| Some(Some(format!("CN={name}")));

    for versions in EACH {
        let client = |identity: Option<(&Authority, &str)>| authority.client_as(versions, identity);
        for (config, without, with, foreign) in [
            (
                authority.config(),
                nobody.clone(),
                nobody.clone(),
                nobody.clone(),
            ),
            (
                authority.config().with_client_certificates(&ca),
                nobody.clone(),
                subject("alice"),
                None,
            ),
            (
                authority.config().with_required_client_certificates(&ca),
                None,
                subject("alice"),
                None,
            ),
        ] {
            let acceptor = Acceptor::new(config).unwrap();
            let name = |session: Option<TlsSession>| session.map(|session| session.client_subject);
            assert_eq!(name(seen(&acceptor, client(None))), without);
            let alice = seen(&acceptor, client(Some((&authority, "alice"))));
            assert_eq!(
                alice.as_ref().map(|session| session.client_chain.len()),
                Some(usize::from(with != nobody))
            );
            assert_eq!(name(alice), with);
            assert_eq!(
                name(seen(&acceptor, client(Some((&other, "mallory"))))),
                foreign
            );
        }
    }

    // Without TLS there is nothing to see.
    let plain = Server::new(|request: &mut Request<'_>| {
        Response::ok(format!("{}", request.tls().is_none()))
    });
    let mut script = crate::support::Script::of("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    crate::support::play(&plain, &mut script);
    assert_eq!(crate::support::read_answers(&script.out)[0].body, b"true");
}

/// Both ends, with a client's certificate to judge: what a handshake takes of a fiber's stack is
/// far from the default of 256 KiB.
#[test]
fn a_handshake_fits_a_small_stack() {
    let runtime = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .report_stalls(false)
        .stack_size(64 << 10);
    let runtime = runtime.build().unwrap();
    for versions in EACH {
        let authority = Authority::new("authority");
        let config = authority
            .config()
            .with_required_client_certificates(authority.file("ca.pem"));
        let acceptor = Acceptor::new(config).unwrap();
        let client = authority.client_as(versions, Some((&authority, "alice")));
        let mut stream = acceptor.accept(Peer::new(&Arc::new(client), "localhost", GET));

        runtime.run(move || stream.handshake()).unwrap();
    }
}
