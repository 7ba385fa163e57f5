//! `plainweave web` as its users run it.

use crate::common::skip;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::common::{Running, output, rest};

#[test]
fn serves_and_says_what() {
    let server = Running::start(&[]);
    for said in [
        env!("CARGO_MANIFEST_DIR"),
        "127.0.0.1:",
        "driver",
        "workers",
        "policy",
    ] {
        assert!(server.line.contains(said), "{}", server.line);
    }

    let mut stream = server.connect();
    stream
        .write_all(b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let text = rest(stream);
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("name = \"plainweave-cli\""),
        "{text}"
    );
    server.signal();
    assert_eq!(server.end(), (Some(0), String::new()));
}

/// Whoever can reach only this machine's own address may see what there is.
#[test]
fn directories_are_listed_on_loopback() {
    for (args, listed) in [
        (&[][..], true),
        (&["--listen", "[::1]:0"], true),
        (&["--no-listing"], false),
        (&["--fallback", "/Cargo.toml"], false),
        (&["--listen", "0.0.0.0:0"], false),
        (&["--listen", "0.0.0.0:0", "--listing"], true),
    ] {
        let server = Running::start(args);
        assert_eq!(
            server.line.contains("directories are listed"),
            listed,
            "{}",
            server.line
        );
        let mut stream = server.connect();
        stream
            .write_all(b"GET /src/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .unwrap();
        let text = rest(stream);

        // The fallback is there in place of 404.
        let status = if listed || args.contains(&"--fallback") {
            "200 OK"
        } else {
            "404 Not Found"
        };

        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{args:?}: {text}"
        );
        assert_eq!(text.contains("tips.rs"), listed, "{args:?}: {text}");
    }
}

#[test]
fn sends_what_the_flags_say() {
    let server = Running::start(&[
        "--listing",
        "--fallback",
        "/Cargo.toml",
        "--error-page",
        "405=/src/main.rs",
    ]);
    for (request, fields, status, said) in [
        (
            "GET /src/?format=json",
            "",
            "200 OK",
            "{\"name\":\"main.rs\",",
        ),
        (
            "GET /page",
            "Accept: text/html\r\n",
            "200 OK",
            "name = \"plainweave-cli\"",
        ),
        ("GET /page", "", "200 OK", "name = \"plainweave-cli\""),
        ("GET /page.js", "", "404 Not Found", "404 Not Found"),
        ("POST /", "", "405 Method Not Allowed", "fn main()"),
    ] {
        let mut stream = server.connect();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"
        )
        .unwrap();
        let text = rest(stream);
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}\r\n")) && text.contains(said),
            "{request}: {text}"
        );
    }
}

#[test]
fn stops_gracefully() {
    let server = Running::start(&[]);
    let idle = server.connect();
    let mut kept = server.connect();
    let mut busy = server.connect();
    kept.write_all(b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    kept.read_exact(&mut [0]).unwrap();
    busy.write_all(b"GET /Cargo.toml HTTP/1.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200)); // The server has the beginning of it in hand.
    server.signal();
    assert_eq!(rest(idle), "");
    assert!(!rest(kept).is_empty());
    assert!(TcpStream::connect(server.address).is_err());
    busy.write_all(b"Host: h\r\n\r\n").unwrap();
    let text = rest(busy);

    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("Connection: close\r\n"),
        "{text}"
    );
    assert_eq!(server.end(), (Some(0), String::new()));
}

/// Clients that have the next request ready at once do not keep the server, whoever waits for them.
#[test]
fn clients_that_are_never_idle_do_not_delay_a_stop() {
    for io in ["--io=epoll", "--io=uring"] {
        for style in [&[][..], &["--architecture", "fibers"]] {
            let server = Running::start(&[&[io, "--grace", "60s"], style].concat());
            let hammering: Vec<_> = (0..4)
                .map(|_| {
                    let mut client = server.connect();
                    std::thread::spawn(move || {
                        let mut answers = 0;
                        let mut buf = [0; 4096];
                        while client
                            .write_all(b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n")
                            .is_ok()
                            && client.read(&mut buf).is_ok_and(|len| len > 0)
                        {
                            answers += 1;
                        }
                        answers
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100)); // They are at it.
            server.signal();
            assert_eq!(server.end(), (Some(0), String::new()), "{io} {style:?}");
            for client in hammering {
                assert!(client.join().unwrap() > 0);
            }
        }
    }
}

#[test]
fn a_stop_has_a_deadline() {
    let server = Running::start(&["--grace", "200ms"]);
    let mut busy = server.connect();
    busy.write_all(b"GET /").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    server.signal();
    let (code, said) = server.end();

    assert!(
        code == Some(0) && said.contains("--grace"),
        "{code:?} {said}"
    );
    drop(busy);
}

/// The example of `--help`, and the log tells the same client by the same address on either.
#[test]
fn both_families_have_the_same_port() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skip::skip("this machine has no IPv6");
    }
    // Below those that the kernel hands out to other tests.
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| {
        ["0.0.0.0", "::1"].map(|host| TcpListener::bind((host, *port)).is_ok()) == [true; 2]
    };
    let port = (first..).find(is_free).unwrap();
    let v4 = format!("0.0.0.0:{port}");
    let v6 = format!("[::]:{port}");
    let server = Running::start(&["--listen", &v4, "--listen", &v6]);

    for host in ["127.0.0.1", "[::1]"] {
        let address = format!("{host}:{port}").parse().unwrap();
        assert!(
            crate::common::get(address, "/Cargo.toml").contains("name = \"plainweave-cli\""),
            "{host}"
        );
    }

    drop(server);

    // Alone it is for IPv6 alone, as that of nginx and of `plainweave cache`. On another port: the
    // kernel may still be closing the ring that waits at the first one's socket.
    let port = (port + 1..).find(is_free).unwrap();
    let server = Running::start(&["--listen", &format!("[::]:{port}")]);
    assert!(
        TcpStream::connect(("::1", port)).is_ok()
            && TcpStream::connect(("127.0.0.1", port)).is_err()
    );
    drop(server);
}

#[test]
fn errors_name_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (args, code, said) in [
        (
            &["--listen", &address][..],
            1,
            "choose another with --listen",
        ),
        (&["--listen", "203.0.113.1:8080"], 1, "no such address"),
        (
            &["--listen", "127.0.0.1:9", "--listen", "9"],
            1,
            "cannot listen on 127.0.0.1:9 twice",
        ),
        (&["/no/such/directory"], 1, "give an existing directory"),
        (&["Cargo.toml"], 1, "give an existing directory"),
        (&["--listen", "nonsense"], 2, "write ADDRESS:PORT"),
        (&["--header-timeout", "0"], 2, "positive number"),
        (
            &["--fallback", "/none.html"],
            1,
            "give a file of the directory",
        ),
        (&["--error-page", "404=/src"], 1, "not a regular file"),
        (
            &["--error-page", "200=/Cargo.toml"],
            2,
            "an error status and a path",
        ),
        (
            &["--error-page", "414=/Cargo.toml"],
            2,
            "no error page is ever sent with 414; give one of 400, 403",
        ),
        (&["--workers", "0"], 2, "--workers"),
        (
            &["--listing", "--no-listing"],
            2,
            "cannot be used with '--no-listing'",
        ),
        (&["--frobnicate"], 2, "--frobnicate"),
    ] {
        let (got, text) = output(args);
        assert!(
            got == Some(code) && text.contains(said),
            "{args:?}: {got:?} {text}"
        );
    }
}

#[test]
fn help_is_complete() {
    let (code, text) = output(&["--help"]);
    assert_eq!(code, Some(0));
    for said in [
        "What to serve",
        "Where to listen",
        "Runtime",
        "Timeouts and limits",
        "Examples:",
        "[default: 10s]",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}
