//! Applications behind the server: what they are asked, and what becomes of their answers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::backend::{Backend, Conversation, body, converse, field};
use crate::common::scratch::Scratch;
use crate::common::{Running, admin, ask, command, eventually, figure, get, hang_up, output};

/// Says what it was asked: the request line, and the body.
fn echoing(head: &str, stream: &mut dyn Conversation) -> bool {
    let body = body(head, stream);
    let line = head.lines().next().unwrap();
    let text = format!("{line} {}", String::from_utf8_lossy(&body));
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
    .is_ok()
}

/// Sends this for each request, and keeps the connection.
fn saying(text: impl Into<Vec<u8>>) -> impl Fn(&str, &mut dyn Conversation) -> bool + Send + Sync {
    let text = text.into();
    move |_, stream| stream.write_all(&text).is_ok()
}

/// A server by a configuration, with `BACKEND` replaced.
fn start(settings: &str, backend: &Backend) -> (Scratch, Running) {
    start_with(settings, backend, &[])
}

fn start_with(settings: &str, backend: &Backend, args: &[&str]) -> (Scratch, Running) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.root().join("www")).unwrap();
    scratch.file("www/index.html", "a file");
    let settings = settings.replace("BACKEND", &backend.address.to_string());
    let file = scratch.file("web.toml", settings);
    let args = [&["--config", &file, "--listen", "127.0.0.1:0"], args].concat();
    let server = Running::spawn(command(&args));
    (scratch, server)
}

const APP: &str = "[[upstream]]\nname = \"app\"\nservers = [\"BACKEND\"]\n\
                   [[site]]\nnames = [\"*\"]\nproxy = \"app\"\n";

/// The same with less patience.
const IMPATIENT: &str = "[[upstream]]\nname = \"app\"\nservers = [\"BACKEND\"]\n\
                         answer-timeout = \"300ms\"\nmax-fails = 100\n\
                         [[site]]\nnames = [\"*\"]\nproxy = \"app\"\n";

#[test]
fn a_request_is_written_anew() {
    let backend = Backend::start(echoing);
    let (_scratch, server) = start(APP, &backend);
    let answer = ask(
        server.address,
        "POST //a/b%2e?x=%2F&y HTTP/1.1\r\nHost: app.example:80\r\nX-Own: 1\r\nKeep-Alive: 5\r\n\
         Connection: close, X-Own\r\nX-Other: 2\r\nX-Forwarded-For: 6.6.6.6\r\n\
         x_forwarded_proto: ftp\r\nForwarded: for=6.6.6.6\r\nTE: trailers\r\nCookie: a=b\r\n\
         Cookie: c=d\r\nContent-Length: 4\r\n\r\nbody",
    );
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.ends_with("POST /a/b.?x=%2F&y HTTP/1.1 body"),
        "{answer}"
    );
    let head = &backend.heads()[0];
    for (name, value) in [
        ("host", Some("app.example:80")),
        ("x-other", Some("2")),
        ("x-own", None),
        ("keep-alive", None),
        ("connection", None),
        ("te", None),
        ("cookie", Some("a=b; c=d")),
        ("content-length", Some("4")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x_forwarded_proto", None),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("app.example:80")),
        (
            "forwarded",
            Some("for=127.0.0.1;host=\"app.example:80\";proto=http"),
        ),
    ] {
        assert_eq!(field(head, name), value, "{name} of {head}");
    }

    // A body in chunks stays one.
    let chunked = "PUT /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
                   Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let answer = ask(server.address, chunked);
    assert!(answer.ends_with("PUT /c HTTP/1.1 abcde"), "{answer}");
    assert_eq!(field(&backend.heads()[1], "content-length"), None);
}

/// What two readers could understand differently reaches no application, and what follows it does
/// not, either.
#[test]
fn what_is_ambiguous_is_refused() {
    let backend = Backend::start(echoing);
    let (_scratch, server) = start(APP, &backend);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length:\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "X: a\nTransfer-Encoding: chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
        "Host: other\r\n",
        "X\0: a\r\n",
        "X: a\0b\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n0\r\n\r\n{smuggled}");
        let answer = ask(server.address, &request);
        let refused = ["HTTP/1.1 400 ", "HTTP/1.1 501 "];
        assert!(
            refused.iter().any(|status| answer.starts_with(status)),
            "{fields}: {answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{fields}: {answer}");
    }
    assert_eq!(backend.heads(), Vec::<String>::new());

    // A body that is malformed behind a good head reaches it in part, and nothing behind it does.
    for bytes in [
        "5\r\nabc\r\n",
        "x\r\n",
        "1\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
    ] {
        let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = ask(server.address, &format!("{head}{bytes}{smuggled}"));
        assert!(answer.starts_with("HTTP/1.1 4"), "{bytes}: {answer}");
    }
    let heads = backend.heads();
    assert!(
        heads.iter().all(|head| head.starts_with("POST / ")),
        "{heads:?}"
    );

    for line in ["CONNECT h:80", "TRACE /"] {
        let request = format!("{line} HTTP/1.1\r\nHost: h:80\r\nConnection: close\r\n\r\n");
        let answer = ask(server.address, &request);
        assert!(answer.starts_with("HTTP/1.1 405 "), "{line}: {answer}");
    }

    // Two requests at once are two, each with its answer.
    let two = format!("{smuggled}GET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let answer = ask(server.address, &two);
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
    assert!(answer.ends_with("GET /2 HTTP/1.1 "), "{answer}");
}

const EARLY: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                       HTTP/1.1 204 No Content\r\nETag: \"x\"\r\n\r\n";
const SAME: &[u8] = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: \"x\"\r\n\r\n";
const LOST: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nServer: them\r\n\
                      Connection: x\r\nX: y\r\n\r\nlost";

#[test]
fn answers_of_all_kinds_are_passed_on() {
    let large = "0123456789".repeat(300_000);
    let sent = large.clone();
    let backend = Backend::start(move |head, stream| {
        let path = head.split(' ').nth(1).unwrap();
        let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sent.len());
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a\r\n\
                       Set-Cookie: b\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nTrailer: x\r\n\r\n";
        let is_head = head.starts_with("HEAD ");
        match path {
            "/large" if is_head => stream.write_all(whole.as_bytes()),
            "/large" => stream.write_all((whole + &sent).as_bytes()),
            "/chunked" => stream.write_all(chunked.as_bytes()),
            "/early" => stream.write_all(EARLY),
            "/same" => stream.write_all(SAME),
            "/lost" => stream.write_all(LOST),
            "/close" => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nto the end");
                return false;
            }
            "/old" => {
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold");
                return false;
            }
            _ => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        }
        .is_ok()
    });

    let (_scratch, server) = start(APP, &backend);
    let get = |path: &str| get(server.address, path);
    let answer = get("/large");
    assert!(answer.contains("\r\nContent-Length: 3000000\r\n"));
    assert!(answer.ends_with(&format!("\r\n\r\n{large}")));
    let head = ask(
        server.address,
        "HEAD /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    );
    assert!(head.contains("\r\nContent-Length: 3000000\r\n") && head.ends_with("\r\n\r\n"));
    let answer = get("/chunked");
    assert!(
        answer.ends_with("\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
        "{answer}"
    );
    assert_eq!(
        answer.to_lowercase().matches("\r\nset-cookie: ").count(),
        2,
        "{answer}"
    );
    let answer = get("/early");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert!(
        answer.to_lowercase().contains("\r\netag: \"x\"\r\n"),
        "{answer}"
    );
    let answer = get("/same");
    assert!(
        answer.starts_with("HTTP/1.1 304 ") && !answer.contains("Content-Length"),
        "{answer}"
    );
    let answer = get("/lost");
    assert!(
        answer.starts_with("HTTP/1.1 404 ") && answer.ends_with("\r\n\r\nlost"),
        "{answer}"
    );
    assert!(
        answer.contains("\r\nServer: plainweave/") && !answer.contains("\r\nX: y"),
        "{answer}"
    );
    assert!(get("/close").ends_with("to the end\r\n0\r\n\r\n"));
    assert!(get("/old").ends_with("\r\n\r\nold"));
    // All over one connection, but for those after which it was closed.
    assert_eq!(backend.connections(), 2);
}

/// Server-sent events come as they are said.
#[test]
fn what_an_application_says_bit_by_bit_comes_bit_by_bit() {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let backend = Backend::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for _ in 0..3 {
            stream.write_all(b"9\r\ndata: x\n\n\r\n").unwrap();
            let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(30));
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });

    let (_scratch, server) = start(APP, &backend);
    let mut stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut got = Vec::new();
    for n in 1..=3 {
        let seen = |got: &[u8]| String::from_utf8_lossy(got).matches("data: x\n\n").count();
        while seen(&got) < n {
            let mut piece = [0; 512];
            let len = stream.read(&mut piece).unwrap();
            assert!(len > 0, "the end after {n} events");
            got.extend_from_slice(&piece[..len]);
        }
        assert_eq!(seen(&got), n);
        go_on.send(()).unwrap();
    }
    stream.read_to_end(&mut got).unwrap();
    assert!(got.ends_with(b"0\r\n\r\n"));
}

#[test]
fn lies_and_silence_are_answered_for() {
    for (said, status) in [
        ("", 502),
        ("HTTP/1.1 200 OK\r\nContent-Le", 502),
        ("nonsense\r\n\r\n", 502),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            502,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            502,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", 502),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", 502),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            502,
        ),
        ("HTTP/1.1 099 Odd\r\n\r\n", 502),
    ] {
        let text = said.to_owned();
        let backend = Backend::start(move |_, stream| {
            let _ = stream.write_all(text.as_bytes());
            false
        });
        let (_scratch, server) = start(IMPATIENT, &backend);
        let answer = get(server.address, "/");
        let line = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&line), "{said:?}: {answer}");
    }

    // What begins well and then breaks off must not look whole.
    let long = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}",
        "x".repeat(50_000)
    );
    for broken in [
        long,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n\r\n".to_owned(),
    ] {
        let backend = Backend::start(move |_, stream| {
            let _ = stream.write_all(broken.as_bytes());
            false
        });
        let (_scratch, server) = start(IMPATIENT, &backend);
        let mut stream = server.connect();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        assert!(got.starts_with(b"HTTP/1.1 200 "));
        assert!(got.len() < 100_000 && !got.ends_with(b"0\r\n\r\n"));
    }

    let backend = Backend::start(|_, _| {
        thread::sleep(Duration::from_secs(20));
        false
    });
    let (_scratch, server) = start(IMPATIENT, &backend);
    assert!(get(server.address, "/").starts_with("HTTP/1.1 504 "));

    // One byte now and then is as good as silence.
    let backend = Backend::start(|_, stream| {
        (0..100).all(|_| {
            thread::sleep(Duration::from_millis(50));
            stream.write_all(b"H").is_ok()
        })
    });
    let (_scratch, server) = start(IMPATIENT, &backend);
    let answer = get(server.address, "/");
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
}

/// What an application sends beyond its answer belongs to nobody.
#[test]
fn an_answer_too_many_reaches_no_client() {
    let double = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none\
                  HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo";
    let backend = Backend::start(saying(double));
    let (_scratch, server) = start(APP, &backend);
    for _ in 0..20 {
        assert!(get(server.address, "/").ends_with("\r\n\r\none"));
    }
    // The same with no content, where a client expects none.
    let head = "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    for _ in 0..5 {
        assert!(ask(server.address, head).ends_with("\r\n\r\n"));
        assert!(get(server.address, "/").ends_with("\r\n\r\none"));
    }
}

#[test]
fn an_application_may_answer_before_it_has_seen_all() {
    let backend = Backend::start(|_, stream| {
        let refusal = "HTTP/1.1 413 Payload Too Large\r\nContent-Length: 8\r\n\r\ntoo much";
        let _ = stream.write_all(refusal.as_bytes());
        thread::sleep(Duration::from_millis(500));
        false
    });
    let (_scratch, server) = start(APP, &backend);
    let mut stream = server.connect();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; 100_000];
    let sends = thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        move || (0..80).all(|_| stream.write_all(&piece).is_ok())
    });
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 413 Payload Too Large\r\n");
    drop(stream);
    let _ = sends.join();
}

#[test]
fn bodies_are_streamed_both_ways() {
    const LENGTH: usize = 12 << 20;
    let backend = Backend::start(|head, stream| {
        // What comes goes back at once, so neither side can keep all of it.
        let length: usize = field(head, "content-length").unwrap().parse().unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").unwrap();
        let mut left = length;
        let mut piece = vec![0; 64 << 10];
        while left > 0 {
            match stream.read(&mut piece) {
                Ok(len @ 1..) => left -= len,
                _ => return false,
            }
        }
        stream.write_all(b"taken").is_ok()
    });
    let (_scratch, server) = start(APP, &backend);
    let before = server.resident();
    let mut stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {LENGTH}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; 64 << 10];
    for _ in 0..LENGTH / piece.len() {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.ends_with("\r\n\r\ntaken"), "{answer}");
}

/// A request goes out twice only where that does no harm.
#[test]
fn what_may_be_repeated_is_and_nothing_else() {
    let backend = Backend::start(|head, stream| {
        let body = body(head, stream);
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .unwrap();
        stream.write_all(&body).unwrap();
        // It closes without a word, as applications do that have been idle.
        thread::sleep(Duration::from_millis(2));
        false
    });
    let (_scratch, server) = start(APP, &backend);
    for n in 0..50 {
        let answer = get(server.address, "/");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{n}: {answer}");
    }
    let heads = backend.heads().len();
    assert!(heads >= 50, "{heads}");

    let refuses = Backend::start(|head, stream| {
        let _ = body(head, stream);
        false
    });
    let (_scratch, server) = start(APP, &refuses);
    let post = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
    assert!(ask(server.address, post).starts_with("HTTP/1.1 502 "));
    assert_eq!(refuses.heads().len(), 1);
}

#[test]
fn a_server_that_is_down_gets_no_requests_until_it_is_back() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let good = Backend::start(echoing);
    let settings = format!(
        "[[upstream]]\nname = \"app\"\nservers = [\"{address}\", \"BACKEND\"]\n\
         fail-time = \"200ms\"\n\
         [[upstream]]\nname = \"gone\"\nservers = [\"{address}\"]\nfail-time = \"200ms\"\n\
         [[rule]]\npath = \"/gone/**\"\nproxy = \"gone\"\n\
         [[site]]\nnames = [\"*\"]\nproxy = \"app\"\n"
    );
    let (_scratch, server) = start_with(&settings, &good, &["--admin", "127.0.0.1:0"]);
    // Also what is not idempotent: it was not sent.
    for _ in 0..20 {
        let post = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        assert!(ask(server.address, post).starts_with("HTTP/1.1 200 "));
    }
    let admin = admin(&server);
    let up = |upstream: &str, address: SocketAddr| {
        let labels = format!("{{upstream=\"{upstream}\",server=\"{address}\"}}");
        figure(admin, &format!("plainweave_upstream_up{labels}"))
    };
    assert_eq!(up("app", good.address), 1.0);
    assert_eq!(up("app", address), 0.0);

    let statuses: Vec<_> = (0..6).map(|_| get(server.address, "/gone/x")).collect();
    assert!(statuses[0].starts_with("HTTP/1.1 502 "), "{}", statuses[0]);
    assert!(statuses[5].starts_with("HTTP/1.1 503 "), "{}", statuses[5]);
    assert!(
        statuses[5].contains("\r\nRetry-After: 1\r\n"),
        "{}",
        statuses[5]
    );

    // It comes back where it was.
    let back = Backend::on(TcpListener::bind(address).unwrap(), echoing);
    eventually("it gets requests again", || {
        get(server.address, "/gone/x").starts_with("HTTP/1.1 200 ")
    });
    assert!(!back.heads().is_empty());
    let name = "plainweave_upstream_requests_total{upstream=\"gone\",outcome=\"unavailable\"}";
    assert!(figure(admin, name) >= 1.0);
}

/// Clients that pause before their bodies keep no connection waiting, and say nothing of a server.
#[test]
fn a_client_that_pauses_harms_no_server() {
    let backend = Backend::start(|head, stream| {
        let kept = echoing(head, stream);
        thread::sleep(Duration::from_millis(50));
        // As applications do that close what is idle.
        kept && head.starts_with("POST")
    });
    let settings = APP.replace("[[site]]", "max-fails = 1\n[[site]]");
    let (_scratch, server) = start(&settings, &backend);
    for _ in 0..5 {
        assert!(get(server.address, "/").starts_with("HTTP/1.1 200 "));
        let mut stream = server.connect();
        let head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let heads = backend.heads().len();
        thread::sleep(Duration::from_millis(200));
        assert_eq!(backend.heads().len(), heads, "it is not asked yet");
        stream.write_all(b"abc").unwrap();
        let answer = crate::common::rest(stream);
        assert!(answer.ends_with("POST / HTTP/1.1 abc"), "{answer}");
    }
}

/// While a server is down one request at a time finds out whether it is back.
#[test]
fn one_request_at_a_time_probes_a_server_that_is_down() {
    let hangs = Arc::new(AtomicBool::new(true));
    let hanging = hangs.clone();
    let backend = Backend::start(move |head, stream| {
        if hanging.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_secs(3));
            return false;
        }
        echoing(head, stream)
    });
    let settings = APP.replace(
        "[[site]]",
        "max-fails = 1\nfail-time = \"50ms\"\nanswer-timeout = \"1s\"\n[[site]]",
    );
    let (_scratch, server) = start(&settings, &backend);
    assert!(get(server.address, "/").starts_with("HTTP/1.1 504 "));
    thread::sleep(Duration::from_millis(100));
    thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| get(server.address, "/")[9..12].to_owned()))
            .collect();
        let mut statuses: Vec<_> = asked.into_iter().map(|asks| asks.join().unwrap()).collect();
        statuses.sort();
        let probes = statuses.iter().filter(|status| *status == "504").count();
        // Another one may follow on a slow machine; all of them did before.
        assert!(probes <= 4, "{statuses:?}");
    });

    hangs.store(false, Ordering::SeqCst);
    eventually("it is up again", || {
        get(server.address, "/").starts_with("HTTP/1.1 200 ")
    });
    assert!(get(server.address, "/").starts_with("HTTP/1.1 200 "));
}

/// Each direction of a tunnel goes on while the other one has to wait.
#[test]
fn a_tunnel_passes_on_more_than_it_can_hold() {
    const SENT: usize = 4 << 20;
    let backend = Backend::start(|_, stream| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut piece = vec![0; 64 << 10];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            // For each byte it says four.
            if (0..4).any(|_| stream.write_all(&piece[..len]).is_err()) {
                break;
            }
        }
        false
    });
    let (_scratch, server) = start(APP, &backend);
    let mut stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let writes = thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        move || {
            stream.write_all(&vec![b'z'; SENT]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
    });
    // It is read late, so all that lies between is full.
    thread::sleep(Duration::from_millis(300));
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got.iter().filter(|byte| **byte == b'z').count(), 4 * SENT);
    writes.join().unwrap();
}

#[test]
fn requests_go_where_the_policy_says() {
    let one = Backend::start(echoing);
    let two = Backend::start(echoing);
    for (balance, both) in [("least", true), ("two-choices", true), ("hash", false)] {
        let before = [one.heads().len(), two.heads().len()];
        let settings = format!(
            "[[upstream]]\nname = \"app\"\nservers = [\"BACKEND\", \"{}\"]\n\
             balance = \"{balance}\"\n\
             [[site]]\nnames = [\"*\"]\nproxy = \"app\"\n",
            two.address
        );
        let (_scratch, server) = start(&settings, &one);
        for _ in 0..40 {
            assert!(get(server.address, "/").starts_with("HTTP/1.1 200 "));
        }
        let got = [one.heads().len() - before[0], two.heads().len() - before[1]];
        assert_eq!(got[0] + got[1], 40);
        assert_eq!(got.iter().all(|got| *got > 5), both, "{balance}: {got:?}");
    }
}

#[test]
fn rules_go_before_the_application() {
    let backend = Backend::start(echoing);
    let settings = "[[upstream]]\nname = \"app\"\nservers = [\"BACKEND\"]\n\
                    [[rule]]\npath = \"/admin/**\"\ndeny = [\"127.0.0.1\"]\n\
                    [[rule]]\nregex = \"^/apx(.*)$\"\nrewrite = \"/v2/$1\"\nproxy = \"app\"\n\
                    [[rule]]\nregex = \"^/api/(.*)$\"\nrewrite = \"/v2/$1\"\nproxy = \"app\"\n\
                    set-headers = { Content-Length = \"1\" }\n";
    let scratch = Scratch::new();
    let file = scratch.file("web.toml", settings.replace("BACKEND", "127.0.0.1:1"));
    let (code, said) = output(&["--config", &file, "--check"]);
    assert!(
        code != Some(0) && said.contains("the connection writes itself"),
        "{said}"
    );

    let settings = settings.replace(
        "set-headers = { Content-Length = \"1\" }\n",
        "set-headers = { X-A = \"1\", X-App = \"ours\" }\nmax-body = \"20m\"\n\
         [[rule]]\npath = \"/all/**\"\nproxy = \"app\"\n\
         [[rule]]\ncache-control = \"max-age=60\"\n\
         [[rule]]\npath = \"/admin/**\"\nproxy = \"app\"\n",
    );
    let (_scratch, server) = start(&format!("root = \"www\"\n{settings}"), &backend);
    let answer = get(server.address, "/api/users?id=7");
    assert!(answer.ends_with("GET /v2/users?id=7 HTTP/1.1 "), "{answer}");
    assert!(
        answer.contains("\r\nX-A: 1\r\n") && !answer.contains("Cache-Control"),
        "{answer}"
    );
    assert!(get(server.address, "/").ends_with("a file"));
    assert!(get(server.address, "/").contains("\r\nCache-Control: max-age=60\r\n"));
    assert!(get(server.address, "/all//x%20y").ends_with("GET /all/x%20y HTTP/1.1 "));

    let before = backend.heads().len();
    for (path, status) in [
        ("/admin/x", 403),
        ("//admin/x", 403),
        ("/%61dmin/x", 403),
        ("/./admin/x", 400),
        ("/all/../admin/x", 400),
        ("/all/%2e%2e/admin/x", 400),
        ("/all/..%2fadmin/x", 404),
        ("/all/%00", 400),
        ("/api/../admin/x", 400),
        ("/apx../admin/x", 400),
        ("/admin", 403),
    ] {
        let answer = get(server.address, path);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {answer}"
        );
    }
    assert_eq!(backend.heads().len(), before);
    // What some take for a slash goes out as what it is.
    let answer = get(server.address, "/all/x\\..\\admin");
    assert!(
        answer.contains("GET /all/x%5C..%5Cadmin HTTP/1.1"),
        "{answer}"
    );

    // More than the server takes otherwise.
    let long = "x".repeat(18 << 20);
    let length = long.len();
    let head = format!(
        "POST /api/b HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    let answer = ask(server.address, &(head + &long));
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.len() > length,
        "{}",
        &answer[..99]
    );
}

#[test]
fn web_sockets_pass_through() {
    let backend = Backend::start(|head, stream| {
        assert_eq!(field(head, "connection"), Some("Upgrade"));
        assert_eq!(field(head, "upgrade"), Some("websocket"));
        assert_eq!(
            field(head, "sec-websocket-key"),
            Some("dGhlIHNhbXBsZSBub25jZQ==")
        );
        // The first bytes of the other protocol come with the head.
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nhello ";
        stream.write_all(head.as_bytes()).unwrap();
        let mut piece = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            if stream.write_all(&piece[..len]).is_err() {
                break;
            }
        }
        let _ = stream.write_all(b"bye");
        false
    });
    let (_scratch, server) = start(APP, &backend);
    let mut stream = server.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let request = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nat once ";
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = Vec::new();
    let mut until = |stream: &mut TcpStream, end: &str| {
        while !got.ends_with(end.as_bytes()) {
            let mut piece = [0; 4096];
            let len = stream.read(&mut piece).unwrap();
            assert!(len > 0, "{}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&piece[..len]);
        }
        String::from_utf8_lossy(&got).into_owned()
    };
    let text = until(&mut stream, "at once ");
    assert!(
        text.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
        "{text}"
    );
    assert!(
        text.to_lowercase()
            .contains("\r\nsec-websocket-accept: x\r\n"),
        "{text}"
    );
    assert!(text.contains("\r\n\r\nhello "), "{text}");
    let long = "a long message, ".repeat(20_000);
    let writes = thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        let long = long.clone();
        move || stream.write_all(long.as_bytes()).unwrap()
    });
    let text = until(&mut stream, &long);
    assert!(text.ends_with(&long));
    writes.join().unwrap();

    // The client ends its direction, the application has the last word.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(until(&mut stream, "bye").ends_with("bye"));
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);

    // Without the request for it there is none.
    let plain = Backend::start(saying(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ));
    let (_scratch, server) = start(APP, &plain);
    assert!(get(server.address, "/").starts_with("HTTP/1.1 502 "));
}

#[test]
fn an_application_may_listen_on_a_unix_socket_or_have_a_name() {
    let scratch = Scratch::new();
    let path = scratch.path("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || converse(stream, &Mutex::default(), &echoing));
        }
    });

    let backend = Backend::start(echoing);
    let port = backend.address.port();
    let settings = format!(
        "[[upstream]]\nname = \"unix\"\nservers = [\"unix:{path}\"]\n\
         [[upstream]]\nname = \"named\"\nservers = [\"localhost:{port}\"]\n\
         [[upstream]]\nname = \"lost\"\nservers = [\"name.invalid:80\"]\nconnect-timeout = \"2s\"\n\
         [[rule]]\npath = \"/named/**\"\nproxy = \"named\"\n\
         [[rule]]\npath = \"/lost/**\"\nproxy = \"lost\"\n\
         [[site]]\nnames = [\"*\"]\nproxy = \"unix\"\n"
    );
    let (_scratch, server) = start(&settings, &backend);
    for _ in 0..3 {
        assert!(get(server.address, "/u").ends_with("GET /u HTTP/1.1 "));
        assert!(get(server.address, "/named/x").ends_with("GET /named/x HTTP/1.1 "));
    }
    assert_eq!(backend.connections(), 1);
    assert!(get(server.address, "/lost/x").starts_with("HTTP/1.1 502 "));
}

/// Connections and what is known of servers outlast a reload.
#[test]
fn a_reload_goes_on_with_upstreams_that_are_the_same() {
    let backend = Backend::start(echoing);
    let (scratch, mut server) = start(APP, &backend);
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let text = fs::read_to_string(scratch.path("web.toml")).unwrap();
    for n in 0..10 {
        scratch.file(
            "web.toml",
            format!("{text}[[rule]]\nset-headers = {{ X-N = \"{n}\" }}\n"),
        );
        let line = hang_up(&server, &mut said);
        assert!(line.contains("is loaded"), "{line}");
        let answer = get(server.address, "/");
        assert!(answer.contains(&format!("\r\nX-N: {n}\r\n")), "{answer}");
    }
    assert_eq!(backend.connections(), 1);

    scratch.file(
        "web.toml",
        text.replace("proxy = \"app\"", "proxy = \"ap\""),
    );
    let line = hang_up(&server, &mut said);
    assert!(
        line.contains("no upstream has this name; is `app` meant?"),
        "{line}"
    );
}

/// The cost of a slow application is its own.
#[test]
fn an_application_that_stalls_holds_up_no_other() {
    let stalls = Backend::start(|_, _| {
        thread::sleep(Duration::from_secs(20));
        false
    });
    let good = Backend::start(echoing);
    let settings = format!(
        "[[upstream]]\nname = \"stalls\"\nservers = [\"{}\"]\nmax-connections = 8\n\
         answer-timeout = \"15s\"\n\
         [[upstream]]\nname = \"good\"\nservers = [\"BACKEND\"]\n\
         [[rule]]\npath = \"/slow/**\"\nproxy = \"stalls\"\n\
         [[site]]\nnames = [\"*\"]\nproxy = \"good\"\n",
        stalls.address
    );
    let (_scratch, server) = start(&settings, &good);
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = server.connect();
            stream
                .write_all(b"GET /slow/x HTTP/1.1\r\nHost: h\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    eventually("all of them wait", || stalls.heads().len() == 8);
    for _ in 0..50 {
        assert!(get(server.address, "/").starts_with("HTTP/1.1 200 "));
    }
    assert!(get(server.address, "/slow/y").starts_with("HTTP/1.1 503 "));
    drop(waiting);
}
