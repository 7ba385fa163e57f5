//! `--access-log-size`: what becomes of log files that grow.

use std::fs;
use std::path::Path;

use crate::common::scratch::Scratch;
use crate::common::{Running, ask, command, eventually, get, output};

/// The lines of the files of a log, the oldest first, none of which is larger than `most`.
fn lines(log: &str, most: usize) -> Vec<String> {
    let earlier = (1..1000).map(|n| format!("{log}.{n}"));
    let mut files: Vec<_> = earlier
        .take_while(|file| Path::new(file).exists())
        .collect();
    files.reverse();
    files.push(log.to_owned());
    let texts = files.iter().map(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        assert!(text.len() <= most, "{file}: {}", text.len());
        assert!(text.is_empty() || text.ends_with('\n'), "{file}: {text}");
        text
    });
    let text: String = texts.collect();
    text.lines().map(str::to_owned).collect()
}

/// Asks for `/N`, for each number.
fn ask_for(server: &Running, numbers: std::ops::Range<usize>) {
    for number in numbers {
        get(server.address, &format!("/{number}"));
    }
}

#[test]
fn no_line_is_lost_and_no_file_too_large() {
    let directory = Scratch::new();
    let log = directory.path("log");
    let flags = ["--access-log", &log, "--access-log-size", "4k"];
    let server = Running::start(&[&flags[..], &["--access-log-keep", "99"]].concat());
    ask_for(&server, 0..100);
    eventually("they are written", || lines(&log, 4096).len() == 100);
    ask_for(&server, 100..300);
    server.signal();
    assert_eq!(server.end(), (Some(0), String::new()));

    let lines = lines(&log, 4096);
    let mut asked: Vec<usize> = lines
        .iter()
        .map(|line| {
            let path = line.split_once("\"GET /").expect(line).1;
            path.split(' ').next().unwrap().parse().unwrap()
        })
        .collect();
    asked.sort_unstable();
    assert_eq!(asked, (0..300).collect::<Vec<_>>());
    assert!(
        Path::new(&format!("{log}.5")).exists(),
        "300 lines of 60 bytes and more"
    );
}

#[test]
fn the_oldest_go() {
    let directory = Scratch::new();
    let log = directory.path("log");
    let flags = ["--access-log", &log, "--access-log-size", "4k"];
    let server = Running::start(&[&flags[..], &["--access-log-keep", "2"]].concat());
    ask_for(&server, 0..400);
    server.signal();
    assert_eq!(server.end().0, Some(0));
    // Each CPU has its lines, so the last ones need not be of the last requests.
    let kept = lines(&log, 4096).len();
    assert!((60..300).contains(&kept), "{kept}");
    assert!(Path::new(&format!("{log}.2")).exists());
    assert!(!Path::new(&format!("{log}.3")).exists());
}

/// Standard output and pipes go on; a directory that is not writable costs nothing but a complaint.
#[test]
fn what_cannot_be_rotated_goes_on() {
    let server = Running::start(&["--access-log", "/dev/null", "--access-log-size", "4k"]);
    ask_for(&server, 0..100);
    server.signal();
    assert_eq!(server.end(), (Some(0), String::new()));
    assert!(!Path::new("/dev/null.1").exists());

    let directory = Scratch::new();
    let log = directory.path("log");
    // A directory stands where the file would go.
    fs::create_dir(format!("{log}.1")).unwrap();
    fs::write(format!("{log}.1/file"), "").unwrap();
    let flags = ["--access-log", &log, "--access-log-size", "4k"];
    let server = Running::start(&[&flags[..], &["--access-log-keep", "1"]].concat());
    ask_for(&server, 0..200);
    server.signal();
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("access log") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 200);
}

/// The log of the server and that of a site are one file, with two writers; and it is a link.
#[test]
fn two_writers_and_a_link_lose_nothing() {
    let directory = Scratch::new();
    fs::create_dir(directory.root().join("www")).unwrap();
    fs::create_dir(directory.root().join("data")).unwrap();
    directory.file("www/index.html", "a page");
    std::os::unix::fs::symlink("data/log", directory.root().join("log")).unwrap();
    let log = directory.path("log");
    let site = "[[site]]\nnames = [\"site\"]\nroot = \"www\"\naccess-log = \"log\"\n";
    let file = directory.file("web.toml", format!("root = \"www\"\n{site}"));
    let flags = [
        "--config",
        &file,
        "--listen",
        "127.0.0.1:0",
        "--access-log",
        &log,
    ];
    let more = ["--access-log-size", "4k", "--access-log-keep", "99"];
    let server = Running::spawn(command(&[&flags[..], &more].concat()));
    for number in 0..400 {
        let host = ["site", "another"][number % 2];
        let text = format!("GET /{number} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(server.address, &text);
    }
    server.signal();
    let (code, said) = server.end();
    assert_eq!((code, &*said), (Some(0), ""));
    let lines = lines(&directory.path("data/log"), 8192);
    assert_eq!(lines.len(), 400);
    assert!(fs::symlink_metadata(&log).unwrap().is_symlink());
}

#[test]
fn sizes_that_mean_nothing_are_refused() {
    for (args, said) in [
        (
            &["--access-log", "x", "--access-log-size", "1k"][..],
            "4k or more",
        ),
        (
            &["--access-log", "x", "--access-log-keep", "3"],
            "--access-log-size",
        ),
    ] {
        let (code, text) = output(&[&["."], args].concat());
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }
}
