//! The files that `-s`, `-P` and MEMCACHED_PORT_FILENAME name: what stands there already, and what
//! is left at the end.

use std::io::Read;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::running::{PATIENCE, Running, command};
use crate::common::child::Kept;
use crate::common::scratch::Scratch;

/// Starts a server that is to fail, and gives what it says.
pub(crate) fn refused(args: &[&str]) -> String {
    let mut child =
        Kept::spawn(command(args).stdout(Stdio::null()).stderr(Stdio::piped())).unwrap();
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            status => break status,
        }
    };

    let _ = child.kill();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(
        status.is_some_and(|status| !status.success()),
        "{args:?}: {status:?}"
    );

    said
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = Scratch::new();
    let file = directory.path("file");
    let link = directory.path("link");
    let fifo = directory.path("fifo");
    let inner = directory.path("inner");
    std::fs::write(&file, "precious").unwrap();
    symlink(&file, &link).unwrap();
    std::fs::create_dir(&inner).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );

    for path in [&file, &link, &fifo, &inner] {
        let said = refused(&["-s", path]);
        assert!(
            said.contains(path) && said.contains("not a socket"),
            "{said}"
        );
        assert!(std::fs::symlink_metadata(path).is_ok(), "{path} is gone");
    }

    assert_eq!(read(&file), "precious");
}

#[test]
fn a_socket_in_use_is_refused_and_one_left_behind_is_taken_over() {
    let directory = Scratch::new();
    let path = directory.path("socket");
    drop(UnixListener::bind(&path).unwrap());
    let server = Running::spawn(command(&["-s", &path]));
    assert!(UnixStream::connect(&path).is_ok());
    let said = refused(&["-s", &path]);

    assert!(
        said.contains(&path) && said.contains("choose another file"),
        "{said}"
    );
    assert!(UnixStream::connect(&path).is_ok(), "the first one goes on");
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert!(!Path::new(&path).exists());
}

#[test]
fn what_has_taken_the_socket_s_place_stays() {
    let directory = Scratch::new();
    let path = directory.path("socket");
    let server = Running::spawn(command(&["-s", &path]));
    std::fs::rename(&path, directory.path("moved")).unwrap();
    std::fs::write(&path, "another's").unwrap();
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert_eq!(read(&path), "another's");
}

#[test]
fn a_server_that_does_not_start_leaves_no_socket() {
    let directory = Scratch::new();
    let path = directory.path("socket");
    refused(&["-s", &path, "-P", &directory.path("missing/pid")]);
    assert!(!Path::new(&path).exists());
}

#[test]
fn the_process_s_number_is_written_and_removed_and_no_other_file_is() {
    let directory = Scratch::new();
    let pid = directory.path("pid");
    let other = directory.path("other");

    // That of a server which was killed.
    std::fs::write(&pid, "4194304\n").unwrap();
    let server = Running::start(&["-P", &pid]);
    assert_eq!(read(&pid), format!("{}\n", server.child.id()));
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert!(!Path::new(&pid).exists());

    std::fs::write(&other, "precious").unwrap();
    let said = refused(&["-p", "-1", "-P", &other]);
    assert!(
        said.contains(&other) && said.contains("another file with -P"),
        "{said}"
    );
    assert_eq!(read(&other), "precious");

    let server = Running::start(&["-P", &pid]);
    std::fs::write(&pid, "17\n").unwrap();
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert_eq!(read(&pid), "17\n", "the other server's number stays");
}

#[test]
fn the_ports_are_written_as_memcached_writes_them() {
    let directory = Scratch::new();
    let (ports, missing) = (directory.path("ports"), directory.path("missing/ports"));
    let start = |file: &str, args: &[&str]| {
        let mut command = command(args);
        command.env("MEMCACHED_PORT_FILENAME", file);
        Running::spawn(command)
    };

    std::fs::write(&ports, "of another time").unwrap();
    std::fs::write(format!("{ports}.lck"), "of a server that was killed").unwrap();
    let server = start(
        &ports,
        &[
            "-p",
            "-1",
            "-l",
            "127.0.0.1,127.0.0.2",
            "--admin",
            "127.0.0.1:0",
        ],
    );
    let of = |word: &str| {
        word.trim_end_matches(',')
            .parse::<std::net::SocketAddr>()
            .ok()
    };

    let lines: String = server
        .line
        .split(' ')
        .filter_map(of)
        .map(|at| format!("TCP INET: {}\n", at.port()))
        .collect();
    assert_eq!((read(&ports), lines.lines().count()), (lines, 2));
    assert!(!Path::new(&format!("{ports}.lck")).exists());
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert!(Path::new(&ports).exists(), "it stays, as there");

    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let server = start(&ports, &["-p", "-1", "-l", "::1"]);
        assert_eq!(
            read(&ports),
            format!("TCP INET6: {}\n", server.address.port())
        );
    }

    let server = start(&missing, &["-p", "-1", "-l", "127.0.0.1"]);
    server.connect().ask("mn\r\n", "MN\r\n");
    server.signal();
    let (code, said) = server.end();
    assert!(
        code == Some(0) && said.contains(&missing) && said.contains("MEMCACHED_PORT_FILENAME"),
        "{said}"
    );

    std::fs::remove_file(&ports).unwrap();
    drop(start(&ports, &["-s", &directory.path("socket")]));
    assert!(!Path::new(&ports).exists(), "a Unix socket has no port");
}
