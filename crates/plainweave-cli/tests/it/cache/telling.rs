//! What the server tells: `watch`, `lru_crawler metadump`, and the admin address.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::packet::{of_key, store};
use super::running::{PATIENCE, Running, eventually};

/// A page of the admin address: its status line and its body.
fn page(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();

    (
        head.lines().next().unwrap_or_default().to_owned(),
        body.to_owned(),
    )
}

#[test]
fn the_admin_address_has_health_metrics_and_hot_keys() {
    let server = Running::start(&["--admin", "127.0.0.1:0"]);
    let admin = server
        .line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .unwrap();
    let admin: SocketAddr = admin.parse().unwrap();
    let mut client = server.connect();
    client.ask("set hot 0 0 1\r\nx\r\n", "STORED\r\n");
    for _ in 0..1000 {
        client.ask("get hot\r\n", "VALUE hot 0 1\r\nx\r\nEND\r\n");
    }
    assert_eq!(
        page(admin, "GET /health"),
        ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned())
    );
    let (status, metrics) = page(admin, "GET /metrics");

    assert_eq!(status, "HTTP/1.1 200 OK");
    let value = |name: &str| {
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}"))
            .parse::<f64>()
            .unwrap()
    };

    assert_eq!(
        (
            value("plainweave_cache_cmd_get_total"),
            value("plainweave_cache_cmd_set_total")
        ),
        (1000.0, 1.0)
    );
    assert_eq!(
        (
            value("plainweave_cache_items"),
            value("plainweave_cache_connections")
        ),
        (1.0, 1.0)
    );
    let timed = value("plainweave_cache_command_seconds_count{command=\"get\"}");
    assert!(timed > 10.0, "one turn in 16 is timed: {timed}");
    assert_eq!(
        value("plainweave_cache_command_seconds_bucket{command=\"get\",le=\"+Inf\"}"),
        timed
    );

    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        assert!(
            line.rsplit_once(' ')
                .is_some_and(|(_, value)| value.parse::<f64>().is_ok()),
            "{line}"
        );
    }

    let (_, hot) = page(admin, "GET /hotkeys");
    assert!(
        hot.lines()
            .nth(1)
            .is_some_and(|line| line.ends_with(" hot")),
        "{hot}"
    );
    let (status, fibers) = page(admin, "GET /fibers?stacks=1");
    assert!(
        status == "HTTP/1.1 200 OK" && fibers.starts_with("runtime main: "),
        "{fibers}"
    );
    assert_eq!(page(admin, "GET /nothing").0, "HTTP/1.1 404 Not Found");

    assert_eq!(
        page(admin, "DELETE /metrics").0,
        "HTTP/1.1 405 Method Not Allowed"
    );
}

#[test]
fn metadump_lists_every_item() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    for n in 0..1200 {
        client.ask(format!("set key\"{n} {n} 0 3\r\nabc\r\n"), "STORED\r\n");
    }
    client.ask(
        "set ends 0 1000 1\r\nx\r\nget ends\r\n",
        "STORED\r\nVALUE ends 0 1\r\nx\r\nEND\r\n",
    );
    // A key that only the binary protocol can have.
    let binary = store(0x01, b"\x80 \r\n", b"x");
    let mut packets = server.connect();
    packets.send(binary);
    packets.expect_len(24);
    let commands = client.until("lru_crawler mgdump all\r\n", "EN");
    assert_eq!(commands.lines().count(), 1203);
    assert!(commands.contains("mg key\"17\r\n") && commands.contains("mg gCANCg== b\r\n"));
    packets.send(of_key(0x04, b"\x80 \r\n"));
    packets.expect_len(24);
    let dump = client.until("lru_crawler metadump all\r\n", "END");
    let lines: Vec<&str> = dump.lines().collect();

    assert_eq!(lines.len(), 1202, "each item once, and the end");
    assert!(
        (0..1200).all(|n| dump.contains(&format!("key=key%22{n} exp=-1 "))),
        "{dump}"
    );
    let ends = lines
        .iter()
        .find(|line| line.starts_with("key=ends "))
        .unwrap();
    let words: Vec<(&str, &str)> = ends
        .split(' ')
        .filter_map(|word| word.split_once('='))
        .collect();
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();

    assert_eq!(names, ["key", "exp", "la", "cas", "fetch", "cls", "size"]);
    let exp = words[1].1.parse::<i64>().unwrap();
    let la = words[2].1.parse::<i64>().unwrap();

    assert!(
        (exp - la).abs_diff(1000) <= 5 && words[4].1 == "yes",
        "{ends}"
    );
    client.ask("mn\r\n", "MN\r\n");
}

#[test]
fn watchers_see_what_they_asked_for() {
    let server = Running::start(&["-m", "4", "-t", "1", "-I", "64k"]);
    let mut all = server.connect();
    let mut fetches = server.connect();
    let mut evictions = server.connect();
    fetches.ask("watch\r\n", "OK\r\n");
    evictions.ask("watch evictions\r\n", "OK\r\n");
    all.ask("watch fetchers mutations connevents\r\n", "OK\r\n");
    let mut client = server.connect();

    client.ask(
        "set a 0 100 3\r\nabc\r\nget a none\r\n",
        "STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n",
    );
    let found = (0..4).map(|_| all.line()).collect::<String>();
    let types: Vec<&str> = found
        .split(" type=")
        .skip(1)
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    assert_eq!(
        types,
        ["conn_new", "item_store", "item_get", "item_get"],
        "{found}"
    );
    assert!(
        found.contains("key=a status=stored cmd=set ttl=100 "),
        "{found}"
    );
    assert!(
        found.contains("key=a status=found ") && found.contains("key=none status=not_found "),
        "{found}"
    );
    let fetched = fetches.line();

    assert!(
        fetched.contains("type=item_get key=a status=found"),
        "{fetched}"
    );
    for n in 0..400 {
        client.send(format!(
            "set long{n} 0 0 30000 noreply\r\n{}\r\n",
            "v".repeat(30_000)
        ));
    }

    let evicted = evictions.line();
    assert!(evicted.contains(" type=eviction key="), "{evicted}");
    for word in [" fetch=", " ttl=", " la=", " clsid=", " size="] {
        assert!(evicted.contains(word), "no {word} in {evicted}");
    }
    client.ask("mn\r\n", "MN\r\n");
    drop(client);
    while !all.line().contains(" type=conn_close ") {}

    // What is not sent here is not accepted either.
    for kind in ["sysevents", "rawcmds", "proxyreqs", "nonsense"] {
        server
            .connect()
            .ask(format!("watch {kind}\r\n"), "ERROR\r\n");
    }
}

#[test]
fn who_watches_is_not_idle() {
    for way in [&[][..], &["--architecture", "fibers"]] {
        let server = Running::start(&[&["-o", "idle_timeout=1"], way].concat());
        let mut watcher = server.connect();
        watcher.ask("watch connevents\r\n", "OK\r\n");

        // Each of these is idle for as long as the watcher is, and then more.
        for _ in 0..2 {
            assert_eq!(server.connect().rest(), "");
            let line =
                std::iter::repeat_with(|| watcher.line()).find(|line| line.contains("conn_close"));
            assert!(
                line.is_some_and(|line| line.contains("reason=idle_timeout")),
                "{way:?}"
            );
        }
    }
}

#[test]
fn more_is_said_when_asked_for() {
    for (flag, said) in [(None, 0), (Some("-v"), 1), (Some("-vv"), 2)] {
        let server = Running::start(flag.as_slice());
        let mut client = server.connect();
        let peer = client.0.local_addr().unwrap();
        client.ask("mn\r\nquit\r\n", "MN\r\n");
        assert_eq!(client.rest(), "");
        server.signal();
        let (code, text) = server.end();
        let lines: Vec<&str> = text.lines().collect();
        let start = "plainweave cache: started with -m 64 -I 1048576 -t ";
        let opened = format!("plainweave cache: connection 1 from {peer} opened");
        let has = |line: &str| lines.iter().any(|said| said.starts_with(line));
        let start_and_stop = [
            start,
            "plainweave cache: a signal has asked to stop",
            "plainweave cache: stopped",
        ];

        assert_eq!(
            (code, start_and_stop.map(has)),
            (Some(0), [said >= 1; 3]),
            "{text}"
        );
        let connection = [&*opened, "plainweave cache: connection 1 closed (normal)"];
        assert_eq!(connection.map(has), [said == 2; 2], "{text}");
    }
}

#[test]
fn verbosity_changes_while_the_server_runs() {
    let server = Running::start(&["-A"]);
    let mut client = server.connect();
    client.ask("verbosity 2\r\n", "OK\r\n");
    server.connect().ask("mn\r\n", "MN\r\n");
    client.ask("verbosity 1\r\n", "OK\r\n");
    server.connect().ask("mn\r\n", "MN\r\n");
    client.send("shutdown\r\n");
    let (_, text) = server.end();

    assert!(
        text.contains("connection 2 from 127.0.0.1:") && !text.contains("connection 3 from"),
        "{text}"
    );
    assert!(
        text.contains("a client has asked to stop") && !text.contains("started"),
        "{text}"
    );
}

#[test]
fn a_crawl_takes_all_that_has_gone() {
    let server = Running::start(&["-t", "1"]);
    let mut client = server.connect();
    let sets: String = (0..50_000)
        .map(|n| format!("set k{n} 0 0 1 noreply\r\nx\r\n"))
        .collect();
    client.ask(
        format!("{sets}set ends 0 -1 1\r\nx\r\nflush_all\r\n"),
        "STORED\r\nOK\r\n",
    );
    client.ask(
        "set stays 0 0 1\r\nx\r\nlru_crawler crawl all\r\n",
        "STORED\r\nOK\r\n",
    );

    eventually("only what is there is counted", || {
        client.stat("curr_items") == 1
    });
}
