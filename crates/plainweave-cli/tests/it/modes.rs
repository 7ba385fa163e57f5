//! `--mode` and `--architecture` in both servers: when fibers move and whose thread-local storage
//! they see; which fiber serves a connection, and on which runtime.

use crate::common::blocking;
use crate::common::group::raise_descriptors;
use crate::common::skip;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::child::{self, Kept};
use plainweave::policy::PRESETS;

const MODES: [&str; 5] = [
    "anytime/own",
    "before-start/own",
    "never/own",
    "before-start/shared",
    "never/shared",
];
const SERVERS: [Asked; 2] = [
    Asked {
        arguments: &["web", env!("CARGO_MANIFEST_DIR"), "--listen", "127.0.0.1:0"],
        ask: GET,
        answer: b"HTTP/1.1 404",
    },
    Asked {
        arguments: &["cache", "-p", "-1", "-l", "127.0.0.1", "-c", "12000"],
        ask: b"mn\r\n",
        answer: b"MN\r\n",
    },
];
const GET: &[u8] = b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n";

const ARCHITECTURES: [&str; 5] = [
    "driver",
    "fibers",
    "acceptors:100",
    "event-loops",
    "pipeline:3",
];

/// A kind of server, and a question to it.
#[derive(Clone, Copy)]
struct Asked {
    arguments: &'static [&'static str],
    ask: &'static [u8],
    answer: &'static [u8],
}

struct Server {
    asked: Asked,
    line: String,
    address: SocketAddr,
    _child: Kept,
}

impl Server {
    fn start(asked: Asked, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        command.args(asked.arguments).args(more);
        Self::spawn(asked, more, command)
    }

    /// Starts one of which one request in ten holds up the thread that handles it, for good.
    fn start_blocking(asked: Asked, more: &[&str]) -> Self {
        let arguments = [asked.arguments, more].concat();
        let command = blocking::command(10, Duration::from_secs(3600), &arguments);
        Self::spawn(asked, more, command)
    }

    fn spawn(asked: Asked, more: &[&str], mut command: Command) -> Self {
        command.env_remove("PLAINWEAVE_IO");
        let mut child = Kept::spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let line = blocking::first_line(child.stdout.as_mut().unwrap());
        let at = line
            .find("127.0.0.1:")
            .unwrap_or_else(|| panic!("{more:?}: {line}"));
        let address = line[at..]
            .split([' ', ',', '('])
            .next()
            .unwrap()
            .parse()
            .unwrap();

        Self {
            asked,
            line,
            address,
            _child: child,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    fn ask(&self, stream: &mut TcpStream) {
        stream.write_all(self.asked.ask).unwrap();
    }

    fn hear(&self, stream: &mut TcpStream) {
        let mut answer = [0; 1024];
        let len = stream.read(&mut answer).unwrap();
        assert!(
            answer[..len].starts_with(self.asked.answer),
            "{}",
            String::from_utf8_lossy(&answer[..len])
        );
    }
}

/// Questions on many connections at once, three times.
fn serves(server: &Server, connections: usize) {
    let mut streams: Vec<_> = (0..connections).map(|_| server.connect()).collect();
    for _ in 0..3 {
        streams.iter_mut().for_each(|stream| server.ask(stream));
        streams.iter_mut().for_each(|stream| server.hear(stream));
    }
}

#[test]
fn the_start_line_says_the_mode() {
    for asked in SERVERS {
        for io in ["epoll", "uring"] {
            for mode in MODES {
                let server = Server::start(asked, &["--io", io, "--mode", mode]);
                assert!(
                    server.line.contains(&format!(", mode {mode}")),
                    "{}",
                    server.line
                );
                serves(&server, 8);
            }
        }

        // Where fibers can have storage of their own.
        let usual = if asked.ask == GET {
            ", mode anytime/own"
        } else {
            ", mode before-start/shared"
        };
        let line = Server::start(asked, &[]).line;
        assert!(line.contains(usual), "{line}");
    }
}

#[test]
fn the_start_line_says_that_a_policy_is_for_experiments() {
    for asked in SERVERS {
        for (policy, experiment) in [
            ("ot-fifo-base", "spin without end"),
            ("ot-lifo-base:capacity=2", "spin without end"),
            ("fifo:full=spin", "spin without end"),
            ("ot-fifo-swap", "changes places with a random other one"),
            ("ot-fifo", ""),
        ] {
            let server = Server::start(asked, &["--policy", policy]);
            assert!(
                server.line.contains(&format!("policy {policy}")),
                "{}",
                server.line
            );
            assert_eq!(
                server.line.contains("for experiments"),
                !experiment.is_empty(),
                "{}",
                server.line
            );
            assert!(server.line.contains(experiment), "{}", server.line);
            serves(&server, 8);
        }
    }
}

/// A worker with room for one fiber, and questions on many connections at once.
#[test]
fn the_metrics_page_has_inserts_without_room() {
    for (asked, prefix) in SERVERS.into_iter().zip(["plainweave", "plainweave_cache"]) {
        let policy = [
            "--workers",
            "1",
            "--mode",
            "anytime/own",
            "--policy",
            "ot-fifo-base:capacity=1,spin=20",
        ];
        let server = Server::start(asked, &[&policy[..], &["--admin", "127.0.0.1:0"]].concat());
        let admin = server.line.rsplit_once("http://").expect(&server.line).1;
        let admin = admin
            .split(['/', ' ', ')'])
            .next()
            .unwrap()
            .trim_end()
            .parse()
            .unwrap();

        for name in ["retries", "overflows"].map(|kind| format!("{prefix}_insert_{kind}_total")) {
            crate::common::eventually(&name, || {
                serves(&server, 50);
                crate::common::figure(admin, &name) > 0.0
            });
            let page = crate::common::get(admin, "/metrics");
            assert!(
                page.contains(&format!("\n# TYPE {name} counter\n")),
                "{page}"
            );
            assert!(page.contains(&format!("\n# HELP {name} ")), "{page}");
        }
    }
}

#[test]
fn the_metrics_page_has_figures_of_each_worker() {
    for (asked, prefix) in SERVERS.into_iter().zip(["plainweave", "plainweave_cache"]) {
        for (architecture, labels) in [
            ("driver", ["worker=\"0\"", "worker=\"1\""]),
            (
                "event-loops",
                ["runtime=\"0\",worker=\"0\"", "runtime=\"2\",worker=\"0\""],
            ),
        ] {
            let flags = [
                "--workers",
                "2",
                "--architecture",
                architecture,
                "--admin",
                "127.0.0.1:0",
            ];
            let server = Server::start(asked, &flags);
            let admin = server.line.rsplit_once("http://").expect(&server.line).1;
            let admin = admin
                .split(['/', ' ', ')'])
                .next()
                .unwrap()
                .trim_end()
                .parse()
                .unwrap();
            serves(&server, 20);

            for label in labels {
                for name in [
                    "switches_total",
                    "idle_seconds_total",
                    "steals_total",
                    "spills_total",
                ] {
                    assert!(
                        crate::common::figure(admin, &format!("{prefix}_worker_{name}{{{label}}}"))
                            >= 0.0
                    );
                }
            }

            let finished = |label: &str| {
                crate::common::figure(
                    admin,
                    &format!("{prefix}_worker_fibers_finished_total{{{label}}}"),
                )
            };

            crate::common::eventually("fibers that served", || {
                serves(&server, 20);
                labels.iter().map(|label| finished(label)).sum::<f64>() > 0.0
            });
            let page = crate::common::get(admin, "/metrics");
            assert_eq!(
                page.matches(&format!("# TYPE {prefix}_worker_steals_total counter"))
                    .count(),
                1,
                "{page}"
            );
            assert!(!page.contains("longest_wait"), "not known: {page}");
        }
    }
}

#[test]
fn every_policy_serves_while_fibers_move() {
    for preset in PRESETS {
        for (asked, io) in SERVERS.into_iter().zip(["uring", "epoll"]) {
            let more = [
                "--mode",
                "anytime/own",
                "--policy",
                preset.name,
                "--io",
                io,
                "--architecture",
                "fibers",
            ];
            serves(&Server::start(asked, &more), 50);
        }
    }
}

#[test]
fn ten_thousand_connections_are_served_while_fibers_move() {
    // Other tests of this process want some beside.
    if let Err(why) = raise_descriptors(15_000) {
        skip::skip(&why);
        return;
    }

    for asked in SERVERS {
        for io in ["epoll", "uring"] {
            serves(
                &Server::start(
                    asked,
                    &[
                        "--mode",
                        "anytime/own",
                        "--io",
                        io,
                        "--architecture",
                        "fibers",
                    ],
                ),
                10_000,
            );
        }
    }
}

#[test]
fn every_architecture_serves_in_every_mode() {
    for asked in SERVERS {
        for (architecture, io) in ARCHITECTURES
            .into_iter()
            .flat_map(|name| [(name, "epoll"), (name, "uring")])
        {
            for mode in MODES {
                let server = Server::start(
                    asked,
                    &["--architecture", architecture, "--mode", mode, "--io", io],
                );
                let said = server
                    .line
                    .contains(&format!(", architecture {architecture}"));
                assert_eq!(said, architecture != "driver", "{}", server.line);
                serves(&server, 50);
            }
        }
    }
}

#[test]
fn acceptors_serve_as_many_connections_as_they_are() {
    for asked in SERVERS {
        let server = Server::start(asked, &["--architecture", "acceptors:2"]);
        let mut first = server.connect();
        let mut second = server.connect();
        let mut third = server.connect();
        for stream in [&mut first, &mut second] {
            server.ask(stream);
            server.hear(stream);
        }

        server.ask(&mut third);
        third
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let waits = third
            .read(&mut [0])
            .expect_err("both fibers are taken")
            .kind();
        assert_eq!(waits, std::io::ErrorKind::WouldBlock);
        drop(first);
        third
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        server.hear(&mut third);
        server.ask(&mut second);
        server.hear(&mut second);
    }
}

fn nine_of_ten_are_answered(asked: Asked, more: &[&str]) {
    let server = Server::start_blocking(asked, more);
    let mut streams: Vec<_> = (0..10).map(|_| server.connect()).collect();
    streams[..9].iter_mut().for_each(|stream| {
        server.ask(stream);
        server.hear(stream);
    });
    server.ask(&mut streams[9]);

    // The tenth request holds its thread; the nine after it are handled by another.
    streams[9]
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert!(streams[9].read(&mut [0]).is_err(), "it blocks");
    streams[..9].iter_mut().for_each(|stream| {
        server.ask(stream);
        server.hear(stream);
    });
}

/// A spare worker takes over: in the mode that the web server has by default.
#[test]
fn requests_that_block_their_worker_hold_up_no_others() {
    for asked in SERVERS {
        let workers = if asked.ask == GET { "--workers" } else { "-t" };
        for io in ["epoll", "uring"] {
            let mode = ["--mode", "anytime/own"];
            nine_of_ten_are_answered(asked, &[&mode[..], &["--io", io, workers, "1"]].concat());
        }
    }
}

#[test]
fn requests_that_block_hold_up_no_others_of_a_pipeline() {
    for asked in SERVERS {
        let more = if asked.ask == GET { "--workers" } else { "-t" };
        nine_of_ten_are_answered(asked, &["--architecture", "pipeline:2", more, "1"]);
    }
}

#[test]
fn requests_that_block_in_the_pool_of_the_files_hold_up_no_others() {
    let pools = "web:fifo/1/before-start/shared,files:priority/2/before-start/own";
    nine_of_ten_are_answered(SERVERS[0], &["--pools", pools]);
}

#[test]
fn two_pools_serve_and_are_described() {
    for io in ["epoll", "uring"] {
        let server = Server::start(
            SERVERS[0],
            &[
                "--io",
                io,
                "--pools",
                "web:fifo/1,files:priority/2/never/own",
            ],
        );
        let web = "1 worker, policy fifo, mode anytime/own";
        let files = "2 workers, policy priority, mode never/own";
        let line = &server.line;
        assert!(line.contains(&format!("(driver {io}, {web}")), "{line}");
        assert!(
            line.contains(&format!(", pool files: driver {io}, {files}")),
            "{line}"
        );

        // More than the second pool takes at once.
        serves(&server, 200);
    }
}

#[test]
fn pools_that_cannot_be_are_refused() {
    let refused = |arguments: &[&str], said: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        let output = child::output(command.arg("web").args(arguments)).unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && text.contains(said),
            "{arguments:?}: {text}"
        );
    };

    for (pools, said) in [
        (
            "web:fifo/1,files:prio/2",
            "pools, at byte 17: no scheduling policy is called 'prio'; there are: fifo",
        ),
        (
            "web:fifo/1,files:fifo/0",
            "pools, at byte 22: '0' is not a number of workers from 1 to 1024",
        ),
        (
            "web:fifo/1,web:fifo/1",
            "pools, at byte 11: two pools are called 'web'",
        ),
        (
            "web:fifo/1/anytime/shared,files:fifo/1",
            "pools, at byte 11: 'anytime/shared' is unsafe",
        ),
        ("web:fifo/1,", "pools, at byte 11: '' is no name of a pool"),
        (
            "web:fifo/1",
            "two pools, one for connections and one for files, as in web:fifo/1,files:lifo/4; here is 1",
        ),
        ("a:fifo/1,b:fifo/1,c:fifo/1", "here are 3"),
    ] {
        refused(&["--pools", pools], said);
    }

    for (flag, value) in [
        ("--workers", "2"),
        ("--policy", "lifo"),
        ("--mode", "anytime/own"),
        ("--architecture", "driver"),
    ] {
        refused(
            &["--pools", "web:fifo/1,files:fifo/1", flag, value],
            "cannot be used with",
        );
    }
}

#[test]
fn unknown_architectures_are_refused() {
    for (name, said) in [
        ("threads", "choose among driver"),
        ("fibers:3", "takes no number"),
        ("pipeline:0", "from 1"),
    ] {
        for program in ["web", "cache"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
            let output = child::output(command.args([program, "--architecture", name])).unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(
                output.status.code() == Some(2) && text.contains(said),
                "{program} {name}: {text}"
            );
        }
    }
}

#[test]
fn unsafe_and_unknown_modes_are_refused() {
    for (mode, said) in [
        ("anytime/shared", "it is unsafe"),
        ("sometimes/own", "choose among anytime/own"),
    ] {
        for program in ["web", "cache"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
            let output = child::output(command.args([program, "--mode", mode])).unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(
                output.status.code() == Some(2) && text.contains(said),
                "{program} {mode}: {text}"
            );
        }
    }
}
