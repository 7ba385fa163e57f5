//! Clients that ask and do not read, more than there is memory for: the server refuses some and
//! lives on.

use crate::common::group;
use crate::common::scratch::Scratch;
use crate::common::skip;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::group::Group;
use crate::common::{Running, admin, command, eventually, figure, get, output};

const DRIVERS: [&str; 2] = ["epoll", "uring"];
const LARGE: &[u8] = b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n";

/// A directory to serve.
fn site() -> Scratch {
    let site = Scratch::new();
    site.file("small", "here");
    site.file("large", vec![b'x'; 8 << 20]);
    site
}

/// Clients that have asked for a large file.
fn crowd(server: &Running, count: usize) -> Vec<TcpStream> {
    let client = |_| {
        let mut stream = server.connect();
        stream.write_all(LARGE).unwrap();
        stream
    };
    (0..count).map(client).collect()
}

/// The beginning of what the server has answered.
fn status(stream: &mut TcpStream) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    String::from_utf8_lossy(&line[9..]).into_owned()
}

/// Waits until the crowd has been dealt with: as many requests are in progress as there may be, the
/// others refused.
fn settled(server: &Running, crowd: usize) -> usize {
    let figure = |name: &str| figure(admin(server), name) as usize;
    let most = figure("plainweave_requests_in_progress_max");
    eventually("as many requests in progress as there may be", || {
        figure("plainweave_requests_in_progress") == most
            && figure("plainweave_requests_shed_total") == crowd - most
            && figure("plainweave_connections") == most
    });
    most
}

/// A server of 40 MiB; one that took on all 3,000 clients was killed.
#[test]
fn a_crowd_that_does_not_read_does_not_get_the_server_killed() {
    const CROWD: usize = 3000;
    if let Err(why) = group::raise_descriptors(CROWD as u64 + 200) {
        return skip::skip(&why);
    }
    let site = site();

    for driver in DRIVERS {
        let group = match Group::new(&format!("web-{driver}"), 40 << 20) {
            Ok(group) => group,
            Err(why) => return skip::skip(&why),
        };

        let root = site.root().to_str().unwrap();
        let flags = [
            root,
            "--listen",
            "127.0.0.1:0",
            "--io",
            driver,
            "--admin",
            "127.0.0.1:0",
        ];
        let server = Running::spawn(group.around(&command(&flags)));
        let bound = format!(
            " requests at a time in 40 MiB ({}/memory.",
            group.path().display()
        );
        assert!(server.line.contains(&bound), "{}", server.line);
        let mut clients = crowd(&server, CROWD);
        let most = settled(&server, CROWD);
        let mut answers: Vec<String> = clients.iter_mut().map(status).collect();

        answers.sort();
        assert_eq!(
            answers,
            [vec!["200"; most], vec!["503"; CROWD - most]].concat(),
            "{driver}"
        );
        drop(clients);
        let in_progress = "plainweave_requests_in_progress";
        eventually("no request in progress", || {
            figure(admin(&server), in_progress) == 0.0
        });
        assert!(
            get(server.address, "/small").ends_with("\r\n\r\nhere"),
            "a new client is served"
        );
        server.signal();
        let (code, said) = server.end();

        // On a busy machine they are also more than it has time for.
        let refusals = said
            .matches("there is memory for no more; others are answered 503")
            .count();
        assert_eq!((code, refusals), (Some(0), 1), "said once: {said}");
    }
}

/// The same without a group, where a flag says how much memory there is.
#[test]
fn above_the_bound_requests_are_refused_and_connections_are_kept() {
    let site = site();
    for driver in DRIVERS {
        let server = Running::start_in(
            site.root(),
            &[
                "--io",
                driver,
                "--max-memory",
                "24m",
                "--admin",
                "127.0.0.1:0",
            ],
        );
        assert!(
            server
                .line
                .contains(" requests at a time in 24 MiB (--max-memory)"),
            "{}",
            server.line
        );
        let most = figure(admin(&server), "plainweave_requests_in_progress_max") as usize;

        // It has asked before, and is idle meanwhile.
        let mut idle = server.connect();
        idle.write_all(b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        assert_eq!(status(&mut idle), "200");
        let in_progress = "plainweave_requests_in_progress";
        eventually("the end of its turn", || {
            figure(admin(&server), in_progress) == 0.0
        });
        let deaf = crowd(&server, most);

        eventually("as many requests as there may be", || {
            figure(admin(&server), in_progress) == most as f64
        });
        let refused = get(server.address, "/small");
        assert!(
            refused.starts_with("HTTP/1.1 503 ") && refused.contains("\r\nRetry-After: 1\r\n"),
            "{refused}"
        );
        let refusals = "plainweave_http_responses_total{status=\"5xx\"}";
        eventually("the refusal is counted", || {
            figure(admin(&server), refusals) == 1.0
        });
        drop(deaf);
        eventually("no request in progress", || {
            figure(admin(&server), in_progress) == 0.0
        });
        assert!(get(server.address, "/small").starts_with("HTTP/1.1 200 "));
        idle.write_all(b"GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .unwrap();
        assert!(
            crate::common::rest(idle).contains("HTTP/1.1 404 "),
            "idle connections are not refused"
        );
    }
}

#[test]
fn flags_come_before_the_memory_limit() {
    let started = |args: &[&str]| Running::start(args).line.clone();
    // More than the limit has room for.
    let line = started(&["--max-memory", "24m", "--max-connections", "1000"]);
    assert!(line.contains("up to 1000 connections, "), "{line}");
    let line = started(&["--max-memory", "0"]);
    assert!(line.contains("memory not bounded"), "{line}");
    let line = started(&["--max-memory", "24m", "--architecture", "fibers"]);
    let count = |text: &str| text.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
    let (connections, rest) = line.split_once(" connections, ").unwrap();

    assert_eq!(
        count(connections),
        rest.split(' ').next().unwrap().parse::<usize>().unwrap(),
        "{line}"
    );
}

#[test]
fn a_limit_that_is_too_low_is_told() {
    let server = Running::start(&["--max-memory", "4m"]);
    server.signal();
    let (code, said) = server.end();
    assert!(
        code == Some(0) && said.contains("4 MiB (--max-memory) of memory is not enough"),
        "{said}"
    );
    let (code, said) = output(&["--max-memory", "4x"]);

    assert!(
        code == Some(2) && said.contains("write a number of bytes"),
        "{said}"
    );
}
