//! The figures of the page in the browser at the admin address.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::running::{PATIENCE, Running, eventually};
use crate::common::blocking;

/// The admin address, as this machine reaches it.
fn admin(server: &Running) -> SocketAddr {
    let address = server
        .line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .unwrap();
    let port = address.parse::<SocketAddr>().unwrap().port();
    ([127, 0, 0, 1], port).into()
}

fn page(address: SocketAddr, host: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();

    (head.to_owned(), body.to_owned())
}

fn figures(address: SocketAddr) -> Value {
    serde_json::from_str(&page(address, "localhost", "/status.json").1).unwrap()
}

fn outcome(figures: &Value, name: &str) -> u64 {
    let outcomes = figures["outcomes"].as_array().unwrap();
    outcomes.iter().find(|pair| pair[0] == name).unwrap()[1]
        .as_u64()
        .unwrap()
}

#[test]
fn figures_tell_how_the_cache_is_doing() {
    for io in ["epoll", "uring"] {
        let server = Running::start(&["--admin", "127.0.0.1:0", "-t", "2", "--io", io, "-m", "32"]);
        let admin = admin(&server);
        let mut client = server.connect();
        client.ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        for _ in 0..200 {
            client.ask("get a\r\nget b\r\n", "VALUE a 0 1\r\nx\r\nEND\r\nEND\r\n");
        }
        eventually("all are counted", || figures(admin)["requests"] == 401);
        let now = figures(admin);

        assert_eq!(
            ["hits", "misses", "sets"].map(|name| outcome(&now, name)),
            [200, 200, 1]
        );
        assert_eq!(
            (&now["connections"]["now"], &now["items"]),
            (&1.into(), &1.into())
        );
        let get = now["latency"]
            .as_array()
            .unwrap()
            .iter()
            .find(|latency| latency["name"] == "get")
            .unwrap();
        assert!(
            get["buckets"]
                .as_array()
                .unwrap()
                .iter()
                .all(|bucket| bucket[0].as_f64().unwrap() < 60.0),
            "{now}"
        );
        let memory = &now["memory"][0];

        assert!(
            memory["max"] == 32 << 20 && memory["now"].as_u64().unwrap() > 0,
            "{now}"
        );
        let workers = now["workers"].as_array().unwrap();

        assert_eq!(
            workers
                .iter()
                .filter(|worker| worker["spare"] == false)
                .count(),
            2,
            "{now}"
        );
        let (head, body) = page(admin, "localhost", "/");
        assert!(
            head.contains("script-src 'nonce-") && body.contains("<title>plainweave</title>"),
            "{head}"
        );
    }
}

/// A key of the meta protocol may be any bytes, in base64.
#[test]
fn a_hot_key_is_shown_whatever_it_is_made_of() {
    let server = Running::start(&["--admin", "127.0.0.1:0"]);
    let admin = admin(&server);
    let mut client = server.connect();

    // The bytes of `<script>"`, 01, ff, a line's end, and a turn of the writing direction.
    let key = "PHNjcmlwdD4iAf8K4oCu";
    for _ in 0..300 {
        client.ask(format!("mg {key} b\r\n"), "EN\r\n");
    }
    let shown = "<script>\"\\u{1}\\xff\\n\\u{202e}";
    eventually("it is hot", || {
        figures(admin)["hot"]["keys"][0]["key"] == shown
    });
    let text = page(admin, "localhost", "/status.json").1;

    assert!(
        !text.bytes().any(|byte| byte < b' ') && text.is_ascii(),
        "{text}"
    );
}

#[test]
fn keys_are_for_this_machine_unless_a_flag_says_so() {
    for (flags, host, shown) in [
        (&["--admin", "127.0.0.1:0"][..], "127.0.0.1", true),
        (&["--admin", "127.0.0.1:0"], "rebound.example", false),
        (&["--admin", "0.0.0.0:0"], "127.0.0.1", false),
        (
            &["--admin", "0.0.0.0:0", "--admin-details"],
            "cache.example",
            true,
        ),
    ] {
        let server = Running::start(flags);
        let admin = admin(&server);
        let mut client = server.connect();
        for _ in 0..300 {
            client.ask("get secret\r\n", "END\r\n");
        }
        let (head, text) = page(admin, host, "/hotkeys");

        assert_eq!(
            (head.starts_with("HTTP/1.1 200"), text.contains("secret")),
            (shown, shown),
            "{flags:?}: {text}"
        );
        assert!(
            shown || (head.starts_with("HTTP/1.1 403") && text.contains("--admin-details")),
            "{head} {text}"
        );
        let (_, text) = page(admin, host, "/status.json");

        assert_eq!(text.contains("secret"), shown, "{flags:?}: {text}");
        let (_, text) = page(admin, host, "/metrics");
        assert!(
            text.contains("plainweave_cache_cmd_get_total 300"),
            "{text}"
        );
    }
}

#[test]
fn stalls_of_the_cache_are_listed() {
    let arguments = [
        &["cache", "-p", "-1", "-l", "127.0.0.1", "-t", "2"][..],
        &["--admin", "127.0.0.1:0", "--report-stalls"],
    ]
    .concat();
    let server = Running::spawn(blocking::command(1, Duration::from_millis(60), &arguments));
    let admin = admin(&server);
    let mut client = server.connect();
    eventually("a stall with its cause", || {
        client.ask("get a\r\n", "END\r\n");
        let now = figures(admin);
        now["stalls"]["last"]
            .as_array()
            .unwrap()
            .iter()
            .any(|stall| !stall["fiber"].is_null())
    });
}
