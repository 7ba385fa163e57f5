//! Signals that must not end a server: each is answered with a line, and the server goes on.

use crate::common::child;
use crate::common::scratch::Scratch;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

use crate::common::child::Kept;
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
        let mut child = Kept::spawn(
            command
                .args(args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )
        .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let at = line.find("127.0.0.1:").expect(&line);
        let address = line[at..].split([' ', ',', '(']).next().unwrap().to_owned();
        let said = BufReader::new(child.stderr.take().unwrap());

        Self {
            child,
            said,
            address,
            ask,
            answer,
        }
    }

    fn web(args: &[&str]) -> Self {
        let root = env!("CARGO_MANIFEST_DIR");
        let ask = b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        Self::start(
            &[&["web", root, "--listen", "127.0.0.1:0"], args].concat(),
            ask,
            b"HTTP/1.1 200",
        )
    }

    fn cache(args: &[&str]) -> Self {
        let asked = ["cache", "-p", "-1", "-l", "127.0.0.1", "-t", "1"];
        Self::start(&[&asked[..], args].concat(), b"mn\r\n", b"MN\r\n")
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
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
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
    let no_log = "there is no log to reopen";
    for (mut server, name, hang_up, counts) in [
        (
            Server::web(&[]),
            "plainweave web",
            "the directory is reopened",
            "1 accepted",
        ),
        (
            Server::cache(&[]),
            "plainweave cache",
            no_log,
            "1 accepted, 0 items of 0 bytes",
        ),
    ] {
        server.serves();
        for (signal, signal_name, effect) in [
            (Signal::HUP, "SIGHUP", hang_up),
            (Signal::USR1, "SIGUSR1", no_log),
            (
                Signal::USR2,
                "SIGUSR2",
                "there is no trace: start the server with --trace FILE",
            ),
            (Signal::QUIT, "SIGQUIT", counts),
        ] {
            let line = server.signal(signal);
            assert!(
                line.starts_with(&format!("{name}: {signal_name}: ")) && line.contains(effect),
                "{line}"
            );
        }

        // After the counts, each fiber: of a cache, the one that reclaims what has expired.
        let last = match name {
            "plainweave cache" => "fiber #",
            _ => "worker ",
        };

        let mut lines = Vec::new();
        while lines
            .last()
            .is_none_or(|line: &String| !line.starts_with(last))
        {
            let mut line = String::new();
            assert!(server.said.read_line(&mut line).unwrap() > 0, "{lines:?}");
            lines.push(line);
        }
        assert!(
            lines[0].starts_with("runtime main: ") && lines[0].contains(" fibers: "),
            "{lines:?}"
        );
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
        assert!(server.signal(signal).contains("the log is reopened"));
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

/// What is in it.
fn names(folder: &Scratch) -> Vec<String> {
    let entries = std::fs::read_dir(folder.root()).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The number of slices of fibers in a trace, and of its runtimes.
fn slices(file: &str) -> (usize, usize) {
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |key: &str, value: &str| events.iter().filter(|event| event[key] == value).count();
    (count("cat", "fiber"), count("name", "process_name"))
}

#[test]
fn a_trace_is_written_on_demand_and_at_the_end() {
    let folder = Scratch::new();
    type Start = fn(&[&str]) -> Server;
    for (start, name, runtimes, more) in [
        (Server::web as Start, "web", 1, &["--io", "epoll"][..]),
        (
            Server::web,
            "web",
            1,
            &["--io", "uring", "--mode", "anytime/own"],
        ),
        (
            Server::web,
            "web",
            3,
            &["--workers", "2", "--architecture", "event-loops"],
        ),
        (Server::cache, "cache", 1, &["--io", "epoll"]),
        (
            Server::cache,
            "cache",
            1,
            &["--io", "uring", "--mode", "never/shared"],
        ),
    ] {
        let file = folder.path("trace.json");
        let mut server = start(&[&["--trace", &file], more].concat());
        assert_eq!(std::fs::read(&file).unwrap(), b"", "created at the start");
        server.serves();
        let written = format!("plainweave {name}: SIGUSR2: the trace is written to {file}\n");
        assert_eq!(server.signal(Signal::USR2), written);
        let first = slices(&file);

        assert!(first.0 >= 1 && first.1 == runtimes, "{more:?}: {first:?}");
        for _ in 0..20 {
            server.serves();
        }
        // Two at once: one of them may be for both.
        kill_process(Pid::from_child(&server.child), Signal::USR2).unwrap();
        assert_eq!(server.signal(Signal::USR2), written);
        assert!(slices(&file).0 >= first.0, "{more:?}");
        std::fs::remove_file(&file).unwrap();
        server.stop();
        assert!(slices(&file).0 >= 20, "{more:?}");
        assert_eq!(names(&folder), ["trace.json"], "and nothing beside it");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_reported() {
    let folder = Scratch::new();
    let pipe = folder.path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );

    for (subcommand, file) in [
        ("web", "/nowhere/trace.json"),
        ("cache", "/nowhere/trace.json"),
        ("web", &pipe),
        ("cache", "/"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        let listen: &[&str] = if subcommand == "web" {
            &[".", "--listen", "127.0.0.1:0"]
        } else {
            &["-p", "-1"]
        };

        let output =
            child::output(command.arg(subcommand).args(listen).args(["--trace", file])).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(&format!(
                "cannot write a trace to {file} (give --trace another FILE)"
            )),
            "{said}"
        );
    }

    for start in [Server::web as fn(&[&str]) -> Server, Server::cache] {
        // The disk is full from the start.
        let mut server = start(&["--trace", "/dev/full"]);
        let said = server.signal(Signal::USR2);
        assert!(
            said.contains("cannot write the trace to /dev/full: No space left on device"),
            "{said}"
        );
        assert!(said.ends_with("; the server goes on\n"), "{said}");
        server.serves();
        server.stop();

        // The folder goes away, and comes back.
        let (gone, file) = (folder.path("gone"), folder.path("gone/trace.json"));
        std::fs::create_dir(&gone).unwrap();
        // A server that is confined reaches the one that was there at the start.
        let mut server = start(&["--trace", &file, "--no-confinement"]);
        std::fs::remove_dir_all(&gone).unwrap();
        let said = server.signal(Signal::USR2);

        assert!(
            said.contains(&format!(
                "cannot write the trace to {file}, which is as it was: No such file"
            )),
            "{said}"
        );
        server.serves();
        std::fs::create_dir(&gone).unwrap();
        assert!(server.signal(Signal::USR2).contains("the trace is written"));
        server.stop();
        std::fs::remove_dir_all(&gone).unwrap();
    }
}
