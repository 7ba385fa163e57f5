//! Clients that ask and do not read, more than there is memory for: the server refuses some and
//! lives on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::running::{Client, Running, command, eventually};
use crate::common::group::{self, Group};
use crate::common::skip::skip;

/// Starts a server with `-m 24` in a group with 48 MiB, for values of 8 MB. An error is why there
/// can be no group.
pub(super) fn within_48_mib(
    name: &str,
    driver: &str,
    more: &[&str],
) -> Result<(Group, Running), String> {
    let group = Group::new(name, 48 << 20)?;
    let memory = ["-m", "24", "-I", "16m"];
    let engine = ["-p", "-1", "-l", "127.0.0.1", "-t", "2", "--io", driver];
    let command = command(&[&memory[..], &engine, more].concat());
    let server = Running::spawn(group.around(&command));
    Ok((group, server))
}

/// The store is full, and the last value is large.
pub(super) fn fill(server: &Running) {
    let mut client = server.connect();
    let value = vec![b'v'; 8 << 20];
    let mut set = |key: &str, len: usize| {
        client.send(format!("set {key} 0 0 {len}\r\n"));
        client.send(&value[..len]);
        client.ask("\r\n", "STORED\r\n");
    };

    (0..28).for_each(|n| set(&format!("k{n}"), 900_000));
    set("large", value.len());
}

/// How many connections may be served at a time, by the start-up line.
fn served_at_a_time(line: &str) -> usize {
    let before = line.split_once(" served at a time in ").expect(line).0;
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Whether a new client is served.
fn serves(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"set a 0 0 1\r\nb\r\n").unwrap();
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line == "STORED\r\n"
}

/// `-m 24` in 48 MiB; a server that took on all 900 clients was killed.
#[test]
fn a_crowd_that_does_not_read_does_not_get_the_server_killed() {
    const CROWD: usize = 900;
    if let Err(why) = group::raise_descriptors(CROWD as u64 + 100) {
        return skip(&why);
    }
    for driver in ["epoll", "uring"] {
        let name = format!("cache-{driver}");
        let (group, server) = match within_48_mib(&name, driver, &[]) {
            Ok(started) => started,
            Err(why) => return skip(&why),
        };
        let limit = format!(
            " served at a time in 48 MiB ({}/memory.",
            group.path().display()
        );
        assert!(server.line.contains(&limit), "{}", server.line);
        fill(&server);
        let mut crowd: Vec<Client> = (0..CROWD).map(|_| server.connect()).collect();

        crowd
            .iter_mut()
            .for_each(|client| client.send("get large\r\n"));
        let served = crowd.iter_mut().map(|client| {
            let mut begun = [0; 6];
            client.0.read_exact(&mut begun).unwrap();
            match &begun {
                b"VALUE " => true,
                _ => {
                    assert_eq!(&begun, b"SERVER");
                    assert_eq!(client.rest(), "_ERROR out of memory reading request\r\n");
                    false
                }
            }
        });

        let served = served.filter(|served| *served).count();
        let most = served_at_a_time(&server.line);
        // An idle worker's scratch is there in any case.
        assert!(
            (most..=most + 2).contains(&served),
            "{driver}: {served} of {most} served"
        );
        drop(crowd);
        eventually("a new client is served", || serves(server.address));
        let mut client = server.connect();

        assert_eq!(client.stat("shed_connections") as usize, CROWD - served);
        server.signal();
        let (code, said) = server.end();
        assert!(
            code == Some(0) && said.contains("there is memory for no more; others are closed"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "said once: {said}");
    }
}

/// Values that begin and do not end; what they grew in was kept by `malloc`, and the server was
/// killed.
#[test]
fn values_that_are_begun_do_not_get_the_server_killed() {
    for driver in ["epoll", "uring"] {
        let name = format!("cache-values-{driver}");
        let (_group, server) = match within_48_mib(&name, driver, &[]) {
            Ok(started) => started,
            Err(why) => return skip(&why),
        };
        fill(&server);
        let value = vec![b'v'; 8 << 20];
        let begin = |len: usize| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream
                .set_write_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            // What is refused may be reset, too.
            let _ = write!(stream, "set v 0 0 {len}\r\n")
                .and_then(|()| stream.write_all(&value[..len / 2]));
            stream
        };

        // Each round finds what the one before has left behind.
        for round in 0..8 {
            drop(
                (0..60)
                    .map(|n| begin((n * 7 + round * 3) % 16 * (512 << 10) + (300 << 10)))
                    .collect::<Vec<_>>(),
            );
            eventually("a new client is served", || serves(server.address));
        }

        server.signal();
        assert_eq!(server.end().0, Some(0), "{driver}");
    }
}

#[test]
fn an_idle_connection_is_served_when_slow_readers_have_left() {
    let server = Running::start(&["-m", "24", "-I", "16m", "--max-memory", "64m", "-t", "1"]);
    let most = served_at_a_time(&server.line);
    let mut idle = server.connect();
    idle.ask("mn\r\n", "MN\r\n");
    fill(&server);
    let mut slow: Vec<Client> = (0..=most).map(|_| server.connect()).collect();

    slow.iter_mut().for_each(|client| {
        client.send("get large\r\n");
        client.expect("VALUE large 0 8388608\r\n");
    });
    assert!(!serves(server.address));

    // It sends nothing, so it is not refused.
    drop(slow);
    eventually("a new client is served", || serves(server.address));
    idle.ask("mn\r\n", "MN\r\n");
    assert!(idle.stat("shed_connections") > 0);
}

#[test]
fn flags_come_before_the_memory_limit() {
    let line = |args: &[&str]| Running::start(args).line.clone();
    let derived = line(&["-m", "24", "--max-memory", "40m"]);
    assert!(
        !derived.contains("up to 1024 ") && derived.contains(" in 40 MiB (--max-memory)"),
        "{derived}"
    );
    let given = line(&["-m", "24", "--max-memory", "40m", "-c", "1000"]);
    assert!(given.contains("up to 1000 connections, "), "{given}");
    let without = line(&["-m", "24", "--max-memory", "0"]);

    assert!(
        without.contains("up to 1024 connections, memory not bounded"),
        "{without}"
    );
}

#[test]
fn a_store_that_does_not_fit_the_limit_is_told() {
    let server = Running::start(&["-m", "64", "--max-memory", "64m"]);
    assert!(serves(server.address));
    server.signal();
    let (code, said) = server.end();
    assert!(
        code == Some(0) && said.contains("is not enough for -m 64 and"),
        "{said}"
    );
}
