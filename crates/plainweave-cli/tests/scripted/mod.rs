//! `plainweave load` run from outside, and servers that do as a script says.

#![allow(dead_code, reason = "each test program uses its part")]

#[path = "../common/child.rs"]
pub(crate) mod child;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::Value;

/// Runs `plainweave load` to its end.
pub(crate) fn load(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.arg("load").args(args).env_remove("PLAINWEAVE_IO");
    let Output { status, stdout, stderr } = child::output(&mut command).unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
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
        self.0["figures"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    pub(crate) fn errors(&self, kind: &str) -> u64 {
        self.0["errors_by_kind"][kind].as_u64().unwrap_or(0)
    }
}

/// The drivers there are here.
pub(crate) fn drivers() -> &'static [&'static str] {
    let uring = plainweave::Runtime::builder().workers(1).io(plainweave::Io::Uring).build().is_ok();
    if uring { &["epoll", "uring"] } else { &["epoll"] }
}

/// A server: each connection has a thread that runs `script` with it and its number. The program's probe, which
/// connects and leaves, is number 0.
pub(crate) fn server(script: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, script) = (stream.unwrap(), script.clone());
            std::thread::spawn(move || script(stream, number));
        }
    });
    address
}
