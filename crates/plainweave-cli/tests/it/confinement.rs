//! What the servers give up as they start, from outside.

use std::fs;
use std::io::BufReader;
use std::process::Command;

use super::cache::running as cache;
use crate::common::scratch::Scratch;
use crate::common::skip::skip;
use crate::common::{Running, command, eventually, get, hang_up};

/// Whether the process can gain no privileges any more.
fn is_confined(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NoNewPrivs:"));
    line.expect("Linux 4.10").trim() == "1"
}

/// A configuration with this site log.
fn settings(log: &str) -> String {
    let site =
        format!("[[site]]\nnames = [\"localhost\"]\nroot = \"www\"\naccess-log = \"{log}\"\n");
    format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n{site}")
}

#[test]
fn both_servers_are_confined_unless_told_otherwise() {
    let server = Running::start(&[]);
    if server.line.contains("this kernel has no Landlock") {
        return skip("this kernel has no Landlock");
    }
    assert!(server.line.contains(", confined"), "{}", server.line);
    assert!(is_confined(server.child.id()));
    let server = Running::start(&["--no-confinement"]);
    assert!(server.line.contains("not confined"), "{}", server.line);
    assert!(!is_confined(server.child.id()));

    let server = cache::Running::start(&[]);
    assert!(server.line.contains(", confined"), "{}", server.line);
    assert!(is_confined(server.child.id()));
    let server = cache::Running::start(&["--no-confinement"]);
    assert!(server.line.contains("not confined"), "{}", server.line);
    assert!(!is_confined(server.child.id()));
}

/// A directory that nothing named at the start is out of reach, and a reload says so.
#[test]
fn a_reload_writes_where_the_start_did() {
    for (flags, goes_on) in [(&[][..], false), (&["--no-confinement"], true)] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.root().join("www")).unwrap();
        fs::create_dir(scratch.root().join("logs")).unwrap();
        let other = Scratch::new();
        let elsewhere = other.path("log");
        scratch.file("www/index.html", "a page");
        let file = scratch.file("web.toml", settings("logs/log"));
        let mut server = Running::spawn(command(&[&["--config", &file], flags].concat()));
        if server.line.contains("this kernel has no Landlock") {
            return skip("this kernel has no Landlock");
        }
        let mut said = BufReader::new(server.child.stderr.take().unwrap());

        // Another one in the directory of the first.
        scratch.file("web.toml", settings("logs/other"));
        let line = hang_up(&server, &mut said);
        assert!(line.contains("is loaded"), "{line}");
        scratch.file("web.toml", settings(&elsewhere));
        let line = hang_up(&server, &mut said);
        assert_eq!(line.contains("is loaded"), goes_on, "{line}");
        let is_said = line.contains(&elsewhere) && line.contains("--no-confinement");
        assert_eq!(is_said, !goes_on, "{line}");
        assert!(get(server.address, "/").ends_with("a page"));
    }
}

/// What the flags name is written, wherever it is.
#[test]
fn files_of_the_flags_are_in_reach() {
    let scratch = Scratch::new();
    let place = |name: &str| {
        fs::create_dir(scratch.root().join(name)).unwrap();
        scratch.path(&format!("{name}/file"))
    };
    let [pid, socket, trace, replace] = ["pid", "socket", "trace", "replace"].map(place);
    let flags = [
        "-s",
        &socket,
        "-P",
        &pid,
        "--trace",
        &trace,
        "--replace",
        &replace,
    ];
    let server = cache::Running::spawn(cache::command(&flags));
    server.signal();
    let (code, said) = server.end();
    assert_eq!((code, &*said), (Some(0), ""));
    assert!(fs::metadata(&trace).unwrap().len() > 0);
    for gone in [&pid, &socket] {
        assert!(!fs::exists(gone).unwrap(), "{gone}");
    }
}

/// Standard output as the log gives the working directory to nobody.
#[test]
fn a_log_that_is_open_already_opens_no_directory() {
    for log in ["-", "/dev/stdout", "/dev/stderr", "/proc/self/fd/1"] {
        let server = Running::start(&["--access-log", log]);
        if server.line.contains("this kernel has no Landlock") {
            return skip("this kernel has no Landlock");
        }
        assert!(server.line.contains(", confined"), "{log}: {}", server.line);
        get(server.address, "/Cargo.toml");
    }
}

/// As by `> log`: the file may be written, the directory that it is in may not.
#[test]
fn a_log_to_redirected_output_is_written() {
    let directory = Scratch::new();
    let path = directory.path("output");
    let mut shell = Command::new("sh");
    let redirected = format!("exec \"$0\" \"$@\" 2> {path}");
    shell.args([
        "-c",
        &redirected,
        env!("CARGO_BIN_EXE_plainweave"),
        "web",
        ".",
    ]);
    shell.args(["--listen", "127.0.0.1:0", "--access-log", "/dev/stderr"]);
    let server = Running::spawn(shell);
    get(server.address, "/none");
    server.signal();
    eventually("it has the line", || {
        fs::read_to_string(&path).unwrap().contains("GET /none ")
    });
}

/// Nor does that of a site, which is no path beside the configuration.
#[test]
fn a_site_s_log_that_is_open_already_opens_no_directory() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.root().join("www")).unwrap();
    let file = scratch.file("web.toml", settings("-"));
    let mut server = Running::spawn(command(&["--config", &file]));
    if server.line.contains("this kernel has no Landlock") {
        return skip("this kernel has no Landlock");
    }
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    scratch.file("web.toml", settings("log"));
    let line = hang_up(&server, &mut said);
    assert!(line.contains("--no-confinement"), "{line}");
}
