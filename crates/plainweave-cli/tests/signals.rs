//! Signals that must not end a server: each is answered with a line, and the server goes on.

#[path = "common/child.rs"]
mod child;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

use child::Kept;
use rustix::process::{Pid, Signal, kill_process};

/// A server, what it says, and how it is asked whether it serves.
struct Server {
    child: Kept,
    said: BufReader<ChildStderr>,
    address: String,
    ask: &'static [u8],
    answer: &'static [u8],
}

impl Server {
    fn start(args: &[&str], ask: &'static [u8], answer: &'static [u8]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        let mut child = Kept::spawn(command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let at = line.find("127.0.0.1:").expect(&line);
        let address = line[at..].split([' ', ',', '(']).next().unwrap().to_owned();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said, address, ask, answer }
    }

    fn web(args: &[&str]) -> Self {
        let root = env!("CARGO_MANIFEST_DIR");
        let ask = b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        Self::start(&[&["web", root, "--listen", "127.0.0.1:0"], args].concat(), ask, b"HTTP/1.1 200")
    }

    fn cache() -> Self {
        Self::start(&["cache", "-p", "-1", "-l", "127.0.0.1", "-t", "1"], b"mn\r\n", b"MN\r\n")
    }

    /// Sends a signal, and returns the line that answers it.
    fn signal(&mut self, signal: Signal) -> String {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    fn serves(&self) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(self.ask).unwrap();
        let mut answer = vec![0; self.answer.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, self.answer);
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn no_signal_of_an_operator_ends_a_server() {
    let no_log = "there is no log to open anew";
    for (mut server, name, counts) in [
        (Server::web(&[]), "plainweave web", "1 accepted"),
        (Server::cache(), "plainweave cache", "1 accepted, 0 items of 0 bytes"),
    ] {
        server.serves();
        for (signal, signal_name, effect) in [
            (Signal::HUP, "SIGHUP", no_log),
            (Signal::USR1, "SIGUSR1", no_log),
            (Signal::USR2, "SIGUSR2", "there is no trace to turn on yet"),
            (Signal::QUIT, "SIGQUIT", counts),
        ] {
            let line = server.signal(signal);
            assert!(line.starts_with(&format!("{name}: {signal_name}: ")) && line.contains(effect), "{line}");
        }
        // After the counts, each fiber: the one that accepts is among them.
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.starts_with("fiber #")) {
            let mut line = String::new();
            assert!(server.said.read_line(&mut line).unwrap() > 0, "{lines:?}");
            lines.push(line);
        }
        assert!(lines[0].starts_with("runtime main: ") && lines[0].contains(" fibers: "), "{lines:?}");
        assert!(lines[1].starts_with("worker 0: "), "{lines:?}");
        server.serves();
        server.stop();
    }
}

#[test]
fn logs_are_opened_anew() {
    let name = format!("plainweave-signals-{}.log", std::process::id());
    let log = std::env::temp_dir().join(name);
    let mut server = Server::web(&["--access-log", log.to_str().unwrap()]);
    for signal in [Signal::HUP, Signal::USR1] {
        std::fs::remove_file(&log).unwrap();
        assert!(server.signal(signal).contains("the log is opened anew"));
        // It is opened by the log's own thread.
        let mut tries = 0..3000;
        while !log.exists() {
            assert!(tries.next().is_some(), "no new file");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    server.serves();
    server.stop();
    let _ = std::fs::remove_file(&log);
}
