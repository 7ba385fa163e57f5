//! The bound on memory, and what eviction, expiry and readers do to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{NOW, set, value};
use crate::store::{
    Config, Count, Counted, Expiry, Found, Mode, Removal, Store, Stored, Time, Write,
};

const MEMORY: usize = 4 << 20;

fn small(evict: bool) -> Store {
    Store::new(Config {
        memory: MEMORY,
        item_max: 1 << 20,
        evict,
        shards: 1,
        ..Config::default()
    })
}

/// Writes `count` items of `len` bytes; how many of them are there then.
fn fill(store: &Store, name: &str, count: usize, len: usize) -> usize {
    let bytes = vec![7; len];
    let key = |number| format!("{name}-{number}").into_bytes();
    for number in 0..count {
        assert!(
            matches!(
                store.write(&Write::new(&key(number), &bytes), NOW),
                Stored::Stored { .. }
            ),
            "{name} {number}"
        );
        assert!(
            store.get(&key(number), NOW).is_some(),
            "what was just stored is there"
        );
        assert!(store.stats().memory_used <= MEMORY as u64);
    }

    (0..count)
        .filter(|&number| store.get(&key(number), NOW).is_some())
        .count()
}

#[test]
fn memory_serves_any_size_after_any_other() {
    let store = small(true);
    for round in 0..3 {
        for len in [10, 100_000, 900, 7_000, 500_000, 40, 20_000] {
            let count = (3 * MEMORY / (len + 60)).min(20_000);
            let held = fill(&store, &format!("{round}-{len}"), count, len);
            let part = held * len * 100 / MEMORY;
            let most = count * len * 100 / MEMORY;
            assert!(
                part >= 60.min(most * 9 / 10) || len < 100,
                "{held} items of {len} bytes: {part} %"
            );
        }
    }
}

#[test]
fn without_eviction_writes_fail_and_deletions_make_room() {
    let store = small(false);
    let bytes = vec![1; 1000];
    let key = |number: usize| number.to_string().into_bytes();
    let stored = (0..10_000)
        .take_while(|&number| {
            matches!(
                store.write(&Write::new(&key(number), &bytes), NOW),
                Stored::Stored { .. }
            )
        })
        .count();
    assert!(
        stored * 1000 > MEMORY * 8 / 10 && stored < 10_000,
        "{stored}"
    );
    assert!(
        (0..stored).all(|number| store.get(&key(number), NOW).is_some()),
        "nothing was evicted"
    );

    // Every third goes: no segment is empty, yet the room comes back.
    for number in (0..stored).step_by(3) {
        store.remove(&key(number), &Removal::default(), NOW);
    }
    let more = (20_000..30_000)
        .take_while(|&number| {
            matches!(
                store.write(&Write::new(&key(number), &bytes), NOW),
                Stored::Stored { .. }
            )
        })
        .count();
    assert!(more * 4 > stored, "{more} of {stored}");
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn what_cannot_be_stored_takes_the_old_value_along_only_for_a_set() {
    let store = small(false);
    let write = |mode, key: &[u8], len| {
        store.write(
            &Write {
                mode,
                ..Write::new(key, &vec![1; len])
            },
            NOW,
        )
    };

    for key in [b"set", b"rep", b"app", b"pre", b"cas", b"num"] {
        set(&store, key, b"1");
    }
    let full = (0..1000).find(|n: &usize| {
        write(Mode::Set, n.to_string().as_bytes(), 100_000) == Stored::OutOfMemory
    });
    assert!(full.is_some());
    assert_eq!(write(Mode::Replace, b"rep", 900_000), Stored::OutOfMemory);
    assert_eq!(write(Mode::Append, b"app", 900_000), Stored::OutOfMemory);
    assert_eq!(write(Mode::Prepend, b"pre", 900_000), Stored::OutOfMemory);
    let compare = store.get(b"cas", NOW).map(|item| item.cas());
    let new = Write {
        compare,
        ..Write::new(b"cas", &[1; 900_000])
    };

    assert_eq!(store.write(&new, NOW), Stored::OutOfMemory);
    for key in [b"rep", b"app", b"pre", b"cas"] {
        assert_eq!(
            value(&store, key, NOW).as_deref(),
            Some(&b"1"[..]),
            "{key:?}"
        );
    }

    assert_eq!(write(Mode::Set, b"set", 900_000), Stored::OutOfMemory);
    assert_eq!(value(&store, b"set", NOW), None);
}

/// Writes items that end a second later, and how many.
fn set_to_end(store: &Store, now: Time) -> usize {
    for number in 0..3000 {
        store.write(
            &Write {
                expiry: Expiry::at(now.after(1)),
                ..Write::new(format!("e{number}").as_bytes(), b"v")
            },
            now,
        );
    }
    3000
}

#[test]
fn expired_items_go_in_the_background() {
    let store = small(true);
    for number in 0..1000 {
        let expiry = if number % 2 == 0 {
            Expiry::at(Time(110))
        } else {
            Expiry::NEVER
        };

        store.write(
            &Write {
                expiry,
                ..Write::new(number.to_string().as_bytes(), b"v")
            },
            NOW,
        );
    }

    assert_eq!(store.maintain(100_000, Time(109), || ()), 0);
    let mut removed = 0;
    for _ in 0..1000 {
        removed += store.maintain(100, Time(110), || ());
    }
    let stats = store.stats();
    assert_eq!(
        (removed, stats.items, stats.crawler_reclaimed),
        (500, 500, 500)
    );
    let gone = set_to_end(&store, Time(110));
    let removed: usize = (0..store.begin_round(100))
        .map(|_| store.maintain(100, Time(111), || ()))
        .sum();

    assert_eq!(
        (removed, store.stats().items),
        (gone, 500),
        "a round misses nothing"
    );
    store.flush(Time(111), Time(111));
    assert_eq!(store.maintain(100_000, Time(111), || ()), 500);
    assert_eq!((store.stats().items, store.stats().bytes), (0, 0));
}

#[test]
fn an_expired_item_that_is_written_over_counts_as_reclaimed() {
    let store = small(true);
    for (number, mode) in [Mode::Set, Mode::Add].into_iter().enumerate() {
        store.write(
            &Write {
                expiry: Expiry::at(Time(110)),
                ..Write::new(b"k", b"old")
            },
            NOW,
        );
        let write = Write {
            mode,
            ..Write::new(b"k", b"new")
        };

        assert!(matches!(
            store.write(&write, Time(110)),
            Stored::Stored { .. }
        ));
        let stats = store.stats();
        assert_eq!(
            (stats.reclaimed, stats.crawler_reclaimed, stats.items),
            (number as u64 + 1, 0, 1),
            "{mode:?}"
        );
        store.remove(b"k", &Removal::default(), Time(110));
    }
}

#[test]
fn evictions_are_told_one_by_one() {
    let mut store = small(true);
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = told.clone();
    store.on_eviction(move |record, now| to.lock().unwrap().push((record.key.to_vec(), now)));
    for number in 0..500_u32 {
        store.write(&Write::new(&number.to_le_bytes(), &[1; 20_000]), NOW);
    }
    let told = told.lock().unwrap();

    assert_eq!(told.len() as u64, store.stats().evictions);
    assert!(
        told.len() > 200
            && told
                .iter()
                .all(|(key, now)| *now == NOW && store.get(key, NOW).is_none())
    );
}

#[test]
fn a_batch_is_prefetched_without_a_trace() {
    let store = Store::new(Config {
        memory: 16 << 20,
        item_max: 1 << 16,
        evict: true,
        shards: 4,
        ..Config::default()
    });

    let keys: Vec<_> = (0..100).map(|n| format!("key{n}").into_bytes()).collect();
    keys.iter()
        .step_by(2)
        .for_each(|key| _ = store.write(&Write::new(key, key), NOW));
    let before = store.stats();
    for batch in keys.chunks(30) {
        store.prefetch(batch.iter().map(Vec::as_slice));
    }
    assert_eq!(store.stats(), before);

    for (n, key) in keys.iter().enumerate() {
        let mut read = Vec::new();
        let found = store.read(key, None, NOW, |short| read.extend_from_slice(short.value));
        assert!(
            matches!(found, Some(Found::Short { .. })) == (n % 2 == 0),
            "{n}"
        );
        assert!(n % 2 == 1 || read == *key);
    }

    store.write(&Write::new(b"long", &[7; 5000]), NOW);
    let found = store.read(b"long", Some(Expiry::at(Time(300))), NOW, |_| {
        panic!("it is long")
    });
    assert!(matches!(found, Some(Found::Long(item)) if item.len() == 5000));
    assert!(store.get(b"long", Time(300)).is_none(), "touched");
}

#[test]
fn the_table_shrinks_with_its_items() {
    let store = small(true);
    let empty = store.stats().table_bytes;
    fill(&store, "small", 30_000, 5);
    let full = store.stats().table_bytes;
    assert!(full > 10 * empty);

    for number in 0..30_000 {
        store.remove(
            format!("small-{number}").as_bytes(),
            &Removal::default(),
            NOW,
        );
    }

    let stats = store.stats();
    assert_eq!(stats.items, 0);
    assert!(
        stats.table_bytes < full / 4,
        "{} of {full} bytes",
        stats.table_bytes
    );
}

#[test]
fn items_that_are_asked_for_stay() {
    let store = small(true);
    let bytes = vec![1; 500];
    for number in 0..50_000_usize {
        store.write(&Write::new(number.to_string().as_bytes(), &bytes), NOW);
        for hot in 0..10_usize {
            let _ = store.get(hot.to_string().as_bytes(), NOW);
        }
    }

    assert!((0..10_usize).all(|hot| store.get(hot.to_string().as_bytes(), NOW).is_some()));
    assert!(store.stats().evictions > 30_000);
}

#[test]
fn readers_may_hold_all_memory() {
    let store = small(true);
    let bytes = vec![1; 10_000];
    let mut held = Vec::new();
    let mut refused = 0;

    for number in 0..2000_usize {
        match store.write(&Write::new(number.to_string().as_bytes(), &bytes), NOW) {
            Stored::Stored { .. } => held.extend(store.get(number.to_string().as_bytes(), NOW)),
            Stored::OutOfMemory => refused += 1,
            other => panic!("{other:?}"),
        }
        assert!(store.stats().memory_used <= MEMORY as u64);
    }

    assert!(
        refused > 0
            && held
                .iter()
                .all(|item| item.slices().flatten().all(|&byte| byte == 1))
    );
    held.clear();
    set(&store, b"k", &bytes);
    assert_eq!(value(&store, b"k", NOW).unwrap(), bytes);
}

#[test]
fn threads_see_whole_values_only() {
    let store = small(true);
    let done = AtomicBool::new(false);
    let (keys, rounds) = if cfg!(miri) { (3, 30) } else { (50, 30_000) };

    // A value is one byte over and over, so a torn one shows. Lengths change, and so do places.
    let length = |round: usize| [3, 80, 80, 80, 5000, 80, 40_000][round % 7];
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let store = &store;
            let done = &done;
            scope.spawn(move || {
                let mut turn = thread;
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    let Some(item) = store.get((turn % keys).to_string().as_bytes(), NOW) else {
                        continue;
                    };
                    let mut bytes = item.slices().flatten();
                    let first = bytes.next();
                    assert!(bytes.all(|byte| Some(byte) == first));
                }
            });
        }

        for round in 0..rounds {
            let bytes = vec![(round % 251) as u8; length(round)];
            store.write(
                &Write::new((round * 7 % keys).to_string().as_bytes(), &bytes),
                NOW,
            );
        }

        done.store(true, Ordering::Relaxed);
    });
}

/// Random numbers, always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }
}

/// Asks for popular keys, and writes what is not there, until all of the memory is in use and most
/// of it by what is asked for again and again.
fn settle(store: &Store, random: &mut Random, len: impl Fn(u64) -> usize) {
    let bytes = vec![7; 10_240];
    let keys = store.config().memory as u64 / 100;
    for _ in 0..6 * keys {
        // The smaller one of three: few are asked for much more often than most.
        let number = (0..3).map(|_| random.below(keys)).min().unwrap();
        let key = format!("popular-{number}").into_bytes();
        if store.get(&key, NOW).is_none() {
            let _ = store.write(&Write::new(&key, &bytes[..len(number)]), NOW);
        }
    }
    assert!(store.stats().evictions > 0, "the memory is full");
}

/// What is written now and read a little later, a warmed cache, sessions, results of jobs, is there
/// to be read, whatever else is popular.
#[test]
fn a_burst_of_new_items_is_there_to_be_read() {
    for len in [200, 9_000] {
        let store = Store::new(Config {
            memory: 16 << 20,
            shards: 1,
            ..Config::default()
        });
        settle(&store, &mut Random(1), |_| 200);
        let count = (16 << 20) * 40 / 100 / (len + 60);
        let key = |number| format!("new-{number}").into_bytes();
        let bytes = vec![7; len];
        for number in 0..count {
            let _ = store.write(&Write::new(&key(number), &bytes), NOW);
        }

        let present = (0..count).filter(|&number| store.get(&key(number), NOW).is_some());
        let present = present.count() * 100 / count;
        assert!(present >= 95, "{present} % of a burst of {len} B");
    }
}

/// As many shards as there may be: what live items have is not much less than with one.
#[test]
fn live_items_have_the_memory_with_any_number_of_shards() {
    for shards in [1, 8, 64] {
        let store = Store::new(Config {
            memory: 32 << 20,
            shards,
            ..Config::default()
        });
        // 50 B to 10 KiB, small ones more often.
        let len = |number: u64| 50 << (number.wrapping_mul(0x9E37_79B9) % 8);
        settle(&store, &mut Random(2), len);
        let live = store.stats().bytes * 100 / (32 << 20);
        assert!(live >= 89, "{live} % with {shards} shards");
    }
}

/// Counters stay that are counted each time that a third of the memory is written, though pages of
/// twice the memory pass.
#[test]
fn counters_outlast_pages() {
    let store = Store::new(Config {
        memory: 16 << 20,
        shards: 1,
        ..Config::default()
    });
    let counter = |number: u64| format!("counter-{number}").into_bytes();
    for number in 0..500 {
        set(&store, &counter(number), b"0");
    }

    let page = vec![7; 10_000];
    for number in 0..3_500_u32 {
        set(&store, &number.to_be_bytes(), &page);
        let counted = store.count(&counter(u64::from(number) % 500), &Count::up(1), NOW);
        let counted = matches!(counted, Counted::Value { created: false, .. });
        assert!(counted, "after {number} pages");
    }
    let left = (0..500).filter(|&number| store.get(&counter(number), NOW).is_some());
    assert_eq!(left.count(), 500);
}
