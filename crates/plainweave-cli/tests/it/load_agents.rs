//! `plainweave load --agents`: several processes make a load together; what happens when one of
//! them fails.

use crate::cache::running;
use crate::common::skip;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::scripted::agent::{VERSION, line, prepared, say, scripted_agent};
use crate::scripted::child::Kept;
use crate::scripted::{Figures, load, sleeper};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How long anything may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent.
struct Agent {
    child: Kept,
    address: String,
}

impl Agent {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        Self::spawn(
            command
                .args(["load", "agent", "--listen", "127.0.0.1:0"])
                .args(args),
        )
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = Kept::spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .strip_prefix("plainweave load agent: ")
            .expect(&line)
            .split(';')
            .next()
            .unwrap()
            .to_owned();

        Self { child, address }
    }

    /// A connection that has greeted, without a secret.
    fn greet(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = BufReader::new(stream);
        assert_eq!(line(&mut stream)["plainweave_agent"], VERSION);
        stream
            .get_mut()
            .write_all(b"{\"challenge\":\"x\",\"proof\":null}\n")
            .unwrap();
        assert!(line(&mut stream)["proof"].is_null());

        stream
    }
}

fn file(name: &str) -> PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn two_agents_make_a_load_together() {
    let agents = [Agent::start(&[]), Agent::start(&[])];
    let names = agents
        .each_ref()
        .map(|agent| agent.address.as_str())
        .join(",");
    let (address, seen) = sleeper(Duration::ZERO);

    // What the list names is on this machine alone; the agents get it sent.
    let list = file("agents-urls");
    std::fs::write(&list, format!("http://{address}/a\nhttp://{address}/b\n")).unwrap();
    let urls = [
        "http",
        "--urls",
        list.to_str().unwrap(),
        "--agents",
        &names,
        "--workers",
        "1",
    ];
    let args = [
        "-c",
        "3",
        "--rate",
        "200",
        "-d",
        "1s",
        "--json",
        "--min-rate",
        "0",
    ];
    let result = Figures::of(0, &[&urls[..], &args].concat());
    let ok = result.figure("ok");

    assert!(
        (200.0..=202.0).contains(&ok) && result.figure("errors") == 0.0,
        "{}",
        result.0
    );
    assert_eq!(
        (seen.load(Ordering::Relaxed) as f64, &result.0["workers"]),
        (ok, &json!(2)),
        "one worker each"
    );
    assert_eq!(result.figure("intended_rate_per_second"), 200.0);
    assert!(
        result.figure("latency_p50_us") > 0.0
            && !result.0["seconds"].as_array().unwrap().is_empty()
    );

    // Agents serve one coordinator after the other, and several runs of each.
    let sweep = [
        "--rates", "50,100", "-d", "200ms", "--pause", "1ms", "-c", "2", "--json",
    ];
    let (code, out, error) = load(&[&urls[..], &sweep].concat());
    assert_eq!(code, Some(0), "{out}{error}");
    let sweep: Value = serde_json::from_str(&out).unwrap();
    for (step, expected) in [(0, 10), (1, 20)] {
        let ok = sweep["steps"][step]["figures"]["ok"].as_u64().unwrap();
        assert!((expected..=expected + 2).contains(&ok), "{out}");
    }

    let closed = Figures::of(
        0,
        &[&urls[..], &["-c", "4", "-n", "101", "--json"]].concat(),
    );
    assert_eq!(
        closed.figure("ok"),
        101.0,
        "each has its share of the requests"
    );
    let (code, _, error) = load(&[&urls[..], &["-c", "1"]].concat());
    assert!(
        code == Some(2) && error.contains("each agent needs one"),
        "{error}"
    );
}

#[test]
fn agents_make_a_cache_load_together() {
    // All keys are stored, each by one of them: with a single key missing, some get would miss.
    let agents = [Agent::start(&[]), Agent::start(&[])];
    let names = agents
        .each_ref()
        .map(|agent| agent.address.as_str())
        .join(",");
    let cache = running::Running::start(&["-t", "1"]);
    let args = [
        "--keys", "101", "-c", "4", "-n", "2000", "--zipf", "0", "--json",
    ];
    let result = Figures::of(
        0,
        &[
            &["cache", &cache.address.to_string(), "--agents", &names],
            &args[..],
        ]
        .concat(),
    );

    assert_eq!(
        ["ok", "errors", "misses"].map(|name| result.figure(name)),
        [2000.0, 0.0, 0.0]
    );
}

#[test]
fn other_hosts_need_the_secret() {
    let (code, _, error) = load(&["agent", "--listen", "0.0.0.0:0"]);
    assert!(
        code == Some(2) && error.contains("give --secret-file"),
        "{error}"
    );
    let [right, wrong, short] =
        ["right", "wrong", "short"].map(|name| file(&format!("{name}-secret")));
    std::fs::write(&right, "a secret of 16 bytes and more\n").unwrap();
    std::fs::write(&wrong, "another secret of 16 bytes and more\n").unwrap();
    std::fs::write(&short, "short\n").unwrap();
    let (code, _, error) = load(&[
        "agent",
        "--listen",
        "127.0.0.1:0",
        "--secret-file",
        short.to_str().unwrap(),
    ]);

    assert!(
        code == Some(3) && error.contains("at least 16 bytes"),
        "{error}"
    );
    let agent = Agent::start(&["--secret-file", right.to_str().unwrap()]);
    let url = format!("http://{}/", sleeper(Duration::ZERO).0);
    let args = [
        "http",
        &url,
        "-c",
        "1",
        "-n",
        "5",
        "--agents",
        &agent.address,
    ];

    for (secret, code, said) in [
        (None, 3, "give --agent-secret-file"),
        (Some(&wrong), 3, "another secret"),
        (Some(&right), 0, ""),
    ] {
        let flags = secret.map(|path| ["--agent-secret-file", path.to_str().unwrap()]);
        let (got, out, error) =
            load(&[&args[..], flags.as_ref().map_or(&[], |flags| flags)].concat());
        assert!(
            got == Some(code) && error.contains(said),
            "{secret:?}: {out}{error}"
        );
    }

    let open = Agent::start(&[]);
    let flags = [
        "--agents",
        &open.address,
        "--agent-secret-file",
        right.to_str().unwrap(),
    ];
    let (code, _, error) = load(&[&["http", &url, "-n", "1"], &flags[..]].concat());
    assert!(
        code == Some(3) && error.contains("it has no secret"),
        "{error}"
    );
}

#[test]
fn an_agent_reads_no_files_of_its_own_and_bears_garbage() {
    let agent = Agent::start(&[]);
    let secret = file("not-sent");
    std::fs::write(&secret, "it must stay here").unwrap();

    for (message, said) in [
        (
            json!({ "args": ["http", "http://h/", "--body-file", secret.to_str().unwrap()] }),
            "did not come with the load",
        ),
        (
            json!({ "args": ["http", "http://h/", "--frobnicate"] }),
            "--frobnicate",
        ),
        (
            json!({ "args": ["agent"] }),
            "an agent runs only http and cache",
        ),
        (json!({ "args": [1] }), "no text"),
        (json!({}), "no arguments"),
    ] {
        let mut stream = agent.greet();
        let mut prepare = message.clone();
        (prepare["files"], prepare["part"], prepare["parts"]) = (json!({}), json!(0), json!(1));
        stream
            .get_mut()
            .write_all(format!("{}\n", json!({ "prepare": prepare })).as_bytes())
            .unwrap();
        let answer = line(&mut stream);

        assert!(
            answer["error"]
                .as_str()
                .is_some_and(|error| error.contains(said)),
            "{message}: {answer}"
        );
    }

    for garbage in [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "{}\n",
        "",
        "\n",
        &"x".repeat(100_000),
    ] {
        let mut stream = TcpStream::connect(&agent.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(garbage.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();

        // It may reset what it has not read.
        let _ = stream.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("prepared"));
    }

    let url = format!("http://{}/", sleeper(Duration::ZERO).0);
    let result = Figures::of(
        0,
        &[
            "http",
            &url,
            "-c",
            "1",
            "-n",
            "5",
            "--agents",
            &agent.address,
            "--json",
        ],
    );
    assert_eq!(result.figure("ok"), 5.0, "it lives");
}

#[test]
fn few_connections_that_do_not_greet_are_kept() {
    let agent = Agent::start(&[]);
    let mut silent: Vec<_> = (0..40)
        .map(|_| BufReader::new(TcpStream::connect(&agent.address).unwrap()))
        .collect();
    let greetings: Vec<_> = silent
        .iter_mut()
        .map(|stream| {
            stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
            line(stream)
        })
        .collect();
    let refused = |greeting: &Value| {
        greeting["error"]
            .as_str()
            .is_some_and(|error| error.contains("not greeted"))
    };

    let count = greetings
        .iter()
        .filter(|greeting| refused(greeting))
        .count();
    assert!((1..=24).contains(&count), "{greetings:?}");
    drop(silent);
    let (url, start) = (
        format!("http://{}/", sleeper(Duration::ZERO).0),
        Instant::now(),
    );

    while load(&[
        "http",
        &url,
        "-c",
        "1",
        "-n",
        "5",
        "--agents",
        &agent.address,
    ])
    .0 != Some(0)
    {
        assert!(start.elapsed() < PATIENCE, "it serves nobody");
    }
}

/// Starts a load of an hour by these agents, and returns when the server has seen something of it.
fn long(names: &str) -> Kept {
    let (address, seen) = sleeper(Duration::ZERO);
    let url = format!("http://{address}/");
    let args = [
        "http", &url, "-c", "2", "--rate", "100", "-d", "1h", "--agents", names,
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command
        .arg("load")
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = Kept::spawn(&mut command).unwrap();
    let start = Instant::now();

    while seen.load(Ordering::Relaxed) < 10 {
        assert!(start.elapsed() < PATIENCE, "no request came");
        std::thread::sleep(Duration::from_millis(10));
    }

    child
}

fn end(mut child: Kept) -> (Option<i32>, String, String) {
    let mut out = String::new();
    let mut error = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut error)
        .unwrap();

    (child.wait().unwrap().code(), out, error)
}

#[test]
fn a_signal_ends_the_agents_too() {
    let agents = [Agent::start(&[]), Agent::start(&[])];
    let names = agents
        .each_ref()
        .map(|agent| agent.address.as_str())
        .join(",");
    let coordinator = long(&names);

    // One coordinator at a time.
    let (code, _, error) = load(&[
        "http",
        "http://127.0.0.1:1/",
        "-n",
        "2",
        "--agents",
        &agents[1].address,
    ]);
    assert!(
        code == Some(3) && error.contains("busy with another coordinator"),
        "{error}"
    );
    kill_process(Pid::from_child(&coordinator), Signal::INT).unwrap();
    let (code, out, error) = end(coordinator);
    assert!(
        code == Some(130) && out.contains("statuses  200 OK: "),
        "{out}{error}"
    );
    let url = format!("http://{}/", sleeper(Duration::ZERO).0);
    let result = Figures::of(
        0,
        &[
            "http", &url, "-c", "2", "-n", "20", "--agents", &names, "--json",
        ],
    );

    assert_eq!(result.figure("ok"), 20.0, "they are free again");
}

#[test]
fn an_agent_that_is_lost_ends_the_load() {
    let mut agents = [Agent::start(&[]), Agent::start(&[])];
    let names = agents
        .each_ref()
        .map(|agent| agent.address.as_str())
        .join(",");
    let coordinator = long(&names);
    agents[1].child.kill().unwrap();
    let (code, out, error) = end(coordinator);

    assert!(code == Some(3) && error.contains("is lost"), "{out}{error}");
    let url = format!("http://{}/", sleeper(Duration::ZERO).0);

    // The one that is left notices, and serves the next.
    let start = Instant::now();
    let again = [
        "http",
        &url,
        "-c",
        "1",
        "-n",
        "5",
        "--agents",
        &agents[0].address,
    ];
    while load(&again).0 != Some(0) {
        assert!(start.elapsed() < PATIENCE, "it is still at work");
    }
    let (code, _, error) = load(&["http", &url, "-n", "2", "--agents", &agents[1].address]);

    assert!(
        code == Some(3) && error.contains("is `plainweave load agent` running?"),
        "{error}"
    );
}

/// What the coordinator says of such an agent.
fn judged(script: impl FnOnce(&mut BufReader<TcpStream>) + Send + 'static) -> String {
    let address = scripted_agent(script);
    let args = [
        "http",
        "http://127.0.0.1:1/",
        "-c",
        "1",
        "-d",
        "1h",
        "--agents",
        &address,
        "--agent-timeout",
        "2s",
    ];
    let (code, out, error) = load(&args);
    assert_eq!((code, out.as_str()), (Some(3), ""), "{error}");
    assert!(error.contains(&format!("agent {address}")), "{error}");

    error
}

#[test]
fn an_agent_that_is_silent_is_lost() {
    let lost = "is lost: no message for 2 s";
    let first = std::thread::spawn(|| judged(|_| {}));
    let second = std::thread::spawn(|| judged(prepared));

    // One that has much to prepare says that it is there.
    let slow = judged(|stream| {
        for _ in 0..6 {
            say(stream, &json!({ "alive": true }));
            std::thread::sleep(Duration::from_millis(500));
        }
        say(stream, &json!({ "error": "it was \x1b[31mnothing" }));
    });

    assert!(slow.contains(": it was  [31mnothing"), "{slow:?}");
    for error in [first.join().unwrap(), second.join().unwrap()] {
        assert!(error.contains(lost), "{error}");
    }
    let (code, _, error) = load(&[
        "http",
        "http://127.0.0.1:1/",
        "--agents",
        "127.0.0.1:1",
        "--agent-timeout",
        "1s",
    ]);
    assert!(
        code == Some(2) && error.contains("write 2s or more"),
        "{error}"
    );
}

/// A part that fits; the scripts change it.
fn piece() -> Value {
    let tally = json!({
        "latency": [], "lateness": [], "connect": [], "handshake": [], "failures": [], "statuses": [],
        "counts": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "last": 0,
    });
    json!({ "worker": 0, "second": 0, "until": 0, "last": false, "tally": tally })
}

#[test]
fn an_agent_that_lies_takes_no_memory() {
    let run = |pieces: Vec<Value>| {
        judged(move |stream| {
            prepared(stream);
            say(stream, &json!({ "ready": true }));
            line(stream);
            pieces
                .iter()
                .for_each(|piece| say(stream, &json!({ "piece": piece })));
        })
    };

    let with = |change: fn(&mut Value)| {
        let mut piece = piece();
        change(&mut piece);
        piece
    };

    for (pieces, said) in [
        (
            vec![with(|piece| piece["second"] = json!(1_000_000_000))],
            "a piece of second 1000000000, and ",
        ),
        (
            vec![piece(), piece()],
            "a second piece of second 0, worker 0",
        ),
        (
            vec![with(|piece| piece["worker"] = json!(1))],
            "a piece of worker 1",
        ),
        // HdrHistogram's own form, whose first bytes claim 4 GB.
        (
            vec![with(|piece| {
                piece["tally"]["latency"] = json!("HISTEwAAAAb//////wAAAAAAAAAD")
            })],
            "no list",
        ),
        (
            vec![with(|piece| {
                piece["tally"]["failures"] = json!([[0, u64::MAX]])
            })],
            "more is counted than can be",
        ),
    ] {
        let error = run(pieces);
        assert!(error.contains(said), "{said}: {error}");
    }

    let endless = judged(|stream| {
        let many = [b'['; 1 << 16];
        while stream.get_mut().write_all(&many).is_ok() {}
    });

    assert!(
        endless.contains("is longer than 2097152 bytes"),
        "{endless}"
    );
    let twice = judged(|stream| {
        prepared(stream);
        say(
            stream,
            &json!({ "prepared": { "workers": 1, "addresses": [] } }),
        );
    });

    assert!(twice.contains("sends what nobody asked for"), "{twice}");
}

/// Two network namespaces, joined by a pair of virtual devices; gone with the value.
struct Namespaces([String; 2]);

impl Namespaces {
    /// `None`: this process may not make them.
    fn make() -> Option<Self> {
        let id = std::process::id();
        let names = Self(["a", "b"].map(|side| format!("plainweave-{id}-{side}")));
        let [a, b] = &names.0;
        let left = format!("pwa{id}");
        let right = format!("pwb{id}");
        let steps = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add {left} type veth peer name {right} netns {b}"),
            format!("-n {a} addr add 10.77.0.1/24 dev {left}"),
            format!("-n {b} addr add 10.77.0.2/24 dev {right}"),
            format!("-n {a} link set {left} up"),
            format!("-n {b} link set {right} up"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
        ];
        let ip = |step: &String| {
            let done = Command::new("ip")
                .args(step.split(' '))
                .stderr(Stdio::null())
                .status();
            done.is_ok_and(|status| status.success())
        };

        steps.iter().all(ip).then_some(names)
    }

    fn command(&self, side: usize) -> Command {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &self.0[side],
            env!("CARGO_BIN_EXE_plainweave"),
        ]);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip")
                .args(["netns", "del", name])
                .stderr(Stdio::null())
                .status();
        }
    }
}

#[test]
fn agents_on_hosts_of_their_own() {
    let Some(hosts) = Namespaces::make() else {
        skip::skip("no network namespaces may be made here");
        return;
    };

    let secret = file("hosts-secret");
    std::fs::write(&secret, "known to both of the hosts").unwrap();
    let secret = secret.to_str().unwrap();
    let agent = |side: usize, address: &str| {
        let listen = format!("{address}:0");
        Agent::spawn(hosts.command(side).args([
            "load",
            "agent",
            "--listen",
            &listen,
            "--secret-file",
            secret,
        ]))
    };

    let mut web = hosts.command(0);
    web.args(["web", env!("CARGO_MANIFEST_DIR"), "--listen", "10.77.0.1:0"])
        .stdout(Stdio::piped());
    let mut web = Kept::spawn(web.stderr(Stdio::null())).unwrap();
    let mut line = String::new();
    BufReader::new(web.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .split_once("http://")
        .expect(&line)
        .1
        .split(' ')
        .next()
        .unwrap();
    let agents = [agent(0, "10.77.0.1"), agent(1, "10.77.0.2")];
    let names = agents
        .each_ref()
        .map(|agent| agent.address.as_str())
        .join(",");
    let (url, flags) = (
        format!("http://{address}/Cargo.toml"),
        ["--agent-secret-file", secret, "--json"],
    );
    let args = [
        "load", "http", &url, "-c", "4", "-n", "200", "--agents", &names,
    ];
    let output = hosts.command(1).args(args).args(flags).output().unwrap();

    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["figures"]["ok"], 200);
}
