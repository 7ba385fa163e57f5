//! What is made of the flags for an installation: manual pages, completions.

use std::fs;
use std::process::Command;

use crate::common::scratch::Scratch;
use crate::common::skip::skip;
use crate::common::{Running, admin, child, get, output_of};

fn output(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command.args(args);
    output_of(command)
}

#[test]
fn every_subcommand_has_a_page() {
    let scratch = Scratch::new();
    let directory = scratch.path("man/man1");
    let (code, said) = output(&["generate", "manual", &directory]);
    assert_eq!(code, Some(0), "{said}");
    let page = |name: &str| fs::read_to_string(format!("{directory}/{name}.1")).expect(name);
    for name in ["web", "cache", "load", "load-http", "policies"] {
        let page = page(&format!("plainweave-{name}"));
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let cache = page("plainweave-cache");
    assert!(cache.contains("\\-\\-replace") && cache.contains("\\&  MEMCACHED_PORT_FILENAME"));
    assert!(page("plainweave").contains("plainweave\\-web(1)"));

    let (code, said) = output(&["generate", "manual", "/proc/none"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot write to /proc/none"), "{said}");
}

#[test]
fn shells_complete_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script) = output(&["generate", "completions", shell]);
        assert_eq!(code, Some(0), "{script}");
        assert!(
            script.contains("tls-listen") && script.contains("auth-file"),
            "{shell}"
        );
    }
    let (_, script) = output(&["generate", "completions", "bash"]);
    let ask = format!(
        "{script}\nCOMP_WORDS=(plainweave cache --rep) COMP_CWORD=2\n\
         _plainweave plainweave --rep cache\n\
         echo \"${{COMPREPLY[@]}}\""
    );
    let Ok(done) = child::output(Command::new("bash").args(["-c", &ask])) else {
        return skip("there is no bash");
    };
    let offered = String::from_utf8_lossy(&done.stdout);
    assert!(
        offered.contains("--replace") && offered.contains("--report-stalls"),
        "{offered}"
    );

    let (code, said) = output(&["generate", "completions", "tcsh"]);
    assert!(
        code == Some(2) && said.contains("possible values"),
        "{said}"
    );
}

/// The words of a query that name metrics.
fn metrics_of(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("plainweave_") || word.starts_with("process_"))
}

/// Each query of a dashboard names metrics that are there, and each legend a label of them.
fn asks_for_what_is_there(dashboard: &str, metrics: &str) {
    let file = format!(
        "{}/../../packaging/grafana/{dashboard}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = fs::read_to_string(file).unwrap();
    let board: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut queries = 0;
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let legend = target["legendFormat"].as_str().unwrap();
            let labels = legend.split("{{").skip(1);
            let labels = labels.map(|rest| rest.split_once("}}").unwrap().0);
            let mut labels = labels.filter(|label| *label != "instance");
            let names: Vec<_> = metrics_of(query).collect();
            assert!(!names.is_empty(), "{query}");
            let lines = |name: &str| {
                let lines = metrics.lines().filter(|line| {
                    let rest = line.strip_prefix(name);
                    rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                });
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            for name in &names {
                assert!(!lines(name).is_empty(), "{name} of {query} is in no line");
            }
            let has = |label: &str| lines(names[0])[0].contains(&format!("{label}=\""));
            assert!(labels.all(has), "{legend} of {query}");
            queries += 1;
        }
    }
    assert!(queries > 10, "{dashboard}");
}

#[test]
fn dashboards_ask_for_what_is_there() {
    let web = Running::start(&["--admin", "127.0.0.1:0"]);
    get(web.address, "/");
    asks_for_what_is_there("web", &get(admin(&web), "/metrics"));

    let cache = crate::cache::running::Running::start(&["--admin", "127.0.0.1:0"]);
    // One batch in sixteen is timed.
    let mut client = cache.connect();
    (0..32).for_each(|_| client.ask("get a\r\n", "END\r\n"));
    let pages = cache.line.split("admin http://").nth(1).expect(&cache.line);
    let pages = pages.split('/').next().unwrap().parse().unwrap();
    asks_for_what_is_there("cache", &get(pages, "/metrics"));
}
