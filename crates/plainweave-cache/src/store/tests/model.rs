//! What a shard does, over an ordinary map: the reference for [`super::random`].

use super::super::commands::number;
use super::super::config::item_size;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::store::{
    Count, Counted, Expiry, Lookup, Mode, Removal, Removed, Stored, Time, Token, Write,
};

/// What a get of the model gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) value: Vec<u8>,
    pub(super) flags: u32,
    pub(super) cas: u64,
    pub(super) expiry: Expiry,
    pub(super) access: Time,
    pub(super) fetched: bool,
    pub(super) token: Token,
    pub(super) created: bool,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    access: Time,
    fetched: bool,
    stale: bool,
    token_sent: bool,
}

/// A map with expiry.
#[derive(Debug)]
pub(super) struct Model {
    item_max: usize,
    map: BTreeMap<Box<[u8]>, Entry>,
    flush_at: Option<Time>,
    /// CAS values that were given out.
    cas: Rc<Cell<u64>>,
}

impl Model {
    /// Refuses items above `item_max`, whatever they are made of.
    pub(super) fn new(item_max: usize) -> Self {
        Self {
            item_max,
            map: BTreeMap::new(),
            flush_at: None,
            cas: Rc::default(),
        }
    }

    /// Gives the next CAS value when asked; the first is 1, as the store's.
    fn next(&self) -> impl FnOnce() -> u64 + use<> {
        let cas = Rc::clone(&self.cas);
        move || {
            cas.set(cas.get() + 1);
            cas.get()
        }
    }

    /// Drops the key's item if it has expired, and all items if a flush is due; then finds it.
    fn live(&mut self, key: &[u8], now: Time) -> Option<&mut Entry> {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            self.map.clear();
        }

        if self.map.get(key)?.expiry.passed(now) {
            self.map.remove(key);
            return None;
        }

        self.map.get_mut(key)
    }

    fn insert(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expiry: Expiry,
        cas: u64,
        now: Time,
    ) -> &mut Entry {
        let value = value.to_vec();
        self.map.insert(
            key.into(),
            Entry {
                value,
                flags,
                cas,
                expiry,
                access: now,
                fetched: false,
                stale: false,
                token_sent: false,
            },
        );
        self.map.get_mut(key).expect("just inserted")
    }

    pub(super) fn lookup(&mut self, key: &[u8], lookup: &Lookup, now: Time) -> Option<Found> {
        let next_cas = self.next();
        let created = self.live(key, now).is_none();
        let entry = if created {
            let expiry = lookup.vivify?;
            self.insert(
                key,
                b"",
                0,
                expiry,
                lookup.cas.unwrap_or_else(next_cas),
                now,
            )
        } else {
            self.map.get_mut(key)?
        };

        let recache = |entry: &Entry| {
            let expiry = if lookup.touch_first {
                lookup.touch.unwrap_or(entry.expiry)
            } else {
                entry.expiry
            };
            matches!((lookup.recache, expiry.time()), (Some(seconds), Some(end)) if end.since(now) < seconds)
        };

        let won = !lookup.peek && !entry.token_sent && (created || entry.stale || recache(entry));
        let token = Token {
            won,
            stale: entry.stale,
            sent: entry.token_sent,
        };

        entry.token_sent |= won;
        let Entry {
            ref value,
            flags,
            cas,
            expiry,
            access,
            fetched,
            ..
        } = *entry;
        let found = Found {
            value: value.clone(),
            flags,
            cas,
            expiry,
            access,
            fetched,
            token,
            created,
        };

        if let Some(expiry) = lookup.touch.filter(|_| !created) {
            entry.expiry = expiry;
        }
        if !lookup.peek && !lookup.no_update {
            entry.access = now;
            entry.fetched = true;
        }

        Some(found)
    }

    pub(super) fn write(&mut self, write: &Write<'_>, now: Time) -> Stored {
        let next_cas = self.next();
        let &Write {
            key,
            value,
            flags,
            expiry,
            mode,
            compare,
            cas,
            stale,
            vivify,
        } = write;

        let item_max = self.item_max;
        if item_size(key, value.len(), flags) > item_max {
            if mode == Mode::Set && compare.is_none() {
                self.map.remove(key);
            }
            return Stored::TooLarge;
        }

        let Some(old) = self.live(key, now) else {
            let expiry = match (compare, mode, vivify) {
                (_, Mode::Append | Mode::Prepend, Some(expiry)) => expiry,
                (Some(_), ..) => return Stored::NotFound,
                (None, Mode::Set | Mode::Add, _) => expiry,
                (None, ..) => return Stored::NotStored,
            };

            let cas = cas.unwrap_or_else(next_cas);
            self.insert(key, value, flags, expiry, cas, now);
            let len = value.len();
            return Stored::Stored { cas, len };
        };

        let marks = match compare {
            Some(compare) if compare == old.cas => None,
            Some(compare) if stale && compare < old.cas => Some((old.expiry, old.token_sent)),
            Some(_) => return Stored::Exists,
            None => None,
        };

        let (value, flags, expiry) = match mode {
            Mode::Add => {
                old.access = now;
                return Stored::NotStored;
            }
            Mode::Set | Mode::Replace => (value.to_vec(), flags, expiry),
            Mode::Append => ([&old.value[..], value].concat(), old.flags, old.expiry),
            Mode::Prepend => ([value, &old.value[..]].concat(), old.flags, old.expiry),
        };

        if item_size(key, value.len(), flags) > item_max {
            // The parts fit, the whole does not.
            return Stored::NotStored;
        }

        let cas = cas.unwrap_or_else(next_cas);
        let entry = self.insert(key, &value, flags, expiry, cas, now);
        if let Some((expiry, sent)) = marks {
            (entry.expiry, entry.stale, entry.token_sent) = (expiry, true, sent);
        }
        let len = value.len();
        Stored::Stored { cas, len }
    }

    pub(super) fn remove(&mut self, key: &[u8], removal: &Removal, now: Time) -> Removed {
        let next_cas = self.next();
        let Some(entry) = self.live(key, now) else {
            return Removed::NotFound;
        };
        if removal.compare.is_some_and(|compare| compare != entry.cas) {
            return Removed::Exists;
        }

        let old = entry.cas;
        if let Some((flags, expiry)) = removal.empty {
            let cas = removal.cas.unwrap_or(old);
            self.insert(key, b"", flags, expiry, cas, now);
            if !removal.invalidate {
                return Removed::Removed;
            }
        }
        let Some(entry) = self.live(key, now) else {
            return Removed::Removed;
        };

        if removal.invalidate {
            entry.stale = true;
            entry.token_sent = false;
            entry.cas = removal.cas.unwrap_or_else(next_cas);
            entry.expiry = removal.expiry.unwrap_or(entry.expiry);
        } else {
            self.map.remove(key);
        }

        Removed::Removed
    }

    pub(super) fn count(&mut self, key: &[u8], count: &Count, now: Time) -> Counted {
        let next_cas = self.next();
        let Some(entry) = self.live(key, now) else {
            let Some((value, expiry)) = count.create else {
                return Counted::NotFound;
            };
            let cas = count.cas.unwrap_or_else(next_cas);
            self.insert(key, value.to_string().as_bytes(), 0, expiry, cas, now);
            return Counted::Value {
                value,
                cas,
                expiry,
                created: true,
            };
        };

        if entry.value.is_empty() {
            return Counted::NotANumber;
        }
        if count.compare.is_some_and(|compare| compare != entry.cas) {
            return Counted::Exists;
        }
        let Some(old) = number(&entry.value) else {
            return Counted::NotANumber;
        };
        let value = if count.down {
            old.saturating_sub(count.delta)
        } else {
            old.wrapping_add(count.delta)
        };

        let mut text = value.to_string().into_bytes();
        text.resize(text.len().max(entry.value.len()), b' ');
        if text.len() > entry.value.len() {
            (entry.fetched, entry.stale, entry.token_sent) = (false, false, false);
        }
        entry.value = text;
        entry.cas = count.cas.unwrap_or_else(next_cas);
        let expiry = entry.expiry;

        entry.expiry = count.touch.unwrap_or(expiry);
        entry.access = now;
        Counted::Value {
            value,
            cas: entry.cas,
            expiry,
            created: false,
        }
    }

    pub(super) fn flush(&mut self, at: Time, now: Time) {
        let _ = self.live(b"", now);
        self.flush_at = Some(at);
        let _ = self.live(b"", now);
    }

    /// Notes an access, as a classic get does.
    pub(super) fn note(&mut self, key: &[u8], now: Time) {
        if let Some(entry) = self.live(key, now) {
            (entry.access, entry.fetched) = (now, true);
        }
    }

    /// Looks without a trace.
    pub(super) fn peek(&mut self, key: &[u8], now: Time) -> Option<&[u8]> {
        self.live(key, now).map(|entry| &*entry.value)
    }

    /// The keys that are there.
    pub(super) fn keys(&mut self, now: Time) -> Vec<Vec<u8>> {
        let _ = self.live(b"", now);
        self.map
            .iter()
            .filter(|(_, entry)| !entry.expiry.passed(now))
            .map(|(key, _)| key.to_vec())
            .collect()
    }
}
