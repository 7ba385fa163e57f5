//! The meta commands. Flags take effect and are answered in the order in which they were sent: `t`
//! between `N` and `T` answers with the end that `N` gives.

use super::exec::{Exec, NOT_A_NUMBER, OUT_OF_MEMORY, TOO_LARGE, mode};
use super::proto::{Key, Meta, Verb};
use super::store::{Count, Counted, Expiry, Hit, Lookup, Mode, Removal, Removed, Stored, Write};
use super::tally::{Count as Stat, Kind};

impl Exec<'_> {
    pub(super) fn meta_get(&mut self, meta: &Meta<'_>) {
        self.note(Kind::MetaGet, meta.key.bytes());
        let recache = meta
            .recache
            .and_then(|exptime| self.expiry(exptime).time())
            .map(|end| end.since(self.now));
        let (touch, vivify) = self.ends(meta);
        let touch_first = recache.is_some() && meta.in_order(b'T', b'R');
        let cas = meta.new_cas;
        let no_update = meta.no_update;
        let lookup = Lookup {
            touch,
            vivify,
            cas,
            recache,
            touch_first,
            no_update,
            peek: false,
        };

        let hit = self.cache.store.lookup(meta.key.bytes(), &lookup, self.now);
        let lengths = hit.as_ref().map(|hit| (hit.item.len(), hit.item.size()));
        self.count_get(meta.key.bytes(), meta.exptime.is_some(), lengths);

        match hit {
            Some(hit) => self.meta_hit(meta, hit),
            None if meta.quiet => {}
            None => self.status(b"EN", meta),
        }
    }

    /// Returns the expiry that `T` gives an item, and the one that `N` and `T` together give one
    /// that they create.
    fn ends(&self, meta: &Meta<'_>) -> (Option<Expiry>, Option<Expiry>) {
        let expiry = |exptime: Option<i32>| exptime.map(|exptime| self.expiry(exptime));
        let touch = expiry(meta.exptime);
        let vivify = expiry(meta.vivify);
        let last = if vivify.is_some() && meta.in_order(b'N', b'T') {
            touch
        } else {
            vivify
        };

        (touch, last)
    }

    fn meta_hit(&mut self, meta: &Meta<'_>, hit: Hit) {
        let Hit {
            item,
            token,
            created,
        } = hit;
        // `t` before `N` is answered as if the item had no end yet.
        let mut expiry = if created {
            Expiry::NEVER
        } else {
            item.expiry()
        };

        // Who has this version already is spared the value.
        let with_value = meta.value && meta.cas != Some(item.cas());
        if with_value {
            self.out.push(b"VA");
            self.out.field(item.len());
        } else {
            self.out.push(b"HD");
        }

        for word in meta.words() {
            expiry = self.end_behind(word[0], meta, created).unwrap_or(expiry);
            match word[0] {
                b's' => self.out.flag(b's', item.len()),
                b't' => self.time_left(expiry),
                b'c' => self.out.flag(b'c', item.cas()),
                b'f' => self.out.flag(b'f', item.flags()),
                b'l' => self.out.flag(b'l', self.now.since(item.access())),
                // Who creates an item has not found it.
                b'h' => self.out.flag(b'h', u8::from(item.fetched() && !created)),
                _ => self.echo(word, &meta.key),
            }
        }

        for (set, text) in [
            (token.sent, b" Z"),
            (token.stale, b" X"),
            (token.won, b" W"),
        ] {
            if set {
                self.out.push(text);
            }
        }

        self.out.push(b"\r\n");
        if with_value {
            self.out.value(item);
        }
    }

    /// Returns the item's end from this flag on, if the flag changes it.
    fn end_behind(&self, flag: u8, meta: &Meta<'_>, created: bool) -> Option<Expiry> {
        let exptime = match flag {
            b'T' => meta.exptime,
            b'N' if created => meta.vivify,
            _ => None,
        };
        exptime.map(|exptime| self.expiry(exptime))
    }

    /// Flags that every answer repeats.
    fn echo(&mut self, word: &[u8], key: &Key<'_>) {
        match word[0] {
            b'O' => {
                self.out.push(b" ");
                self.out.push(word);
            }
            b'k' => self.out.key_flag(key),
            _ => {}
        }
    }

    fn time_left(&mut self, expiry: Expiry) {
        match expiry.time() {
            Some(end) => self.out.flag(b't', end.since(self.now)),
            None => self.out.push(b" t-1"),
        }
    }

    /// A line of two letters and what was asked to be repeated.
    fn status(&mut self, status: &[u8], meta: &Meta<'_>) {
        self.out.push(status);
        meta.words().for_each(|word| self.echo(word, &meta.key));
        self.out.push(b"\r\n");
    }

    pub(super) fn meta_store(&mut self, meta: &Meta<'_>, value: &[u8]) {
        let key = meta.key.bytes();
        let verb = meta.verb();
        self.note(Kind::MetaSet, key);
        let joins = matches!(verb, Verb::Append | Verb::Prepend);

        // A CAS number of 0 asks for nothing when values are joined, and add never looks at it.
        let compare = meta
            .cas
            .filter(|cas| verb == Verb::Cas || joins && *cas != 0);
        let expiry = meta
            .exptime
            .map_or(Expiry::NEVER, |exptime| self.expiry(exptime));
        let stale = meta.stale && verb == Verb::Cas;
        let flags = meta.flags;
        let mode = mode(verb);
        let cas = meta.new_cas;
        let vivify = meta.vivify.map(|exptime| self.expiry(exptime));
        let write = Write {
            key,
            value,
            flags,
            expiry,
            mode,
            compare,
            cas,
            stale,
            vivify,
        };

        debug_assert!(verb != Verb::Cas || write.mode == Mode::Set);
        let stored = self.write(&write, verb);
        let mut written = None;
        let status = match stored {
            Stored::Stored { .. } if meta.quiet => return,
            Stored::Stored { cas, len } => {
                written = Some((cas, len));
                b"HD"
            }
            Stored::Exists => b"EX",
            // As memcached answers.
            Stored::NotFound if joins => b"NS",
            Stored::NotFound => b"NF",
            Stored::NotStored => b"NS",
            Stored::TooLarge | Stored::OutOfMemory => {
                // Whatever the mode, an old value goes, as there.
                self.cache.store.remove(key, &Removal::default(), self.now);
                return self.out.line(if stored == Stored::TooLarge {
                    TOO_LARGE
                } else {
                    OUT_OF_MEMORY
                });
            }
        };

        self.out.push(status);
        for word in meta.words() {
            match (word[0], written) {
                (b'c', _) => self.out.flag(b'c', written.map_or(0, |(cas, _)| cas)),
                (b's', Some((_, len))) => self.out.flag(b's', len),
                _ => self.echo(word, &meta.key),
            }
        }

        self.out.push(b"\r\n");
    }

    pub(super) fn meta_delete(&mut self, meta: &Meta<'_>) {
        let key = meta.key.bytes();
        self.note(Kind::MetaDelete, key);
        let expiry = meta.exptime.map(|exptime| self.expiry(exptime));
        let empty = (meta.flags, expiry.unwrap_or(Expiry::NEVER));
        let removal = Removal {
            compare: meta.cas,
            empty: meta.empty.then_some(empty),
            invalidate: meta.stale,
            expiry,
            cas: meta.new_cas,
        };

        match self.remove(key, &removal) {
            Removed::Removed if meta.quiet => {}
            Removed::Removed => self.status(b"HD", meta),
            Removed::NotFound => self.status(b"NF", meta),
            Removed::Exists => self.status(b"EX", meta),
        }
    }

    pub(super) fn meta_count(&mut self, meta: &Meta<'_>) {
        let key = meta.key.bytes();
        self.note(Kind::MetaCount, key);
        let (touch, vivify) = self.ends(meta);
        let create = vivify.map(|end| (meta.initial, end));
        let compare = meta.cas.filter(|cas| *cas != 0);
        let count = Count {
            delta: meta.delta,
            down: !meta.up(),
            create,
            touch,
            compare,
            cas: meta.new_cas,
        };

        match self.counted(key, &count) {
            Counted::Value { created: false, .. } if meta.quiet => {}
            Counted::Value {
                value,
                cas,
                expiry,
                created,
            } => {
                let found = if created { None } else { Some(expiry) };
                self.meta_number(meta, value, cas, found);
            }
            Counted::NotFound => self.status(b"NF", meta),
            Counted::Exists => self.status(b"EX", meta),
            Counted::NotANumber => self.out.line(NOT_A_NUMBER),
            Counted::OutOfMemory => self.out.line("SERVER_ERROR out of memory"),
        }
    }

    /// `found`: the end of the item that was there.
    fn meta_number(&mut self, meta: &Meta<'_>, value: u64, cas: u64, found: Option<Expiry>) {
        let mut expiry = found.unwrap_or(Expiry::NEVER);
        let mut text = itoa::Buffer::new();
        let text = text.format(value);

        if meta.value {
            self.out.push(b"VA");
            self.out.field(text.len());
        } else {
            self.out.push(b"HD");
        }

        for word in meta.words() {
            expiry = self
                .end_behind(word[0], meta, found.is_none())
                .unwrap_or(expiry);
            match word[0] {
                b'c' => self.out.flag(b'c', cas),
                b't' => self.time_left(expiry),
                _ => self.echo(word, &meta.key),
            }
        }

        self.out.push(b"\r\n");
        if meta.value {
            self.out.line(text);
        }
    }

    pub(super) fn meta_debug(&mut self, key: &Key<'_>) {
        self.note(Kind::Other, key.bytes());
        self.tally.count(Stat::CmdMeta);
        let lookup = Lookup {
            peek: true,
            ..Lookup::default()
        };

        let Some(hit) = self.cache.store.lookup(key.bytes(), &lookup, self.now) else {
            return self.out.line("EN");
        };
        let item = hit.item;
        self.out.push(b"ME ");
        self.out.key(key);
        let exp = item
            .expiry()
            .time()
            .map_or(-1, |end| i64::from(self.now.0) - i64::from(end.0));
        let text = format!(
            " exp={exp} la={} cas={} fetch={} cls={} size={}",
            self.now.since(item.access()),
            item.cas(),
            if item.fetched() { "yes" } else { "no" },
            super::store::class_of(item.size()) + 1,
            item.size(),
        );

        self.out.line(&text);
    }
}
