//! `--doctor` of both servers, run as a user runs it: it is good just where the server starts.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::child::{Kept, output};
use crate::common::scratch::Scratch;

/// Until a server that cannot start has ended.
const PATIENCE: Duration = Duration::from_secs(20);

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.args(args).env_remove("PLAINWEAVE_IO");
    command
}

/// Returns the exit code, what was found, and what was said of it.
fn examine(args: &[&str]) -> (Option<i32>, String, String) {
    let done = output(program(args).arg("--doctor")).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

/// Whether a server with these flags is still there after that time.
fn is_there_after(patience: Duration, args: &[&str]) -> bool {
    let mut command = program(args);
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Kept::spawn(silent).unwrap();
    let end = Instant::now() + patience;
    let mut is_there = true;
    while is_there && Instant::now() < end {
        is_there = server.try_wait().unwrap().is_none();
        std::thread::sleep(Duration::from_millis(10));
    }
    is_there
}

#[test]
fn servers_that_start_are_good() {
    let directory = Scratch::new();
    let socket = directory.path("socket");
    for args in [
        &["web", "--listen", "127.0.0.1:0", "--io", "epoll"][..],
        &["web", "--listen", "127.0.0.1:0", "--max-connections", "10"],
        &["cache", "-p", "0", "-s", &socket, "-c", "10"],
        &[
            "cache",
            "-p",
            "-1",
            "-l",
            "127.0.0.1,::1",
            "--admin",
            "127.0.0.1:0",
        ],
    ] {
        let (code, found, said) = examine(args);
        assert_eq!((code, &*said), (Some(0), ""), "{args:?}: {found}");
        for what in [
            "kernel",
            "driver",
            "connections",
            "memory",
            "backlog",
            "clock",
            "addresses",
        ] {
            let mut lines = found.lines().map(|line| line.split_whitespace());
            let line = lines.find(|line| line.clone().nth(1) == Some(what));
            let severity = line.and_then(|mut line| line.next());
            assert!(matches!(severity, Some("ok" | "note")), "{what}: {found}");
        }
        assert!(is_there_after(Duration::from_millis(500), args), "{args:?}");
        let _ = fs::remove_file(&socket);
    }
}

#[test]
fn what_fails_is_bad() {
    let directory = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = taken.local_addr().unwrap().port().to_string();
    let missing = directory.path("missing/file");
    let answered = directory.path("answered");
    let _answers = UnixListener::bind(&answered).unwrap();
    for (args, said) in [
        (&["web", "--listen", &address][..], "choose another"),
        (
            &["web", "--listen", "127.0.0.1:0", "--admin", &address],
            "choose another",
        ),
        (&["web", &missing, "--listen", "127.0.0.1:0"], "missing"),
        (
            &[
                "web",
                "--listen",
                "127.0.0.1:0",
                "--tls-cert",
                &missing,
                "--tls-key",
                &missing,
            ],
            "TLS",
        ),
        (
            &["web", "--listen", "127.0.0.1:0", "--unix-socket", &missing],
            "missing",
        ),
        (
            &["web", "--listen", &address, "--replace", &missing],
            "missing",
        ),
        (&["cache", "-l", "127.0.0.1", "-p", &port], "choose another"),
        (
            &["cache", "-p", "-1", "-l", "127.0.0.1", "--admin", &address],
            "choose another",
        ),
        (&["cache", "-p", "-1", "-Z"], "ssl_chain_cert"),
        (&["cache", "-p", "-1", "-Y", &missing], "users"),
        (&["cache", "-p", "-1", "-l", "btls:127.0.0.1"], "give -Z"),
        (&["cache", "-p", "0"], "nothing to listen on"),
        (&["cache", "-s", &missing], "missing"),
        (&["cache", "-p", "-1", "-u", "no-such-user"], "no-such-user"),
    ] {
        // Others ignore -u, and say so.
        if args.contains(&"-u") && !rustix::process::geteuid().is_root() {
            continue;
        }
        let (code, found, ended) = examine(args);
        assert_eq!(code, Some(1), "{args:?}: {found}");
        let is_said = |line: &str| line.starts_with("BAD") && line.contains(said);
        let is_refused = ended.contains(said);
        assert!(
            found.lines().any(is_said) || is_refused,
            "{args:?}: {found} {ended}"
        );
        // It tries for a second where an address is in use.
        assert!(!is_there_after(PATIENCE, args), "{args:?}");
    }

    // A server that answers there may be taken over from.
    let (code, found, _) = examine(&[
        "cache",
        "-l",
        "127.0.0.1",
        "-p",
        &port,
        "--replace",
        &answered,
    ]);
    assert_eq!(code, Some(0), "{found}");
    assert!(found.contains("to be taken over from"), "{found}");
}

#[test]
fn what_would_be_less_than_asked_for_is_bad() {
    for (args, remedy) in [
        (
            &["cache", "-p", "-1", "-b", "2000000000"][..],
            "net.core.somaxconn=2000000000",
        ),
        (&["cache", "-p", "-1", "-c", "90000000"], "ask for fewer"),
        (
            &[
                "web",
                "--listen",
                "127.0.0.1:0",
                "--max-connections",
                "90000000",
            ],
            "ask for fewer",
        ),
        (
            &["cache", "-p", "-1", "--max-memory", "90000g"],
            "more than there is",
        ),
    ] {
        let (code, found, _) = examine(args);
        assert_eq!(code, Some(1), "{args:?}: {found}");
        let bad = |line: &str| line.starts_with("BAD") && line.contains(remedy);
        assert!(found.lines().any(bad), "{args:?}: {found}");
    }
}
