//! A reload of the configuration: taken up as a whole or not at all, and nothing is lost by it.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::backend::Backend;
use crate::common::scratch::Scratch;
use crate::common::{Running, child, command, get, hang_up};

/// A server by a file, whose header field `X-N` the tests change.
struct Configured {
    scratch: Scratch,
    server: Running,
    said: BufReader<ChildStderr>,
}

fn settings(n: usize) -> String {
    format!("root = \"www\"\n[[rule]]\nset-headers = {{ X-N = \"{n}\" }}\n")
}

impl Configured {
    fn start(more: &str) -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.root().join("www")).unwrap();
        scratch.file("www/index.html", "a page");
        scratch.file("www/large", vec![b'x'; 32 << 20]);
        let file = scratch.file("web.toml", format!("{more}{}", settings(0)));
        let listen = ["--config", &file, "--listen", "127.0.0.1:0"];
        let mut server = Running::spawn(command(&listen));
        let said = BufReader::new(server.child.stderr.take().unwrap());
        Self {
            scratch,
            server,
            said,
        }
    }

    /// Has it read this text, and returns what it says.
    fn reload(&mut self, text: &str) -> String {
        self.scratch.file("web.toml", text);
        hang_up(&self.server, &mut self.said)
    }
}

/// Reads one answer of `index.html` from a connection that stays open.
fn one_answer(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")?;
    let mut text = Vec::new();
    while !text.ends_with(b"a page") {
        let mut piece = [0; 512];
        let len = stream.read(&mut piece)?;
        if len == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }

        text.extend_from_slice(&piece[..len]);
    }

    Ok(String::from_utf8(text).unwrap())
}

fn connect(server: &Running) -> TcpStream {
    let stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

#[test]
fn a_hundred_reloads_lose_no_request() {
    const RELOADS: usize = 100;
    let mut configured = Configured::start("");
    let address = configured.server.address;
    let done = AtomicBool::new(false);
    let mut kept = connect(&configured.server);
    one_answer(&mut kept).unwrap();
    let mut download = connect(&configured.server);
    download
        .write_all(b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();

    thread::scope(|scope| {
        let load = || {
            let mut answers = 0;
            let mut stream = TcpStream::connect(address).unwrap();
            let limit = Some(Duration::from_secs(60));
            stream.set_read_timeout(limit).unwrap();
            while !done.load(Ordering::Relaxed) {
                let text = one_answer(&mut stream).expect("an answer");
                assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
                assert!(text.contains("\r\nX-N: "), "{text}");
                // Connections that begin are lost as little as those that are kept.
                if answers % 8 == 0 {
                    assert!(get(address, "/").ends_with("a page"));
                }
                answers += 1;
            }
            answers
        };

        let loads: Vec<_> = (0..3).map(|_| scope.spawn(load)).collect();
        let end = Ended(&done);
        for n in 1..=RELOADS {
            let line = configured.reload(&settings(n));
            assert!(line.contains("web.toml is loaded, 1 site\n"), "{line}");
        }

        drop(end);
        for load in loads {
            assert!(load.join().expect("no loss") > 0);
        }
    });

    let text = one_answer(&mut kept).expect("the connection is kept");
    assert!(text.contains(&format!("\r\nX-N: {RELOADS}\r\n")), "{text}");
    let mut body = Vec::new();
    download.read_to_end(&mut body).unwrap();
    let head = body
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    assert_eq!(body.len() - head - 4, 32 << 20);
}

/// Streams of HTTP/2 and connections that an application has taken over go on as well.
#[test]
fn streams_and_web_sockets_outlast_a_hundred_reloads() {
    let application = Backend::start(|_, stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut piece = [0; 64];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            if stream.write_all(&piece[..len]).is_err() {
                break;
            }
        }
        false
    });
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nservers = [\"{}\"]\n\
         [[rule]]\npath = \"/chat\"\nproxy = \"app\"\n",
        application.address
    );
    let mut configured = Configured::start("");
    let line = configured.reload(&(settings(0) + &upstream));
    assert!(line.contains("is loaded"), "{line}");

    let mut socket = connect(&configured.server);
    let request = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    let mut rest = Vec::new();
    while !rest.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        rest.push(byte[0]);
    }

    // So slow that it is on its way all the time.
    let url = format!("http://{}/large", configured.server.address);
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "--http2-prior-knowledge",
        "--max-time",
        "60",
        "-o",
        "/dev/null",
    ])
    .args([
        "--limit-rate",
        "16M",
        "-w",
        "%{http_version} %{size_download}",
        &url,
    ]);
    let download = thread::spawn(move || child::output(&mut curl).unwrap());

    for n in 1..=100 {
        let line = configured.reload(&(settings(n) + &upstream));
        assert!(line.contains("is loaded"), "{line}");
        let said = format!("message {n:03}");
        socket.write_all(said.as_bytes()).unwrap();
        let mut heard = vec![0; said.len()];
        socket.read_exact(&mut heard).unwrap();
        assert_eq!(heard, said.as_bytes());
    }

    let output = download.join().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("2 {}", 32 << 20));
}

/// Ends the load, if only by a panic.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_bad_file_is_refused_and_the_old_one_stays() {
    let mut configured = Configured::start("");
    for (text, said) in [
        (
            "root = \"www\"\nlisen = 1\n",
            ":2:1: unknown key `lisen`; is `listen` meant?; the sites stay as they were\n",
        ),
        (
            "root = \"www\"\n[[rule]]\npath = \"x\"\n",
            ":3:8: paths begin with /",
        ),
        ("root = \"gone\"\n", "cannot serve"),
        ("listing = true\nno-listing = true\n", "cannot be used with"),
        (
            "[[rule]]\nrate = { requests = 1, per = \"4294967295h\", burst = 4294967295 }\n",
            ":2:8: no clock",
        ),
        ("root = [", "array"),
    ] {
        let line = configured.reload(text);
        assert!(
            line.starts_with("plainweave web: SIGHUP: ") && line.contains(said),
            "{line}"
        );

        assert!(line.contains("; the sites stay as they were"), "{line}");
        let answer = get(configured.server.address, "/");
        assert!(
            answer.contains("\r\nX-N: 0\r\n") && answer.ends_with("a page"),
            "{answer}"
        );
    }

    fs::remove_file(configured.scratch.path("web.toml")).unwrap();
    let line = hang_up(&configured.server, &mut configured.said);
    assert!(line.contains("cannot be read"), "{line}");
    assert!(get(configured.server.address, "/").ends_with("a page"));
    let line = configured.reload(&settings(1));
    assert!(line.contains("is loaded"), "{line}");
    assert!(get(configured.server.address, "/").contains("\r\nX-N: 1\r\n"));
}

/// Sites come and go; what is for the server itself is said to wait.
#[test]
fn a_reload_takes_up_sites_and_says_what_waits() {
    let mut configured = Configured::start("idle-timeout = \"9s\"\n");
    fs::create_dir(configured.scratch.root().join("other")).unwrap();
    configured.scratch.file("other/index.html", "another page");
    let address = configured.server.address;
    let text = "idle-timeout = \"10s\"\nlisten = [\"127.0.0.1:1\"]\n\
                [[site]]\nnames = [\"other\"]\nroot = \"other\"\n\
                [[site]]\nnames = [\"*\"]\nroot = \"www\"\nindex = \"none\"\n\
                fallback = \"/index.html\"\n";
    let line = configured.reload(text);
    let waits = "2 sites; what it says of idle-timeout is for the next start\n";
    assert!(line.ends_with(waits), "{line}");
    let ask = |host: &str| {
        let request = format!("GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        crate::common::ask(address, &request)
    };

    assert!(ask("h").ends_with("a page"));
    assert!(ask("other").starts_with("HTTP/1.1 404 "));
    assert!(get(address, "/").ends_with("a page"));
    let line = configured.reload(&settings(3));
    assert!(line.contains("1 site"), "{line}");
    assert!(ask("other").contains("\r\nX-N: 3\r\n"));
}

/// An emptied file does not mean the current directory.
#[test]
fn a_file_without_sites_does_not_replace_those_that_there_are() {
    let site = "[[site]]\nnames = [\"*\"]\nroot = \"www\"\n";
    let mut configured = Configured::start("");
    let line = configured.reload(&format!(
        "[[site]]\nnames = [\"a\"]\nroot = \"www\"\n{site}"
    ));
    assert!(line.contains("2 sites"), "{line}");
    for text in ["", "# all is commented out\n", "[[rule]]\n"] {
        let line = configured.reload(text);
        let refused = line.contains("no [[site]] is left") && line.contains("stay as they were");
        assert!(refused, "{line}");
        assert!(get(configured.server.address, "/").ends_with("a page"));
    }
    let line = configured.reload("root = \"www\"\n");
    assert!(line.contains("1 site"), "{line}");
}

/// A site whose directory has gone is said to have, though nothing of it has changed.
#[test]
fn a_reload_says_that_a_directory_has_gone() {
    let mut configured = Configured::start("");
    let root = configured.scratch.root().join("www");
    let away = configured.scratch.root().join("away");
    fs::rename(&root, &away).unwrap();
    let line = configured.reload(&settings(0));
    assert!(
        line.contains("www cannot be opened: ") && line.contains("stay as they were"),
        "{line}"
    );

    fs::rename(&away, &root).unwrap();
    let line = configured.reload(&settings(1));
    assert!(line.contains("is loaded"), "{line}");
    assert!(get(configured.server.address, "/").ends_with("a page"));
}
