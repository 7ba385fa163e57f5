//! A running `plainweave web`, for tests that use it from outside.

pub(crate) mod authority;
pub(crate) mod backend; // Applications behind the server.
pub(crate) mod blocking;
pub(crate) mod child;
pub(crate) mod group;
pub(crate) mod scratch;
#[path = "../../../../plainweave/tests/common/skip.rs"]
pub(crate) mod skip;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use child::Kept;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.arg("web").args(args).env_remove("PLAINWEAVE_IO");
    command
}

/// Runs to the end; for what ends by itself.
pub(crate) fn output(args: &[&str]) -> (Option<i32>, String) {
    output_of(command(args))
}

/// [`output`], of any command.
pub(crate) fn output_of(mut command: Command) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = child::output(&mut command).unwrap();
    (
        status.code(),
        String::from_utf8([stdout, stderr].concat()).unwrap(),
    )
}

/// A server on this package's directory.
pub(crate) struct Running {
    pub(crate) child: Kept,
    pub(crate) address: SocketAddr,
    pub(crate) line: String,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(command(
            &[
                &[env!("CARGO_MANIFEST_DIR"), "--listen", "127.0.0.1:0"],
                args,
            ]
            .concat(),
        ))
    }

    /// On another directory.
    pub(crate) fn start_in(root: &std::path::Path, args: &[&str]) -> Self {
        Self::spawn(command(
            &[&[root.to_str().unwrap(), "--listen", "127.0.0.1:0"], args].concat(),
        ))
    }

    /// With at most this many descriptors.
    pub(crate) fn start_with_descriptors(limit: u32, args: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("ulimit -n {limit}; exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_plainweave"));
        shell
            .args(["web", env!("CARGO_MANIFEST_DIR"), "--listen", "127.0.0.1:0"])
            .args(args);
        Self::spawn(shell)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = Kept::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        let line = blocking::first_line(child.stdout.as_mut().unwrap());
        let after = line.split_once("http://").expect(&line).1;
        let address = after.split(' ').next().unwrap().parse().unwrap();

        Self {
            child,
            address,
            line,
        }
    }

    /// Open files, sockets and pipes of the server.
    pub(crate) fn descriptors(&self) -> usize {
        descriptors_of(self.child.id())
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident(&self) -> usize {
        anonymous_of(self.child.id())
    }

    /// The processor time that it has had, to the kernel's hundredth of a second.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // Behind the name in parentheses; user and system time are the 14th and 15th field of all.
        let fields = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .skip(11)
            .take(2);
        let hundredths = fields
            .map(|field| field.parse::<u64>().unwrap())
            .sum::<u64>();
        Duration::from_millis(hundredths * 10)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    pub(crate) fn signal(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Asks it to end when the value is dropped, if only by a panic.
    pub(crate) fn signalled(&self) -> Signalled<'_> {
        Signalled(self)
    }

    /// Stops all its threads where they are, and returns when they stand; until the value is
    /// dropped.
    pub(crate) fn paused(&self) -> Paused<'_> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).unwrap();
        let paused = Paused(self);
        eventually("a stop", || {
            waitpid(Some(pid), WaitOptions::UNTRACED | WaitOptions::NOHANG)
                .unwrap()
                .is_some()
        });
        paused
    }

    /// Waits for its end; returns its exit code and what it wrote to standard error, which a pipe
    /// must hold.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut code = None;
        let mut said = String::new();
        within(Duration::from_secs(60), "the server's end", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();

        (code.unwrap().code(), said)
    }
}

/// See [`Running::signalled`].
pub(crate) struct Signalled<'a>(&'a Running);

impl Drop for Signalled<'_> {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0.child), Signal::TERM);
    }
}

/// A server that stands still; see [`Running::paused`].
pub(crate) struct Paused<'a>(&'a Running);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0.child), Signal::CONT);
    }
}

pub(crate) fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The resident memory of a process, without the pages of its program's file: how many of these the
/// kernel maps around each that is used is its own matter, 8 MB of a debug build on one day and 12
/// on another.
pub(crate) fn anonymous_of(process: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages: Vec<usize> = text
        .split(' ')
        .take(3)
        .map(|n| n.parse().unwrap())
        .collect();
    (pages[1] - pages[2]) * rustix::param::page_size()
}

/// Open files, sockets and pipes of a process. Not what its drivers have: where the machine is
/// busy, a worker that is held up brings a spare one about, which keeps its driver.
pub(crate) fn descriptors_of(process: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .flatten();
    let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names
        .filter(|name| !name.to_string_lossy().starts_with("anon_inode:"))
        .count()
}

/// Looks until `done` says so; for what the server does in its own time.
pub(crate) fn eventually(what: &str, done: impl FnMut() -> bool) {
    within(Duration::from_secs(30), what, done);
}

/// [`eventually`], for what may take longer.
pub(crate) fn within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < limit,
            "{what} has not come about in {limit:?}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// The answer to a request after which the connection ends.
pub(crate) fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    rest(stream)
}

pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    ask(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
    )
}

/// Sends HUP, and returns the line that answers it.
pub(crate) fn hang_up(server: &Running, said: &mut BufReader<ChildStderr>) -> String {
    kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line
}

/// The address of `--admin`.
pub(crate) fn admin(server: &Running) -> SocketAddr {
    server
        .line
        .rsplit_once("admin http://")
        .expect(&server.line)
        .1
        .trim_end()
        .trim_end_matches(')')
        .parse()
        .unwrap()
}

/// A metric's value.
pub(crate) fn figure(address: SocketAddr, name: &str) -> f64 {
    let text = get(address, "/metrics");
    let line = text.lines().find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    });

    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// The lines of a file, once there are that many.
pub(crate) fn lines_of(file: impl AsRef<std::path::Path>, count: usize) -> Vec<String> {
    let mut text = String::new();
    eventually("the log's lines", || {
        text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().count() >= count
    });
    text.lines().map(ToOwned::to_owned).collect()
}
