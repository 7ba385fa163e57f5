//! The store beside the model, under random commands.

use proptest::collection::vec;
use proptest::prelude::*;

use super::model::{Found, Model};
use crate::store::{
    Config, Count, Cursor, Expiry, Hit, Item, Lookup, Mode, Removal, Store, Time, Token, Write,
};

/// A command, with the number of a key where it needs one.
#[derive(Clone, Debug)]
enum Command {
    Lookup(u8, Lookup),
    Get(u8),
    Touch(u8, Expiry),
    Write {
        key: u8,
        len: usize,
        flags: u32,
        expiry: Expiry,
        mode: Mode,
        compare: Compare,
        cas: Option<u64>,
        stale: bool,
        vivify: Option<Expiry>,
    },
    Number(u8, u64),
    Remove {
        key: u8,
        compare: Compare,
        empty: Option<(u32, Expiry)>,
        invalidate: bool,
        expiry: Option<Expiry>,
        cas: Option<u64>,
    },
    Count {
        key: u8,
        count: Count,
        compare: Compare,
    },
    Flush(u32),
    Wait(u32),
    Maintain(usize),
    Dump,
    /// Holds the item of a key, or lets go of one.
    Hold(u8),
    Release(usize),
}

/// Which CAS value a command compares.
#[derive(Clone, Copy, Debug)]
enum Compare {
    No,
    Right,
    Low,
    High,
}

fn key(number: u8) -> Vec<u8> {
    let mut key = format!("key-{number}-").into_bytes();
    key.resize(key.len() + usize::from(number % 16) * 14, b'k');
    key
}

fn value(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(17) ^ (at >> 8)) as u8)
        .collect()
}

/// The clock starts at 100 and does not go far.
fn expiries() -> impl Strategy<Value = Expiry> {
    let time = (90_u32..160).prop_map(|at| Expiry::at(Time(at)));
    prop_oneof![3 => Just(Expiry::NEVER), 1 => Just(Expiry::AT_ONCE), 4 => time]
}

fn sometimes() -> impl Strategy<Value = Option<Expiry>> {
    proptest::option::weighted(0.2, expiries())
}

/// A CAS value that the command gives.
fn numbers() -> impl Strategy<Value = Option<u64>> {
    proptest::option::weighted(0.1, prop_oneof![1..1000_u64, Just(0), Just(u64::MAX)])
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..100_usize, 2 => 900..5000_usize, 1 => 15_000..70_000_usize]
}

fn compares() -> impl Strategy<Value = Compare> {
    prop_oneof![5 => Just(Compare::No), 2 => Just(Compare::Right), 1 => Just(Compare::Low), 1 => Just(Compare::High)]
}

fn lookups() -> impl Strategy<Value = Lookup> {
    let recache = proptest::option::weighted(0.2, 0..60_u32);
    let rarely = || proptest::bool::weighted(0.2);
    let expiries = (sometimes(), sometimes(), recache, any::<bool>());
    (expiries, numbers(), rarely(), rarely()).prop_map(|(expiries, cas, no_update, peek)| {
        let (touch, vivify, recache, touch_first) = expiries;
        Lookup {
            touch,
            vivify,
            cas,
            recache,
            touch_first,
            no_update,
            peek,
        }
    })
}

fn counts() -> impl Strategy<Value = Count> {
    let create = proptest::option::weighted(0.3, (0..200_u64, expiries()));
    let fields = (
        prop_oneof![0..30_u64, Just(u64::MAX)],
        any::<bool>(),
        create,
        sometimes(),
        numbers(),
    );
    fields.prop_map(|(delta, down, create, touch, cas)| Count {
        delta,
        down,
        create,
        touch,
        compare: None,
        cas,
    })
}

fn writes(keys: u8) -> impl Strategy<Value = Command> {
    let rare =
        proptest::sample::select(vec![Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend]);
    let mode = prop_oneof![Just(Mode::Set), rare];
    let what = (
        0..keys,
        lengths(),
        prop_oneof![Just(0), any::<u32>()],
        expiries(),
    );
    let how = (mode, compares(), numbers(), any::<bool>(), sometimes());

    (what, how).prop_map(|(what, (mode, compare, cas, stale, vivify))| {
        let (key, len, flags, expiry) = what;
        Command::Write {
            key,
            len,
            flags,
            expiry,
            mode,
            compare,
            cas,
            stale,
            vivify,
        }
    })
}

fn removals(keys: u8) -> impl Strategy<Value = Command> {
    let empty = proptest::option::weighted(0.3, (any::<u32>(), expiries()));
    let fields = (
        0..keys,
        compares(),
        empty,
        any::<bool>(),
        sometimes(),
        numbers(),
    );
    fields.prop_map(
        |(key, compare, empty, invalidate, expiry, cas)| Command::Remove {
            key,
            compare,
            empty,
            invalidate,
            expiry,
            cas,
        },
    )
}

fn commands(most: usize, keys: u8) -> impl Strategy<Value = Vec<Command>> {
    let key = || 0..keys;
    let command = prop_oneof![
        4 => (key(), lookups()).prop_map(|(key, lookup)| Command::Lookup(key, lookup)),
        4 => key().prop_map(Command::Get),
        1 => (key(), expiries()).prop_map(|(key, expiry)| Command::Touch(key, expiry)),
        9 => writes(keys),
        2 => (key(), 0..2000_u64).prop_map(|(key, number)| Command::Number(key, number)),
        2 => removals(keys),
        3 => (key(), counts(), compares()).prop_map(|(key, count, compare)| Command::Count { key, count, compare }),
        1 => (0..20_u32).prop_map(Command::Flush),
        1 => (0..5_u32).prop_map(Command::Wait),
        1 => (0..50_usize).prop_map(Command::Maintain),
        1 => Just(Command::Dump),
        1 => key().prop_map(Command::Hold),
        1 => (0..8_usize).prop_map(Command::Release),
    ];
    vec(command, 1..most)
}

fn bytes(item: &Item) -> Vec<u8> {
    let mut out = Vec::new();
    item.append_to(&mut out);
    assert_eq!(out.len(), item.len());
    assert_eq!(item.slices().collect::<Vec<_>>().concat(), out);
    out
}

fn found(hit: &Hit) -> Found {
    let &Hit {
        ref item,
        token,
        created,
    } = hit;
    let flags = item.flags();
    let cas = item.cas();
    let expiry = item.expiry();
    let access = item.access();
    let fetched = item.fetched();

    Found {
        value: bytes(item),
        flags,
        cas,
        expiry,
        access,
        fetched,
        token,
        created,
    }
}

/// Both stores, and handles with the bytes that they must keep.
struct Both {
    store: Store,
    model: Model,
    now: Time,
    step: usize,
    held: Vec<(Item, Vec<u8>)>,
}

impl Both {
    fn new(config: Config) -> Self {
        let model = Model::new(config.item_max);
        Self {
            store: Store::new(config),
            model,
            now: Time(100),
            step: 0,
            held: Vec::new(),
        }
    }

    fn compare(&self, key: &[u8], compare: Compare) -> Option<u64> {
        let peek = Lookup {
            peek: true,
            ..Lookup::default()
        };

        let cas = self
            .store
            .lookup(key, &peek, self.now)
            .map_or(500, |hit| hit.item.cas());
        match compare {
            Compare::No => None,
            Compare::Right => Some(cas),
            Compare::Low => Some(cas.saturating_sub(1)),
            Compare::High => Some(cas.saturating_add(1)),
        }
    }

    fn remove(&mut self, name: &[u8], removal: &Removal, now: Time) {
        assert_eq!(
            self.store.remove(name, removal, now),
            self.model.remove(name, removal, now)
        );
    }

    fn write(&mut self, write: &Write<'_>) {
        assert_eq!(
            self.store.write(write, self.now),
            self.model.write(write, self.now)
        );
    }

    fn get(&mut self, name: &[u8]) {
        let item = self.store.get(name, self.now);
        // The model knows meta gets only; these hand out a stale item's token, and classic ones do
        // not.
        let peek = Lookup {
            peek: true,
            ..Lookup::default()
        };

        let model = self.model.lookup(name, &peek, self.now);
        let hit = item.map(|item| Hit {
            item,
            token: Token::default(),
            created: false,
        });

        let model = model.map(|model| Found {
            token: Token::default(),
            ..model
        });

        assert_eq!(hit.as_ref().map(found), model);
        self.model.note(name, self.now);
    }

    fn run(&mut self, command: Command) {
        self.step += 1;
        let now = self.now;
        let step = self.step;
        match command {
            Command::Lookup(number, lookup) => {
                let name = key(number);
                let hit = self.store.lookup(&name, &lookup, now);
                assert_eq!(
                    hit.as_ref().map(found),
                    self.model.lookup(&name, &lookup, now)
                );
            }
            Command::Get(number) => self.get(&key(number)),
            Command::Touch(number, expiry) => {
                let touched = self.store.touch(&key(number), expiry, now);
                let lookup = Lookup {
                    touch: Some(expiry),
                    peek: true,
                    ..Lookup::default()
                };

                assert_eq!(
                    touched,
                    self.model.lookup(&key(number), &lookup, now).is_some()
                );
                self.model.note(&key(number), now);
            }
            Command::Write {
                key: number,
                len,
                flags,
                expiry,
                mode,
                compare,
                cas,
                stale,
                vivify,
            } => {
                let name = key(number);
                let value = value(len, step);
                let compare = self.compare(&name, compare);
                self.write(&Write {
                    key: &name,
                    value: &value,
                    flags,
                    expiry,
                    mode,
                    compare,
                    cas,
                    stale,
                    vivify,
                });
            }
            Command::Number(number, value) => {
                self.write(&Write::new(&key(number), value.to_string().as_bytes()))
            }
            Command::Remove {
                key: number,
                compare,
                empty,
                invalidate,
                expiry,
                cas,
            } => {
                let name = key(number);
                let compare = self.compare(&name, compare);
                let removal = Removal {
                    compare,
                    empty,
                    invalidate,
                    expiry,
                    cas,
                };
                self.remove(&name, &removal, now);
            }
            Command::Count {
                key: number,
                count,
                compare,
            } => {
                let name = key(number);
                let compare = self.compare(&name, compare);
                let count = Count { compare, ..count };
                assert_eq!(
                    self.store.count(&name, &count, now),
                    self.model.count(&name, &count, now)
                );
            }
            Command::Flush(later) => {
                self.store.flush(now.after(later), now);
                self.model.flush(now.after(later), now);
            }
            Command::Wait(seconds) => self.now = now.after(seconds),
            Command::Maintain(budget) => {
                self.store.maintain(budget, now, || ());
            }
            Command::Dump => self.dump(),
            Command::Hold(number) => {
                let peek = Lookup {
                    peek: true,
                    ..Lookup::default()
                };

                if let Some(hit) = self.store.lookup(&key(number), &peek, now) {
                    let value = bytes(&hit.item);
                    self.held.push((hit.item, value));
                }
            }
            Command::Release(place) => {
                if place < self.held.len() {
                    self.held.swap_remove(place);
                }
            }
        }

        for (item, value) in &self.held {
            assert!(
                item.slices().flatten().eq(value),
                "a held value has changed"
            );
        }
    }

    fn dump(&mut self) {
        let mut cursor = Cursor::default();
        let mut keys = Vec::new();
        while self.store.dump(&mut cursor, 10, self.now, |record| {
            keys.push(record.key.to_vec())
        }) {}
        keys.sort();
        assert_eq!(keys, self.model.keys(self.now));
    }
}

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 2 } else { 300 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_room_enough_the_store_is_a_map_with_expiry(commands in commands(if cfg!(miri) { 40 } else { 200 }, 12)) {
        let mut both = Both::new(Config { shards: 2, item_max: 60_000, ..Config::default() });
        commands.into_iter().for_each(|command| both.run(command));
        both.dump();
    }

    /// A quarter of what is written fits.
    #[test]
    fn under_eviction_a_value_is_right_or_absent(commands in commands(if cfg!(miri) { 40 } else { 2000 }, 200)) {
        let config = Config { memory: 1 << 20, item_max: 1 << 17, shards: 1, ..Config::default() };
        let mut both = Both::new(config);
        for command in commands {
            both.step += 1;
            let Command::Write { key: number, len, flags, expiry, .. } = command else { continue };
            let name = key(number);
            let value = value(len, both.step);
            let write = Write { flags, expiry, ..Write::new(&name, &value) };
            prop_assert_eq!(both.store.write(&write, both.now), both.model.write(&write, both.now));
            let other = key(number.wrapping_mul(7) % 200);

            if let Some(item) = both.store.get(&other, both.now) {
                prop_assert_eq!(Some(&*bytes(&item)), both.model.peek(&other, both.now));
            }
            prop_assert!(both.store.stats().memory_used <= 1 << 20);
        }
    }
}
