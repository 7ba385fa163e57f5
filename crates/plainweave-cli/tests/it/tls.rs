//! `plainweave web` over TLS, with curl, openssl, Chromium and rustls as its clients.

#![cfg(feature = "tls")]

use crate::common::skip;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::authority::{Authority, Client, NOW, PAST};
use crate::common::{Running, admin, child, eventually, figure, hang_up, output};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A server with a certificate for `localhost`, over TLS and without.
fn serve(authority: &Authority, more: &[&str]) -> Running {
    let pair = authority.certify("localhost", &["localhost", "127.0.0.1"], NOW);
    let flags = pair
        .iter()
        .map(String::as_str)
        .chain(["--tls-listen", "127.0.0.1:0"]);
    Running::start(&flags.chain(more.iter().copied()).collect::<Vec<_>>())
}

fn connect(authority: &Authority, server: &Running) -> Client {
    authority.connect_to(address(server))
}

/// Where a server speaks TLS.
fn address(server: &Running) -> SocketAddr {
    server
        .line
        .split_once("https://")
        .expect(&server.line)
        .1
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Asks for a file, and returns the answer's head.
fn ask(client: &mut Client, path: &str) -> String {
    try_ask(client, path).unwrap()
}

/// [`ask`] of a server that may cut the connection instead.
fn try_ask(client: &mut Client, path: &str) -> io::Result<String> {
    write!(client, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }

    let head = String::from_utf8(head).unwrap();
    let len = head
        .split_once("Content-Length: ")
        .expect(&head)
        .1
        .split('\r')
        .next()
        .unwrap();
    io::copy(&mut client.take(len.parse().unwrap()), &mut io::sink())?;
    Ok(head)
}

fn shown(client: &Client) -> CertificateDer<'static> {
    client.conn.peer_certificates().unwrap()[0].clone()
}

/// Runs a program; `None`, with a word, if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    let found = child::output(Command::new(program).args(args)).ok();
    if found.is_none() {
        skip::skip(&format!("{program} is not installed"));
    }
    found
}

const PLACES: [&str; 5] = [
    "driver",
    "fibers",
    "acceptors:4",
    "event-loops",
    "pipeline:2",
];

#[test]
fn a_connection_is_kept_in_every_architecture() {
    let authority = Authority::new();
    for architecture in PLACES {
        for io in ["--io=epoll", "--io=uring"] {
            let server = serve(&authority, &[io, "--architecture", architecture]);
            let mut clients: Vec<Client> = (0..3).map(|_| connect(&authority, &server)).collect();
            for _ in 0..3 {
                for client in &mut clients {
                    let head = ask(client, "/Cargo.toml");
                    assert!(
                        head.starts_with("HTTP/1.1 200 OK\r\n"),
                        "{architecture}: {head}"
                    );
                }
            }

            server.signal();
            for client in &mut clients {
                // The end, told from a break.
                assert_eq!(client.read(&mut [0]).ok(), Some(0), "{architecture} {io}");
            }

            assert_eq!(
                server.end(),
                (Some(0), String::new()),
                "{architecture} {io}"
            );
        }
    }
}

/// More than the kernel takes at once, in pieces that are read and written.
#[test]
fn curl_fetches_files_small_and_large() {
    let authority = Authority::new();
    let bytes: Vec<u8> = (0..5_000_001_u32).map(|n| (n % 251) as u8).collect();
    fs::write(authority.directory.join("large"), &bytes).unwrap();
    let pair = authority.certify("localhost", &["localhost", "127.0.0.1"], NOW);
    let flags = pair
        .iter()
        .map(String::as_str)
        .chain(["--tls-listen", "127.0.0.1:0"]);
    let server = Running::start_in(&authority.directory, &flags.collect::<Vec<_>>());
    let base = format!("https://{}", address(&server));
    let ca = authority.path("ca.pem");
    let got = authority.path("got");
    let small = authority.path("small");

    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let version: Vec<&str> = version.split('=').collect();
        let urls = [format!("{base}/large"), format!("{base}/ca.pem")];
        let mut args = vec![
            "-sS",
            "--http1.1",
            "--cacert",
            &ca,
            "-w",
            "%{num_connects} %{http_version}\n",
        ];
        args.extend_from_slice(&version);
        args.extend_from_slice(&["-o", &got, &urls[0], "-o", &small, &urls[1]]);
        let Some(out) = run("curl", &args) else {
            return;
        };

        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            "1 1.1\n0 1.1\n",
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(fs::read(&got).unwrap() == bytes);
        assert_eq!(fs::read(&small).unwrap(), fs::read(&ca).unwrap());
    }

    // Without the authority it is refused, as it should be.
    let Some(out) = run("curl", &["-sS", &base]) else {
        return;
    };
    assert_eq!(out.status.code(), Some(60));
}

fn openssl(args: &[&str]) -> Option<String> {
    let out = run("openssl", &[&["s_client"], args].concat())?;
    Some(String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

#[test]
fn openssl_gets_names_protocols_and_sessions() {
    let authority = Authority::new();
    let second = authority.certify("second", &["second.example", "*.third.example"], NOW);
    let server = serve(
        &authority,
        &second.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let to = address(&server).to_string();
    let ca = authority.path("ca.pem");

    for (name, subject) in [
        ("localhost", "localhost"),
        ("second.example", "second.example"),
        ("x.third.example", "second.example"),
        ("unknown.example", "localhost"),
    ] {
        let Some(text) = openssl(&[
            "-connect",
            &to,
            "-CAfile",
            &ca,
            "-servername",
            name,
            "-alpn",
            "h2,http/1.1",
        ]) else {
            return;
        };

        let line = text
            .lines()
            .find(|line| line.starts_with("subject="))
            .expect(&text);
        assert!(
            line.replace(' ', "").ends_with(&format!("CN={subject}")),
            "{name}: {line}"
        );
        let protocol = if cfg!(feature = "http2") {
            "ALPN protocol: h2"
        } else {
            "ALPN protocol: http/1.1"
        };

        assert!(
            text.contains("Verify return code: 0 (ok)") && text.contains(protocol),
            "{text}"
        );
    }

    let Some(text) = openssl(&["-connect", &to, "-CAfile", &ca, "-tls1_2", "-reconnect"]) else {
        return;
    };
    assert_eq!(text.matches("Reused, TLSv1.2").count(), 5, "{text}");
    // Too old, for anybody.
    let Some(text) = openssl(&["-connect", &to, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]) else {
        return;
    };
    assert!(text.contains("Cipher is (NONE)"), "{text}");
}

#[test]
fn http_leads_to_https() {
    let authority = Authority::new();
    for (flag, to) in [
        ("--https-redirect", None),
        ("--https-redirect=443", Some("https://localhost/a?b")),
    ] {
        let server = serve(&authority, &[flag, "--hsts", "600"]);
        let text = crate::common::ask(
            server.address,
            "GET /a?b HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n",
        );
        let to = to.map_or_else(
            || format!("https://localhost:{}/a?b", address(&server).port()),
            str::to_owned,
        );
        assert!(
            text.starts_with("HTTP/1.1 308 Permanent Redirect\r\n"),
            "{text}"
        );
        assert!(
            text.contains(&format!("\r\nLocation: {to}\r\n")) && !text.contains("Strict-Transport"),
            "{text}"
        );
        let head = ask(&mut connect(&authority, &server), "/Cargo.toml");

        assert!(
            head.starts_with("HTTP/1.1 200")
                && head.contains("Strict-Transport-Security: max-age=600\r\n"),
            "{head}"
        );
    }

    // Without the flag both are served alike.
    let server = serve(&authority, &[]);
    assert!(crate::common::get(server.address, "/Cargo.toml").starts_with("HTTP/1.1 200"));
    assert!(!ask(&mut connect(&authority, &server), "/Cargo.toml").contains("Strict-Transport"));
}

#[test]
fn clients_are_asked_for_certificates() {
    let authority = Authority::new();
    let other = Authority::new();
    let ca = authority.path("ca.pem");
    let server = serve(&authority, &["--tls-client-ca", &ca, "--https-redirect"]);

    // Whoever comes without TLS has shown none.
    assert!(crate::common::get(server.address, "/Cargo.toml").starts_with("HTTP/1.1 308 "));
    let url = format!("https://{}/Cargo.toml", address(&server));
    authority.certify("alice", &["alice"], NOW);
    other.certify("mallory", &["mallory"], NOW);
    let base = [
        "-sS",
        "--cacert",
        &ca,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        &url,
    ];

    for (certificate, key, code) in [
        (
            authority.path("alice.pem"),
            authority.path("alice.key"),
            "200",
        ),
        (other.path("mallory.pem"), other.path("mallory.key"), "000"),
    ] {
        let Some(out) = run(
            "curl",
            &[&base[..], &["--cert", &certificate, "--key", &key]].concat(),
        ) else {
            return;
        };

        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            code,
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }

    let Some(out) = run("curl", &base) else {
        return;
    };
    assert_eq!(
        (
            String::from_utf8_lossy(&out.stdout).as_ref(),
            out.status.success()
        ),
        ("000", false)
    );
}

#[test]
fn certificates_are_loaded_again() {
    let authority = Authority::new();
    let mut server = serve(&authority, &[]);
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let mut before = connect(&authority, &server);
    ask(&mut before, "/Cargo.toml");
    let old = shown(&before);

    // Expired, then half of a renewal: both are refused by name.
    authority.certify("localhost", &["localhost"], PAST);
    let line = hang_up(&server, &mut said);
    let file = authority.path("localhost.pem");
    let start = "plainweave web: SIGHUP: the certificates stay as they were: ";
    assert!(
        line.starts_with(&format!(
            "{start}{file}: it has expired on Tue, 01 Jan 2002"
        )),
        "{line}"
    );
    let renewed = authority.certify("localhost", &["localhost"], NOW);
    let key = fs::read(&renewed[3]).unwrap();

    fs::remove_file(&renewed[3]).unwrap();
    assert!(
        hang_up(&server, &mut said).starts_with(&format!("{start}{}: cannot be read", renewed[3]))
    );
    let mut client = connect(&authority, &server);
    ask(&mut client, "/Cargo.toml");
    assert_eq!(shown(&client), old);

    fs::write(&renewed[3], key).unwrap();
    assert_eq!(
        hang_up(&server, &mut said),
        "plainweave web: SIGHUP: the certificates are loaded again; the directory is reopened\n"
    );
    let mut client = connect(&authority, &server);
    ask(&mut client, "/Cargo.toml");
    assert_eq!(
        shown(&client),
        CertificateDer::from_pem_file(&file).unwrap()
    );

    // Who was connected is served on.
    ask(&mut before, "/Cargo.toml");
    server.signal();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn half_open_handshakes_are_cut_and_counted() {
    let authority = Authority::new();
    for architecture in PLACES {
        let more = [
            "--architecture",
            architecture,
            "--handshake-timeout",
            "200ms",
            "--admin",
            "127.0.0.1:0",
        ];
        let server = serve(&authority, &more);
        // Silent, in the middle of a record, and not TLS at all. As many as there are acceptors, no
        // more.
        let mut held = [
            &b""[..],
            b"\x16\x03\x01\x01\x00\x01",
            b"GET / HTTP/1.1\r\n\r\n",
        ]
        .map(|bytes| {
            let mut stream = TcpStream::connect(address(&server)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            stream.write_all(bytes).unwrap();
            stream
        });

        // Its own handshake has as little time, on a machine that may be busy: it tries again.
        eventually("an answer", || {
            try_ask(&mut connect(&authority, &server), "/Cargo.toml")
                .is_ok_and(|head| head.starts_with("HTTP/1.1 200"))
        });
        let said = held.each_mut().map(|stream| {
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            text
        });

        assert!(said[0].is_empty() && said[1].is_empty(), "{said:?}");
        assert!(
            said[2].starts_with("HTTP/1.1 400 Bad Request\r\n")
                && said[2].ends_with("https:// and try again")
        );
        let admin = admin(&server);
        eventually("three failures", || {
            figure(admin, "plainweave_tls_handshakes_failed_total") >= 3.0
        });
        assert!(figure(admin, "plainweave_tls_handshakes_total") >= 1.0);
        assert!(figure(admin, "plainweave_tls_expiry_seconds") > 4e9);
    }
}

/// More clients begin a handshake at once than there is memory for: one that is connected is served
/// all the same.
#[test]
fn a_crowd_of_handshakes_does_not_refuse_requests() {
    const CROWD: usize = 100;
    let authority = Authority::new();
    for io in ["epoll", "uring"] {
        let flags = [
            "--io",
            io,
            "--workers",
            "1",
            "--max-memory",
            "24m",
            "--admin",
            "127.0.0.1:0",
        ];
        let server = serve(&authority, &flags);
        let admin = admin(&server);
        let most = figure(admin, "plainweave_requests_in_progress_max") as usize;
        assert!(most * 2 < CROWD, "{most}");
        let mut established = connect(&authority, &server);

        ask(&mut established, "/Cargo.toml");
        let mut crowd: Vec<Client> = (0..CROWD).map(|_| connect(&authority, &server)).collect();
        eventually("all connections", || {
            figure(admin, "plainweave_connections") as usize == CROWD + 1
        });

        // All of them say hello before the server looks.
        let paused = server.paused();
        for client in &mut crowd {
            client.conn.write_tls(&mut client.sock).unwrap();
        }
        write!(
            established,
            "GET /Cargo.toml HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        .unwrap();
        drop(paused);
        let mut status = [0; 15];

        established.read_exact(&mut status).unwrap();
        assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 200 OK");

        // Each of the crowd goes on, or is closed and counted.
        let served = crowd.iter_mut().map(|client| {
            try_ask(client, "/Cargo.toml").is_ok_and(|head| head.starts_with("HTTP/1.1 200 "))
        });
        let closed = served.filter(|served| !served).count();
        assert!(closed > 0 && closed < CROWD, "{closed}");
        assert_eq!(
            figure(admin, "plainweave_tls_handshakes_shed_total") as usize,
            closed
        );
        assert_eq!(
            figure(admin, "plainweave_tls_handshakes_total") as usize,
            CROWD + 1 - closed
        );
        assert_eq!(figure(admin, "plainweave_requests_shed_total"), 0.0);
    }
}

#[test]
fn errors_name_the_remedy() {
    let authority = Authority::new();
    let [_, chain, _, key] = authority.certify("good", &["localhost"], NOW);
    let [_, old, _, old_key] = authority.certify("old", &["localhost"], PAST);
    let chain = chain.as_str();

    for (args, code, said) in [
        (&["--tls-cert", chain][..], 2, "--tls-key"),
        (&["--tls-key", &key], 2, "--tls-cert"),
        (&["--tls-listen", "8443"], 2, "--tls-cert"),
        (&["--https-redirect"], 2, "--tls-cert"),
        (&["--hsts", "1"], 2, "--tls-cert"),
        (
            &["--tls-cert", chain, "--tls-key", &key, "--tls-cert", chain],
            1,
            "give a key for each certificate",
        ),
        (
            &["--tls-cert", chain, "--tls-key", &old_key],
            1,
            "does not belong to the key in",
        ),
        (
            &["--tls-cert", &old, "--tls-key", &old_key],
            1,
            "has expired on Tue, 01 Jan 2002 00:00:00 GMT (renew it)",
        ),
        (
            &["--tls-cert", "/none.pem", "--tls-key", &key],
            1,
            "/none.pem: cannot be read: No such file",
        ),
        (
            &["--tls-cert", &key, "--tls-key", &key],
            1,
            "there is no certificate in it",
        ),
        (
            &["--tls-cert", chain, "--tls-key", chain],
            1,
            "there is no private key in it",
        ),
        (
            &[
                "--tls-cert",
                chain,
                "--tls-key",
                &key,
                "--tls-client-ca",
                &key,
            ],
            1,
            "there is no authority's certificate",
        ),
        (
            &["--tls-cert", chain, "--tls-key", &key, "--hsts", "long"],
            2,
            "--hsts",
        ),
        (
            &[
                "--tls-cert",
                chain,
                "--tls-key",
                &key,
                "--tls-client-ca",
                chain,
                "--listen",
                "127.0.0.1:0",
            ],
            1,
            "--listen 127.0.0.1:0 would serve clients without the certificate that --tls-client-ca asks for (leave",
        ),
    ] {
        let (got, text) = output(args);
        assert!(
            got == Some(code) && text.contains(said),
            "{args:?}: {got:?} {text}"
        );
    }
}

/// Beside an address for TLS there is one without only if it is given.
#[test]
fn addresses_are_those_that_are_given() {
    let authority = Authority::new();
    let pair = authority.certify("localhost", &["localhost"], NOW);
    let mut command = crate::common::command(&pair.iter().map(String::as_str).collect::<Vec<_>>());
    command
        .args(["--tls-listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child::Kept::spawn(&mut command).unwrap();
    let mut line = String::new();

    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(
        line.contains(" on https://127.0.0.1:") && !line.contains("http://"),
        "{line}"
    );
}

#[test]
fn chromium_loads_a_page() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let Some(program) = names.into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    }) else {
        skip::skip("Chromium is not installed");
        return;
    };

    let authority = Authority::new();
    let log = authority.path("access.log");
    let server = serve(&authority, &["--https-redirect", "--access-log", &log]);

    for (url, lines) in [
        (format!("https://{}/", address(&server)), 1),
        (format!("http://{}/", server.address), 2),
    ] {
        let mut chromium = Command::new(program);
        chromium.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--ignore-certificate-errors",
        ]);
        chromium
            .arg(format!("--user-data-dir={}", authority.path("profile")))
            .arg("--dump-dom")
            .arg(url);
        let dom = child::output(&mut chromium).unwrap();
        let dom = String::from_utf8_lossy(&dom.stdout);

        assert!(
            dom.contains("Cargo.toml") && dom.contains("<table"),
            "{dom}"
        );
        let by_http2 = || {
            fs::read_to_string(&log)
                .is_ok_and(|log| log.matches("\"GET / HTTP/2.0\" 200").count() >= lines)
        };

        eventually(
            "a line of the access log for a request over HTTP/2",
            by_http2,
        );
    }
}
