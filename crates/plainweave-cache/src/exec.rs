//! Carrying out commands on the store, and wording the replies.

use std::sync::atomic::Ordering::Relaxed;

use super::hotkeys::Sampler;
use super::proto::{BAD_CHUNK, Command, Keys, Listing, Manage, Reject, Store, Verb, keys};
use super::reply::{OUTPUT, Replies};
use super::scratch::Work;
use super::shared::Cache;
use super::store::{
    Count, Counted, Expiry, Found, Mode, PREFETCHED, Removal, Removed, Short, Stored, Time, Write,
};
use super::tally::{Count as Stat, KINDS, Kind, Tally};
use super::users::Judgement;
use super::version::VERSION;
use super::watch::{self, Escaped, Event};

pub(super) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
pub(super) const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";
pub(super) const NOT_A_NUMBER: &str =
    "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// What becomes of the connection after a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum After {
    Next,
    Close,
    /// It becomes a watcher of these events.
    Watch(u16),
    /// It receives the list of items.
    List(Listing),
    /// The files of TLS are to be read again.
    RefreshCertificates,
    /// The server is to stop.
    Stop,
}

/// The executing side of one turn of a connection.
pub(crate) struct Exec<'a> {
    pub(super) cache: &'a Cache,
    pub(super) tally: &'a Tally,
    pub(crate) out: &'a mut Replies,
    pub(super) now: Time,
    /// The connection's number.
    pub(super) client: u64,
    /// Kinds of events that are being watched.
    pub(super) watched: u16,
    /// Commands of each kind in this turn.
    pub(crate) kinds: [u32; KINDS.len()],
    /// Which commands are looked at for the hot keys.
    sampler: &'a mut Sampler,
}

impl<'a> Exec<'a> {
    /// For one turn of client number `client`.
    pub(crate) fn new(cache: &'a Cache, work: &'a mut Work, client: u64) -> Self {
        Self {
            cache,
            tally: &work.tally,
            out: &mut work.out,
            now: cache.clock.now(),
            client,
            // Read once a turn: who begins to watch meanwhile sees the commands of the next.
            watched: cache.watchers.kinds(),
            kinds: [0; KINDS.len()],
            sampler: &mut work.sampler,
        }
    }

    /// Carries out a command without a value.
    pub(crate) fn run(&mut self, command: &Command<'_>) -> After {
        match command {
            Command::Delete { key, quiet } => self.delete(key, *quiet),
            Command::Count {
                key,
                up,
                delta,
                quiet,
            } => self.count(key, *up, *delta, *quiet),
            Command::Touch {
                key,
                exptime,
                quiet,
            } => self.touch(key, *exptime, *quiet),
            Command::MetaGet(meta) => self.meta_get(meta),
            Command::MetaDelete(meta) => self.meta_delete(meta),
            Command::MetaCount(meta) => self.meta_count(meta),
            Command::MetaDebug { key } => self.meta_debug(key),
            Command::MetaNothing => self.out.line("MN"),
            Command::Manage(manage) => return self.manage(manage),
            // Gets come through `get`, values through `store`.
            Command::Get { .. } | Command::Store(_) | Command::MetaStore(..) => {}
        }
        After::Next
    }

    /// Commands that come next, of which the gets are looked up faster when all are known at once.
    pub(crate) fn expect(&self, input: &[u8]) {
        let ends = memchr::memchr_iter(b'\n', input).scan(0, |start, end| {
            let line = &input[*start..end];
            *start = end + 1;
            Some(line)
        });

        // Of a value's bytes a few may be taken for a command; no harm is done.
        let keys = ends.filter_map(|line| Some(line.strip_prefix(b"get ")?.trim_ascii_end()));
        self.cache.store.prefetch(keys.take(PREFETCHED));
    }

    /// The same of packets.
    pub(crate) fn expect_packets(&self, input: &[u8]) {
        self.cache.store.prefetch(keys(input).take(PREFETCHED));
    }

    /// Returns whether the client is who it says.
    pub(crate) fn knows(&mut self, name: &[u8], password: &[u8]) -> bool {
        let Some(users) = &self.cache.users else {
            return false;
        };
        let peer = self.cache.clients.peer_of(self.client);
        let judgement = users.judge(peer, name, password);
        self.tally.count(Stat::AuthCmds);
        if judgement == Judgement::Known {
            return true;
        }

        self.tally.count(Stat::AuthErrors);
        if judgement == Judgement::TooOften {
            self.tally.count(Stat::AuthRefused);
        }

        if self.cache.verbosity() >= 1 {
            let client = self.cache.clients.name_of(self.client);
            let name = Escaped(name);
            let why = match judgement {
                Judgement::TooOften => "its address has been wrong too often, and has to wait",
                _ => "no such user, or another password",
            };
            self.cache
                .tell(&format!("client {client} is not let in as {name}: {why}"));
        }
        false
    }

    /// A reply of one line, unless the client wants none.
    pub(crate) fn say(&mut self, text: &str, quiet: bool) {
        if !quiet {
            self.out.line(text);
        }
    }

    /// Refuses a line that has no end yet, and says so once.
    #[cold]
    pub(crate) fn too_long(&mut self) {
        self.out.line(&format!(
            "SERVER_ERROR a line has at most {} bytes: ask for fewer keys at once",
            super::proto::MAX
        ));
        let clients = &self.cache.clients;
        if clients.long_lines.fetch_add(1, Relaxed) == 0 {
            let who = clients.name_of(self.client);
            self.cache.tell(&format!(
                "client {who} has sent a get of more than {} bytes, which is refused (logged once, see long_lines)",
                super::proto::MAX
            ));
        }
    }

    /// Notes a command for the figures.
    pub(super) fn note(&mut self, kind: Kind, key: &[u8]) {
        self.kinds[kind as usize] += 1;
        if self.sampler.takes() {
            self.cache.hot.note(key);
        }
    }

    /// Notes a command that is about no item.
    pub(super) fn note_other(&mut self) {
        self.kinds[Kind::Other as usize] += 1;
    }

    pub(crate) fn expiry(&self, exptime: impl Into<i64>) -> Expiry {
        self.cache.clock.expiry(exptime.into(), self.now)
    }

    /// Answers keys in turn, at most `most` of them, and stops early once the replies should be
    /// sent. Returns the keys that are left, or `None` if all are answered, `END` included.
    pub(crate) fn get<'k>(
        &mut self,
        mut keys: Keys<'k>,
        cas: bool,
        touch: Option<Expiry>,
        most: usize,
    ) -> Option<Keys<'k>> {
        let mut left = most;
        while let Some(key) = keys.next() {
            self.get_one(key, cas, touch);
            left -= 1;
            // Replies that nobody has read yet are memory. Rather than gather those to all keys of
            // a long line it goes on once these have been sent.
            if (left == 0 || self.out.len() >= OUTPUT) && !keys.0.is_empty() {
                return Some(keys);
            }
        }

        self.out.push(b"END\r\n");
        None
    }

    fn get_one(&mut self, key: &[u8], cas: bool, touch: Option<Expiry>) {
        self.note(Kind::Get, key);
        let found = self.cache.store.read(
            key,
            touch,
            self.now,
            |Short {
                 flags,
                 cas: number,
                 value,
             }| {
                self.out
                    .found(key, flags, value.len(), cas.then_some(number));
                self.out.push(value);
                self.out.push(b"\r\n");
            },
        );
        let lengths = match found {
            None => None,
            Some(Found::Short { len, size }) => Some((len, size)),
            Some(Found::Long(item)) => {
                let lengths = (item.len(), item.size());
                self.out
                    .found(key, item.flags(), lengths.0, cas.then_some(item.cas()));
                self.out.value(item);
                Some(lengths)
            }
        };

        self.count_get(key, touch.is_some(), lengths);
    }

    /// `found`: the bytes of the value, and of the item.
    pub(super) fn count_get(&mut self, key: &[u8], touched: bool, found: Option<(usize, usize)>) {
        self.tally.count(if touched {
            Stat::CmdTouch
        } else {
            Stat::CmdGet
        });
        match (touched, found) {
            (false, Some((_, size))) => self.tally.hit(size),
            (false, None) => self.tally.count(Stat::GetMisses),
            (true, Some(_)) => self.tally.count(Stat::TouchHits),
            (true, None) => self.tally.count(Stat::TouchMisses),
        }

        // Off unless somebody asked for it, as both of these take time.
        if self.cache.details.is_on() {
            self.cache.details.get(key, found.is_some());
        }
        if self.watched & watch::FETCHERS != 0 {
            let event = Event::Get {
                key,
                found: found.is_some(),
                client: self.client,
                size: found.map_or(0, |(len, _)| len),
            };
            self.cache.watchers.send(watch::FETCHERS, &event);
        }
    }

    /// Before a value is received: refuses one that can never be stored.
    pub(crate) fn admit(&mut self, command: &Command<'_>, len: usize) -> Result<(), Reject> {
        if len <= self.cache.store.config().item_max {
            // Whether there is room now is known once the value is there.
            return Ok(());
        }
        self.tally.count(Stat::StoreTooLarge);
        Err(self.refused(command, TOO_LARGE, len + 2))
    }

    /// While a value is received: there is no memory for the rest of it, which is to be swallowed.
    pub(crate) fn no_memory(&mut self, command: &Command<'_>, swallow: usize) -> Reject {
        self.tally.count(Stat::StoreNoMemory);
        self.refused(command, OUT_OF_MEMORY, swallow)
    }

    fn refused(&self, command: &Command<'_>, text: &'static str, swallow: usize) -> Reject {
        let (key, quiet, set) = match command {
            Command::Store(store) => (store.key, store.quiet, store.verb == Verb::Set),
            Command::MetaStore(meta, _) => (meta.key.bytes(), false, true),
            _ => (&b""[..], false, false),
        };

        // An old value must not outlive the attempt to replace it.
        if set {
            self.cache.store.remove(key, &Removal::default(), self.now);
        }
        Reject {
            text,
            swallow,
            quiet,
        }
    }

    /// Carries out a storage command; `block` is the value with its line end.
    pub(crate) fn store(&mut self, command: &Command<'_>, block: &[u8]) {
        self.tally.count(Stat::CmdSet);
        let value = block.strip_suffix(b"\r\n");
        match (command, value) {
            (Command::Store(store), None) => self.say(BAD_CHUNK, store.quiet),
            (Command::MetaStore(..), None) => self.out.line(BAD_CHUNK),
            (Command::Store(store), Some(value)) => self.classic_store(store, value),
            (Command::MetaStore(meta, _), Some(value)) => self.meta_store(meta, value),
            _ => {}
        }
    }

    fn classic_store(&mut self, store: &Store<'_>, value: &[u8]) {
        self.note(Kind::Set, store.key);
        let compare = (store.verb == Verb::Cas).then_some(store.cas);
        let expiry = self.expiry(store.exptime);
        let write = Write {
            flags: store.flags,
            expiry,
            mode: mode(store.verb),
            compare,
            ..Write::new(store.key, value)
        };

        let text = match self.write(&write, store.verb) {
            Stored::Stored { .. } => "STORED",
            Stored::NotStored => "NOT_STORED",
            Stored::Exists => "EXISTS",
            Stored::NotFound => "NOT_FOUND",
            Stored::TooLarge => TOO_LARGE,
            Stored::OutOfMemory => OUT_OF_MEMORY,
        };

        self.say(text, store.quiet);
    }

    /// Writes, and counts what becomes of it.
    pub(super) fn write(&mut self, write: &Write<'_>, verb: Verb) -> Stored {
        let stored = self.cache.store.write(write, self.now);
        match (verb, stored) {
            (Verb::Cas, Stored::Stored { .. }) => self.tally.count(Stat::CasHits),
            (Verb::Cas, Stored::Exists) => self.tally.count(Stat::CasBadval),
            (Verb::Cas, Stored::NotFound) => self.tally.count(Stat::CasMisses),
            (_, Stored::TooLarge) => self.tally.count(Stat::StoreTooLarge),
            (_, Stored::OutOfMemory) => self.tally.count(Stat::StoreNoMemory),
            _ => {}
        }

        if self.cache.details.is_on() {
            self.cache.details.set(write.key);
        }
        if self.watched & watch::MUTATIONS != 0 {
            let ttl = write.expiry.time().map_or(0, |end| end.since(self.now));
            let event = Event::Store {
                key: write.key,
                stored,
                verb,
                ttl,
                client: self.client,
                size: write.value.len(),
            };
            self.cache.watchers.send(watch::MUTATIONS, &event);
        }

        stored
    }

    fn delete(&mut self, key: &[u8], quiet: bool) {
        self.note(Kind::Delete, key);
        let text = match self.remove(key, &Removal::default()) {
            Removed::Removed => "DELETED",
            Removed::NotFound | Removed::Exists => "NOT_FOUND",
        };
        self.say(text, quiet);
    }

    /// Removes, and counts what becomes of it.
    pub(super) fn remove(&mut self, key: &[u8], removal: &Removal) -> Removed {
        let removed = self.cache.store.remove(key, removal, self.now);
        match removed {
            Removed::Removed if removal.invalidate => {}
            Removed::Removed => self.tally.count(Stat::DeleteHits),
            Removed::NotFound | Removed::Exists => self.tally.count(Stat::DeleteMisses),
        }

        if self.cache.details.is_on() {
            self.cache.details.delete(key);
        }
        removed
    }

    fn count(&mut self, key: &[u8], up: bool, delta: u64, quiet: bool) {
        self.note(Kind::Count, key);
        let count = if up {
            Count::up(delta)
        } else {
            Count::down(delta)
        };

        match self.counted(key, &count) {
            Counted::Value { value, .. } if !quiet => {
                self.out.number(value);
                self.out.push(b"\r\n");
            }
            Counted::Value { .. } => {}
            Counted::NotANumber => self.say(NOT_A_NUMBER, quiet),
            Counted::NotFound | Counted::Exists => self.say("NOT_FOUND", quiet),
            Counted::OutOfMemory => self.say("SERVER_ERROR out of memory", quiet),
        }
    }

    /// Counts, and counts what becomes of it.
    pub(super) fn counted(&mut self, key: &[u8], count: &Count) -> Counted {
        let counted = self.cache.store.count(key, count, self.now);
        match (counted, count.down) {
            (Counted::Value { created: false, .. }, false) => self.tally.count(Stat::IncrHits),
            (Counted::Value { created: false, .. }, true) => self.tally.count(Stat::DecrHits),
            (Counted::NotFound, false) => self.tally.count(Stat::IncrMisses),
            (Counted::NotFound, true) => self.tally.count(Stat::DecrMisses),
            _ => {}
        }
        counted
    }

    fn touch(&mut self, key: &[u8], exptime: i32, quiet: bool) {
        self.note(Kind::Touch, key);
        let touched = self.cache.store.touch(key, self.expiry(exptime), self.now);
        self.tally.count(Stat::CmdTouch);
        self.tally.count(if touched {
            Stat::TouchHits
        } else {
            Stat::TouchMisses
        });
        self.say(if touched { "TOUCHED" } else { "NOT_FOUND" }, quiet);
    }

    fn manage(&mut self, manage: &Manage<'_>) -> After {
        self.note_other();
        let settings = &self.cache.settings;
        match manage {
            Manage::Stats(words) => super::stats::answer(self.cache, words, self.now, self.out),
            Manage::FlushAll { delay, quiet } => self.flush_all(*delay, *quiet),
            Manage::Version => {
                self.out.push(b"VERSION ");
                self.out.line(VERSION);
            }
            Manage::Verbosity { level, quiet } => {
                self.cache.set_verbosity(*level);
                self.say("OK", *quiet);
            }
            Manage::Quit => return After::Close,
            Manage::Shutdown if settings.shutdown => return After::Stop,
            Manage::Shutdown => self.out.line("ERROR: shutdown not enabled"),
            Manage::MemoryLimit { megabytes, quiet } => self.say(memory_limit(*megabytes), *quiet),
            Manage::Crawl => {
                self.cache.ask_to_crawl();
                self.out.line("OK");
            }
            Manage::RefreshCertificates if self.cache.tls.is_some() => {
                return After::RefreshCertificates;
            }
            Manage::RefreshCertificates => self.out.line("Error TLS not enabled"),
            Manage::List(..) if !settings.dump => self.out.line("ERROR metadump not allowed"),
            // The connection's loop sends the list, and has no place for replies before it.
            Manage::List(..) if !self.out.is_empty() => {
                self.out
                    .line("ERROR cannot pipeline other commands before metadump");
            }
            Manage::List(listing, b"all" | b"hash") => return After::List(*listing),
            Manage::List(..) => self.out.line("BADCLASS invalid class id"),
            Manage::Watch { quiet, .. } if !settings.watch => {
                self.say("CLIENT_ERROR watch commands not allowed", *quiet);
            }
            Manage::Watch { quiet, .. } if !self.out.is_empty() => {
                self.say("ERROR cannot pipeline other commands before watch", *quiet);
            }
            Manage::Watch { kinds: None, quiet } => self.say("ERROR", *quiet),
            Manage::Watch {
                kinds: Some(kinds), ..
            } => return After::Watch(*kinds),
            Manage::Fine { quiet } => self.say("OK", *quiet),
        }

        After::Next
    }

    fn flush_all(&mut self, delay: i32, quiet: bool) {
        match self.flush(delay) {
            true => self.say("OK", quiet),
            false => self.say("CLIENT_ERROR flush_all not allowed", quiet),
        }
    }

    /// Lets all items disappear, now or `delay` seconds from now; a large number is a date, and one
    /// in the past asks for nothing. As there, a second earlier than that says. False: it is not
    /// allowed.
    pub(super) fn flush(&mut self, delay: impl Into<i64>) -> bool {
        self.tally.count(Stat::CmdFlush);
        if !self.cache.settings.flush {
            return false;
        }

        let at = match self.expiry(delay.into().max(0)) {
            Expiry::NEVER => Some(self.now),
            Expiry::AT_ONCE => None,
            later => later.time().map(|at| Time(at.0 - 1)),
        };
        if let Some(at) = at {
            self.cache.store.flush(at, self.now);
        }
        true
    }
}

/// Answers `cache_memlimit`: the memory is what the server was started with.
fn memory_limit(megabytes: u32) -> &'static str {
    match megabytes {
        ..8 => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
        1_000_000_001.. => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        _ => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
    }
}

pub(super) fn mode(verb: Verb) -> Mode {
    match verb {
        Verb::Set | Verb::Cas => Mode::Set,
        Verb::Add => Mode::Add,
        Verb::Replace => Mode::Replace,
        Verb::Append => Mode::Append,
        Verb::Prepend => Mode::Prepend,
    }
}
