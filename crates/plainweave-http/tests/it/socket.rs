//! Over real sockets and threads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave_http::Limits;

use crate::support::{read_answers, server};

/// A test in which either end waits for longer fails.
const HANG: Duration = Duration::from_secs(30);

/// Serves one connection with these limits on another thread.
fn connect(limits: Limits) -> (TcpStream, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Arc::new(server().with_limits(limits));
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(HANG)).unwrap();
    client.set_write_timeout(Some(HANG)).unwrap();
    let (stream, _) = listener.accept().unwrap();

    (
        client,
        std::thread::spawn(move || server.serve_stream(stream)),
    )
}

#[test]
fn keep_alive() {
    let (mut client, serving) = connect(Limits::default());
    for path in ["/1", "/2"] {
        write!(client, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut buf = [0; 1024];
        let len = client.read(&mut buf).unwrap();
        assert_eq!(read_answers(&buf[..len])[0].body, path.as_bytes());
    }

    drop(client);
    serving.join().unwrap();
}

/// A client that sends a long body sees 413 rather than a reset, for the server reads on after its
/// answer.
#[test]
fn a_refused_upload_is_told_why() {
    let (mut client, serving) = connect(Limits::default());
    write!(
        client,
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n"
    )
    .unwrap();
    client.write_all(&vec![0; 4 << 20]).unwrap();
    let mut out = Vec::new();
    client.read_to_end(&mut out).unwrap();
    let answers = read_answers(&out);

    assert_eq!(
        (answers[0].status, answers[0].header("connection")),
        (413, Some("close"))
    );
    drop(client);
    serving.join().unwrap();
}

#[test]
fn slow_and_idle_peers_are_cut() {
    let short = Duration::from_millis(60);
    let limits = Limits {
        header_timeout: short,
        idle_timeout: short,
        linger_timeout: short,
        ..Limits::default()
    };

    let default = Limits::default();
    let soonest = default.header_timeout.min(default.idle_timeout);

    let whole = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (sent, statuses) in [("", &[][..]), ("GET / HT", &[408]), (whole, &[200])] {
        let (mut client, serving) = connect(limits.clone());
        let start = Instant::now();
        client.write_all(sent.as_bytes()).unwrap();
        let mut out = Vec::new();
        client.read_to_end(&mut out).unwrap();
        assert_eq!(
            read_answers(&out)
                .iter()
                .map(|answer| answer.status)
                .collect::<Vec<_>>(),
            statuses
        );
        drop(client);
        serving.join().unwrap();

        // Sooner than by the defaults: that is the limit's doing.
        assert!(
            (short / 2..soonest).contains(&start.elapsed()),
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_reader_that_never_reads_is_cut() {
    let limits = Limits {
        write_timeout: Duration::from_millis(80),
        ..Limits::default()
    };

    let (mut client, serving) = connect(limits);
    for _ in 0..400 {
        if client
            .write_all(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n")
            .is_err()
        {
            break;
        }
    }

    serving.join().unwrap(); // Ends, although the client holds on.
    drop(client);
}
