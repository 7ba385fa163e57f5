//! A served directory that is made again, renamed, or behind a link that is switched.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plainweave_http::Server;
use plainweave_http::files::{Caching, StaticFiles};

use crate::site::{Site, ask};

/// What a release's files contain: which one it is.
fn release(directory: &Path, number: usize) {
    fs::create_dir_all(directory.join("sub")).unwrap();
    for name in ["page", "page.gz", "sub/index.html"] {
        fs::write(directory.join(name), format!("{number} {name}")).unwrap();
    }
    // Larger than what is kept whole.
    fs::write(
        directory.join("large"),
        format!("{number} large").repeat(20_000),
    )
    .unwrap();
}

/// Makes `link` lead to `target`, without a moment in which it is not there.
fn switch(link: &Path, target: &Path) {
    let new = link.with_extension("new");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

fn server(root: &Path, staleness: Duration) -> Server<StaticFiles> {
    let caching = Caching {
        staleness,
        ..Caching::default()
    };

    Server::new(
        StaticFiles::new(root)
            .unwrap()
            .with_precompressed()
            .with_caching(caching),
    )
}

/// The release that answers, or the status of an answer without one.
fn answered(server: &Server<StaticFiles>, path: &str) -> Result<usize, u16> {
    let answer = ask(server, &format!("GET {path}"), "");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let number = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    number.filter(|_| answer.status == 200).ok_or(answer.status)
}

#[track_caller]
fn eventually(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "not within 20 s");
        thread::sleep(Duration::from_millis(5));
    }
}

const PATHS: [&str; 3] = ["/page", "/sub/", "/large"];
const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_directory_that_is_made_anew_is_served() {
    let site = Site::new();
    let root = site.root().join("dist");
    release(&root, 1);
    let server = server(&root, SHORT);
    PATHS
        .iter()
        .for_each(|path| assert_eq!(answered(&server, path), Ok(1)));

    for number in 2..6 {
        fs::remove_dir_all(&root).unwrap();
        if number % 2 == 0 {
            // For a while there is nothing.
            eventually(|| answered(&server, "/page") == Err(503));
            assert!(server.handler().root().is_missing());
        }

        release(&root, number);
        for path in PATHS {
            eventually(|| answered(&server, path) == Ok(number));
        }
        assert!(!server.handler().root().is_missing());
    }
}

/// At once, although nothing is looked at again by itself.
#[test]
fn a_file_that_is_not_found_has_its_directory_looked_for() {
    let site = Site::new();
    let root = site.root().join("dist");
    release(&root, 1);
    let server = server(&root, Duration::from_secs(3600));
    assert_eq!(answered(&server, "/page"), Ok(1));
    fs::rename(&root, site.root().join("old")).unwrap();
    release(&root, 2);
    fs::write(root.join("other"), "2 other").unwrap();
    assert_eq!(answered(&server, "/page"), Ok(1), "believed for an hour");
    assert_eq!(answered(&server, "/other"), Ok(2));

    PATHS
        .iter()
        .for_each(|path| assert_eq!(answered(&server, path), Ok(2)));
}

#[test]
fn it_is_opened_anew_when_that_is_asked_for() {
    let site = Site::new();
    let root = site.root().join("releases");
    let link = site.root().join("current");
    (1..3).for_each(|number| release(&root.join(number.to_string()), number));
    switch(&link, &root.join("1"));
    let server = server(&link, Duration::from_secs(3600));

    PATHS
        .iter()
        .for_each(|path| assert_eq!(answered(&server, path), Ok(1)));
    switch(&link, &root.join("2"));
    assert_eq!(answered(&server, "/page"), Ok(1));
    server.handler().root().reopen().unwrap();
    PATHS
        .iter()
        .for_each(|path| assert_eq!(answered(&server, path), Ok(2)));

    // What cannot be opened changes nothing.
    fs::remove_file(&link).unwrap();
    assert!(server.handler().root().reopen().is_err());
    assert_eq!(answered(&server, "/page"), Ok(2));
}

/// A gap of two renames is bridged; a path that leads nowhere for longer is the operator's will.
#[test]
fn a_directory_that_was_moved_away_is_served_no_longer_than_a_moment() {
    let site = Site::new();
    let root = site.root().join("dist");
    release(&root, 1);
    let server = server(&root, SHORT);
    fs::rename(&root, site.root().join("old")).unwrap();
    thread::sleep(SHORT * 2);
    assert_eq!(answered(&server, "/page"), Ok(1));
    eventually(|| PATHS.iter().all(|path| answered(&server, path) == Err(503)));
    fs::rename(site.root().join("old"), &root).unwrap();
    for path in PATHS {
        eventually(|| answered(&server, path) == Ok(1));
    }

    // And a file in its place is none.
    fs::remove_dir_all(&root).unwrap();
    fs::write(&root, "1 file").unwrap();
    eventually(|| answered(&server, "/page") == Err(503));
}

/// Links out of the new directory are refused as those of the old one were.
#[test]
fn what_takes_its_place_is_served_by_the_same_rules() {
    let site = Site::new();
    let root = site.root().join("dist");
    release(&root, 1);
    fs::write(site.root().join("secret"), "9 secret").unwrap();

    for links in [true, false] {
        let files = StaticFiles::new(&root).unwrap();
        let files = if links { files } else { files.without_links() };
        let server = Server::new(files.with_caching(Caching {
            staleness: SHORT,
            ..Caching::default()
        }));
        fs::remove_dir_all(&root).unwrap();
        release(&root, 2);
        symlink("../secret", root.join("out")).unwrap();
        symlink("page", root.join("in")).unwrap();
        eventually(|| answered(&server, "/page") == Ok(2));
        assert_eq!(answered(&server, "/out"), Err(404));
        assert_eq!(
            answered(&server, "/in"),
            if links { Ok(2) } else { Err(404) }
        );
    }
}

/// A file, its twin and its header fields are of one release, while releases are switched all the
/// time.
#[test]
fn no_answer_is_made_of_two_releases() {
    let site = Site::new();
    let root = site.root().join("releases");
    let link = site.root().join("current");
    let targets: Vec<_> = (0..2).map(|number| root.join(number.to_string())).collect();
    for (number, target) in targets.iter().enumerate() {
        fs::create_dir_all(target).unwrap();
        fs::write(target.join("page"), "x".repeat(100 + number)).unwrap();
        // The second release has no twin.
        if number == 0 {
            fs::write(target.join("page.gz"), "z".repeat(50)).unwrap();
        }
    }

    switch(&link, &targets[0]);
    let server = server(&link, Duration::ZERO);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for target in targets.iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                switch(&link, target);
                thread::sleep(Duration::from_millis(3));
            }
        });
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&over);
        let mut seen = [false; 2];
        let end = Instant::now() + Duration::from_secs(20);

        let mut asked = 0;
        while asked < 2000 || seen != [true; 2] {
            assert!(Instant::now() < end, "{asked} answers, of both: {seen:?}");
            let answer = ask(&server, "GET /page", "Accept-Encoding: gzip\r\n");
            assert_eq!(answer.status, 200);
            let coding = answer.header("content-encoding");
            let varies = answer.header("vary").is_some();

            match answer.body.len() {
                50 => assert_eq!((coding, varies), (Some("gzip"), true)),
                101 => assert_eq!((coding, varies), (None, false)),
                other => panic!("{other} bytes, {coding:?}"),
            }

            seen[usize::from(answer.body.len() == 101)] = true;
            asked += 1;
        }
    });
}
