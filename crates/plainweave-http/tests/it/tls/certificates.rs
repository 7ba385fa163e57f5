//! Which certificate a client is shown, and which files are refused.

use std::fs;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use plainweave_http::Transport;
use plainweave_http::tls::{Acceptor, Config, Error};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::peer::{Authority, BOTH, EACH, NOW, Peer, Silence};

/// The certificate that a client is shown which asks for `host`, and the name that the server has
/// heard.
fn shown(
    authority: &Authority,
    acceptor: &Acceptor,
    host: &str,
) -> (CertificateDer<'static>, Option<String>) {
    let mut peer = Peer::new(&Arc::new(authority.client(BOTH)), host, "x");
    peer.then = Silence::Vanish;
    let mut stream = acceptor.accept(peer);
    stream.set_read_timeout(Duration::from_secs(1)).unwrap();

    // One that dislikes its certificate ends the handshake, but has seen it.
    let read = stream.read(&mut [0]);
    let name = stream
        .session()
        .and_then(|session| session.server_name.clone());
    assert_eq!(
        read.is_ok(),
        name.is_some() || host.parse::<std::net::IpAddr>().is_ok()
    );
    (stream.get_ref().shown().unwrap(), name)
}

#[test]
fn the_name_chooses_the_certificate() {
    let authority = Authority::new("authority");
    let names = ["one.example", "*.two.example", "Three.Example"];
    let pairs = [
        authority.write("first", &["first.example", "127.0.0.1"], NOW),
        authority.write("second", &names, NOW),
        authority.write("third", &["deep.two.example"], NOW),
    ];
    let config = Config::new(&pairs[0].0, &pairs[0].1);
    let config = pairs[1..].iter().fold(config, |config, (chain, key)| {
        config.with_certificate(chain, key)
    });
    let acceptor = Acceptor::new(config).unwrap();
    let certificates = pairs.map(|(chain, _)| CertificateDer::from_pem_file(chain).unwrap());

    for (host, index) in [
        ("first.example", 0),
        ("one.example", 1),
        ("ONE.example", 1),
        ("any.two.example", 1),
        ("three.example", 1),
        ("deep.two.example", 2),
        ("127.0.0.1", 0),
    ] {
        let (certificate, name) = shown(&authority, &acceptor, host);
        assert!(certificate == certificates[index], "{host}");
        let asked = Some(host.to_ascii_lowercase()).filter(|host| host != "127.0.0.1");
        assert_eq!(name, asked);
    }

    // Names that none is for: the first one is shown, which the client refuses, and says whose it
    // is.
    for host in ["two.example", "too.deep.two.example", "unknown.example"] {
        let mut stream = acceptor.accept(Peer::new(&Arc::new(authority.client(BOTH)), host, ""));
        stream.set_read_timeout(Duration::from_secs(1)).unwrap();
        assert!(stream.handshake().unwrap_err().is_handshake(), "{host}");
        let gave_up = stream.get_ref().gave_up.clone().unwrap();
        assert!(
            format!("{gave_up:?}").contains("first.example"),
            "{host}: {gave_up:?}"
        );
    }
}

/// Refuses `config` with this file and these words.
fn refused(config: Config, file: &std::path::Path, is: fn(&Error) -> bool, says: &str) {
    let error = Acceptor::new(config).unwrap_err();
    assert!(is(&error), "{error:?}");
    assert_eq!(error.file(), Some(file), "{error}");
    assert!(
        error
            .to_string()
            .starts_with(&format!("{}: ", file.display()))
            && error.to_string().contains(says),
        "{error}"
    );
}

#[test]
fn files_that_cannot_be_used_are_refused_with_the_reason() {
    let authority = Authority::new("authority");
    let (chain, key) = authority.write("good", &["localhost"], NOW);
    let (other_chain, _) = authority.write("other", &["localhost"], NOW);
    let (old, old_key) = authority.write("old", &["localhost"], (2001, 2002));
    let (early, early_key) = authority.write("early", &["localhost"], (2200, 2201));
    let none = authority.file("none");
    let garbage = authority.file("garbage");
    let half = authority.file("half");

    fs::write(
        &garbage,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let text = fs::read(&chain).unwrap();
    fs::write(&half, &text[..text.len() / 2]).unwrap();

    refused(
        Config::new(&none, &key),
        &none,
        Error::is_file,
        "No such file",
    );
    refused(
        Config::new(&chain, &none),
        &none,
        Error::is_file,
        "No such file",
    );
    refused(
        Config::new(&key, &key),
        &key,
        Error::is_file,
        "there is no certificate in it",
    );
    refused(
        Config::new(&chain, &chain),
        &chain,
        Error::is_file,
        "there is no private key in it",
    );
    refused(
        Config::new(&garbage, &key),
        &garbage,
        Error::is_file,
        "cannot be read",
    );
    refused(
        Config::new(&half, &key),
        &half,
        Error::is_file,
        "a part of it is missing",
    );
    refused(
        Config::new(&other_chain, &key),
        &other_chain,
        Error::is_mismatch,
        "does not belong to the key in",
    );
    refused(
        Config::new(&old, &old_key),
        &old,
        Error::is_expired,
        "expired on Tue, 01 Jan 2002 00:00:00 GMT (renew it)",
    );
    refused(
        Config::new(&early, &early_key),
        &early,
        Error::is_expired,
        "not valid before Wed, 01 Jan 2200",
    );

    // The second of two, and the authorities for clients.
    refused(
        Config::new(&chain, &key).with_certificate(&old, &old_key),
        &old,
        Error::is_expired,
        "expired",
    );
    let config = Config::new(&chain, &key).with_client_certificates(&garbage);
    refused(
        config,
        &garbage,
        Error::is_file,
        "not the certificate of an authority",
    );
}

/// HTTP/1.1 unless the server says otherwise; a client that speaks none of its protocols is refused
/// (RFC 7301, 3.2).
#[test]
fn the_protocol_is_agreed_on() {
    let authority = Authority::new("authority");
    let both = ["h2", "http/1.1"];
    for (server, client, agreed) in [
        (&["http/1.1"][..], &both[..], Ok(Some("http/1.1"))),
        (&["x", "http/1.1"], &["http/1.1", "x"], Ok(Some("x"))),
        // Not on a thread.
        (&both, &["http/1.1", "h2"], Ok(Some("http/1.1"))),
        (&["http/1.1"], &[], Ok(None)),
        (&["http/1.1"], &["h2"], Err(())),
    ] {
        for versions in EACH {
            let acceptor = Acceptor::new(authority.config().with_alpn(server)).unwrap();
            let mut config = authority.client(versions);
            config.alpn_protocols = client
                .iter()
                .map(|protocol| protocol.as_bytes().to_vec())
                .collect();
            let mut stream = acceptor.accept(Peer::new(&Arc::new(config), "localhost", ""));
            stream.set_read_timeout(Duration::from_secs(1)).unwrap();
            let done = stream.handshake();
            let alpn = stream.session().map(|session| {
                session
                    .alpn
                    .as_deref()
                    .map(|name| str::from_utf8(name).unwrap())
            });

            assert_eq!(
                (done.is_ok(), alpn),
                (agreed.is_ok(), agreed.ok()),
                "{client:?}"
            );
            assert!(done.is_ok_and(|()| true) || stream.get_ref().gave_up.is_some());
        }
    }
}
