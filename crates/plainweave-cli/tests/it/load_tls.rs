//! `plainweave load http` over TLS: against `plainweave web`, openssl and nginx, and against
//! servers that do it badly.

#![cfg(feature = "tls")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::authority::{Authority, NOW, PAST};
use crate::scripted::child::Kept;
use crate::scripted::others::{free_port, nginx, started};
use crate::scripted::{Figures, OK, drivers, load, server, silent};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How long anything may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// `plainweave web` over TLS on this package's folder, and where it listens.
struct Web {
    _child: Kept,
    port: u16,
}

impl Web {
    fn start(authority: &Authority, more: &[&str]) -> Self {
        let pair = authority.certify("localhost", &["localhost", "127.0.0.1"], NOW);
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        command
            .args([
                "web",
                env!("CARGO_MANIFEST_DIR"),
                "--tls-listen",
                "127.0.0.1:0",
            ])
            .args(more)
            .args(pair);
        let mut child = Kept::spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let mut line = String::new();

        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .split_once("https://")
            .expect(&line)
            .1
            .split(' ')
            .next()
            .unwrap();
        let address: SocketAddr = address.parse().unwrap();

        Self {
            _child: child,
            port: address.port(),
        }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/Cargo.toml", self.port)
    }
}

/// A server that speaks TLS by a certificate of this file.
fn by_tls(
    authority: &Authority,
    file: &str,
    script: fn(&mut StreamOwned<ServerConnection, TcpStream>),
) -> String {
    let chain = CertificateDer::pem_file_iter(authority.path(&format!("{file}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{file}.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let chain = chain.collect::<Result<_, _>>().unwrap();
    let config = Arc::new(
        builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap(),
    );
    let address = server(move |stream, _| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        script(&mut StreamOwned::new(
            ServerConnection::new(config.clone()).unwrap(),
            stream,
        ));
    });

    format!("https://{address}/")
}

fn head(stream: &mut impl Read) -> bool {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        if !stream.read(&mut byte).is_ok_and(|read| read > 0) {
            return false;
        }
        text.push(byte[0]);
    }

    true
}

#[test]
fn answers_come_by_tls_and_openings_are_counted_apart() {
    let authority = Authority::new();
    let web = Web::start(&authority, &[]);
    let ca = authority.path("ca.pem");

    for driver in drivers() {
        let args = [
            "http",
            &web.url("127.0.0.1"),
            "--ca",
            &ca,
            "-c",
            "3",
            "-n",
            "60",
            "--io",
            driver,
            "--json",
        ];
        let result = Figures::of(0, &args);
        assert_eq!(
            (
                result.figure("ok"),
                result.figure("errors"),
                result.figure("handshakes")
            ),
            (60.0, 0.0, 3.0)
        );
        for name in ["connect_p50_us", "handshake_p50_us", "latency_p50_us"] {
            assert!(result.figure(name) > 0.0, "{}", result.0);
        }
        assert!(
            result.0["target"]
                .as_str()
                .unwrap()
                .starts_with("https://127.0.0.1:"),
            "{}",
            result.0
        );
    }

    let (code, out, error) = load(&[
        "http",
        &web.url("127.0.0.1"),
        "--insecure",
        "-c",
        "1",
        "-n",
        "1",
    ]);
    assert!(
        code == Some(0) && out.contains("\nconnect   p50 ") && out.contains("\nhandshake p50 "),
        "{out}{error}"
    );
}

#[test]
fn sessions_are_resumed_unless_told_otherwise() {
    let authority = Authority::new();
    let web = Web::start(&authority, &[]);
    let ca = authority.path("ca.pem");
    let url = web.url("localhost");
    let args = [
        "http",
        &url,
        "--ca",
        &ca,
        "--no-keep-alive",
        "-c",
        "1",
        "-n",
        "10",
        "--workers",
        "1",
        "--json",
    ];
    let resumed = |more: &[&str]| {
        let result = Figures::of(0, &[&args[..], more].concat());
        assert_eq!(
            (result.figure("ok"), result.figure("handshakes")),
            (10.0, 10.0),
            "{}",
            result.0
        );
        result.figure("resumed_handshakes")
    };

    assert_eq!((resumed(&[]), resumed(&["--no-resumption"])), (9.0, 0.0));
}

#[test]
fn the_name_of_the_url_is_asked_for_and_checked() {
    let authority = Authority::new();
    // The first certificate is what those get that ask for no name.
    let first = authority.certify("first", &["other.example"], NOW);
    let web = Web::start(&authority, &first.each_ref().map(String::as_str));
    let ca = authority.path("ca.pem");
    let args = ["-c", "1", "-n", "3", "--json"];
    let by_name = web.url("localhost");
    let by_address = web.url("127.0.0.1");
    let result = Figures::of(0, &[&["http", &by_name, "--ca", &ca], &args[..]].concat());

    assert_eq!(result.figure("ok"), 3.0);
    let result = Figures::of(
        1,
        &[&["http", &by_address, "--ca", &ca], &args[..]].concat(),
    );
    assert_eq!(
        (
            result.figure("ok"),
            result.errors("TLS: certificate of another name")
        ),
        (0.0, 3),
        "{}",
        result.0
    );
    let result = Figures::of(
        0,
        &[&["http", &by_address, "--insecure"], &args[..]].concat(),
    );
    assert_eq!(result.figure("ok"), 3.0);
}

/// What `openssl req -x509` makes is an authority, which may be no server; given by --ca it is
/// trusted as it is.
#[test]
fn a_certificate_that_is_trusted_itself_need_have_no_authority() {
    let authority = Authority::new();
    authority.self_certified("own", &["127.0.0.1"], NOW);
    authority.self_certified("other", &["127.0.0.1"], NOW);
    authority.self_certified("past", &["127.0.0.1"], PAST);
    authority.self_certified("name", &["example.org"], NOW);
    authority.certify("leaf", &["127.0.0.1"], NOW);
    let answers = |stream: &mut StreamOwned<ServerConnection, TcpStream>| {
        while head(stream) && stream.write_all(OK.as_bytes()).is_ok() {}
    };

    for (served, trusted, kind) in [
        ("own", "own", None),
        ("leaf", "leaf", None),
        ("own", "other", Some("TLS: bad certificate")),
        ("leaf", "own", Some("TLS: certificate not trusted")),
        (
            "past",
            "past",
            Some("TLS: certificate expired or not yet valid"),
        ),
        ("name", "name", Some("TLS: certificate of another name")),
    ] {
        let url = by_tls(&authority, served, answers);
        let ca = authority.path(&format!("{trusted}.pem"));
        let args = [
            "http",
            &url,
            "--ca",
            &ca,
            "-c",
            "1",
            "-n",
            "4",
            "--timeout",
            "5s",
            "--json",
        ];
        let result = Figures::of(i32::from(kind.is_some()), &args);

        match kind {
            None => assert_eq!(result.figure("ok"), 4.0, "{served}: {}", result.0),
            Some(kind) => assert_eq!(
                result.errors(kind),
                4,
                "{served} by {trusted}: {}",
                result.0
            ),
        }
    }
}

#[test]
fn handshakes_that_fail_are_counted_by_kind() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let ca = authority.path("ca.pem");
    authority.certify("fine", &["127.0.0.1"], NOW);
    authority.certify("past", &["127.0.0.1"], PAST);
    stranger.certify("strange", &["127.0.0.1"], NOW);
    let answers = |stream: &mut StreamOwned<ServerConnection, TcpStream>| {
        while head(stream) && stream.write_all(OK.as_bytes()).is_ok() {}
    };
    let plain = server(|mut stream, _| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });

    let cut = server(|mut stream, _| drop(stream.read(&mut [0; 1000])));
    let (silent, _) = silent();
    // What servers send for a ClientHello: an alert (handshake failure), TLS 1.1 and a cipher of
    // its time, a record of data before there are keys.
    let hello = [&[2, 0, 0, 38, 3, 2][..], &[7; 32], &[0, 0xc0, 0x13, 0]].concat();
    let says = |kind: u8, payload: &[u8]| {
        let record = [&[kind, 3, 3, 0, payload.len() as u8], payload].concat();
        server(move |mut stream, _| {
            if stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {
                let _ = stream.write_all(&record);
                while stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {}
            }
        })
    };

    let impostor = authority.impostor();
    impostor.certify("forged", &["127.0.0.1"], NOW);
    for (url, kind) in [
        (by_tls(&impostor, "forged", answers), "TLS: bad certificate"),
        (
            format!("https://{}/", says(21, &[2, 40])),
            "TLS: refused by the server",
        ),
        (
            format!("https://{}/", says(22, &hello)),
            "TLS: no common version or cipher",
        ),
        (
            format!("https://{}/", says(23, &[0; 20])),
            "TLS: protocol broken",
        ),
        (
            by_tls(&authority, "past", answers),
            "TLS: certificate expired or not yet valid",
        ),
        (
            by_tls(&stranger, "strange", answers),
            "TLS: certificate not trusted",
        ),
        (format!("https://{plain}/"), "TLS: not spoken by the server"),
        (format!("https://{cut}/"), "TLS: closed in the handshake"),
        (format!("https://{silent}/"), "timeout"),
    ] {
        let args = [
            "http",
            &url,
            "--ca",
            &ca,
            "-c",
            "2",
            "-n",
            "4",
            "--timeout",
            "1s",
            "--json",
        ];
        let result = Figures::of(1, &args);
        // Timeouts end a run that only the number of requests would end.
        let count = result.errors(kind);
        assert!(
            result.figure("ok") == 0.0 && count >= 2,
            "{kind}: {}",
            result.0
        );
        assert_eq!(
            result.figure("errors"),
            count as f64,
            "{kind}: {}",
            result.0
        );
    }
}

#[test]
fn an_end_without_close_notify_is_one_between_answers_only() {
    let authority = Authority::new();
    authority.certify("fine", &["127.0.0.1"], NOW);
    let ca = authority.path("ca.pem");

    // It answers once, and is gone without a word.
    let gone = by_tls(&authority, "fine", |stream| {
        if head(stream) {
            stream.write_all(OK.as_bytes()).unwrap();
        }
    });

    let result = Figures::of(
        0,
        &["http", &gone, "--ca", &ca, "-c", "1", "-n", "5", "--json"],
    );
    assert_eq!(
        (
            result.figure("ok"),
            result.figure("errors"),
            result.figure("reconnects")
        ),
        (5.0, 0.0, 4.0)
    );
    let short = by_tls(&authority, "fine", |stream| {
        if head(stream) {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhel").unwrap();
        }
    });

    let result = Figures::of(
        1,
        &["http", &short, "--ca", &ca, "-c", "1", "-n", "3", "--json"],
    );
    assert_eq!(result.errors("closed within an answer"), 3, "{}", result.0);
}

#[test]
fn agents_and_sessions_go_by_tls_too() {
    let authority = Authority::new();
    let web = Web::start(&authority, &[]);
    let ca = authority.path("ca.pem");
    std::fs::write(
        authority.path("1.log"),
        "/Cargo.toml think=0.01\n  /Cargo.toml\n",
    )
    .unwrap();
    let url = web.url("127.0.0.1").replace("Cargo.toml", "");
    let log = authority.path("1.log");
    let sessions = [
        "http",
        &url,
        "--sessions",
        &log,
        "--ca",
        &ca,
        "-c",
        "2",
        "-n",
        "4",
        "--json",
    ];
    let result = Figures::of(0, &sessions);

    assert_eq!(
        (result.figure("ok"), result.figure("errors")),
        (8.0, 0.0),
        "{}",
        result.0
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command
        .args(["load", "agent", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut agent = Kept::spawn(&mut command).unwrap();
    let mut line = String::new();

    BufReader::new(agent.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .strip_prefix("plainweave load agent: ")
        .expect(&line)
        .split(';')
        .next()
        .unwrap();

    // The agent gets the file sent.
    let result = Figures::of(0, &[&sessions[..], &["--agents", address]].concat());
    assert_eq!(
        (result.figure("ok"), result.figure("errors")),
        (8.0, 0.0),
        "{}",
        result.0
    );
    assert!(
        result.figure("handshakes") >= 4.0 && result.figure("handshake_p50_us") > 0.0,
        "{}",
        result.0
    );
}

#[test]
fn openssl_answers() {
    let authority = Authority::new();
    authority.certify("fine", &["127.0.0.1"], NOW);
    let ca = authority.path("ca.pem");
    let port = free_port();

    for version in ["-tls1_3", "-tls1_2"] {
        let mut command = Command::new("openssl");
        command.args([
            "s_server",
            "-quiet",
            "-www",
            version,
            "-accept",
            &format!("127.0.0.1:{port}"),
        ]);
        command.args([
            "-cert",
            &authority.path("fine.pem"),
            "-key",
            &authority.path("fine.key"),
        ]);
        let Some(_server) = started(command, port) else {
            return;
        };

        // It serves one connection at a time, each with one answer.
        let url = format!("https://127.0.0.1:{port}/");
        let result = Figures::of(
            0,
            &["http", &url, "--ca", &ca, "-c", "1", "-n", "5", "--json"],
        );
        assert_eq!(
            (result.figure("ok"), result.figure("errors")),
            (5.0, 0.0),
            "{version}: {}",
            result.0
        );
        assert!(
            result.figure("resumed_handshakes") >= 3.0,
            "{version}: {}",
            result.0
        );
    }
}

#[test]
fn nginx_answers() {
    let authority = Authority::new();
    authority.certify("fine", &["127.0.0.1"], NOW);
    let ca = authority.path("ca.pem");
    let port = free_port();
    let Some(_server) = nginx(&authority, &format!("listen 127.0.0.1:{port} ssl;"), port) else {
        return;
    };
    let url = format!("https://127.0.0.1:{port}/Cargo.toml");

    for more in [&[][..], &["--no-keep-alive"]] {
        let args = [
            "http",
            &url,
            "--ca",
            &ca,
            "-c",
            "4",
            "-n",
            "40",
            "--workers",
            "1",
            "--json",
        ];
        let result = Figures::of(0, &[&args[..], more].concat());
        assert_eq!(
            (result.figure("ok"), result.figure("errors")),
            (40.0, 0.0),
            "{}",
            result.0
        );
    }
}

#[test]
fn what_cannot_be_trusted_is_wrong_usage() {
    let authority = Authority::new();
    let key = {
        authority.certify("fine", &["127.0.0.1"], NOW);
        authority.path("fine.key")
    };

    for (args, said) in [
        (
            &["http", "https://h/", "--ca", &key][..],
            "there is no certificate in it",
        ),
        (
            &["http", "https://h/", "--ca", "/no/such/file"],
            "/no/such/file",
        ),
        (
            &["http", "http://h/", "--insecure"],
            "nothing asks for that",
        ),
        (
            &["http", "https://h/", "--insecure", "--ca", &key],
            "cannot be used with",
        ),
        (
            &["http", "https://a..b/", "--insecure"],
            "no certificate can be for this name",
        ),
    ] {
        let (code, _, error) = load(args);
        assert!(
            code == Some(2) && error.contains(said),
            "{args:?}: {code:?} {error}"
        );
    }
}
