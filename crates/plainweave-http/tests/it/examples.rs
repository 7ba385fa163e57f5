//! The examples, run: each is a module of this test, served on fibers, and where that is its point
//! on threads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener as OsListener;
use std::sync::Arc;
use std::time::Duration;

use plainweave_http::testing::{TestServer, in_memory};
use plainweave_http::{Listener, Server};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use rustls::{ClientConnection, StreamOwned};

use crate::support::{Answer, read_answers};
use crate::tls::peer::{Authority, BOTH};

macro_rules! examples {
    ($($name:ident: $path:literal),+ $(,)?) => {
        $(#[path = $path]
        #[allow(dead_code, reason = "its `main`")]
        pub(crate) mod $name;)+
    };
}
examples! {
    client: "../../examples/client/main.rs",
    database: "../../examples/database.rs",
    events: "../../examples/events.rs",
    hello: "../../examples/hello.rs",
    https: "../../examples/https.rs",
    json_api: "../../examples/json_api.rs",
    pool: "../../examples/pool.rs",
    reverse_proxy: "../../examples/reverse_proxy/main.rs",
    streaming: "../../examples/streaming.rs",
    upload: "../../examples/upload.rs",
    websocket: "../../examples/websocket.rs",
}

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

fn request(method: &str, path: &str, body: &str) -> String {
    let fields = format!(
        "Host: h\r\nContent-Length: {}\r\nConnection: close",
        body.len()
    );
    format!("{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n{body}")
}

fn answer_of(bytes: &[u8]) -> Answer {
    read_answers(bytes)
        .pop()
        .unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(bytes)))
}

fn ask<H: plainweave_http::Handler>(
    server: &TestServer<H>,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let answer = answer_of(&server.exchange(request(method, path, body)).unwrap());
    (answer.status, String::from_utf8(answer.body).unwrap())
}

#[test]
fn hello_on_fibers_and_on_threads() {
    fn get(address: std::net::SocketAddr) -> Vec<u8> {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
            .write_all(request("GET", "/x", "").as_bytes())
            .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        answer_of(&bytes).body
    }
    let expected = b"hello, you asked for /x\n";
    std::thread::scope(|scope| {
        let listener = OsListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closing = listener.try_clone().unwrap();
        scope.spawn(move || hello::serve(listener).unwrap());
        assert_eq!(get(address), expected);
        Listener::close(&closing);
    });

    let runtime = plainweave::Runtime::builder()
        .workers(2)
        .report_stalls(false)
        .build()
        .unwrap();
    let listener = plainweave::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closing = listener.try_clone().unwrap();
    let serving = runtime.spawn(move || hello::serve(listener).unwrap());

    assert_eq!(get(address), expected);
    closing.close();
    serving.join().unwrap();
}

#[test]
fn streams() {
    let server = TestServer::start(Server::new(streaming::handle)).unwrap();
    let zeros = answer_of(
        &server
            .exchange(request("GET", "/zeros/1000000", ""))
            .unwrap(),
    );
    assert_eq!(zeros.header("content-length"), Some("1000000"));
    assert!(zeros.body.len() == 1_000_000 && zeros.body.iter().all(|byte| *byte == 0));
    let numbers = server
        .exchange(request("GET", "/numbers/1000", ""))
        .unwrap();

    assert!(numbers.ends_with(b"0\r\nX-Sum: 500500\r\n\r\n"));
    assert_eq!(
        ask(&server, "POST", "/", &"a line\n".repeat(5_000)),
        (200, "5000 lines\n".to_owned())
    );
    assert_eq!(ask(&server, "GET", "/nothing", "").0, 404);
}

/// Over TLS, and from there without it.
#[test]
fn https_and_the_way_there() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let config = Arc::new(authority.client(BOTH));
    let runtime = plainweave::Runtime::builder()
        .workers(2)
        .max_workers(2)
        .report_stalls(false)
        .build()
        .unwrap();
    let bind = || {
        runtime
            .run(|| plainweave::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap()
    };

    let plain = bind();
    let tls = bind();
    let to = [&plain, &tls].map(|listener| listener.local_addr().unwrap());
    let closing = [&plain, &tls].map(|listener| listener.try_clone().unwrap());
    let serving = runtime
        .spawn(move || https::serve(plain, tls, &acceptor).map_err(|error| error.to_string()));
    let connect = |to| {
        let stream = std::net::TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
    };

    let mut stream = connect(to[0]);
    stream
        .write_all(request("GET", "/a", "").as_bytes())
        .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let answer = answer_of(&bytes);

    assert_eq!(
        (answer.status, answer.header("location")),
        (308, Some(format!("https://{}/a", to[1]).as_str()))
    );
    let client = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(client, connect(to[1]));

    stream
        .write_all(request("GET", "/a", "").as_bytes())
        .unwrap();
    bytes.clear();
    stream
        .read_to_end(&mut bytes)
        .expect("answered, and ended as TLS ends");
    let answer = answer_of(&bytes);
    assert!(
        answer.status == 200 && answer.body.starts_with(b"/a by TLSv1.3, TLS13_"),
        "{answer:?}"
    );
    closing.iter().for_each(plainweave::net::TcpListener::close);
    assert_eq!(serving.join().unwrap(), Ok(()));
}

/// A directory that goes with the test.
struct Directory(std::path::PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn uploads() {
    let directory =
        Directory(std::env::temp_dir().join(format!("plainweave-upload-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0).unwrap();
    let server = TestServer::start(upload::server(directory.0.clone())).unwrap();

    // More than the limit of other requests.
    let body = "0123456789abcdef".repeat(2 << 20);
    assert_eq!(
        ask(&server, "PUT", "/file.txt", &body),
        (201, format!("{} bytes\n", body.len()))
    );
    assert!(std::fs::read(directory.0.join("file.txt")).unwrap() == body.as_bytes());

    for (method, path) in [
        ("PUT", "/../file"),
        ("PUT", "/.hidden"),
        ("PUT", "/"),
        ("POST", "/file.txt"),
    ] {
        assert_eq!(ask(&server, method, path, "x").0, 400, "{method} {path}");
    }

    // Names of one stem at the same time, beside what others have left there.
    let left: Vec<_> = (0..50)
        .map(|n| directory.0.join(format!(".upload-{n}")))
        .collect();
    left.iter()
        .for_each(|path| std::fs::write(path, "left").unwrap());
    let mut slow = server.connect().unwrap();
    let first = "a".repeat(100_000);
    let second = "b".repeat(200_000);
    let sent = request("PUT", "/stem.txt", &first);

    slow.write_all(&sent.as_bytes()[..60_000]).unwrap();
    assert_eq!(ask(&server, "PUT", "/stem.html", &second).0, 201);
    slow.write_all(&sent.as_bytes()[60_000..]).unwrap();
    slow.read_to_end(&mut Vec::new()).unwrap();

    for (name, expected) in [("stem.txt", &first), ("stem.html", &second)] {
        assert!(
            std::fs::read(directory.0.join(name)).unwrap() == expected.as_bytes(),
            "{name}"
        );
        std::fs::remove_file(directory.0.join(name)).unwrap();
    }

    for path in &left {
        assert_eq!(std::fs::read(path).unwrap(), b"left", "{}", path.display());
        std::fs::remove_file(path).unwrap();
    }

    // A client that leaves in the middle leaves nothing behind.
    let cut = request("PUT", "/cut", "whole").replace("whole", "who");
    let mut stream = server.connect().unwrap();
    stream.write_all(cut.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    drop(stream.read_to_end(&mut Vec::new()));
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 1);
}

#[test]
fn websockets() {
    let closed = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = closed.clone();
    let server = Server::new(websocket::handler(websocket::Room::default()))
        .on_close(move |_| _ = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
    let server = TestServer::start(server).unwrap();
    let join = || {
        let url = format!("ws://{}/", server.address());
        let (socket, answer) = tungstenite::client::client(url, server.connect().unwrap()).unwrap();
        assert_eq!(answer.status().as_u16(), 101);
        socket
    };

    let mut speaker = join();
    let mut listener = join();
    for n in 0..20 {
        let message = tungstenite::Message::text("x".repeat(n * n * 100));
        // One of them says nothing, and hears all.
        speaker.send(message.clone()).unwrap();
        assert_eq!(
            (speaker.read().unwrap(), listener.read().unwrap()),
            (message.clone(), message)
        );
    }

    // Several in one segment.
    for n in 0..50 {
        speaker
            .write(tungstenite::Message::text(n.to_string()))
            .unwrap();
    }

    speaker.flush().unwrap();
    for n in 0..50 {
        assert_eq!(
            listener.read().unwrap(),
            tungstenite::Message::text(n.to_string())
        );
    }

    speaker.close(None).unwrap();
    while speaker.read().is_ok() {}
    assert_eq!(ask(&server, "GET", "/", "").0, 426);

    // One that has left without a word is noticed, though nobody says anything.
    drop(listener);
    let start = std::time::Instant::now();
    while closed.load(std::sync::atomic::Ordering::SeqCst) < 3 {
        assert!(start.elapsed() < HANG, "a connection of nobody's is kept");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_json_api() {
    let server = Server::new(json_api::handler());
    let ask = |method, path, body| {
        let answer = answer_of(&in_memory(&server, request(method, path, body)));
        let value: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        (answer.status, value.to_string())
    };

    assert_eq!(
        ask("POST", "/notes", r#"{"text":"one"}"#),
        (201, r#"{"id":1}"#.to_owned())
    );
    assert_eq!(ask("PUT", "/notes/1", r#"{"text":"two"}"#).0, 200);
    assert_eq!(
        ask("GET", "/notes", ""),
        (200, r#"{"1":{"text":"two"}}"#.to_owned())
    );
    assert_eq!(ask("DELETE", "/notes/1", "").1, r#"{"text":"two"}"#);

    for (method, path, body, status) in [
        ("GET", "/notes/1", "", 404),
        ("GET", "/elsewhere", "", 404),
        ("POST", "/notes", "{", 400),
        ("PATCH", "/notes", "", 405),
    ] {
        assert_eq!(ask(method, path, body).0, status, "{method} {path}");
    }
}

#[test]
fn events_reach_those_who_listen() {
    let server = TestServer::start(Server::new(events::handler())).unwrap();
    let mut listeners: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = server.connect().unwrap();
            stream
                .write_all(b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
                .unwrap();
            let mut lines = BufReader::new(stream).lines().map(Result::unwrap);

            // The head comes at once; after that nothing is missed.
            let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            assert!(
                head.iter()
                    .any(|line| line == "Content-Type: text/event-stream"),
                "{head:?}"
            );
            lines
        })
        .collect();
    for message in ["hello", "two\nlines"] {
        assert_eq!(
            ask(&server, "POST", "/publish", message),
            (200, "2 listeners\n".to_owned())
        );
        for lines in &mut listeners {
            let data = lines.by_ref().filter(|line| line.starts_with("data: "));
            let data: Vec<_> = data.take(message.lines().count()).collect();
            assert_eq!(
                data,
                message
                    .lines()
                    .map(|line| format!("data: {line}"))
                    .collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn handlers_in_a_pool_of_their_own() {
    let pools = pool::pools().unwrap();
    let server = Server::new(pool::in_pool(
        pools.get("compute").unwrap().clone(),
        pool::quick,
    ));
    let server = TestServer::start(server).unwrap();
    assert_eq!(
        ask(&server, "GET", "/primes/1000", ""),
        (200, "168\n".to_owned())
    );
    assert_eq!(ask(&server, "GET", "/primes/many", "").0, 400);
    drop(pools);
    assert_eq!(ask(&server, "GET", "/primes/1000", "").0, 503);
    assert_eq!(ask(&server, "GET", "/", ""), (200, "quick\n".to_owned()));
}

#[test]
fn a_reverse_proxy() {
    let upstream = TestServer::start(Server::new(streaming::handle)).unwrap();
    let proxy = TestServer::start(Server::new(reverse_proxy::handler(upstream.address()))).unwrap();
    let zeros = answer_of(&proxy.exchange(request("GET", "/zeros/300000", "")).unwrap());
    assert_eq!(
        (zeros.header("content-length"), zeros.body.len()),
        (Some("300000"), 300_000)
    );
    let numbers = ask(&proxy, "GET", "/numbers/2000", "");

    assert_eq!(
        (numbers.0, numbers.1.lines().count()),
        (200, 2000),
        "without a length"
    );
    assert_eq!(
        ask(&proxy, "POST", "/", &"line\n".repeat(50_000)).1,
        "50000 lines\n"
    );
    let chunked =
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let chunked = chunked.to_owned() + "4\r\na\nb\n\r\n0\r\n\r\n";

    assert_eq!(
        answer_of(&proxy.exchange(chunked).unwrap()).body,
        b"2 lines\n"
    );
    let head = proxy.exchange(request("HEAD", "/zeros/7", "")).unwrap();
    assert!(
        String::from_utf8(head)
            .unwrap()
            .contains("Content-Length: 7\r\n")
    );
    assert_eq!(ask(&proxy, "GET", "/nothing", "").0, 404);

    // A fiber each, one after the other: so one connection.
    assert_eq!(upstream.server().counts().accepted, 1);
    drop(upstream);
    assert_eq!(ask(&proxy, "GET", "/zeros/1", "").0, 502);
}

/// What is between two neighbours stays there, and a HEAD makes no length up.
#[test]
fn a_reverse_proxy_keeps_its_own_connections() {
    let listener = OsListener::bind("127.0.0.1:0").unwrap();
    let proxy = Server::new(reverse_proxy::handler(listener.local_addr().unwrap()));
    let proxy = TestServer::start(proxy).unwrap();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
        let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        stream
            .write_all(
                b"HTTP/1.0 200 OK\r\nX-Hop: 1\r\nConnection: close, x-hop\r\nX-End: 2\r\n\r\n",
            )
            .unwrap();
        head
    });

    let asked =
        "HEAD / HTTP/1.1\r\nHost: h\r\nX-Near: 1\r\nX-Far: 2\r\nConnection: X-Near, close\r\n\r\n";
    let answer = String::from_utf8(proxy.exchange(asked).unwrap()).unwrap();
    let head = upstream.join().unwrap();
    let head: Vec<_> = head.iter().map(|line| line.to_ascii_lowercase()).collect();
    assert!(
        head.contains(&"x-far: 2".to_owned())
            && !head.iter().any(|line| line.starts_with("x-near")),
        "{head:?}"
    );
    let absent = ["Content-Length", "X-Hop", "x-hop"];

    assert!(
        answer.contains("X-End: 2\r\n") && !absent.iter().any(|name| answer.contains(name)),
        "{answer}"
    );
}

/// Answers INCR with 1, 2 and so on, in two pieces; the connection that says `last` is closed in
/// the middle.
fn database_peer(listener: &OsListener) {
    let mut count = 0;
    while let Ok((mut stream, _)) = listener.accept() {
        let mut received = Vec::new();
        let mut piece = [0; 256];
        loop {
            let Ok(Some((OwnedFrame::Array(words), len))) = decode(&received) else {
                match stream.read(&mut piece) {
                    Ok(len @ 1..) => received.extend_from_slice(&piece[..len]),
                    _ => break,
                }
                continue;
            };

            received.drain(..len);
            match &*words {
                [OwnedFrame::BulkString(command), OwnedFrame::BulkString(key)]
                    if command == b"INCR" =>
                {
                    match &**key {
                        b"visits:/last" => {
                            stream.write_all(b":1").unwrap();
                            break;
                        }
                        b"visits:/end" => return,
                        _ => {
                            count += 1;
                            stream.write_all(b":").unwrap();
                            stream.write_all(format!("{count}\r\n").as_bytes()).unwrap();
                        }
                    }
                }
                _ => stream.write_all(b"-ERR what?\r\n").unwrap(),
            }
        }
    }
}

#[test]
fn a_synchronous_database_client() {
    let listener = OsListener::bind("127.0.0.1:0").unwrap();
    let server = TestServer::start(Server::new(database::handler(
        listener.local_addr().unwrap(),
    )))
    .unwrap();
    let peer = std::thread::spawn(move || database_peer(&listener));

    for n in 1..=3 {
        assert_eq!(
            ask(&server, "GET", "/x", ""),
            (200, format!("visit {n} of /x\n"))
        );
    }

    assert_eq!(
        ask(&server, "GET", "/last", "").0,
        502,
        "it leaves in the middle of an answer"
    );
    assert_eq!(
        ask(&server, "GET", "/x", ""),
        (200, "visit 4 of /x\n".to_owned()),
        "on a fresh connection"
    );
    assert_eq!(ask(&server, "GET", "/end", "").0, 502);
    peer.join().unwrap();
    assert_eq!(ask(&server, "GET", "/x", "").0, 502, "nobody listens");
}
