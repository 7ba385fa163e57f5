//! What the static handler remembers of files, and for how long.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use plainweave_http::Server;
use plainweave_http::files::{Blocking, Caching, DiskWaits, Inline, StaticFiles};

use crate::support::{Script, play, read_answers};

struct Site(PathBuf);

impl Site {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "plainweave-cache-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let site = Self(std::env::temp_dir().join(unique));
        fs::create_dir_all(&site.0).unwrap();
        site
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// As `mv` does: the name never stands for half a file.
    fn replace(&self, name: &str, text: &str) {
        self.write("new", text);
        fs::rename(self.0.join("new"), self.0.join(name)).unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn get<B: Blocking>(server: &Server<StaticFiles<B>>, path: &str) -> (u16, Vec<u8>) {
    let mut script = Script::of(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
    play(server, &mut script);
    let answer = read_answers(&script.out).remove(0);
    (answer.status, answer.body)
}

fn text<B: Blocking>(server: &Server<StaticFiles<B>>, path: &str) -> String {
    let (status, body) = get(server, path);
    assert_eq!(status, 200, "{path}");
    String::from_utf8(body).unwrap()
}

fn with(site: &Site, caching: Caching) -> Server<StaticFiles> {
    Server::new(StaticFiles::new(&site.0).unwrap().with_caching(caching))
}

/// A pool that counts the trips to it.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU32>);

impl Blocking for Counting {
    const TRY_FIRST: bool = false;

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Inline.run(work)
    }
}

#[test]
fn a_file_is_looked_up_once_in_its_time() {
    let site = Site::new();
    site.write("a", "one");
    let pool = Counting::default();
    let hour = Caching {
        staleness: Duration::from_secs(3600),
        ..Caching::default()
    };

    let files = StaticFiles::with_blocking(&site.0, pool.clone())
        .unwrap()
        .with_caching(hour);
    let server = Server::new(files);
    assert_eq!(text(&server, "/a"), "one");
    site.replace("a", "two");
    fs::remove_file(site.0.join("a")).unwrap();

    for path in ["/a", "//a", "/%61", "/a?query"] {
        assert_eq!(
            text(&server, path),
            "one",
            "still believed, however it is written"
        );
    }

    assert_eq!(pool.0.load(Ordering::Relaxed), 1);
    for _ in 0..2 {
        assert_eq!(get(&server, "/none").0, 404);
    }
    // And one for the directory in which it is not.
    assert_eq!(
        pool.0.load(Ordering::Relaxed),
        3,
        "what is not there is remembered too"
    );
}

/// A length that is announced is sent: a file that is kept open and has lost its end is looked up
/// again before its time is over.
#[test]
fn a_file_that_has_shrunk_is_announced_with_the_length_it_has() {
    let site = Site::new();
    let whole = "0123456789".repeat(10_000);
    site.write("log", &whole);
    let hour = Caching {
        staleness: Duration::from_secs(3600),
        ..Caching::default()
    };

    let server = with(&site, hour);
    assert_eq!(text(&server, "/log"), whole);

    let file = fs::File::options()
        .write(true)
        .open(site.0.join("log"))
        .unwrap();
    // To a length that is kept open, too, and to one that is kept in memory.
    for length in [50_000, 1_000] {
        file.set_len(length).unwrap();
        assert_eq!(text(&server, "/log"), whole[..length as usize]);
    }

    drop(file);
    // What is in memory is whole, and believed for its time.
    site.write("log", "short");
    assert_eq!(text(&server, "/log"), whole[..1_000]);
}

#[test]
fn a_change_is_seen_once_the_time_is_over() {
    for file_bytes in [0, 1 << 20] {
        let site = Site::new();
        site.write("a", "one");
        let server = with(
            &site,
            Caching {
                file_bytes,
                staleness: Duration::from_millis(50),
                ..Caching::default()
            },
        );
        assert_eq!(text(&server, "/a"), "one");

        for (content, expected) in [("two", "two"), ("a longer one", "a longer one"), ("", "")] {
            site.replace("a", content);
            // The coarse clock is a few milliseconds wrong.
            std::thread::sleep(Duration::from_millis(70));
            assert_eq!(text(&server, "/a"), expected);
        }

        fs::remove_file(site.0.join("a")).unwrap();
        std::thread::sleep(Duration::from_millis(70));
        assert_eq!(get(&server, "/a").0, 404);
        fs::create_dir(site.0.join("a")).unwrap();
        std::thread::sleep(Duration::from_millis(70));
        assert_eq!(get(&server, "/a").0, 301);
    }
}

#[test]
fn an_unchanged_file_is_not_read_again() {
    let site = Site::new();
    site.write("a", "one");
    let server = with(
        &site,
        Caching {
            staleness: Duration::ZERO,
            ..Caching::default()
        },
    );
    assert_eq!(text(&server, "/a"), "one");
    let time = fs::metadata(site.0.join("a")).unwrap().modified().unwrap();

    // Written in place, time and size as before: only the time of change tells, and it is looked
    // at.
    site.write("a", "two");
    fs::File::options()
        .write(true)
        .open(site.0.join("a"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(text(&server, "/a"), "two");
}

#[test]
fn memory_and_descriptors_are_bounded() {
    let site = Site::new();
    for n in 0..400 {
        site.write(&format!("small{n}"), &"s".repeat(3000));
        site.write(&format!("large{n}"), &"l".repeat(20_000));
    }

    // A part of 16,384 bytes for each shard: four files, or a quarter of one file of 20,000 bytes.
    let caching = Caching {
        bytes: 16 * 16_384,
        open_files: 32,
        ..Caching::default()
    };

    let server = with(&site, caching);
    let before = open_descriptors(&site);
    for _ in 0..2 {
        for n in 0..400 {
            assert_eq!(text(&server, &format!("/small{n}")).len(), 3000);
            assert_eq!(text(&server, &format!("/large{n}")).len(), 20_000);
            assert_eq!(get(&server, &format!("/none{n}")).0, 404);
        }
    }

    let open = open_descriptors(&site) - before;
    assert!((1..=32).contains(&open), "{open} files are open");
}

/// Descriptors of this process that lead into the site: other tests open files of their own
/// meanwhile.
fn open_descriptors(site: &Site) -> usize {
    let links = fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.starts_with(&site.0)).count()
}

#[test]
fn nothing_is_kept_when_nothing_may_be() {
    let site = Site::new();
    site.write("a", "one");
    let hour = Duration::from_secs(3600);
    let server = with(
        &site,
        Caching {
            bytes: 0,
            open_files: 0,
            staleness: hour,
            ..Caching::default()
        },
    );
    assert_eq!(text(&server, "/a"), "one");
    site.replace("a", "two");
    assert_eq!(text(&server, "/a"), "two");
}

/// Holds up whoever waits until it is opened, or for half a minute.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn close(&self) {
        *self.0.lock().unwrap() = false;
    }

    fn wait(&self) {
        let limit = Duration::from_secs(30);
        let (_open, late) = self
            .1
            .wait_timeout_while(self.0.lock().unwrap(), limit, |open| !*open)
            .unwrap();
        assert!(!late.timed_out(), "the gate was never opened");
    }
}

/// A pool that holds the first trip up until the gate opens.
#[derive(Clone)]
struct Slow(Arc<(AtomicU32, Gate)>);

impl Blocking for Slow {
    const TRY_FIRST: bool = false;

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let (trips, gate) = &*self.0;
        if trips.fetch_add(1, Ordering::Relaxed) == 0 {
            gate.wait();
        }
        Inline.run(work)
    }
}

#[test]
fn many_requests_for_one_file_make_one_look() {
    let site = Site::new();
    site.write("a", "one");
    let pool = Slow(Arc::new((AtomicU32::new(0), Gate::default())));
    let server = Server::new(StaticFiles::with_blocking(&site.0, pool.clone()).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(text(&server, "/a"), "one"));
        }
        // Time for all to ask; were one of them late, it would find the entry.
        std::thread::sleep(Duration::from_millis(100));
        pool.0.1.open();
    });

    assert_eq!(pool.0.0.load(Ordering::Relaxed), 1);
}

/// The first trip is cancelled, after others have come to wait for it.
#[derive(Clone)]
struct CancelledOnce(Arc<(AtomicU32, Gate)>);

impl Blocking for CancelledOnce {
    const TRY_FIRST: bool = false;

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        let (trips, gate) = &*self.0;
        if trips.fetch_add(1, Ordering::Relaxed) == 0 {
            gate.wait();
            return Err(std::io::Error::other("cancelled"));
        }
        Inline.run(work)
    }
}

#[test]
fn a_cancelled_look_is_taken_over_by_who_waits() {
    let site = Site::new();
    site.write("a", "one");
    let pool = CancelledOnce(Arc::new((AtomicU32::new(0), Gate::default())));
    let server = Server::new(StaticFiles::with_blocking(&site.0, pool.clone()).unwrap());
    let statuses = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| get(&server, "/a").0))
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        pool.0.1.open();
        asking
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });

    assert_eq!(
        statuses.iter().filter(|&&status| status == 503).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|&&status| status == 200).count(),
        3,
        "{statuses:?}"
    );
}

#[test]
fn a_root_that_is_deleted_is_an_outage_and_no_404() {
    let site = Site::new();
    site.write("a", "one");
    let server = with(
        &site,
        Caching {
            staleness: Duration::ZERO,
            ..Caching::default()
        },
    );
    assert_eq!(text(&server, "/a"), "one");
    fs::remove_dir_all(&site.0).unwrap();

    for path in ["/a", "/b", "/"] {
        assert_eq!(get(&server, path).0, 503, "{path}");
    }
}

/// A pool that holds all trips up while its gate is closed.
#[derive(Clone)]
struct Stuck(Arc<Gate>);

impl Blocking for Stuck {
    const TRY_FIRST: bool = false;

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<T> {
        self.0.wait();
        Inline.run(work)
    }
}

#[test]
fn while_the_disk_is_too_slow_what_is_in_memory_is_served() {
    const WAITING: usize = 16;
    let site = Site::new();
    site.write("small", "in memory");
    site.write("large", &"l".repeat(100_000));
    let pool = Stuck(Arc::default());
    let refusals = Arc::new(AtomicU32::new(0));
    let count = refusals.clone();
    let waits = Arc::new(DiskWaits::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let hour = Caching {
        staleness: Duration::from_secs(3600),
        ..Caching::default()
    };

    let files = StaticFiles::with_blocking(&site.0, pool.clone())
        .unwrap()
        .with_caching(hour);
    let server = Server::new(files.with_disk_waits(waits.clone()));
    pool.0.open();
    assert_eq!(text(&server, "/small"), "in memory");
    assert_eq!(get(&server, "/large").1.len(), 100_000);
    pool.0.close();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| scope.spawn(|| get(&server, "/large")))
            .collect();
        let give_up = Instant::now() + Duration::from_secs(30);
        while waits.now() < WAITING && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }

        // More than a burst takes.
        std::thread::sleep(Duration::from_millis(200));
        let ranges = "GET /large HTTP/1.1\r\nHost: h\r\nRange: bytes=0-9,50-59\r\n\r\n";
        let answers = [get(&server, "/large"), get(&server, "/small")];
        let mut of_ranges = Script::of(ranges);
        play(&server, &mut of_ranges);
        let there = waits.now();

        pool.0.open();
        assert_eq!(there, WAITING);
        assert_eq!((answers[0].0, answers[1].0), (503, 200));
        let of_ranges = String::from_utf8(of_ranges.out).unwrap();

        assert!(
            of_ranges.starts_with("HTTP/1.1 503 ") && of_ranges.contains("Retry-After: 1\r\n"),
            "{of_ranges}"
        );
        for thread in waiting {
            assert_eq!(thread.join().unwrap().1.len(), 100_000);
        }
    });

    assert_eq!(
        (
            waits.now(),
            waits.refused(),
            refusals.load(Ordering::Relaxed)
        ),
        (0, 2, 2)
    );
    assert_eq!(get(&server, "/large").0, 200);
}
