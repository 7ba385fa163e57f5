//! The slowest requests of the last minute, one for each path.
//!
//! Looking at each request would cost a lock. So a request is looked at if it took longer than most
//! of those that were looked at before it, or if it is one of the samples
//! ([`Counters::count`](super::counters::Counters::count)), which bring in paths that others hide.
//! Each time that [`BATCH`] requests were longer than the bound, the bound becomes their mean: of a
//! million requests a thousand or so are looked at. It starts over with each half minute.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use plainweave_http::{Exchange, StatusCode};

/// How long the list of the newest requests grows; the one before it is kept for as long again.
const WINDOW: Duration = Duration::from_secs(30);
/// Paths in a list.
const PATHS: usize = 32;
/// Bytes of a path that are kept.
const PATH_BYTES: usize = 200;
/// Requests above the bound that raise it.
const BATCH: u64 = 64;

/// The slowest requests, shared by all workers, which leave one out rather than wait for each
/// other.
#[derive(Debug)]
pub(super) struct Slowest {
    /// Nanoseconds above which a request is looked at.
    bound: AtomicU64,
    windows: Mutex<Windows>,
}

/// The slowest request for a path.
#[derive(Clone, Debug)]
pub(super) struct Slow {
    /// As sent, without the query; cut if it is long. Empty until it is on a list.
    pub(super) path: Box<str>,
    pub(super) took: Duration,
    /// The answer's status, unless the client left before one was begun.
    pub(super) status: Option<StatusCode>,
    pub(super) body_bytes: u64,
    pub(super) at: Instant,
}

#[derive(Debug)]
struct Windows {
    began: Instant,
    now: Vec<Slow>,
    before: Vec<Slow>,
    /// Requests above the bound since it was set, and the sum of their nanoseconds.
    batch: (u64, u64),
}

impl Slowest {
    pub(super) fn new() -> Self {
        let windows = Windows {
            began: Instant::now(),
            now: Vec::new(),
            before: Vec::new(),
            batch: (0, 0),
        };

        Self {
            bound: AtomicU64::new(0),
            windows: Mutex::new(windows),
        }
    }

    /// Looks at an exchange, if it is slow or a sample. Never waits.
    #[inline]
    pub(super) fn pass(&self, exchange: &Exchange<'_>, sample: bool) {
        if sample || exchange.duration.as_nanos() > u128::from(self.bound.load(Relaxed)) {
            self.look(exchange);
        }
    }

    #[cold]
    fn look(&self, exchange: &Exchange<'_>) {
        let Some(head) = exchange.head else { return };
        let took = exchange.duration;
        let status = exchange.status;
        let body_bytes = exchange.body_bytes;

        self.note(
            head.path(),
            Slow {
                path: Box::default(),
                took,
                status,
                body_bytes,
                at: Instant::now(),
            },
        );
    }

    /// Puts a request for `path` on the list, if it belongs there.
    fn note(&self, path: &str, slow: Slow) {
        let Ok(mut windows) = self.windows.try_lock() else {
            return;
        };
        if windows.turn(slow.at) {
            self.bound.store(0, Relaxed);
        }

        let nanoseconds = u64::try_from(slow.took.as_nanos()).unwrap_or(u64::MAX);
        if nanoseconds > self.bound.load(Relaxed) {
            let (count, sum) = windows.batch;
            windows.batch = (count + 1, sum.saturating_add(nanoseconds));
            if count + 1 == BATCH {
                self.bound.store(windows.batch.1 / BATCH, Relaxed);
                windows.batch = (0, 0);
            }
        }

        insert(&mut windows.now, cut(path), slow);
    }

    /// Returns the slowest requests of the last half to whole minute, the slowest first, each path
    /// once.
    pub(super) fn top(&self, most: usize) -> Vec<Slow> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.turn(Instant::now()) {
            self.bound.store(0, Relaxed);
        }
        let mut all: Vec<Slow> = windows.now.iter().chain(&windows.before).cloned().collect();
        drop(windows);
        all.sort_by(|a, b| a.path.cmp(&b.path).then(b.took.cmp(&a.took)));
        all.dedup_by(|later, kept| later.path == kept.path);
        all.sort_by_key(|slow| std::cmp::Reverse(slow.took));
        all.truncate(most);

        all
    }
}

impl Windows {
    /// Begins a new list if the last one is old enough. Returns whether it did.
    fn turn(&mut self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.began);
        if age < WINDOW {
            return false;
        }
        self.before = std::mem::take(&mut self.now);
        if age >= WINDOW * 2 {
            self.before.clear();
        }
        (self.began, self.batch) = (now, (0, 0));

        true
    }
}

/// Puts a request into a list, unless there are slower ones of its path, or of enough others.
fn insert(list: &mut Vec<Slow>, path: &str, slow: Slow) {
    if let Some(known) = list.iter_mut().find(|known| *known.path == *path) {
        if slow.took > known.took {
            *known = Slow {
                path: std::mem::take(&mut known.path),
                ..slow
            };
        }
    } else if list.len() < PATHS {
        list.push(Slow {
            path: path.into(),
            ..slow
        });
    } else if let Some(least) = list
        .iter_mut()
        .min_by_key(|known| known.took)
        .filter(|least| least.took < slow.took)
    {
        *least = Slow {
            path: path.into(),
            ..slow
        };
    }
}

/// Returns the beginning of a path, by whole characters.
fn cut(path: &str) -> &str {
    let end = (0..=path.len().min(PATH_BYTES))
        .rev()
        .find(|end| path.is_char_boundary(*end));
    &path[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(slowest: &Slowest, path: &str, micros: u64) {
        let took = Duration::from_micros(micros);
        let path_later = Box::default();
        let status = Some(StatusCode::OK);
        slowest.note(
            path,
            Slow {
                path: path_later,
                took,
                status,
                body_bytes: 0,
                at: Instant::now(),
            },
        );
    }

    fn paths(slowest: &Slowest, most: usize) -> Vec<(String, u128)> {
        slowest
            .top(most)
            .iter()
            .map(|slow| (slow.path.to_string(), slow.took.as_micros()))
            .collect()
    }

    #[test]
    fn each_path_is_there_once_with_its_slowest_request() {
        let slowest = Slowest::new();
        for (path, micros) in [("/a", 5), ("/b", 7), ("/a", 9), ("/a", 1)] {
            note(&slowest, path, micros);
        }
        assert_eq!(
            paths(&slowest, 9),
            [("/a".to_owned(), 9), ("/b".to_owned(), 7)]
        );
        assert_eq!(paths(&slowest, 1), [("/a".to_owned(), 9)]);
    }

    #[test]
    fn lists_and_paths_are_bounded() {
        let slowest = Slowest::new();
        (0..1000).for_each(|n| note(&slowest, &format!("/{n}"), n));
        let top = paths(&slowest, usize::MAX);
        assert_eq!(
            (top.len(), &*top[0].0, &*top[PATHS - 1].0),
            (PATHS, "/999", "/968")
        );
        note(&slowest, &format!("/{}", "\u{fc}".repeat(1000)), 5000);

        assert_eq!(
            slowest.top(1)[0].path.len(),
            PATH_BYTES - 1,
            "a whole character less"
        );
    }

    #[test]
    fn few_requests_are_looked_at() {
        let slowest = Slowest::new();
        let mut state = 1u64;
        let mut looked = 0;

        for _ in 0..1_000_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let micros = 1 + (state >> 40) % 1000;
            if micros * 1000 > slowest.bound.load(Relaxed) {
                looked += 1;
                note(&slowest, "/", micros);
            }
        }

        assert!(looked < 5000, "{looked}");
    }

    #[test]
    fn old_requests_are_left_out() {
        let slowest = Slowest::new();
        note(&slowest, "/old", 5);
        let mut windows = slowest.windows.lock().unwrap();
        let later = windows.began + WINDOW;
        assert!(windows.turn(later) && !windows.turn(later + WINDOW / 2));
        assert_eq!((windows.now.len(), windows.before.len()), (0, 1));
        let much_later = windows.began + 2 * WINDOW;

        assert!(windows.turn(much_later) && windows.before.is_empty());
    }
}
