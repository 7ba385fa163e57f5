//! Files and directories that are renamed, replaced and written while they are asked for.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plainweave_http::Server;
use plainweave_http::files::Caching;

use crate::site::{Site, ask};

/// Small enough to be kept whole, and large enough to be read in several pieces.
const SIZES: [usize; 2] = [20_000, 200_000];
/// Requests at least; more until two different answers were seen, for otherwise nothing was raced.
const ROUNDS: usize = 1_000;

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks while `change` goes on and on. `check` gets each answer's status and body.
fn while_changing(
    site: &Site,
    open: bool,
    path: &str,
    change: impl Fn(usize) + Send + Sync,
    check: impl Fn(u16, &[u8], Option<&str>),
) {
    let file_bytes = if open { 0 } else { 1 << 20 };
    let caching = Caching {
        staleness: Duration::ZERO,
        file_bytes,
        bytes: 256 << 20,
        ..Caching::default()
    };

    let server = Server::new(site.files().with_caching(caching));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                change(n);
            }
        });
        // Ends the other thread, and with it the test, if a check panics.
        let _over = Over(&over);
        let mut seen = HashSet::new();
        let end = Instant::now() + Duration::from_secs(60);

        for n in 0.. {
            if n >= ROUNDS && seen.len() > 1 {
                break;
            }
            assert!(
                Instant::now() < end,
                "{n} answers in a minute, of {} kinds",
                seen.len()
            );
            let answer = ask(&server, &format!("GET {path}"), "");
            check(answer.status, &answer.body, answer.header("etag"));
            seen.insert((answer.status, answer.body.first().copied()));
        }
    });
}

/// Returns whether the body is `sizes[0]` times the letter `a`, or `sizes[1]` times `b`.
fn is_whole(body: &[u8], sizes: [usize; 2]) -> bool {
    let letter = body.first().copied().unwrap_or_default();
    let size = if letter == b'a' { sizes[0] } else { sizes[1] };
    matches!(letter, b'a' | b'b') && body.len() == size && body.iter().all(|byte| *byte == letter)
}

#[test]
fn a_renamed_file_is_one_or_the_other_or_none() {
    for open in [false, true] {
        let site = Site::new()
            .with("a", "a".repeat(SIZES[0]))
            .with("b", "b".repeat(SIZES[1]));
        let root = site.root();
        let change = |n: usize| {
            let from = if n.is_multiple_of(2) { "a" } else { "b" };
            fs::hard_link(root.join(from), root.join("new")).unwrap();
            fs::rename(root.join("new"), root.join("f")).unwrap();
            if n.is_multiple_of(3) {
                fs::remove_file(root.join("f")).unwrap();
            }
        };

        while_changing(&site, open, "/f", change, |status, body, _| {
            assert!(
                status == 404 || (status == 200 && is_whole(body, SIZES)),
                "{status}: {}",
                body.len()
            );
        });
    }
}

#[test]
fn a_renamed_directory_is_one_or_the_other_or_none() {
    let site = Site::new()
        .with("one/f", "a".repeat(SIZES[0]))
        .with("two/f", "b".repeat(SIZES[1]));
    let root = site.root();
    let change = |n: usize| {
        let name = if n.is_multiple_of(2) { "one" } else { "two" };
        fs::rename(root.join(name), root.join("d")).unwrap();
        fs::rename(root.join("d"), root.join(name)).unwrap();
    };

    while_changing(&site, false, "/d/f", change, |status, body, _| {
        assert!(
            status == 404 || (status == 200 && is_whole(body, SIZES)),
            "{status}: {}",
            body.len()
        );
    });
}

/// What a directory is one moment, a link out of the root is the next. The secret is never served.
#[test]
fn a_link_that_comes_and_goes_lets_nobody_out() {
    let outside = Site::new().with("f", "secret");
    let site = Site::new().with("real/f", "a".repeat(SIZES[0]));
    let root = site.root();
    symlink(outside.root(), root.join("link")).unwrap();
    let change = |_| {
        for name in ["real", "link"] {
            fs::rename(root.join(name), root.join("d")).unwrap();
            fs::rename(root.join("d"), root.join(name)).unwrap();
        }
    };

    while_changing(&site, false, "/d/f", change, |status, body, _| {
        assert!(
            status == 404 || (status == 200 && is_whole(body, SIZES)),
            "{status}: {}",
            body.len()
        );
    });
}

/// Written in place, a file can be seen half written; but one tag names one content.
#[test]
fn a_tag_names_one_content() {
    let site = Site::new().with("f", "a".repeat(SIZES[0]));
    let path = site.root().join("f");
    let change = |n: usize| {
        let letter = if n.is_multiple_of(2) { "b" } else { "a" };
        fs::write(&path, letter.repeat(SIZES[0])).unwrap();
        // Longer than a tick of the file system's clock.
        thread::sleep(Duration::from_millis(12));
    };

    let seen = Mutex::new(HashMap::<String, Vec<u8>>::new());
    while_changing(&site, false, "/f", change, |status, body, tag| {
        assert!(matches!(status, 200 | 500), "{status}");
        if status == 200 && is_whole(body, [SIZES[0]; 2]) {
            let mut seen = seen.lock().unwrap();
            let first = seen
                .entry(tag.unwrap().to_owned())
                .or_insert_with(|| body.to_vec());
            assert!(first == body, "{tag:?} names two contents");
        }
    });
}

#[test]
fn unreadable_files() {
    let site = Site::new().with("f", "x").with("d/f", "x");
    fs::set_permissions(site.root().join("f"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(site.root().join("d"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(site.root().join("f")).is_ok() {
        crate::skip::skip("this user reads every file (root?)");
        return;
    }

    let server = Server::new(site.files().with_listings());
    for path in ["/f", "/d/f", "/d/"] {
        assert_eq!(
            ask(&server, &format!("GET {path}"), "").status,
            403,
            "{path}"
        );
    }

    fs::set_permissions(site.root().join("d"), fs::Permissions::from_mode(0o755)).unwrap();
}
