//! `plainweave load cache` against servers that do as a script says.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::cache::running::Running;
use crate::common::scratch::Scratch;
use crate::scripted::{Figures, drivers, load, server};

/// What a server was asked.
#[derive(Debug, Default)]
struct Seen {
    stored: HashMap<String, usize>,
    gets: usize,
    sets: usize,
}

/// A cache that keeps to the protocol as far as this program speaks it, and counts. `lose` says
/// which keys it forgets.
fn cache(lose: fn(&str) -> bool) -> (SocketAddr, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let kept = seen.clone();
    let address = server(move |stream, _| {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            let mut answer = Vec::new();
            {
                let mut seen = kept.lock().unwrap();
                if words[0] == "set" {
                    seen.sets += 1;
                    let size = words[4].parse().unwrap();
                    let mut value = vec![0; size + 2];
                    stream.read_exact(&mut value).unwrap();
                    assert!(value.ends_with(b"\r\n"));
                    seen.stored.insert(words[1].clone(), size);
                    answer.extend_from_slice(b"STORED\r\n");
                } else {
                    seen.gets += 1;
                    assert_eq!((words[0].as_str(), words.len()), ("get", 2));
                    if let Some(size) = seen.stored.get(&words[1]).filter(|_| !lose(&words[1])) {
                        answer.extend_from_slice(
                            format!("VALUE {} 0 {size}\r\n", words[1]).as_bytes(),
                        );
                        answer.resize(answer.len() + size, b'v');
                        answer.extend_from_slice(b"\r\n");
                    }

                    answer.extend_from_slice(b"END\r\n");
                }
            }
            if stream.get_mut().write_all(&answer).is_err() {
                return;
            }
            line.clear();
        }
    });

    (address, seen)
}

/// Runs `load cache` on each driver there is; the result of each.
fn on_drivers(address: SocketAddr, code: i32, args: &[&str]) -> Vec<Figures> {
    let server = address.to_string();
    let with = |driver| {
        Figures::of(
            code,
            &[
                &["cache", &server, "--json", "--io", driver, "--workers", "1"],
                args,
            ]
            .concat(),
        )
    };
    drivers().iter().map(|driver| with(*driver)).collect()
}

#[test]
fn keys_come_from_a_file() {
    let folder = Scratch::new();
    let path = &folder.file("keys", "user:7 40\n\nuser:8\r\nsession/\u{fc}\nuser:7\n");
    let (address, seen) = cache(|_| false);
    let args = [
        "-c",
        "2",
        "-n",
        "100",
        "--keys-from",
        path,
        "--value-size",
        "9",
    ];

    for result in on_drivers(address, 0, &args) {
        assert_eq!(
            ["ok", "errors", "misses"].map(|name| result.figure(name)),
            [100.0, 0.0, 0.0]
        );
    }

    let sizes = |seen: &Seen| {
        let mut stored: Vec<_> = seen.stored.clone().into_iter().collect();
        stored.sort();
        stored
    };

    let expected = [("session/\u{fc}", 9), ("user:7", 40), ("user:8", 9)];
    let expected = expected.map(|(key, size)| (key.to_owned(), size));
    assert_eq!(sizes(&seen.lock().unwrap()), expected);

    // What is there already may have any size, and is not stored again.
    seen.lock()
        .unwrap()
        .stored
        .insert("user:8".to_owned(), 1234);
    let sets = seen.lock().unwrap().sets;
    for result in on_drivers(address, 0, &[&args[..], &["--no-load"]].concat()) {
        assert_eq!(
            ["ok", "errors", "misses"].map(|name| result.figure(name)),
            [100.0, 0.0, 0.0]
        );
    }

    assert_eq!(seen.lock().unwrap().sets, sets);
}

#[test]
fn a_wrong_line_of_keys_is_named() {
    let folder = Scratch::new();
    let long = "k".repeat(251);
    let cases = [
        (
            "a\nb c\n",
            "keys:2: write a key, or a key and the bytes of its value",
        ),
        ("a 1000001\n", "keys:1: write a key"),
        ("a 1 2\n", "keys:1: write a key"),
        (&*long, "keys:1: a key has at most 250 bytes"),
        (
            "a\x07b\n",
            "keys:1: a key has at most 250 bytes, and no control characters",
        ),
        ("\n \n", "keys: there is no key in it"),
    ];

    for (text, expected) in cases {
        let file = folder.file("keys", text);
        let (_, _, error) = load(&["cache", "127.0.0.1:9", "--keys-from", &file]);
        assert!(error.contains(expected), "{text:?}: {error}");
    }

    let missing = folder.path("missing");
    let (_, _, error) = load(&["cache", "127.0.0.1:9", "--keys-from", &missing]);
    assert!(error.contains("missing: No such file"), "{error}");
}

#[test]
fn keys_are_stored_then_asked_for() {
    for depth in ["1", "8"] {
        let (address, seen) = cache(|_| false);
        let args = [
            "-c",
            "4",
            "-n",
            "1000",
            "--keys",
            "50",
            "--key-size",
            "12",
            "--value-size",
            "uniform:300",
        ];
        let all = on_drivers(
            address,
            0,
            &[&args[..], &["--depth", depth, "--set-ratio", "0.25"]].concat(),
        );
        for result in &all {
            let figures = ["ok", "errors", "misses"].map(|name| result.figure(name));
            assert_eq!(figures, [1000.0, 0.0, 0.0]);
        }

        let seen = seen.lock().unwrap();
        let runs = all.len();
        assert_eq!(
            (seen.stored.len(), seen.gets + seen.sets),
            (50, runs * 1050)
        );
        assert!(seen.stored.keys().all(|key| key.len() == 12), "{seen:?}");
        let sets = (seen.sets - runs * 50) as f64 / (runs * 1000) as f64;

        assert!((0.2..0.3).contains(&sets), "{sets} of the requests stored");
        let sizes: std::collections::HashSet<_> = seen.stored.values().collect();

        assert!(
            sizes.len() > 20 && seen.stored.values().all(|size| *size < 300),
            "{sizes:?}"
        );
    }
}

#[test]
fn misses_are_counted() {
    let (address, seen) = cache(|key| key.ends_with('7'));
    for result in on_drivers(
        address,
        0,
        &["-c", "2", "-n", "500", "--keys", "100", "--zipf", "0"],
    ) {
        let misses = result.figure("misses");
        assert!(
            result.figure("ok") == 500.0 && (20.0..90.0).contains(&misses),
            "{misses}"
        );
    }

    assert!(seen.lock().unwrap().gets >= 500);
    for result in on_drivers(cache(|_| false).0, 0, &["-c", "1", "-n", "10", "--no-load"]) {
        assert_eq!(
            (result.figure("ok"), result.figure("misses")),
            (10.0, 10.0),
            "nothing was stored"
        );
    }
}

#[test]
fn a_few_large_values() {
    for result in on_drivers(
        cache(|_| false).0,
        0,
        &[
            "-c",
            "2",
            "-n",
            "20",
            "--keys",
            "3",
            "--value-size",
            "900000",
        ],
    ) {
        assert_eq!((result.figure("ok"), result.figure("errors")), (20.0, 0.0));
        assert!(result.figure("received_bytes") > 18e6);
    }
}

#[test]
fn all_servers_are_loaded() {
    let servers = [cache(|_| false), cache(|_| false)];
    let addresses = servers.each_ref().map(|(address, _)| address.to_string());
    let args = [
        "-c",
        "4",
        "-n",
        "400",
        "--keys",
        "20",
        "--workers",
        "1",
        "--json",
        "--rate",
        "4000",
        "--min-rate",
        "0",
    ];
    let result = Figures::of(
        0,
        &[&["cache", &addresses[0], &addresses[1]], &args[..]].concat(),
    );
    assert_eq!((result.figure("ok"), result.figure("misses")), (400.0, 0.0));

    for (_, seen) in &servers {
        let seen = seen.lock().unwrap();
        assert!(seen.stored.len() == 20 && seen.gets > 0, "{seen:?}");
    }
}

#[test]
fn failures_are_counted_by_kind() {
    for (answer, kind) in [
        ("SERVER_ERROR out of memory\r\n", "error reply"),
        ("HTTP/1.1 400 Bad Request\r\n", "garbage"),
        ("VALUE another 0 1\r\nx\r\nEND\r\n", "garbage"),
        ("VALUE 00", "closed within an answer"),
        ("", "closed without an answer"),
    ] {
        let address = server(move |stream: TcpStream, _| {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                if stream.get_mut().write_all(answer.as_bytes()).is_err() || !answer.ends_with('\n')
                {
                    return;
                }
            }
        });

        for result in on_drivers(address, 1, &["-c", "2", "-n", "6", "--no-load"]) {
            assert_eq!(
                (result.figure("ok"), result.errors(kind)),
                (0.0, 6),
                "{kind}: {answer:?}"
            );
        }
    }
}

#[test]
fn a_load_phase_that_fails_is_said() {
    let address = server(|stream, _| {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        // A command and its value.
        while (0..2).all(|_| stream.read_line(&mut line).is_ok_and(|read| read > 0)) {
            if stream.get_mut().write_all(b"SERVER_ERROR no\r\n").is_err() {
                return;
            }
        }
    });

    let (code, _, error) = load(&["cache", &address.to_string(), "--timeout", "2s"]);
    assert!(
        code == Some(3)
            && error.contains("the load phase failed: error reply, \"SERVER_ERROR no\""),
        "{code:?} {error}"
    );
}

#[test]
fn a_cache_answers_classic_and_meta_commands() {
    let server = Running::start(&["-t", "1"]);
    let of = |args: &[&str]| {
        on_drivers(
            server.address,
            0,
            &[&["-c", "2", "-n", "600", "--keys", "40"], args].concat(),
        )
    };

    for protocol in ["classic", "meta"] {
        for (many, depth) in [("1", "1"), ("10", "1"), ("7", "4")] {
            let args = [
                "--protocol",
                protocol,
                "--multi-get",
                many,
                "--depth",
                depth,
                "--value-size",
                "uniform:3000",
            ];
            for result in of(&[&args[..], &["--set-ratio", "0.3", "--zipf", "1"]].concat()) {
                let figures = ["ok", "errors", "misses"].map(|name| result.figure(name));
                assert_eq!(figures, [600.0, 0.0, 0.0], "{args:?}: {}", result.0);
            }

            // What was deleted is missing.
            for result in
                of(&[&args[..], &["--set-ratio", "0.1", "--delete-ratio", "0.2"]].concat())
            {
                let misses = result.figure("misses");
                assert!(
                    result.figure("ok") == 600.0 && misses > 60.0 && misses < 600.0,
                    "{args:?}: {}",
                    result.0
                );
            }
        }

        for result in of(&["--protocol", protocol, "--delete-ratio", "1"]) {
            assert_eq!(
                (result.figure("ok"), result.figure("misses")),
                (600.0, 560.0),
                "each of 40 keys is there once"
            );
        }
    }
}

#[test]
fn values_of_another_key_or_length_are_noticed() {
    for (answer, args, kind) in [
        (
            "VALUE 0 0 1\r\nx\r\nEND\r\n",
            &["--multi-get", "2"][..],
            "wrong length",
        ),
        ("VALUE 2 0 200\r\n", &["--multi-get", "2"], "garbage"),
        ("VA 1 k0\r\nx\r\n", &["--protocol", "meta"], "wrong length"),
        ("VALUE 0 0 1\r\nx\r\n", &["--protocol", "meta"], "garbage"),
        (
            "CLIENT_ERROR no\r\nMN\r\n",
            &["--protocol", "meta", "--multi-get", "2"],
            "error reply",
        ),
        ("STORED\r\n", &["--delete-ratio", "1"], "garbage"),
    ] {
        let last = if args.contains(&"meta") && args.contains(&"2") {
            "mn\r\n"
        } else {
            "\r\n"
        };

        let address = server(move |stream: TcpStream, _| {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                if line.ends_with(last) && stream.get_mut().write_all(answer.as_bytes()).is_err() {
                    return;
                }
                line.clear();
            }
        });

        // The only key is `0`.
        let args = [
            &[
                "-c",
                "1",
                "-n",
                "3",
                "--no-load",
                "--keys",
                "1",
                "--key-size",
                "1",
            ],
            args,
        ]
        .concat();
        for result in on_drivers(address, 1, &args) {
            assert_eq!(
                (result.figure("ok"), result.errors(kind)),
                (0.0, 3),
                "{kind}: {answer:?}: {}",
                result.0
            );
        }
    }
}

#[test]
fn servers_get_connections_by_weight() {
    let servers = [cache(|_| false), cache(|_| false)];
    let addresses = servers.each_ref().map(|(address, _)| address.to_string());
    // Two workers: each goes on where the other's connections end.
    let args = [
        "-c",
        "4",
        "-n",
        "400",
        "--keys",
        "20",
        "--workers",
        "2",
        "--weights",
        "3,1",
        "--no-load",
        "--json",
    ];
    let result = Figures::of(
        0,
        &[&["cache", &addresses[0], &addresses[1]], &args[..]].concat(),
    );
    assert_eq!(result.figure("ok"), 400.0);
    let gets = servers
        .each_ref()
        .map(|(_, seen)| seen.lock().unwrap().gets);

    assert!(gets[0] > gets[1] && gets[1] > 0, "{gets:?}");
    for (args, said) in [
        (&["--weights", "1"][..], "--weights has 1"),
        (&["-c", "1"], "each server needs one"),
    ] {
        let (code, _, error) = load(&[&["cache", &addresses[0], &addresses[1]], args].concat());
        assert!(code == Some(2) && error.contains(said), "{error}");
    }
}
