//! A running server, and a client of bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::blocking;
use crate::common::child::Kept;

/// How long anything may take before it counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// `plainweave cache` on a free port of this machine.
pub(crate) struct Running {
    pub(crate) child: Kept,
    pub(crate) address: SocketAddr,
    pub(crate) line: String,
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.arg("cache").args(args).env_remove("PLAINWEAVE_IO");
    command
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(command(&[&["-p", "-1", "-l", "127.0.0.1"], args].concat()))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = Kept::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        let line = blocking::first_line(child.stdout.as_mut().unwrap());
        let address = line
            .split_whitespace()
            .find_map(|word| word.trim_end_matches(',').parse().ok());
        let address = address.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());

        Self {
            child,
            address,
            line,
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::to(self.address)
    }

    pub(crate) fn signal(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// After [`Running::signal`]: the exit code, and what was said on standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (self.child.wait().unwrap().code(), said)
    }

    /// Open descriptors of the server.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }

    /// Resident memory of the server in bytes.
    pub(crate) fn resident(&self) -> usize {
        crate::common::anonymous_of(self.child.id())
    }
}

/// A connection of bytes.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).unwrap();
    }

    /// Receives exactly this.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: impl AsRef<[u8]>) {
        let mut got = vec![0; text.as_ref().len()];
        let read = self.0.read_exact(&mut got);
        assert!(
            read.is_ok(),
            "{read:?} instead of {:?}",
            String::from_utf8_lossy(text.as_ref())
        );
        assert_eq!(
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(text.as_ref())
        );
    }

    /// Receives this many bytes.
    pub(crate) fn expect_len(&mut self, len: usize) {
        self.0.read_exact(&mut vec![0; len]).unwrap();
    }

    /// Sends, and receives exactly this.
    #[track_caller]
    pub(crate) fn ask(&mut self, text: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(text);
        self.expect(reply);
    }

    /// Sends, and receives up to and with this line.
    pub(crate) fn until(&mut self, text: impl AsRef<[u8]>, line: &str) -> String {
        self.send(text);
        let mut got = Vec::new();
        let mut byte = [0];
        while !got.ends_with(format!("{line}\r\n").as_bytes()) {
            self.0.read_exact(&mut byte).unwrap();
            got.push(byte[0]);
        }

        String::from_utf8_lossy(&got).into_owned()
    }

    /// Receives a line, whatever it is.
    pub(crate) fn line(&mut self) -> String {
        let mut got = Vec::new();
        let mut byte = [0];
        while byte != *b"\n" {
            self.0.read_exact(&mut byte).unwrap();
            got.push(byte[0]);
        }

        String::from_utf8_lossy(&got).into_owned()
    }

    /// A figure of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let all = self.until("stats\r\n", "END");
        let line = all
            .lines()
            .find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {all}"))
            .parse()
            .unwrap()
    }

    /// All that comes until the server closes.
    pub(crate) fn rest(&mut self) -> String {
        let mut got = Vec::new();
        self.0.read_to_end(&mut got).unwrap();
        String::from_utf8_lossy(&got).into_owned()
    }
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
