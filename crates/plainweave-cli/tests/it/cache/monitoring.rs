//! What monitoring reads: Prometheus' memcached_exporter, memcached-tool, and the names of
//! memcached's figures. A test whose program is not installed says so and passes;
//! `a_scrape_is_read_whole` needs none.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use super::differential::Reference;
use super::running::{Client, PATIENCE, Running, eventually};
use crate::common::child::{self, Kept};
use crate::common::skip::skip;

/// Items of two classes, and at least one of each command that the figures tell apart.
const COMMANDS: &str = "set a 0 100 1\r\n1\r\nget a\r\nget b\r\nincr a 1\r\ndecr a 1\r\ntouch a 50\r\ndelete b\r\n\
    cas a 0 0 1 999999\r\n2\r\nset d 0 0 1\r\n1\r\ndelete d\r\n";

fn fill(client: &mut Client) {
    client.until(format!("{COMMANDS}mn\r\n"), "MN");
    client.until(
        format!(
            "set l 0 0 3000\r\n{}\r\nget l\r\nget l\r\nmn\r\n",
            "x".repeat(3000)
        ),
        "MN",
    );
}

/// The figures of one kind, by name, in the way the exporter's client reads them: each line has
/// three parts.
fn figures(client: &mut Client, command: &str) -> BTreeMap<String, String> {
    let mut figures = BTreeMap::new();
    for line in client
        .until(format!("{command}\r\n"), "END")
        .lines()
        .filter(|line| *line != "END")
    {
        let parts: Vec<&str> = line.splitn(3, ' ').collect();
        let ["STAT", name, value] = parts[..] else {
            panic!("{command}: {line:?}")
        };
        assert_eq!(
            figures.insert(name.to_owned(), value.to_owned()),
            None,
            "{command}: {name} twice"
        );
    }
    figures
}

fn number(figures: &BTreeMap<String, String>, name: &str) -> f64 {
    let value = figures
        .get(name)
        .unwrap_or_else(|| panic!("no {name} in {figures:?}"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name} is {value}"))
}

/// What memcached_exporter 0.14 sends for one scrape, and what it takes amiss: a figure that is no
/// number, a class without the sets and comparisons from which it counts plain sets, and one figure
/// in two places.
#[test]
fn a_scrape_is_read_whole() {
    let server = Running::start(&[]);
    let mut client = server.connect();
    fill(&mut client);
    let general = figures(&mut client, "stats");
    let slabs = figures(&mut client, "stats slabs");
    let items = figures(&mut client, "stats items");
    let settings = figures(&mut client, "stats settings");

    for name in [
        "uptime",
        "time",
        "cmd_flush",
        "bytes",
        "limit_maxbytes",
        "curr_items",
        "total_items",
    ] {
        number(&general, name);
    }

    for name in ["rusage_user", "rusage_system"] {
        let (seconds, micros) = general[name].split_once('.').unwrap();
        assert!(
            seconds.parse::<u64>().is_ok() && micros.parse::<u64>().is_ok(),
            "{name}"
        );
    }

    assert!(general.contains_key("version") && number(&settings, "maxconns") > 0.0);
    assert!(
        number(&general, "cmd_set")
            >= number(&general, "cas_badval") + number(&general, "cas_hits")
    );
    let classes: BTreeSet<&str> = slabs
        .keys()
        .filter_map(|name| name.split_once(':'))
        .map(|(class, _)| class)
        .collect();
    assert_eq!(classes.len(), 2, "{slabs:?}");

    for class in classes {
        let slab = |name: &str| number(&slabs, &format!("{class}:{name}"));
        let item = |name: &str| number(&items, &format!("items:{class}:{name}"));
        assert!(slab("cmd_set") >= slab("cas_hits") + slab("cas_badval"));
        assert!(
            slab("chunk_size") >= 64.0 && slab("total_pages") == 1.0 && slab("used_chunks") == 1.0
        );
        for command in ["get", "delete", "incr", "decr", "touch"] {
            slab(&format!("{command}_hits"));
        }
        assert!(item("number") == 1.0 && item("mem_requested") > 0.0);

        for name in [
            "age",
            "evicted",
            "evicted_time",
            "outofmemory",
            "reclaimed",
            "crawler_reclaimed",
        ] {
            assert!(item(name) < 60.0, "{name}");
        }

        // The exporter's name for it is the same, whichever list it comes from.
        assert!(!slabs.contains_key(&format!("{class}:mem_requested")));
    }
}

#[test]
fn the_figures_of_classes_add_up() {
    let server = Running::start(&["-t", "1"]);
    let mut client = server.connect();
    fill(&mut client);
    client.until("gat 0 l\r\nmg l T0\r\nms l 2 C1 I\r\nhi\r\nms l 2\r\nhi\r\nma a\r\nmd l\r\ngets a\r\nmn\r\n", "MN");
    let general = figures(&mut client, "stats");
    let slabs = figures(&mut client, "stats slabs");

    for name in [
        "get_hits",
        "cmd_set",
        "delete_hits",
        "incr_hits",
        "decr_hits",
        "cas_hits",
        "cas_badval",
        "touch_hits",
    ] {
        let of_classes = slabs
            .keys()
            .filter(|key| key.split_once(':').is_some_and(|(_, key)| key == name));
        let sum: f64 = of_classes.map(|key| number(&slabs, key)).sum();
        assert_eq!(sum, number(&general, name), "{name} in {slabs:?}");
    }

    client.ask("stats reset\r\n", "RESET\r\n");
    let slabs = figures(&mut client, "stats slabs");
    assert!(
        slabs
            .iter()
            .all(|(name, value)| !name.contains("_hits") || value == "0"),
        "{slabs:?}"
    );
}

/// Answers that were misses because the item had gone.
#[test]
fn gets_that_find_what_has_gone_are_counted() {
    let server = Running::start(&["-t", "1"]);
    let mut client = server.connect();
    client.ask(
        "set a 0 -1 1\r\n1\r\nget a\r\nget a\r\n",
        "STORED\r\nEND\r\nEND\r\n",
    );
    client.ask(
        "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\n",
        "STORED\r\nSTORED\r\n",
    );
    assert_eq!(
        (client.stat("get_expired"), client.stat("get_flushed")),
        (1, 0)
    );

    // In one turn: the maintenance does not come between.
    let said = client.until("flush_all\r\nget a b\r\nget a\r\nmn\r\n", "MN");
    assert_eq!(said, "OK\r\nEND\r\nEND\r\nMN\r\n");
    assert_eq!(
        (client.stat("get_expired"), client.stat("get_flushed")),
        (1, 2)
    );
}

#[test]
fn a_small_cache_is_listed_whole_however_many_shards_it_has() {
    let server = Running::start(&["-t", "16", "-m", "1024"]);
    let mut client = server.connect();
    for n in 0..40 {
        client.ask(format!("set k{n} 0 0 1\r\n1\r\n"), "STORED\r\n");
    }
    assert_eq!(
        client
            .until("stats cachedump 1 0\r\n", "END")
            .lines()
            .count(),
        41
    );
    assert!(figures(&mut client, "stats items").contains_key("items:1:age"));
}

fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();

    text
}

#[test]
fn memcached_exporter() {
    let server = Running::start(&[]);
    fill(&mut server.connect());
    let web = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = Command::new("memcached_exporter");
    command
        .arg(format!("--memcached.address={}", server.address))
        .arg(format!("--web.listen-address={web}"));
    let Ok(_exporter) = Kept::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())) else {
        return skip("memcached_exporter is not installed");
    };

    eventually("the exporter serves", || TcpStream::connect(web).is_ok());
    for _ in 0..2 {
        let scrape = page(web, "/metrics");
        assert!(scrape.starts_with("HTTP/1.1 200 "), "{scrape}");
        let sample = |name: &str| scrape.lines().any(|line| line == name);

        for line in [
            "memcached_up 1",
            "memcached_current_items 2",
            "memcached_commands_total{command=\"get\",status=\"hit\"} 3",
            "memcached_commands_total{command=\"set\",status=\"hit\"} 3",
            "memcached_slab_commands_total{command=\"get\",slab=\"7\",status=\"hit\"} 2",
            "memcached_slab_commands_total{command=\"set\",slab=\"1\",status=\"hit\"} 2",
            "memcached_slab_current_pages{slab=\"7\"} 1",
        ] {
            assert!(sample(line), "no {line} in {scrape}");
        }
    }
}

#[test]
fn memcached_tool() {
    let server = Running::start(&[]);
    fill(&mut server.connect());
    let known = [
        "memcached-tool",
        "/usr/share/memcached/scripts/memcached-tool",
    ];
    let run = |mode: &str| {
        let tool = |program| {
            child::output(
                Command::new(program)
                    .arg(server.address.to_string())
                    .arg(mode),
            )
            .ok()
        };

        known
            .into_iter()
            .find_map(tool)
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };

    let Some(table) = run("display") else {
        return skip("there is no memcached-tool");
    };
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let sizes: Vec<_> = rows
        .iter()
        .skip(1)
        .map(|row| (row[0], row[1], row[3], row[4], row[5]))
        .collect();
    assert_eq!(
        sizes,
        [("1", "64B", "1", "1", "no"), ("7", "4.0K", "1", "1", "no")],
        "{table}"
    );
    let keys = run("keys").unwrap();
    assert!(keys.contains("key=a ") && keys.contains("key=l "), "{keys}");

    for (mode, figure) in [
        ("stats", "curr_items"),
        ("settings", "maxbytes"),
        ("sizes", "4096"),
    ] {
        let said = run(mode).unwrap();
        assert!(said.contains(figure), "{mode}: {said}");
    }
}

/// Names without the class.
fn names(figures: &BTreeMap<String, String>) -> BTreeSet<&str> {
    figures
        .keys()
        .map(|name| name.rsplit(':').next().unwrap_or(name))
        .collect()
}

/// The names that docs/cache-compat.md lists as absent in an answer.
fn absent(command: &str) -> BTreeSet<&'static str> {
    let page = include_str!("../../../../../docs/cache-compat.md");
    let list = page
        .split_once(&format!("\n* `{command}`: "))
        .expect(command)
        .1
        .split("\n*")
        .next()
        .unwrap();
    let list = list.split("\n\n").next().unwrap();
    list.split('`').skip(1).step_by(2).collect()
}

#[test]
fn figures_have_memcached_s_names() {
    let Some(reference) = Reference::start() else {
        return skip("there is no memcached to compare with (apt-get install memcached)");
    };
    let server = Running::start(&["-t", "1"]);
    let mut theirs = Client::to(reference.address());
    let mut ours = server.connect();
    fill(&mut theirs);
    fill(&mut ours);
    if figures(&mut theirs, "stats")["version"] != "1.6.18" {
        return skip("memcached has other figures in other versions than 1.6.18");
    }

    for (command, own) in [
        (
            "stats",
            &[
                "auth_refused",
                "cut_connections",
                "idle_kicks",
                "long_lines",
                "memory_budget_used",
                "memory_used",
                "shed_connections",
                "slow_readers",
                "unread_replies_pin",
            ][..],
        ),
        ("stats items", &[]),
        ("stats slabs", &[]),
        ("stats settings", &["write_timeout"]),
    ] {
        let theirs = figures(&mut theirs, command);
        let ours = figures(&mut ours, command);
        let theirs = names(&theirs);
        let ours = names(&ours);
        assert_eq!(
            ours.difference(&theirs).copied().collect::<Vec<_>>(),
            own,
            "{command}: only here"
        );
        assert_eq!(
            theirs.difference(&ours).copied().collect::<BTreeSet<_>>(),
            absent(command),
            "{command}"
        );
    }
}
