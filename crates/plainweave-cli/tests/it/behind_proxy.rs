//! `plainweave web` behind a proxy: a Unix socket, whose address is logged, and another user.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;

use crate::common::child::Kept;
use crate::common::scratch::Scratch;
use crate::common::{Running, ask, eventually, lines_of, output, rest};

const DRIVERS: [&str; 2] = ["epoll", "uring"];
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory with a file.
fn site() -> Scratch {
    let site = Scratch::new();
    site.file("f", "here");
    site
}

/// Sends and reads until the answer to each GET is there.
fn exchange(stream: &mut (impl Read + Write), request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let mut buf = [0; 4096];

    while text.matches("\r\n\r\nhere").count() < request.matches("GET ").count() {
        let len = stream.read(&mut buf).unwrap();
        assert!(len > 0, "{text}");
        text.push_str(str::from_utf8(&buf[..len]).unwrap());
    }

    text
}

#[test]
fn a_unix_socket_is_served_beside_a_port() {
    const GET: &str = "GET /f HTTP/1.1\r\nHost: h\r\n\r\n";
    for driver in DRIVERS {
        for architecture in [&[][..], &["--architecture", "fibers"]] {
            let site = site();
            let folder = Scratch::new();
            let socket = folder.path("web.sock");
            let log = folder.path("log");

            // Left behind by one that was killed.
            drop(UnixListener::bind(&socket).unwrap());
            let flags = [
                "--unix-socket",
                &socket,
                "--unix-mask",
                "660",
                "--access-log",
                &log,
            ];
            let flags = [&flags, &["--io", driver][..], architecture].concat();
            let server = Running::start_in(site.root(), &flags);

            assert!(
                server.line.contains(&format!("unix:{socket}")),
                "{}",
                server.line
            );
            let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o660);

            let mut clients: Vec<_> = (0..20)
                .map(|_| UnixStream::connect(&socket).unwrap())
                .collect();
            for _ in 0..2 {
                for client in &mut clients {
                    client.set_read_timeout(Some(PATIENCE)).unwrap();
                    assert!(exchange(client, &GET.repeat(2)).starts_with("HTTP/1.1 200 OK"));
                }
            }

            assert!(exchange(&mut server.connect(), GET).starts_with("HTTP/1.1 200 OK"));
            let lines = lines_of(&log, 81);
            let of_unix = lines.iter().filter(|line| line.starts_with("- - - ["));
            assert_eq!(of_unix.count(), 80, "{lines:?}");

            server.signal();
            assert_eq!(server.end().0, Some(0));
            assert!(UnixStream::connect(&socket).is_err(), "the file is gone");
        }
    }
}

#[test]
fn a_unix_socket_may_be_all() {
    let site = site();
    let folder = Scratch::new();
    let socket = folder.path("web.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.args([
        "web",
        site.root().to_str().unwrap(),
        "--unix-socket",
        &socket,
    ]);
    let child = Kept::spawn(command.stdout(Stdio::null())).unwrap();

    eventually("the socket", || UnixStream::connect(&socket).is_ok());
    let mut client = UnixStream::connect(&socket).unwrap();

    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(exchange(&mut client, "GET /f HTTP/1.1\r\nHost: h\r\n\r\n").contains("200 OK"));
    // It is a proxy's, whose clients are the world: nothing is listed unless a flag says so.
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 404"), "{text}");
    drop(child);

    let (code, said) = output(&[
        site.root().to_str().unwrap(),
        "--unix-socket",
        &site.path("f"),
    ]);
    assert!(
        code == Some(1) && said.contains("is not a socket") && said.contains("--unix-socket"),
        "{said}"
    );
}

#[test]
fn the_proxy_protocol_says_who_asks() {
    let site = site();
    for driver in DRIVERS {
        let folder = Scratch::new();
        let log = folder.path("log");
        let flags = [
            "--behind-proxy",
            "proxy-protocol",
            "--access-log",
            &log,
            "--io",
            driver,
        ];
        let server = Running::start_in(site.root(), &flags);
        let header = "PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n";
        let request = format!("{header}GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut stream = server.connect();

        // In pieces, so that it waits for the rest without a fiber.
        let (first, second) = request.split_at(9);
        stream.write_all(first.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(exchange(&mut stream, second).contains("200 OK"));
        assert!(lines_of(&log, 1)[0].starts_with("192.0.2.7 - - ["));

        // Without one.
        let mut stream = server.connect();
        stream
            .write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        assert_eq!(rest(stream), "");

        // From somebody who is no proxy.
        let flags = [&flags[..2], &["--trusted-proxies", "10.0.0.0/8"]].concat();
        let server = Running::start_in(site.root(), &flags);
        assert!(is_turned_away(server.connect(), &request));
    }
}

/// Whether nothing is answered.
fn is_turned_away(mut stream: TcpStream, request: &str) -> bool {
    let _ = stream.write_all(request.as_bytes());
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text.is_empty()
}

#[test]
fn fields_say_who_asks() {
    let site = site();
    for (how, field) in [
        ("x-forwarded-for", "X-Forwarded-For: 6.6.6.6, 192.0.2.7"),
        (
            "forwarded",
            "Forwarded: for=6.6.6.6, for=\"192.0.2.7:4711\"",
        ),
    ] {
        let request = format!("GET /f HTTP/1.1\r\nHost: h\r\n{field}\r\nConnection: close\r\n\r\n");
        for (trusted, expected) in [("127.0.0.1", "192.0.2.7 - - ["), ("::1", "127.0.0.1 - - [")] {
            let folder = Scratch::new();
            let log = folder.path("log");
            let socket = folder.path("web.sock");
            let flags = ["--behind-proxy", how, "--trusted-proxies", trusted];
            let flags = [
                &flags[..],
                &["--access-log", &log, "--unix-socket", &socket],
            ]
            .concat();
            let server = Running::start_in(site.root(), &flags);

            assert!(ask(server.address, &request).starts_with("HTTP/1.1 200"));
            assert!(
                lines_of(&log, 1)[0].starts_with(expected),
                "{how} {trusted}"
            );

            // Over a Unix socket comes only a proxy.
            let mut client = UnixStream::connect(&socket).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            client.read_to_string(&mut String::new()).unwrap();
            assert!(
                lines_of(&log, 2)[1].starts_with("192.0.2.7 - - ["),
                "{how} {trusted}"
            );
        }
    }

    for flags in [
        &["--trusted-proxies", "10.0.0.0/8"][..],
        &[
            "--behind-proxy",
            "forwarded",
            "--trusted-proxies",
            "10.0.0.0/33",
        ],
        &["--behind-proxy", "forwarded", "--max-per-address", "5"],
    ] {
        assert_eq!(output(flags).0, Some(2), "{flags:?}");
    }
}

#[test]
fn root_becomes_the_user_once_all_is_open() {
    let site = site();
    let folder = Scratch::new();
    for folder in [&site, &folder] {
        std::fs::set_permissions(folder.root(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let socket = folder.path("web.sock");
    let log = folder.path("log");
    let flags = [
        "-u",
        "nobody",
        "--unix-socket",
        &socket,
        "--access-log",
        &log,
    ];
    let server = Running::start_in(site.root(), &flags);
    let text = ask(
        server.address,
        "GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    );

    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert_eq!(lines_of(&log, 1).len(), 1);
    if geteuid().is_root() {
        let nobody = std::fs::metadata(&socket).unwrap().uid();
        assert_ne!(nobody, 0, "the socket is the user's");

        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
        for task in tasks {
            let status = task.unwrap().path().join("status");
            let Ok(status) = std::fs::read_to_string(status) else {
                continue;
            };
            let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
            let expected = vec![nobody.to_string(); 4].join("\t");
            assert_eq!(users.unwrap().trim(), expected, "of each thread");
        }

        let (code, said) = output(&["-u", "no-such-user", "--listen", "127.0.0.1:0"]);
        assert!(
            code == Some(1) && said.contains("no user no-such-user"),
            "{said}"
        );
    }

    server.signal();
    let (code, said) = server.end();
    let is_ignored = said.contains("-u nobody is ignored");
    assert!(
        code == Some(0) && is_ignored != geteuid().is_root(),
        "{said}"
    );
}
