//! What the commands mean.

mod churn;
mod locks;
mod model;
mod random;

use super::{
    Config, Count, Counted, Expiry, Lookup, Mode, Removal, Removed, Store, Stored, Time, Write,
};

const NOW: Time = Time(100);

fn store() -> Store {
    Store::new(Config::default())
}

fn value(store: &Store, key: &[u8], now: Time) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    store.get(key, now)?.append_to(&mut out);
    Some(out)
}

fn set(store: &Store, key: &[u8], value: &[u8]) -> u64 {
    match store.write(&Write::new(key, value), NOW) {
        Stored::Stored { cas, .. } => cas,
        other => panic!("set: {other:?}"),
    }
}

#[test]
fn a_value_comes_back_with_its_flags_and_cas() {
    let store = store();
    let write = Write {
        flags: 77,
        ..Write::new(b"k", b"value")
    };

    let Stored::Stored { cas, .. } = store.write(&write, NOW) else {
        panic!("not stored")
    };
    let item = store.get(b"k", NOW).unwrap();
    assert_eq!((item.flags(), item.cas(), item.len()), (77, cas, 5));
    assert_eq!(value(&store, b"k", NOW).unwrap(), b"value");
    assert!(store.get(b"K", NOW).is_none());
}

#[test]
fn modes_have_their_conditions() {
    let store = store();
    let mode = |mode, value| {
        store.write(
            &Write {
                mode,
                ..Write::new(b"k", value)
            },
            NOW,
        )
    };

    assert_eq!(mode(Mode::Replace, b"1"), Stored::NotStored);
    assert_eq!(mode(Mode::Append, b"1"), Stored::NotStored);
    assert_eq!(mode(Mode::Prepend, b"1"), Stored::NotStored);
    assert!(matches!(mode(Mode::Add, b"1"), Stored::Stored { .. }));
    assert_eq!(mode(Mode::Add, b"2"), Stored::NotStored);
    assert!(matches!(mode(Mode::Append, b"2"), Stored::Stored { .. }));
    assert!(matches!(mode(Mode::Prepend, b"0"), Stored::Stored { .. }));
    assert_eq!(value(&store, b"k", NOW).unwrap(), b"012");
}

#[test]
fn cas_stores_over_the_same_version_only() {
    let store = store();
    let compare = |compare| {
        store.write(
            &Write {
                compare: Some(compare),
                ..Write::new(b"k", b"new")
            },
            NOW,
        )
    };

    assert_eq!(compare(1), Stored::NotFound);
    let cas = set(&store, b"k", b"old");
    assert_eq!(compare(cas + 1), Stored::Exists);
    assert!(matches!(compare(cas), Stored::Stored { cas: new, .. } if new != cas));
    assert_eq!(compare(cas), Stored::Exists);
}

#[test]
fn an_item_ends_on_the_second() {
    let store = store();
    store.write(
        &Write {
            expiry: Expiry::at(Time(105)),
            ..Write::new(b"k", b"v")
        },
        NOW,
    );
    assert!(store.get(b"k", Time(104)).is_some());
    assert!(store.get(b"k", Time(105)).is_none());
    assert!(!store.touch(b"k", Expiry::NEVER, Time(105)));
}

#[test]
fn counting_wraps_ends_at_zero_and_pads() {
    let store = store();
    let number = |counted| match counted {
        Counted::Value { value, .. } => value,
        other => panic!("{other:?}"),
    };

    assert_eq!(store.count(b"n", &Count::up(1), NOW), Counted::NotFound);
    set(&store, b"n", b"10");
    assert_eq!(number(store.count(b"n", &Count::down(1), NOW)), 9);
    assert_eq!(value(&store, b"n", NOW).unwrap(), b"9 ");
    assert_eq!(number(store.count(b"n", &Count::up(1), NOW)), 10);
    assert_eq!(number(store.count(b"n", &Count::up(u64::MAX), NOW)), 9);
    assert_eq!(number(store.count(b"n", &Count::down(100), NOW)), 0);
    set(&store, b"n", b"x1");
    assert_eq!(store.count(b"n", &Count::up(1), NOW), Counted::NotANumber);
}

#[test]
fn a_flush_takes_what_is_there_and_not_what_comes() {
    let store = store();
    set(&store, b"a", b"1");
    store.flush(NOW, NOW);
    assert!(store.get(b"a", NOW).is_none());
    set(&store, b"a", b"2");
    assert!(store.get(b"a", NOW).is_some());
    store.flush(Time(110), NOW);
    assert!(store.get(b"a", Time(109)).is_some());
    assert!(store.get(b"a", Time(110)).is_none());
}

#[test]
fn one_client_wins_a_stale_item() {
    let store = store();
    let cas = set(&store, b"k", b"v");
    let removal = Removal {
        invalidate: true,
        ..Removal::default()
    };

    assert_eq!(store.remove(b"k", &removal, NOW), Removed::Removed);
    let first = store.lookup(b"k", &Lookup::default(), NOW).unwrap();
    assert!(first.token.won && first.token.stale && !first.token.sent && first.item.cas() != cas);
    let second = store.lookup(b"k", &Lookup::default(), NOW).unwrap();
    assert!(!second.token.won && second.token.stale && second.token.sent);
    set(&store, b"k", b"w");
    let third = store.lookup(b"k", &Lookup::default(), NOW).unwrap();

    assert!(!third.token.won && !third.token.stale && !third.token.sent);
}

#[test]
fn a_handle_outlives_its_item() {
    let store = store();
    set(&store, b"k", b"old");
    let item = store.get(b"k", NOW).unwrap();
    set(&store, b"k", b"new");
    store.remove(b"k", &Removal::default(), NOW);
    drop(store);
    let mut out = Vec::new();

    item.append_to(&mut out);
    assert_eq!(out, b"old");
}

/// A counter that is only counted is in use, as memcached has it: it outlives what nobody asks for.
#[test]
fn to_count_is_an_access() {
    let store = Store::new(Config {
        memory: 8 << 20,
        shards: 1,
        ..Config::default()
    });

    for key in [&b"counted"[..], b"down", b"left alone"] {
        set(&store, key, b"1000000");
    }
    let large = vec![b'v'; 50_000];
    for n in 0..1_000_u32 {
        set(&store, &n.to_be_bytes(), &large);
        for (key, count) in [(&b"counted"[..], Count::up(1)), (b"down", Count::down(1))] {
            let counted = store.count(key, &count, NOW);
            assert!(
                matches!(counted, Counted::Value { created: false, .. }),
                "{counted:?} after {n} values"
            );
        }
    }

    assert_eq!(value(&store, b"counted", NOW).unwrap(), b"1001000");
    assert!(
        value(&store, b"left alone", NOW).is_none(),
        "the test fills the memory"
    );
}
