//! The page in the browser at the admin address of `plainweave web`, and its figures.

use crate::common::skip;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::{Running, admin, ask, blocking, child, eventually, get};
use serde_json::Value;

/// An answer's head and body.
fn page(address: SocketAddr, host: &str, path: &str) -> (String, String) {
    let answer = ask(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn figures(address: SocketAddr) -> Value {
    figures_for(address, "localhost")
}

fn figures_for(address: SocketAddr, host: &str) -> Value {
    let (head, body) = page(address, host, "/status.json");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("application/json"),
        "{head}"
    );
    serde_json::from_str(&body).unwrap()
}

/// The count of this name in a list of pairs.
fn count(figures: &Value, list: &str, name: &str) -> u64 {
    let pairs = figures[list].as_array().unwrap();
    pairs
        .iter()
        .find(|pair| pair[0] == name)
        .unwrap_or_else(|| panic!("no {name} in {figures}"))[1]
        .as_u64()
        .unwrap()
}

fn paths(figures: &Value) -> Vec<&str> {
    figures["slow"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slow| slow["path"].as_str().unwrap())
        .collect()
}

#[test]
fn figures_tell_how_the_server_is_doing() {
    for io in ["epoll", "uring"] {
        let server = Running::start(&["--admin", "127.0.0.1:0", "--io", io, "--workers", "2"]);
        let admin = admin(&server);
        for path in ["/Cargo.toml", "/Cargo.toml?token=1", "/none", "/src"] {
            get(server.address, path);
        }
        let mut held = server.connect();
        held.write_all(b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
        assert!(held.read(&mut [0; 4096]).unwrap() > 0);
        eventually("all are counted", || {
            let now = figures(admin);
            now["requests"] == 5 && now["connections"]["now"] == 1
        });
        let now = figures(admin);
        let outcomes = ["2xx", "3xx", "4xx", "5xx"].map(|name| count(&now, "outcomes", name));

        assert_eq!(outcomes, [3, 1, 1, 0]);
        assert_eq!(
            (&now["state"], &now["connections"]["accepted"]),
            (&"serving".into(), &5.into())
        );
        let buckets = now["latency"][0]["buckets"].as_array().unwrap();
        assert_eq!(
            buckets
                .iter()
                .map(|bucket| bucket[1].as_u64().unwrap())
                .sum::<u64>(),
            5
        );
        assert!(
            buckets
                .iter()
                .all(|bucket| bucket[0].as_f64().unwrap() > 0.0),
            "{now}"
        );
        let mut paths = paths(&now);

        paths.sort_unstable();
        assert_eq!(
            paths,
            ["/Cargo.toml", "/none", "/src"],
            "each once, without the query"
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
        let counted = std::path::Path::new("/proc/self/schedstat").exists();

        assert!(
            workers
                .iter()
                .all(|worker| worker["busy"].is_number() == counted),
            "{now}"
        );
        assert!(
            workers
                .iter()
                .all(|worker| worker["switches"].is_u64() && worker["stolen"].is_u64()),
            "{now}"
        );
        assert!(
            now["queues"]
                .as_array()
                .unwrap()
                .iter()
                .any(|queue| queue["name"] == "fibers"),
            "{now}"
        );
        assert!(now["runtime"].as_str().unwrap().contains(io), "{now}");
    }
}

/// Workers of runtimes beside the first have their own names.
#[test]
fn every_runtime_s_workers_are_there() {
    for (architecture, names) in [
        (
            "event-loops",
            &["accepting 0", "loop 0: 0", "loop 1: 0"][..],
        ),
        ("pipeline:1", &["0", "1", "stage 0"]),
    ] {
        let flags = [
            "--admin",
            "127.0.0.1:0",
            "--workers",
            "2",
            "--architecture",
            architecture,
        ];
        let server = Running::start(&flags);
        let now = figures(admin(&server));
        let workers = now["workers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|worker| worker["spare"] == false);
        let found: Vec<_> = workers
            .map(|worker| worker["name"].as_str().unwrap())
            .collect();

        assert_eq!(found, names, "{now}");
    }
}

#[test]
fn a_path_cannot_break_out_of_the_figures() {
    let server = Running::start(&["--admin", "127.0.0.1:0"]);
    let admin = admin(&server);
    let strange = "/\"<script>alert(1)</script>'%0d%0a%1b[31m";
    assert!(
        ask(server.address, &format!("GET {strange} HTTP/1.0\r\n\r\n")).starts_with("HTTP/1.1 404")
    );
    let long = format!("/{}", "x".repeat(5000));

    get(server.address, &long);
    eventually("both are listed", || paths(&figures(admin)).len() == 2);
    let now = figures(admin);
    let mut paths = paths(&now);

    paths.sort_by_key(|path| path.len());
    assert_eq!((paths[0], paths[1].len()), (strange, 200));
    // Nor can it be taken for anything but JSON.
    assert!(
        page(admin, "localhost", "/status.json")
            .0
            .to_ascii_lowercase()
            .contains("x-content-type-options: nosniff")
    );
}

#[test]
fn the_page_runs_its_own_script_and_nothing_else() {
    let server = Running::start(&["--admin", "127.0.0.1:0"]);
    let admin = admin(&server);
    let mut nonces = Vec::new();

    for _ in 0..2 {
        let (head, body) = page(admin, "localhost", "/");
        assert!(
            head.contains("text/html; charset=utf-8") && head.contains("no-store"),
            "{head}"
        );
        let policy = head.lines().find(|line| {
            line.to_ascii_lowercase()
                .starts_with("content-security-policy:")
        });

        let policy = policy.unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let nonce = policy
            .split_once("script-src 'nonce-")
            .unwrap()
            .1
            .split('\'')
            .next()
            .unwrap()
            .to_owned();
        assert_eq!(
            body.matches(&format!("nonce=\"{nonce}\"")).count(),
            2,
            "a style and a script"
        );
        assert_eq!(
            (
                body.matches("<script").count(),
                body.matches("<style").count()
            ),
            (1, 1)
        );

        for absent in [
            "{nonce}",
            "src=",
            "@import",
            "innerHTML",
            "https://",
            " style=",
            " onclick=",
        ] {
            assert!(!body.contains(absent), "{absent}");
        }

        nonces.push(nonce);
    }

    assert_ne!(nonces[0], nonces[1]);
    for path in ["/metrics", "/health", "/status.json", "/none"] {
        let (head, _) = page(admin, "localhost", path);
        let head = head.to_ascii_lowercase();
        assert!(
            head.contains("default-src 'none'") && head.contains("cache-control: no-store"),
            "{path}: {head}"
        );
        assert!(!head.contains("nonce"), "{path}: {head}");
    }
}

#[test]
fn details_are_for_this_machine_unless_a_flag_says_so() {
    for (flags, host, shown) in [
        (&["--admin", "127.0.0.1:0"][..], "localhost", true),
        (&["--admin", "127.0.0.1:0"], "rebound.example", false),
        (&["--admin", "0.0.0.0:0"], "localhost", false),
        (
            &["--admin", "0.0.0.0:0", "--admin-details"],
            "server.example",
            true,
        ),
    ] {
        let server = Running::start(flags);
        let admin: SocketAddr = ([127, 0, 0, 1], admin(&server).port()).into();
        get(server.address, "/secret");
        eventually("it is counted", || figures(admin)["requests"] == 1);
        let now = figures_for(admin, host);
        assert_eq!(
            (now["slow"].is_array(), now["details"].as_bool()),
            (shown, Some(shown)),
            "{flags:?}: {now}"
        );
        assert_eq!(
            now.to_string().contains("secret"),
            shown,
            "{flags:?}: {now}"
        );
    }

    let (code, said) = crate::common::output(&[".", "--admin-details"]);
    assert!(
        code == Some(2) && said.contains("--admin"),
        "it says nothing without an address: {said}"
    );
}

#[test]
fn stalls_are_listed_with_what_the_worker_was_in() {
    for (address, reports, detailed) in [
        ("127.0.0.1:0", true, true),
        ("0.0.0.0:0", true, false),
        ("127.0.0.1:0", false, false),
    ] {
        let flags = [
            &["web", env!("CARGO_MANIFEST_DIR"), "--listen", "127.0.0.1:0"][..],
            &["--workers", "2", "--admin", address],
            if reports { &["--report-stalls"] } else { &[] },
        ]
        .concat();
        let server = Running::spawn(blocking::command(1, Duration::from_millis(60), &flags));
        let admin: SocketAddr = ([127, 0, 0, 1], admin(&server).port()).into();
        let has = |now: &Value, name: &str| {
            let last = now["stalls"]["last"].as_array().unwrap();
            last.iter()
                .any(|stall| !stall[name].is_null() && stall[name] != Value::Array(vec![]))
        };

        // On a busy machine a worker may be without a processor, and not answer in time.
        eventually("a stall", || {
            get(server.address, "/Cargo.toml");
            let now = figures(admin);
            let reported = if detailed {
                has(&now, "calls")
            } else {
                !reports || has(&now, "held")
            };

            now["stalls"]["count"].as_u64().unwrap() > 0 && reported
        });
        let now = figures(admin);
        let stalls = &now["stalls"];
        assert_eq!(stalls["reported"], reports);
        let last = stalls["last"].as_array().unwrap();
        assert_eq!(
            (has(&now, "fiber"), has(&now, "calls")),
            (detailed, detailed),
            "{now}"
        );
        assert!(
            last.iter()
                .all(|stall| stall["held"].as_f64().unwrap() >= 0.01),
            "{now}"
        );
        assert!(!now.to_string().contains("0x"), "no addresses: {now}");
    }
}

#[test]
fn a_server_that_stops_says_so() {
    let server = Running::start(&["--admin", "127.0.0.1:0", "--grace", "20s"]);
    let admin = admin(&server);
    let mut slow = server.connect();
    slow.write_all(b"GET /Cargo.toml HTTP/1.1\r\n").unwrap();
    eventually("the connection", || {
        figures(admin)["connections"]["now"] == 1
    });
    server.signal();
    eventually("it stops", || figures(admin)["state"] == "stopping");
    slow.write_all(b"Host: h\r\n\r\n").unwrap();
    assert!(crate::common::rest(slow).starts_with("HTTP/1.1 200"));
    assert_eq!(server.end().0, Some(0));
}

/// Headless Chromium, with a profile that goes away with it.
struct Browser {
    program: &'static str,
    profile: PathBuf,
}

impl Browser {
    /// Finds one. `None`: none is installed.
    fn find() -> Option<Self> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let runs = |name: &&str| {
            Command::new(name)
                .arg("--version")
                .output()
                .is_ok_and(|out| out.status.success())
        };

        let profile =
            std::env::temp_dir().join(format!("plainweave-status-{}", std::process::id()));
        names
            .into_iter()
            .find(runs)
            .map(|program| Self { program, profile })
    }

    /// Returns the page's elements once its own clock has run for some milliseconds.
    fn dom(&self, url: &str, milliseconds: u32) -> String {
        let mut command = Command::new(self.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            url,
        ]);
        command.arg(format!("--user-data-dir={}", self.profile.display()));
        command.arg(format!("--virtual-time-budget={milliseconds}"));
        let done = child::output(&mut command).unwrap();

        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );

        String::from_utf8(done.stdout).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Serves this answer to `/`, and closes connections that ask for anything else; until the test
/// program ends.
fn speechless(page: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let page = page.clone();
            // A browser opens connections that it may need.
            thread::spawn(move || {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).unwrap_or(0);
                if head[..read].starts_with(b"GET / ") {
                    let _ = stream.write_all(page.as_bytes());
                }
            });
        }
    });
    address
}

#[test]
fn in_a_browser() {
    let Some(browser) = Browser::find() else {
        skip::skip("Chromium is not installed");
        return;
    };

    let server = Running::start(&["--admin", "127.0.0.1:0"]);
    let admin = admin(&server);
    let strange = "/<script>document.title='taken'</script><b>bold";
    ask(server.address, &format!("GET {strange} HTTP/1.0\r\n\r\n"));
    eventually("it is listed", || !paths(&figures(admin)).is_empty());
    let dom = browser.dom(&format!("http://{admin}/"), 3500);
    let (shown, _) = dom.split_once("<script").unwrap();

    assert!(
        shown.contains("&lt;script&gt;document.title='taken'&lt;/script&gt;&lt;b&gt;bold"),
        "{shown}"
    );
    assert!(
        !shown.contains("<b>bold") && !shown.contains("<title>taken"),
        "{shown}"
    );
    assert!(
        shown.contains(">serving<") && shown.contains("/s \u{b7} plainweave web</title>"),
        "{shown}"
    );
    assert!(!shown.contains("does not answer"), "{shown}");

    let whole = ask(
        admin,
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    let dom = browser.dom(&format!("http://{}/", speechless(whole)), 2500);
    let (shown, _) = dom.split_once("<script").unwrap();
    assert!(
        shown.contains("The server does not answer (") && !shown.contains(">serving<"),
        "{shown}"
    );
}
