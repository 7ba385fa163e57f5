//! What was found behind recently asked paths: small files whole, larger ones open, and that there
//! is nothing.
//!
//! An entry is believed for [`Caching::staleness`], and as long as the root is the same (see
//! `served_root`); then the next request looks again, and all others that come meanwhile wait for
//! what it finds (single flight). Looking again is three system calls that do not wait, as long as
//! the kernel has the directory in memory; only what takes a disk goes to the pool.
//!
//! Each shard is a map and a queue in which entries age: the oldest goes when there is no room,
//! unless it was asked for since it was last looked over (second chance, F. J. Corbató, 1968). So a
//! scan through many paths that are asked once does not drive out those that are asked often.
//!
//! The locks are held for a lookup or an insertion, never across a system call or a suspension. In
//! front of the shards each processor has copies of what its requests ask for most (`front`).

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use http::StatusCode;

use super::clock::{Millis, coarse_millis};
use super::coding::Coding;
use super::compress::{Compression, Making};
use super::entry::Entry;
use super::front::Fronts;
use super::look::{Found, Job, Look};
use super::open::Root;
use super::path::FilePath;
use super::pieces::Blocking;
use super::served_root::ServedRoot;

/// What of the served files is kept, and for how long it is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caching {
    /// Bytes of memory for all entries; 0 keeps nothing.
    pub bytes: usize,
    /// Files up to this size in bytes are kept whole (never more than a quarter of a shard's part
    /// of `bytes`); larger ones are kept open, for sending them from the page cache is cheaper than
    /// copying them (`docs/large-files.md`).
    pub file_bytes: u64,
    /// Files kept open at most.
    pub open_files: usize,
    /// Maximum age of what a request sees of a file, not counting the lookup itself.
    pub staleness: Duration,
}

impl Default for Caching {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            file_bytes: 16 << 10,
            open_files: 1024,
            staleness: Duration::from_secs(1),
        }
    }
}

/// A power of two: what many workers ask for at once should lie behind different locks.
const SHARDS: usize = 16;
/// The part of [`Caching::bytes`] that the processors' copies may take: one in so many.
const FRONTS: usize = 8;

/// A twin is not made now: others are. No client sees it.
const BUSY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) path: &'a FilePath<'a>,
    /// The compressed twin of the file at `path`, not the file itself.
    pub(super) coding: Option<Coding>,
    /// Whether to find out which twins the file has.
    pub(super) with_twins: bool,
    /// The name of the file that stands for a directory.
    pub(super) index: &'a [u8],
}

impl Wanted<'_> {
    /// A twin's has a NUL, which no path has.
    fn key(&self) -> Cow<'_, [u8]> {
        match self.coding {
            Some(coding) => Cow::Owned([self.path.key(), b"\0", coding.name().as_bytes()].concat()),
            None => Cow::Borrowed(self.path.key()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Cache {
    fronts: Fronts,
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    hasher: RandomState,
    /// As it was asked for.
    whole: Caching,
    /// Of the shards.
    caching: Caching,
    making: Option<Arc<Making>>,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Arc<[u8]>, Arc<Entry>, RandomState>,
    /// The keys of `entries`, oldest first.
    queue: VecDeque<Arc<[u8]>>,
    flights: HashMap<Arc<[u8]>, Arc<Flight>, RandomState>,
    bytes: usize,
    open: usize,
}

/// A lookup in progress, and the requests that wait for it.
#[derive(Debug, Default)]
struct Flight(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    done: bool,
    /// `None`, when done: the request that looked was cancelled.
    found: Option<Arc<Entry>>,
    fibers: Vec<plainweave::Fiber>,
}

enum Turn {
    Look(Landing, Option<Arc<Entry>>),
    Wait(Arc<Flight>),
}

/// Ends a flight, even if the looking fiber panics.
struct Landing {
    cache: Arc<Cache>,
    key: Arc<[u8]>,
    flight: Arc<Flight>,
    found: Option<Arc<Entry>>,
}

impl Cache {
    /// `compression`: of what is kept.
    pub(super) fn new(caching: Caching, compression: Option<Compression>) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        let fronts = Fronts::new(caching.bytes / FRONTS);
        let whole = caching.clone();
        let caching = Caching {
            bytes: caching.bytes - caching.bytes / FRONTS,
            ..caching
        };

        // What is made of a file is no larger, or hardly; and it is not to drive out all else.
        let most_bytes = (caching.bytes / SHARDS / 2) as u64;
        let making = compression.map(|compression| Making::new(compression, most_bytes));
        Arc::new(Self {
            fronts,
            shards,
            hasher: RandomState::default(),
            whole,
            caching,
            making: making.map(Arc::new),
        })
    }

    /// Returns what is `wanted`, as of `staleness` ago at the earliest. An error: the caller was
    /// cancelled.
    pub(super) fn find<B: Blocking>(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        root: &Arc<ServedRoot>,
        blocking: &B,
    ) -> io::Result<Arc<Entry>> {
        let key = wanted.key();
        let now = coarse_millis();
        root.check(now, self.caching.staleness, blocking)?;
        // Once, for the front, the shard and the table within it.
        let hash = self.hasher.hash_one(&*key);
        let generation = root.generation();
        if let Some(entry) = self
            .fronts
            .find(hash, &key, |entry| self.is_fresh(entry, generation, now))
        {
            return Ok(entry);
        }

        loop {
            let generation = root.generation();
            match self.turn(hash, &key, generation, now) {
                // Its old length is in the head that would be sent.
                Ok(entry) if entry.has_shrunk() => self.shard(hash).forget_entry(&key, &entry),
                Ok(entry) => {
                    self.fronts.note(hash, &key, &entry);
                    return Ok(entry);
                }
                Err(Turn::Look(landing, old)) => {
                    return self.look(wanted, old, landing, root, blocking);
                }
                Err(Turn::Wait(flight)) => {
                    // One that began under an earlier root may have landed since.
                    if let Some(entry) = flight
                        .wait()?
                        .filter(|entry| entry.generation == root.generation())
                    {
                        return Ok(entry);
                    }
                }
            }
        }
    }

    /// Returns what it was made with.
    pub(super) fn caching(&self) -> Caching {
        self.whole.clone()
    }

    /// Returns by what twins are made.
    pub(super) fn making(&self) -> Option<&Arc<Making>> {
        self.making.as_ref()
    }

    fn is_fresh(&self, entry: &Entry, generation: u64, now: Millis) -> bool {
        let age = now.saturating_sub(entry.checked.load(Ordering::Relaxed));
        u128::from(age) < self.caching.staleness.as_millis() && entry.generation == generation
    }

    fn turn(
        self: &Arc<Self>,
        hash: u64,
        key: &[u8],
        generation: u64,
        now: Millis,
    ) -> Result<Arc<Entry>, Turn> {
        let mut shard = self.shard(hash);
        let entry = shard.entries.get(key);
        match entry {
            Some(entry) if self.is_fresh(entry, generation, now) => {
                // Read first: a line that all workers write would go from core to core for each
                // request.
                if !entry.used.load(Ordering::Relaxed) {
                    entry.used.store(true, Ordering::Relaxed);
                }
                return Ok(Arc::clone(entry));
            }
            _ => {}
        }
        // Too old, but it need not be read again if the file has not changed.
        let old = entry.cloned();
        if let Some(flight) = shard.flights.get(key) {
            // One look serves all who ask meanwhile, or a cold cache would ask the disk as often as
            // there are clients.
            return Err(Turn::Wait(Arc::clone(flight)));
        }
        let key = Arc::<[u8]>::from(key);
        let flight = Arc::<Flight>::default();
        shard.flights.insert(Arc::clone(&key), Arc::clone(&flight));
        Err(Turn::Look(
            Landing {
                cache: Arc::clone(self),
                key,
                flight,
                found: None,
            },
            old,
        ))
    }

    fn look<B: Blocking>(
        &self,
        wanted: Wanted<'_>,
        old: Option<Arc<Entry>>,
        mut landing: Landing,
        root: &Arc<ServedRoot>,
        blocking: &B,
    ) -> io::Result<Arc<Entry>> {
        loop {
            // What is found is as old as the beginning of the look.
            let start = coarse_millis();
            let (directory, generation) = root.current();
            // Of an earlier directory nothing is known to hold.
            let old = old.as_ref().filter(|old| old.generation == generation);
            let look = match root.is_gone() {
                true => Look::Failed(StatusCode::SERVICE_UNAVAILABLE),
                false => self.look_beneath(wanted, old, directory, blocking)?,
            };

            // Perhaps it stands in a directory that has taken the place of this one.
            if look.is_absence() && root.has_changed(generation, blocking)? {
                continue;
            }

            let entry = match (look, old) {
                (Look::Same, Some(old)) => {
                    old.checked.store(start, Ordering::Relaxed);
                    old.clone()
                }
                (Look::New(found), Some(old)) if found.is_same_absence(&old.found) => {
                    old.checked.store(start, Ordering::Relaxed);
                    old.clone()
                }
                (Look::New(found), _) => {
                    let entry = Entry::new(found, generation, start);
                    self.shard_of(&landing.key)
                        .insert(&landing.key, &entry, &self.caching);
                    entry
                }
                // Not kept: the next request looks again, and a disk that has recovered is seen at
                // once.
                (Look::Failed(status), _) => Entry::new(Found::Nothing(status), generation, start),
                (Look::Same, None) => unreachable!("nothing was known"),
            };

            landing.found = Some(Arc::clone(&entry));
            return Ok(entry);
        }
    }

    fn look_beneath<B: Blocking>(
        &self,
        Wanted {
            path,
            coding,
            with_twins,
            index,
        }: Wanted<'_>,
        old: Option<&Arc<Entry>>,
        root: Arc<Root>,
        blocking: &B,
    ) -> io::Result<Look> {
        let mut name = path.name().to_vec();
        if path.is_directory() {
            name.extend_from_slice(if name.is_empty() { b"" } else { b"/" });
            name.extend_from_slice(index);
        }

        let known = old.and_then(|old| old.found.known());
        let job = Job {
            root,
            name,
            coding,
            with_twins,
            known,
            making: self.making.clone(),
            whole_up_to: self.whole_up_to(),
        };

        if let Some(look) = if B::TRY_FIRST { job.try_now() } else { None } {
            return Ok(look);
        }
        let making = self.making.as_ref().filter(|_| coding.is_some());
        let place = match making {
            None => None,
            Some(making) => match making.at_once().begin_owned() {
                Some(place) => Some(place),
                None => return Ok(Look::Failed(BUSY)),
            },
        };
        blocking.run(move || {
            let look = job.run();
            drop(place);
            look
        })
    }

    /// Returns the size up to which files are read whole, so that one of them cannot drive out
    /// everything else. With nothing to keep them in, they are still read at once.
    fn whole_up_to(&self) -> u64 {
        let part = match self.caching.bytes {
            0 => Caching::default().bytes,
            bytes => bytes,
        } / SHARDS
            / 4;
        self.caching.file_bytes.min(part as u64)
    }

    fn shard_of(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        self.shard(self.hasher.hash_one(key))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[(hash >> 32) as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    fn insert(&mut self, key: &Arc<[u8]>, entry: &Arc<Entry>, caching: &Caching) {
        let max_bytes = caching.bytes / SHARDS;
        let max_open = caching.open_files / SHARDS;
        let weight = entry.weight(key);
        // A new entry begins at the end of the queue.
        self.forget(key);
        if weight > max_bytes || (entry.is_open() && max_open == 0) {
            // One alone would drive out everything else, for nothing.
            return;
        }
        self.bytes += weight;
        self.open += usize::from(entry.is_open());
        self.entries.insert(Arc::clone(key), Arc::clone(entry));
        self.queue.push_back(Arc::clone(key));

        while self.bytes > max_bytes || self.open > max_open {
            let Some(oldest) = self.queue.pop_front() else {
                return;
            };
            match self.entries.get(&oldest) {
                // Asked for since it was last looked at: it has another round (the algorithm
                // CLOCK).
                Some(entry) if entry.used.swap(false, Ordering::Relaxed) => {
                    self.queue.push_back(oldest)
                }
                _ => self.remove(&oldest),
            }
        }
    }

    /// Takes an entry out, its place in the queue too.
    fn forget(&mut self, key: &Arc<[u8]>) {
        if self.entries.contains_key(key) {
            self.remove(key);
            self.queue.retain(|other| other != key);
        }
    }

    /// The same, unless another one has taken its place.
    fn forget_entry(&mut self, key: &[u8], entry: &Arc<Entry>) {
        let is_it = |(_, found): &(_, &Arc<Entry>)| Arc::ptr_eq(found, entry);
        let found = self.entries.get_key_value(key).filter(is_it);
        if let Some(key) = found.map(|(key, _)| Arc::clone(key)) {
            self.forget(&key);
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.weight(key);
            self.open -= usize::from(entry.is_open());
        }
    }
}

impl Flight {
    /// Suspends until the look is over.
    fn wait(&self) -> io::Result<Option<Arc<Entry>>> {
        let mut listed = false;
        loop {
            {
                let mut waiting = self.lock();
                if waiting.done {
                    return Ok(waiting.found.clone());
                }
                if !listed {
                    waiting.fibers.push(plainweave::current());
                    listed = true;
                }
            }
            plainweave::park()?;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.cache.shard_of(&self.key).flights.remove(&self.key);
        let mut waiting = self.flight.lock();
        waiting.done = true;
        waiting.found = self.found.take();
        let fibers = std::mem::take(&mut waiting.fibers);
        drop(waiting);
        fibers.iter().for_each(plainweave::Fiber::unpark);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::super::look::Content;
    use super::*;
    use crate::files::Inline;

    /// Asks for this crate's manifest on one processor.
    fn ask(cache: &Arc<Cache>, root: &Arc<ServedRoot>, processor: usize) -> Arc<Entry> {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).expect("one of ours");
        let path = FilePath::decode("/Cargo.toml").expect("a path");

        cache
            .find(
                Wanted {
                    path: &path,
                    coding: None,
                    with_twins: false,
                    index: b"index.html",
                },
                root,
                &Inline,
            )
            .expect("not cancelled")
    }

    /// With all shards locked, processors still answer what each has been asked before, and share
    /// nothing.
    #[test]
    fn processors_wait_for_none_of_each_other_s_locks() {
        let all = sched_getaffinity(None).expect("an affinity");
        let ours: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|processor| all.is_set(*processor))
            .take(2)
            .collect();
        let &[one, other] = &ours[..] else { return };
        let root =
            Arc::new(ServedRoot::new(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("a directory"));
        let caching = Caching {
            staleness: Duration::from_secs(3600),
            ..Caching::default()
        };
        let cache = Cache::new(caching, None);

        let (told, tell) = mpsc::channel();
        std::thread::scope(|scope| {
            // Looked at, found twice and then copied.
            let warm = |processor| (0..4).for_each(|_| drop(ask(&cache, &root, processor)));
            scope
                .spawn(move || [one, other].map(warm))
                .join()
                .expect("answered");
            let locks: Vec<_> = cache
                .shards
                .iter()
                .map(|shard| shard.lock().expect("free"))
                .collect();

            for processor in [one, other] {
                let cache = &cache;
                let root = &root;
                let told = told.clone();
                scope.spawn(move || told.send(ask(cache, root, processor)).expect("awaited"));
            }

            let found = [one, other].map(|_| tell.recv_timeout(Duration::from_secs(20)));
            drop(locks);
            let [Ok(one), Ok(other)] = found else {
                panic!("a lock was waited for")
            };
            let places =
                [&one, &other].map(|entry| match entry.found.file().map(|file| &file.content) {
                    Some(Content::Whole(content)) => content.as_ptr(),
                    _ => panic!("a small file"),
                });

            assert!(!Arc::ptr_eq(&one, &other) && places[0] != places[1]);
        });
    }
}
