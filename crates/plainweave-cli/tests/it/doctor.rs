//! `--doctor` of both servers, run as a user runs it.

use std::net::TcpListener;
use std::process::Command;

use crate::common::child::output;

/// Returns the exit code, what was found, and what was said of it.
fn examine(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command
        .args(args)
        .arg("--doctor")
        .env_remove("PLAINWEAVE_IO");
    let done = output(&mut command).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[test]
fn servers_that_can_start_are_said_to() {
    for args in [
        &["web", "--listen", "127.0.0.1:0", "--io", "epoll"][..],
        &["cache", "-p", "0", "-s", "/nowhere", "-c", "10"],
    ] {
        let (code, found, said) = examine(args);
        assert_eq!((code, &*said), (Some(0), ""), "{args:?}: {found}");
        for what in [
            "kernel",
            "driver",
            "descriptors",
            "memory",
            "backlog",
            "clock",
        ] {
            let line = found.lines().find(|line| line.contains(what));
            assert!(line.is_some_and(|line| !line.starts_with("BAD")), "{found}");
        }
    }
}

#[test]
fn what_would_fail_is_said_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, remedy) in [
        (&["web", "--listen", &address][..], "choose another port"),
        (
            &["web", "--listen", "127.0.0.1:0", "--admin", &address],
            "choose another port",
        ),
        (
            &["cache", "-l", "127.0.0.1", "-p", &port],
            "choose another port",
        ),
        (
            &["cache", "-p", "-1", "-b", "2000000000"],
            "net.core.somaxconn=2000000000",
        ),
        (
            &["cache", "-p", "-1", "-c", "90000000"],
            "fewer connections",
        ),
    ] {
        let (code, found, said) = examine(args);
        assert_eq!(code, Some(1), "{args:?}: {found}");
        let bad: Vec<_> = found
            .lines()
            .filter(|line| line.starts_with("BAD"))
            .collect();
        assert!(
            bad.len() == 1 && bad[0].contains(remedy),
            "{args:?}: {found}"
        );

        assert!(said.contains("one thing is to be changed"), "{said}");
    }
}
