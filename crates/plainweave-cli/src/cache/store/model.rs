//! The semantics of the commands over an ordinary map: what a shard does, without bounds on memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Count, Counted, Expiry, Hit, Item, Lookup, Mode, Record, Removal, Removed, Stats, Stored, Time, Token};
use super::{Write, class_of};

/// What is counted for an item beside key and value.
const OVERHEAD: usize = 48;

#[derive(Debug)]
struct Entry {
    value: Arc<[u8]>,
    flags: u32,
    cas: u64,
    expiry: Expiry,
    access: Time,
    fetched: bool,
    stale: bool,
    token_sent: bool,
}

/// A map with expiry.
#[derive(Debug, Default)]
pub(super) struct Model {
    map: BTreeMap<Box<[u8]>, Entry>,
    flush_at: Option<Time>,
    total_items: u64,
    reclaimed: u64,
    crawler_reclaimed: u64,
    expired_unfetched: u64,
}

impl Model {
    /// Drops the key's item if it has expired, and all items if a flush is due; then finds it.
    fn live(&mut self, key: &[u8], now: Time) -> Option<&mut Entry> {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            self.map.clear();
        }
        if self.map.get(key)?.expiry.passed(now) {
            let entry = self.map.remove(key)?;
            self.reclaimed += 1;
            self.expired_unfetched += u64::from(!entry.fetched);
            return None;
        }
        self.map.get_mut(key)
    }

    fn insert(&mut self, key: &[u8], value: &[u8], flags: u32, expiry: Expiry, cas: u64, now: Time) -> &mut Entry {
        let value = Arc::from(value);
        self.total_items += 1;
        self.map.insert(
            key.into(),
            Entry { value, flags, cas, expiry, access: now, fetched: false, stale: false, token_sent: false },
        );
        self.map.get_mut(key).expect("just inserted")
    }

    pub(super) fn lookup(
        &mut self,
        key: &[u8],
        lookup: &Lookup,
        now: Time,
        next_cas: impl FnOnce() -> u64,
    ) -> Option<Hit> {
        let created = self.live(key, now).is_none();
        let entry = if created {
            let expiry = lookup.vivify?;
            self.insert(key, b"", 0, expiry, next_cas(), now)
        } else {
            self.map.get_mut(key)?
        };
        let recache = |entry: &Entry| match (lookup.recache, entry.expiry.time()) {
            (Some(seconds), Some(end)) => end.since(now) < seconds,
            _ => false,
        };
        let won = !lookup.peek && !entry.token_sent && (created || entry.stale || recache(entry));
        let token = Token { won, stale: entry.stale, sent: entry.token_sent };
        entry.token_sent |= won;
        if let Some(expiry) = lookup.touch.filter(|_| !created) {
            entry.expiry = expiry;
        }
        let item = Item {
            value: Arc::clone(&entry.value),
            flags: entry.flags,
            cas: entry.cas,
            expiry: entry.expiry,
            access: entry.access,
            fetched: entry.fetched,
            size: OVERHEAD + key.len() + entry.value.len(),
        };
        if !lookup.peek && !created {
            entry.access = now;
            entry.fetched = true;
        }
        Some(Hit { item, token, created })
    }

    pub(super) fn write(&mut self, write: &Write<'_>, now: Time, next_cas: impl FnOnce() -> u64) -> Stored {
        let &Write { key, value, flags, expiry, mode, compare, cas, stale, vivify } = write;
        let Some(old) = self.live(key, now) else {
            let expiry = match (compare, mode, vivify) {
                (Some(_), ..) => return Stored::NotFound,
                (None, Mode::Set | Mode::Add, _) => expiry,
                (None, Mode::Append | Mode::Prepend, Some(expiry)) => expiry,
                (None, ..) => return Stored::NotStored,
            };
            let cas = cas.unwrap_or_else(next_cas);
            self.insert(key, value, flags, expiry, cas, now);
            return Stored::Stored(cas);
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
            Mode::Append => ([&old.value, value].concat(), old.flags, old.expiry),
            Mode::Prepend => ([value, &old.value].concat(), old.flags, old.expiry),
        };
        let cas = cas.unwrap_or_else(next_cas);
        let entry = self.insert(key, &value, flags, expiry, cas, now);
        if let Some((expiry, sent)) = marks {
            (entry.expiry, entry.stale, entry.token_sent) = (expiry, true, sent);
        }
        Stored::Stored(cas)
    }

    pub(super) fn remove(
        &mut self,
        key: &[u8],
        removal: &Removal,
        now: Time,
        next_cas: impl FnOnce() -> u64,
    ) -> Removed {
        let Some(entry) = self.live(key, now) else { return Removed::NotFound };
        if removal.compare.is_some_and(|compare| compare != entry.cas) {
            return Removed::Exists;
        }
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

    pub(super) fn count(&mut self, key: &[u8], count: &Count, now: Time, next_cas: impl FnOnce() -> u64) -> Counted {
        let Some(entry) = self.live(key, now) else {
            let Some((value, expiry)) = count.create else { return Counted::NotFound };
            let cas = count.cas.unwrap_or_else(next_cas);
            self.insert(key, value.to_string().as_bytes(), 0, expiry, cas, now);
            return Counted::Value { value, cas, expiry, created: true };
        };
        if count.compare.is_some_and(|compare| compare != entry.cas) {
            return Counted::Exists;
        }
        let Some(old) = super::number(&entry.value) else { return Counted::NotANumber };
        let value = if count.down { old.saturating_sub(count.delta) } else { old.wrapping_add(count.delta) };
        let mut text = value.to_string().into_bytes();
        text.resize(text.len().max(entry.value.len()), b' ');
        entry.value = text.into();
        entry.cas = count.cas.unwrap_or_else(next_cas);
        entry.expiry = count.touch.unwrap_or(entry.expiry);
        entry.access = now;
        Counted::Value { value, cas: entry.cas, expiry: entry.expiry, created: false }
    }

    pub(super) fn flush(&mut self, at: Time, now: Time) {
        self.flush_at = Some(at);
        let _ = self.live(b"", now);
    }

    pub(super) fn maintain(&mut self, _budget: usize, now: Time) -> usize {
        let _ = self.live(b"", now);
        let before = self.map.len();
        self.map.retain(|_, entry| !entry.expiry.passed(now));
        self.reclaimed += (before - self.map.len()) as u64;
        self.crawler_reclaimed += (before - self.map.len()) as u64;
        before - self.map.len()
    }

    pub(super) fn dump(
        &mut self,
        place: usize,
        budget: usize,
        now: Time,
        visit: &mut impl FnMut(&Record<'_>),
    ) -> (usize, bool) {
        let _ = self.live(b"", now);
        for (key, entry) in self.map.iter().skip(place).take(budget).filter(|(_, entry)| !entry.expiry.passed(now)) {
            let size = OVERHEAD + key.len() + entry.value.len();
            let Entry { flags, cas, expiry, access, fetched, .. } = *entry;
            visit(&Record { key, expiry, access, cas, fetched, class: class_of(size), size, flags });
        }
        (place + budget, place + budget < self.map.len())
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats {
            items: self.map.len() as u64,
            total_items: self.total_items,
            reclaimed: self.reclaimed,
            crawler_reclaimed: self.crawler_reclaimed,
            expired_unfetched: self.expired_unfetched,
            ..Stats::default()
        };
        for (key, entry) in &self.map {
            let size = OVERHEAD + key.len() + entry.value.len();
            let class = &mut stats.classes[class_of(size)];
            class.items += 1;
            class.bytes += size as u64;
            stats.bytes += size as u64;
        }
        stats.memory_used = stats.bytes;
        stats
    }

    pub(super) fn reset_stats(&mut self) {
        (self.total_items, self.reclaimed, self.crawler_reclaimed, self.expired_unfetched) = (0, 0, 0, 0);
    }
}
