//! `plainweave load` run from outside, and servers that do as a script says.

pub(crate) mod agent;
pub(crate) mod frames;
pub(crate) mod others;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

pub(crate) use crate::common::child;

/// Runs `plainweave load` to its end.
pub(crate) fn load(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.arg("load").args(args).env_remove("PLAINWEAVE_IO");
    let Output {
        status,
        stdout,
        stderr,
    } = child::output(&mut command).unwrap();
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

/// A run's figures.
pub(crate) struct Figures(pub(crate) Value);

impl Figures {
    pub(crate) fn of(code: i32, args: &[&str]) -> Self {
        let (got, out, error) = load(args);
        assert_eq!(got, Some(code), "{args:?}: {out}{error}");
        Self(serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}")))
    }

    pub(crate) fn figure(&self, name: &str) -> f64 {
        self.0["figures"][name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    pub(crate) fn errors(&self, kind: &str) -> u64 {
        self.0["errors_by_kind"][kind].as_u64().unwrap_or(0)
    }
}

/// The drivers there are here.
pub(crate) fn drivers() -> &'static [&'static str] {
    let uring = plainweave::Runtime::builder()
        .workers(1)
        .io(plainweave::Io::Uring)
        .build()
        .is_ok();
    if uring {
        &["epoll", "uring"]
    } else {
        &["epoll"]
    }
}

/// A server: each connection has a thread that runs `script` with it and its number. The program's
/// probe, which connects and leaves, is number 0.
pub(crate) fn server(script: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            let script = script.clone();
            std::thread::spawn(move || script(stream, number));
        }
    });

    address
}

/// An answer that is fine.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Calls `answer` with the request line of each request on a connection, until that ends or it
/// returns false.
pub(crate) fn requests(stream: TcpStream, mut answer: impl FnMut(&str, &mut TcpStream) -> bool) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut first = String::new();

    while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
        if first.is_empty() {
            first.clone_from(&line);
        } else if line == "\r\n" {
            if !answer(first.trim_end(), stream.get_mut()) {
                return;
            }
            first.clear();
        }
        line.clear();
    }
}

/// A server that takes this long for each answer, and counts requests.
pub(crate) fn sleeper(time: Duration) -> (SocketAddr, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let address = server(move |stream, _| {
        requests(stream, |_, stream| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(time);
            stream.write_all(OK.as_bytes()).is_ok()
        });
    });

    (address, seen)
}

/// A server that never answers, and counts what comes; the program's probe sends nothing.
pub(crate) fn silent() -> (SocketAddr, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let address = server(move |mut stream, _| {
        let mut bytes = [0; 1000];
        while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });

    (address, seen)
}
