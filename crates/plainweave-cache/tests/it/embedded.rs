//! `Server` on a runtime that the test has, on both drivers.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use plainweave::net::{TcpListener, UnixListener};
use plainweave::{Io, Runtime};
use plainweave_cache::store::{Stored, Write};
use plainweave_cache::{Options, Server};

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

fn on_each_driver(test: impl Fn(&Runtime)) {
    for io in [Io::Epoll, Io::Uring] {
        let runtime = Runtime::builder()
            .workers(2)
            .io(io)
            .report_stalls(false)
            .build();
        match runtime {
            Ok(runtime) => test(&runtime),
            Err(error) if io == Io::Uring => crate::skip::skip(&format!("io_uring: {error}")),
            Err(error) => panic!("{error}"),
        }
    }
}

fn start(runtime: &Runtime, options: Options) -> (Server, SocketAddr) {
    let server = Server::new(options);
    let address = runtime.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        server.start(listener).expect("started")
    });
    (server, address)
}

/// Sends a command and returns the first line of its reply.
fn ask(stream: &mut (impl Read + std::io::Write), command: &str) -> String {
    stream.write_all(command.as_bytes()).expect("sent");
    let mut reply = String::new();
    BufReader::new(stream)
        .read_line(&mut reply)
        .expect("a reply");
    reply
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(HANG)).expect("set");
    stream
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + HANG;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn clients_and_the_program_see_the_same_items() {
    on_each_driver(|runtime| {
        let (server, address) = start(runtime, Options::default());
        let mut client = connect(address);
        assert_eq!(ask(&mut client, "set a 7 0 5\r\nhello\r\n"), "STORED\r\n");
        let store = server.store();
        let item = store.get(b"a", server.now()).expect("there");
        let mut value = Vec::new();
        item.append_to(&mut value);
        assert_eq!(value, b"hello");

        let write = Write {
            flags: 3,
            ..Write::new(b"b", b"world")
        };
        let stored = store.write(&write, server.now());
        assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        assert_eq!(ask(&mut client, "get b\r\n"), "VALUE b 3 5\r\n");
        drop(client);
        assert!(server.shutdown(HANG));
        assert_eq!(server.store().stats().items, 2, "they stay");
    });
}

#[test]
fn a_stop_ends_idle_clients_and_answers_nobody_new() {
    on_each_driver(|runtime| {
        let (server, address) = start(runtime, Options::default());
        let mut idle: Vec<_> = (0..20).map(|_| connect(address)).collect();
        for client in &mut idle {
            assert!(ask(client, "version\r\n").starts_with("VERSION "));
        }
        eventually("all are in", || server.connections() == 20);
        assert!(server.shutdown(HANG));
        for mut client in idle {
            assert_eq!(client.read(&mut [0]).expect("an end"), 0);
        }

        let refused = TcpStream::connect(address).map(|mut stream| stream.read(&mut [0]));
        assert!(!matches!(refused, Ok(Ok(1..))));
        let again = runtime.run(|| server.start(TcpListener::bind("127.0.0.1:0").expect("a port")));
        assert!(again.is_err());
    });
}

/// A client that does not read is cut, so a stop does not take its whole grace.
#[test]
fn a_stop_does_not_wait_for_clients_that_do_not_read() {
    on_each_driver(|runtime| {
        let (server, address) = start(runtime, Options::default());
        let mut client = connect(address);
        let value = "x".repeat(1_000_000);
        let set = format!("set large 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(ask(&mut client, &set), "STORED\r\n");
        client
            .write_all("get large\r\n".repeat(50).as_bytes())
            .expect("sent");
        std::thread::sleep(Duration::from_millis(50));
        assert!(server.shutdown(HANG));
    });
}

#[test]
fn connections_beyond_the_limit_wait() {
    on_each_driver(|runtime| {
        let options = Options {
            connections: 2,
            ..Options::default()
        };
        let (server, address) = start(runtime, options);
        let mut first = connect(address);
        let mut second = connect(address);
        for client in [&mut first, &mut second] {
            assert!(ask(client, "version\r\n").starts_with("VERSION "));
        }
        let mut third = connect(address);
        third.write_all(b"version\r\n").expect("sent");
        third
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("set");
        assert!(third.read(&mut [0]).is_err());

        drop(first);
        third.set_read_timeout(Some(HANG)).expect("set");
        assert_eq!(third.read(&mut [0]).expect("a reply"), 1);
        assert!(server.shutdown(HANG));
    });
}

#[test]
fn unix_sockets_and_what_clients_may_not_do() {
    let folder = std::env::temp_dir().join(format!("plainweave-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("cache.sock");
    on_each_driver(|runtime| {
        let _ = std::fs::remove_file(&path);
        let server = Server::new(Options {
            flush: false,
            ..Options::default()
        });
        runtime.run(|| {
            let listener = UnixListener::bind(&path).expect("bound");
            server.start_unix(listener).expect("started");
        });

        let mut client = UnixStream::connect(&path).expect("connected");
        assert_eq!(ask(&mut client, "set a 0 0 1\r\nx\r\n"), "STORED\r\n");
        for command in ["flush_all\r\n", "shutdown\r\n"] {
            let reply = ask(&mut client, command);
            assert!(reply.contains("ERROR"), "{command}: {reply}");
        }
        client.shutdown(Shutdown::Both).expect("ended");
        // Dropped without a shutdown, it ends too.
        drop(server);
        eventually("its fibers have ended", || {
            runtime.metrics().live_fibers == 0
        });
    });
    let _ = std::fs::remove_dir_all(&folder);
}
