//! How often a caller of a lock is overtaken by those who called later: counted, not timed.
//!
//! Each caller draws a ticket and calls at once. On one worker nothing comes between the two, so
//! the tickets are the order of the calls. `--nocapture` shows the figures of `docs/locks.md`.

#![allow(clippy::print_stdout)]

use std::sync::Mutex as OsMutex;

use crate::common::*;
use plainweave::sync::{Mutex, RwLock, Semaphore};
use plainweave::{Runtime, yield_now};

on_every_driver!(
    a_semaphore_lets_nobody_overtake,
    a_mutex_lets_each_waiter_be_overtaken_a_few_times,
    phases_bound_how_often_a_writer_is_overtaken,
);

const CALLERS: usize = 8;
const ROUNDS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Alone,
    Reader,
}

/// Tickets in the order of the calls, and in that of service.
#[derive(Default)]
struct Record {
    called: usize,
    served: Vec<(usize, Kind)>,
}

impl Record {
    /// Returns how often one of a kind was overtaken by later callers of another kind, at most.
    fn most_overtaken(&self, of: Kind, by: Kind) -> usize {
        let later = |n: usize, ticket| {
            self.served[..n]
                .iter()
                .filter(|(t, kind)| *t > ticket && *kind == by)
                .count()
        };

        let all = self
            .served
            .iter()
            .enumerate()
            .filter(|(_, (_, kind))| *kind == of);
        all.map(|(n, (ticket, _))| later(n, *ticket))
            .max()
            .unwrap_or(0)
    }
}

/// Calls `lock` over and over from all callers, each of which comes back as soon as it has
/// released.
fn record(
    setup: Setup,
    kind: impl Fn(usize) -> Kind + Sync,
    lock: impl Fn(Kind, &dyn Fn()) + Sync,
) -> Record {
    let runtime: Runtime = setup.check(
        setup
            .builder()
            .workers(1)
            .max_workers(1)
            .build()
            .expect("a runtime"),
    );
    let record = OsMutex::new(Record::default());
    runtime.scope(|s| {
        for me in 0..CALLERS {
            let record = &record;
            let lock = &lock;
            let kind = kind(me);
            s.spawn(move || {
                for _ in 0..ROUNDS {
                    let ticket = {
                        let mut record = record.lock().unwrap();
                        record.called += 1;
                        record.called
                    };

                    lock(kind, &|| {
                        record.lock().unwrap().served.push((ticket, kind));
                        yield_now();
                    });
                }
            });
        }
    });
    let record = record.into_inner().unwrap();
    assert_eq!(record.served.len(), CALLERS * ROUNDS);

    record
}

fn a_semaphore_lets_nobody_overtake(setup: Setup) {
    let one = Semaphore::new(1);
    let record = record(
        setup,
        |_| Kind::Alone,
        |_, work| {
            let _permit = one.acquire().unwrap();
            work();
        },
    );
    assert_eq!(record.most_overtaken(Kind::Alone, Kind::Alone), 0);
}

/// Of those before a waiter each is passed over at most once, and so is it.
fn a_mutex_lets_each_waiter_be_overtaken_a_few_times(setup: Setup) {
    let lock = Mutex::new(());
    let record = record(
        setup,
        |_| Kind::Alone,
        |_, work| {
            let _guard = lock.lock().unwrap();
            work();
        },
    );
    let most = record.most_overtaken(Kind::Alone, Kind::Alone);
    println!("mutex: overtaken {most} times");
    assert!(most <= CALLERS, "overtaken {most} times");
}

fn phases_bound_how_often_a_writer_is_overtaken(setup: Setup) {
    for writers in [1, 2, 4, 7] {
        let lock = RwLock::new(());
        let kind = |me| {
            if me < writers {
                Kind::Alone
            } else {
                Kind::Reader
            }
        };

        let record = record(setup, kind, |kind, work| match kind {
            Kind::Alone => {
                let _guard = lock.write().unwrap();
                work();
            }
            Kind::Reader => {
                let _guard = lock.read().unwrap();
                work();
            }
        });

        let [writer_by_writers, reader_by_writers, writer_by_readers] = [
            (Kind::Alone, Kind::Alone),
            (Kind::Reader, Kind::Alone),
            (Kind::Alone, Kind::Reader),
        ]
        .map(|(of, by)| record.most_overtaken(of, by));
        println!(
            "{writers} writers: a writer overtaken by {writer_by_writers} writers and {writer_by_readers} readers, \
             a reader by {reader_by_writers} writers"
        );
        // Each writer before a waiter, and the waiter itself if it writes, is passed once by one
        // that runs.
        assert!(
            writer_by_writers <= writers,
            "a writer overtaken by {writer_by_writers} writers"
        );
        assert!(
            reader_by_writers <= writers,
            "a reader overtaken by {reader_by_writers} writers"
        );

        // Before each writer in front of it, and before itself: one phase of readers, and once
        // those that run.
        let phases = 2 * writers * (CALLERS - writers);
        assert!(
            writer_by_readers <= phases,
            "a writer overtaken by {writer_by_readers} readers"
        );
    }
}
