//! Connections: many, idle, leaving, too many, too slow; and the end of the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use super::running::{Client, PATIENCE, Running, command, eventually};
use crate::common::child;
use crate::common::skip::skip;

/// Every way of running connections.
const WAYS: [&[&str]; 10] = [
    &["--io", "epoll"],
    &["--io", "epoll", "--architecture", "fibers", "-t", "1"],
    &["-t", "1"],
    &["--architecture", "fibers"],
    &["--io", "epoll", "--mode", "anytime/own"],
    &[
        "--io",
        "epoll",
        "--mode",
        "anytime/own",
        "--architecture",
        "fibers",
        "--policy",
        "helping",
    ],
    &[
        "--io",
        "uring",
        "--mode",
        "anytime/own",
        "--architecture",
        "fibers",
        "-t",
        "2",
    ],
    &["--architecture", "acceptors"],
    &["--architecture", "event-loops", "-t", "2"],
    &["--io", "uring", "--architecture", "pipeline:2"],
];

#[test]
fn every_way_serves_and_drains() {
    for way in WAYS {
        let server = Running::start(way);
        let mut one = server.connect();
        let mut two = server.connect();
        one.ask(
            "set a 5 0 3\r\nabc\r\nget a\r\n",
            "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\n",
        );
        two.ask("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n");
        one.send("set half 0 0 10\r\n01234");
        two.ask("mn\r\n", "MN\r\n");
        one.ask(
            "56789\r\nget half\r\n",
            "STORED\r\nVALUE half 0 10\r\n0123456789\r\nEND\r\n",
        );
        server.signal();
        assert_eq!(
            (one.rest(), two.rest()),
            (String::new(), String::new()),
            "{way:?}"
        );
        assert_eq!(server.end(), (Some(0), String::new()), "{way:?}");
    }
}

#[test]
fn a_pipeline_is_answered_in_order_and_with_large_values() {
    for way in WAYS {
        let server = Running::start(way);
        let mut client = server.connect();
        let large = "x".repeat(900_000);
        client.ask(format!("set big 0 0 900000\r\n{large}\r\n"), "STORED\r\n");
        let sent: String = (0..500)
            .map(|n| format!("set k{n} {n} 0 3\r\nabc\r\nget k{n}\r\n"))
            .collect();
        let received: String = (0..500)
            .map(|n| format!("STORED\r\nVALUE k{n} {n} 3\r\nabc\r\nEND\r\n"))
            .collect();

        client.ask(sent, received);
        client.ask(
            "get big k1 big\r\n",
            format!("VALUE big 0 900000\r\n{large}\r\nVALUE k1 1 3\r\nabc\r\nVALUE big 0 900000\r\n{large}\r\nEND\r\n"),
        );
    }
}

#[test]
fn a_client_that_vanishes_anywhere_leaves_nothing_behind() {
    let server = Running::start(&[]);
    let text = b"set a 0 0 5\r\nhello\r\nget a\r\nms b 2 c\r\nhi\r\nmg b v\r\nincr n 1\r\n";
    let mut last = server.connect();
    last.ask("mn\r\n", "MN\r\n");
    let before = server.descriptors();

    for end in 0..=text.len() {
        let mut client = server.connect();
        client.send(&text[..end]);
        if end % 2 == 0 {
            let _ = client.0.shutdown(Shutdown::Write);
        }
    }

    eventually("the last one is served in full", || {
        last.until("get n b\r\n", "END").contains("hi")
    });
    // One that is still to be accepted has no descriptor yet.
    let all = text.len() as u64 + 1;
    eventually("all have been accepted", || {
        last.stat("total_connections") == 1 + all
    });
    eventually("the descriptors are freed", || {
        server.descriptors() <= before
    });

    eventually("their places are free", || {
        last.stat("curr_connections") == 1
    });
}

#[test]
fn above_the_limit_newcomers_wait_and_nobody_suffers() {
    let server = Running::start(&["-c", "3"]);
    let mut inside: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    inside
        .iter_mut()
        .for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    let mut outside = server.connect();
    outside.send("version\r\n");

    for client in &mut inside {
        client.ask("get a\r\n", "END\r\n");
        assert_eq!(
            (
                client.stat("accepting_conns"),
                client.stat("curr_connections")
            ),
            (0, 3)
        );
    }

    drop(inside.pop());
    outside.expect("VERSION 1.6.18-plainweave-");
    assert_eq!(inside[0].stat("listen_disabled_num"), 1);
}

/// With -v it says why they wait; and for how long it let nobody in, `stats` knows.
#[test]
fn above_the_limit_an_operator_is_told() {
    let mut server = Running::start(&["-c", "1", "-v"]);
    let mut inside = server.connect();
    inside.ask("mn\r\n", "MN\r\n");
    let mut outside = server.connect();
    outside.send("version\r\n");

    // A look at the queue follows a second after the limit was reached.
    let stderr = server.child.stderr.take().unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        lines
            .filter(|line| line.contains("1 connections are open, and 1 wait"))
            .for_each(|_| tell.send(()).unwrap_or_default());
    });
    told.recv_timeout(PATIENCE).expect("it is said");

    drop(inside);
    outside.expect("VERSION 1.6.18-plainweave-");
    let paused = outside.stat("time_in_listen_disabled_us");
    assert!(paused >= 1_000_000, "{paused}");
}

/// The kernel holds as many as -b says, and no more, whatever the server thinks bearable.
#[test]
fn the_queue_is_as_long_as_was_asked_for() {
    let server = Running::start(&["-b", "7"]);
    server.connect().ask("mn\r\n", "MN\r\n");
    let port = format!("sport = :{}", server.address.port());
    let Ok(listed) = Command::new("ss").args(["-Hltn", &port]).output() else {
        return skip("ss is not installed");
    };

    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.split_whitespace().nth(2), Some("7"), "{listed}");
}

/// A server under limits on descriptors.
fn limited(limits: &str, args: &[&str]) -> Running {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!(
        "{limits}; exec \"$0\" cache -p -1 -l 127.0.0.1 -t 1 \"$@\""
    ));
    shell
        .arg(env!("CARGO_BIN_EXE_plainweave"))
        .args(args)
        .env_remove("PLAINWEAVE_IO");
    Running::spawn(shell)
}

#[test]
fn more_connections_than_descriptors_are_told_and_wait() {
    // The limit that this needs is more than even root may set.
    let server = limited("ulimit -n 120", &["-c", "4000000000"]);
    let mut inside = vec![server.connect()];
    let most = inside[0].stat("max_connections");
    assert!(
        (50..100).contains(&most),
        "{most} connections with 120 descriptors"
    );
    inside.extend((1..most).map(|_| server.connect()));
    inside
        .iter_mut()
        .for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    let mut outside = server.connect();

    outside.send("mn\r\n");
    assert_eq!(inside[0].stat("accepting_conns"), 0);
    inside
        .iter_mut()
        .for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    drop(inside.pop());
    outside.expect("MN\r\n");
    server.signal();
    let (code, said) = server.end();
    let words = format!("and 120 are allowed: {most} connections at a time (raise `ulimit -n`");

    assert!(
        code == Some(0) && said.contains("-c 4000000000 needs ") && said.contains(&words),
        "{said}"
    );
}

#[test]
fn the_limit_on_descriptors_is_raised_where_that_is_enough() {
    let server = limited("ulimit -Sn 60; ulimit -Hn 300", &["-c", "200"]);
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    clients
        .iter_mut()
        .for_each(|client| client.ask("mn\r\n", "MN\r\n"));
    assert_eq!(clients[0].stat("curr_connections"), 200);
    server.signal();
    assert_eq!(server.end(), (Some(0), String::new()));
}

#[test]
fn maxconns_fast_refuses_at_once() {
    let server = Running::start(&["-c", "1", "-o", "maxconns_fast"]);
    let mut inside = server.connect();
    inside.ask("mn\r\n", "MN\r\n");
    assert_eq!(
        server.connect().rest(),
        "ERROR Too many open connections\r\n"
    );
    assert_eq!(inside.stat("rejected_connections"), 1);
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    for way in [&[][..], &["--architecture", "fibers"]] {
        let server = Running::start(&[&["-o", "idle_timeout=1"], way].concat());
        let mut client = server.connect();
        client.ask("mn\r\n", "MN\r\n");
        assert_eq!(client.rest(), "");
        assert_eq!(server.connect().stat("idle_kicks"), 1);
    }
}

#[test]
fn one_that_falls_silent_after_a_full_buffer_is_idle_too() {
    for way in WAYS {
        let server = Running::start(&[&["-o", "idle_timeout=1"], way].concat());
        let mut client = server.connect();
        // Exactly what one read takes, and so that there may be more; twice, in case the first came
        // in parts.
        for _ in 0..2 {
            client.ask("mn\r\n".repeat(4096), "MN\r\n".repeat(4096));
        }
        assert_eq!(client.rest(), "", "{way:?}");
        let mut other = server.connect();

        assert_eq!(
            (other.stat("idle_kicks"), other.stat("slow_readers")),
            (1, 0),
            "{way:?}"
        );
    }
}

#[test]
fn a_slow_reader_is_cut_and_holds_little() {
    let server = Running::start(&["--write-timeout", "1", "-I", "1m"]);
    let mut other = server.connect();
    let value = "x".repeat(500_000);
    other.ask(format!("set big 0 0 500000\r\n{value}\r\n"), "STORED\r\n");
    let before = server.resident();
    let mut slow = server.connect();

    // 5 GB of answers, if the server were to take all of this in.
    let sent = slow.0.write_all("get big\r\n".repeat(10_000).as_bytes());
    drop(sent);
    other.ask("mn\r\n", "MN\r\n");
    assert!(server.resident() < before + (32 << 20));
    eventually("the slow reader is cut", || other.stat("slow_readers") == 1);

    eventually("its connection is gone", || {
        other.stat("curr_connections") == 1
    });
}

/// Replies that nobody reads hold no store: others store and keep their items, whatever the length
/// of the values.
#[test]
fn readers_that_do_not_read_keep_no_others_from_storing() {
    for (size, gets) in [(9_000, 20_000), (300_000, 200)] {
        for way in [
            &["--io", "epoll"][..],
            &["--io", "uring"],
            &["--architecture", "fibers"],
        ] {
            let server = Running::start(&[way, &["-m", "64", "-t", "1", "-c", "200"]].concat());
            let mut other = server.connect();
            let value = "v".repeat(size);
            let keys = 40;
            for n in 0..keys {
                other.ask(format!("set k{n} 0 0 {size}\r\n{value}\r\n"), "STORED\r\n");
            }

            let mut stuck: Vec<Client> = (0..60).map(|_| server.connect()).collect();
            for (n, client) in stuck.iter_mut().enumerate() {
                client
                    .0
                    .set_write_timeout(Some(Duration::from_millis(50)))
                    .unwrap();
                let _ = client
                    .0
                    .write_all(format!("get k{}\r\n", n % keys).repeat(gets).as_bytes());
            }

            let unread = |other: &mut Client| {
                let conns = other.until("stats conns\r\n", "END");
                conns
                    .lines()
                    .filter(|line| line.contains(":unread_bytes "))
                    .count()
            };

            eventually("most of them are stuck, or were cut", || {
                unread(&mut other) + other.stat("cut_connections") as usize >= 50
            });
            assert!(unread(&mut other) >= 10, "not all of them are cut");
            // Four times what there is memory for.
            for n in 0..30_000 {
                other.ask(
                    format!("set new{n} 0 0 {size}\r\n{value}\r\n"),
                    "STORED\r\n",
                );
                if (n + 1) * size > 256 << 20 {
                    break;
                }
            }

            assert_eq!(other.stat("store_no_memory"), 0, "{size} {way:?}");
            let kept = other.stat("bytes");
            assert!(
                kept > 24 << 20,
                "{kept} bytes of items are left, {size} {way:?}"
            );

            // Nor do they keep the server from its end.
            let start = std::time::Instant::now();
            server.signal();
            let said = server.end();
            assert_eq!(said.0, Some(0), "{said:?}");
            assert!(
                start.elapsed() < Duration::from_secs(9),
                "before its grace is over: {:?}",
                start.elapsed()
            );
        }
    }
}

/// What is too long is answered, counted and said; the connection goes on.
#[test]
fn a_get_of_too_many_keys_is_refused_and_the_connection_goes_on() {
    const MOST: usize = 8 << 20;
    for way in WAYS {
        let server = Running::start(way);
        let mut client = server.connect();
        // As memcached: 200,000 keys of 11 bytes.
        client.ask("set k:0000001 0 0 1\r\nx\r\n", "STORED\r\n");
        let keys: String = (0..200_000).map(|n| format!(" k:{n:07}")).collect();
        client.ask(
            format!("get{keys}\r\n"),
            "VALUE k:0000001 0 1\r\nx\r\nEND\r\n",
        );

        for _ in 0..2 {
            client.send("get ");
            client.send("key ".repeat(MOST / 4 + 500_000));
            client.send("key\r\nmn\r\n");
            let line = client.line();
            assert!(
                line.starts_with("SERVER_ERROR ") && line.contains(&MOST.to_string()),
                "{line}"
            );
            client.expect("MN\r\n");
        }

        assert_eq!(
            (client.stat("long_lines"), client.stat("memory_budget_used")),
            (2, 0)
        );
        drop(client);
        server.signal();
        let (code, said) = server.end();
        assert_eq!(code, Some(0));
        assert!(
            said.contains("127.0.0.1") && said.matches("long_lines").count() == 1,
            "once, and who: {said}"
        );
    }
}

#[test]
fn a_get_of_very_many_keys_holds_little_while_it_is_not_read() {
    const KEYS: usize = 100_000;
    for way in WAYS {
        let server = Running::start(way);
        let mut client = server.connect();
        let value = |name: &str| name.repeat(4000);

        for name in ["a", "b"] {
            client.ask(
                format!("set {name} 0 0 4000\r\n{}\r\n", value(name)),
                "STORED\r\n",
            );
        }

        let before = server.resident();
        client.send(format!("get{}\r\nmn\r\n", " a b".repeat(KEYS / 2)));
        // The first value has come, so the line is being answered; others are served meanwhile.
        let pair: String = ["a", "b"]
            .map(|name| format!("VALUE {name} 0 4000\r\n{}\r\n", value(name)))
            .concat();
        client.expect(&pair);
        let mut other = server.connect();

        for _ in 0..100 {
            other.ask("mn\r\n", "MN\r\n");
        }
        assert!(
            server.resident() < before + (8 << 20),
            "{way:?}: {} MB",
            server.resident() >> 20
        );
        (1..KEYS / 2).for_each(|_| client.expect(&pair));
        client.expect("END\r\nMN\r\n");
        assert!(
            server.resident() < before + (8 << 20),
            "{way:?}: {} MB",
            server.resident() >> 20
        );
    }
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let path = std::env::temp_dir().join(format!("plainweave-cache-{}.sock", std::process::id()));
    let text = path.to_str().unwrap();
    let server = Running::spawn(command(&["-s", text, "-a", "770"]));
    assert!(server.line.contains(text), "{}", server.line);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"set a 0 0 1\r\n1\r\nget a\r\n").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut got = [0; 29];

    std::io::Read::read_exact(&mut stream, &mut got).unwrap();
    assert_eq!(&got, b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    drop(stream);
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert!(!path.exists());
}

#[test]
fn shutdown_is_obeyed_where_it_is_allowed() {
    let server = Running::start(&["-A"]);
    server.connect().send("shutdown\r\n");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn it_says_what_it_is() {
    for (flag, words) in [
        ("-V", "1.6.18-plainweave-"),
        ("--version", "1.6.18-plainweave-"),
        ("-i", "MIT"),
        ("--license", "MIT"),
    ] {
        let output = child::output(&mut command(&[flag])).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains(words),
            "{flag}: {said}"
        );
    }
}

#[test]
fn wrong_usage_says_what_to_do() {
    for (args, words) in [
        (&["-l", "256.0.0.1"][..], "write ADDRESS or ADDRESS:PORT"),
        (&["-l", "192.0.2.1"], "choose another with -l"),
        (&["-p", "0"], "nothing to listen on"),
        (&["-o", "nonsense"], "idle_timeout=SECONDS"),
        (&["-I", "2g"], "1k to 1024m"),
        (&["-U", "11211"], "UDP is not here"),
        (&["--policy", "nonsense"], "fifo"),
    ] {
        let output = child::output(&mut command(args)).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(words),
            "{args:?}: {said}"
        );
    }
}

/// Clients that have the next command ready at once do not keep the server, whoever waits for them.
#[test]
fn clients_that_are_never_idle_do_not_delay_a_stop() {
    for way in WAYS {
        let server = Running::start(&[way, &["--grace", "60"]].concat());
        let hammering: Vec<_> = (0..4)
            .map(|_| {
                let Client(mut client) = server.connect();
                std::thread::spawn(move || {
                    let mut answers = 0;
                    while client.write_all(b"mn\r\n").is_ok()
                        && client.read_exact(&mut [0; 4]).is_ok()
                    {
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100)); // They are at it.
        server.signal();
        assert_eq!(server.end(), (Some(0), String::new()), "{way:?}");
        for client in hammering {
            assert!(client.join().unwrap() > 0);
        }
    }
}
