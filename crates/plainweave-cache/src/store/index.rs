//! The index: from a key's hash to where its record is, and what changes about an item.
//!
//! It is a table of buckets, each a cache line of four entries. An entry has twelve bits of the
//! hash, so that a record is looked at for one false reason in a thousand, and the item's place,
//! marks, expiry and last access. A get thus writes to no line but the bucket's. What does not fit
//! goes to an extra bucket, which takes the fourth place as link.
//!
//! **Growth.** Linear hashing (Litwin, 1980): the table grows and shrinks by one bucket at a time.
//! With `2^level + split` buckets, a hash belongs to bucket `hash mod 2^(level+1)` if there is one,
//! else to `hash mod 2^level`. Growing divides bucket `split` into itself and the new last one;
//! that touches the items of one bucket, and is all the work there ever is. Buckets live in pages,
//! so nothing is copied when the table grows. A page is as long as a segment, and a mapping of its
//! own, so that what one leaves the other can have.
//!
//! Rejected: doubling with two tables needs half as much again while it lasts; links inside the
//! records cost a cache miss for every wrong item of a bucket.

use super::Time;
use super::segment::{Table, prefetch};

/// Entries of a bucket.
const WAYS: usize = 4;

/// The table grows above this many items for eight buckets, on average, and shrinks below
/// [`SPARSE`].
const DENSE: usize = 22;
const SPARSE: usize = 8;

const LOC_BITS: u32 = 44;
const LOC_MASK: u64 = (1 << LOC_BITS) - 1;
/// The tag is the hash from this bit on.
pub(super) const TAG_SHIFT: u32 = 52;

/// Accesses since the item came into its queue, up to 3.
pub(super) const FREQUENCY: u8 = 0b11;
/// The item was read since it was written.
pub(super) const FETCHED: u8 = 1 << 2;
/// The item is stale.
pub(super) const STALE: u8 = 1 << 3;
/// Somebody has the token.
pub(super) const SENT: u8 = 1 << 4;
/// The entry is a link to an extra bucket.
const LINK: u8 = 1 << 7;

/// Where a record is: a segment's number, counted from 1, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loc(u64);

impl Loc {
    const OFFSET_BITS: u32 = 20;
    /// Bytes that a segment may have.
    pub(super) const SEGMENT_MAX: usize = 1 << Self::OFFSET_BITS;

    pub(super) const fn new(segment: u32, offset: usize) -> Self {
        debug_assert!(offset < Self::SEGMENT_MAX && segment < 1 << 24 && segment > 0);
        Self((segment as u64) << Self::OFFSET_BITS | offset as u64)
    }

    pub(super) const fn segment(self) -> u32 {
        (self.0 >> Self::OFFSET_BITS) as u32
    }

    pub(super) const fn offset(self) -> usize {
        self.0 as usize & (Self::SEGMENT_MAX - 1)
    }

    /// As eight bytes, for a record's table of pieces.
    pub(super) const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(super) const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

/// What the index knows of an item. 12 bits of tag, 8 of marks, 44 of place; expiry; last access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    word: u64,
    /// As in [`super::Expiry`].
    pub(super) expiry: u32,
    /// The last access, or the write.
    pub(super) access: Time,
}

impl Entry {
    const EMPTY: Self = Self {
        word: 0,
        expiry: 0,
        access: Time(0),
    };

    pub(super) const fn new(hash: u64, loc: Loc, marks: u8, expiry: u32, access: Time) -> Self {
        Self {
            word: (hash >> TAG_SHIFT) << TAG_SHIFT | (marks as u64) << LOC_BITS | loc.0,
            expiry,
            access,
        }
    }

    pub(super) const fn loc(&self) -> Loc {
        Loc(self.word & LOC_MASK)
    }

    pub(super) const fn marks(&self) -> u8 {
        (self.word >> LOC_BITS) as u8
    }

    pub(super) const fn set_marks(&mut self, marks: u8) {
        self.word = self.word & !(0xff << LOC_BITS) | (marks as u64) << LOC_BITS;
    }

    pub(super) const fn set_loc(&mut self, loc: Loc) {
        self.word = self.word & !LOC_MASK | loc.0;
    }

    /// Notes an access, and more marks. What does not change is not written, so that a hot line
    /// stays clean.
    #[inline]
    pub(super) fn note(&mut self, now: Time, marks: u8) {
        let old = self.marks();
        let new = (old + u8::from(old & FREQUENCY < FREQUENCY)) | marks;
        if new != old {
            self.set_marks(new);
        }
        if self.access != now {
            self.access = now;
        }
    }

    const fn is_empty(&self) -> bool {
        self.word == 0
    }

    /// Returns the extra bucket that it leads to.
    const fn link(&self) -> Option<At> {
        if self.marks() & LINK == 0 {
            None
        } else {
            Some(At::Extra((self.word & LOC_MASK) as usize))
        }
    }

    const fn to_extra(extra: usize) -> Self {
        Self {
            word: (LINK as u64) << LOC_BITS | extra as u64,
            ..Self::EMPTY
        }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([Entry; WAYS]);

impl Bucket {
    #[inline]
    fn find(&self, hash: u64, is: &mut impl FnMut(Loc) -> bool) -> Option<usize> {
        let fits = |entry: &Entry| {
            let same = entry.word >> TAG_SHIFT == hash >> TAG_SHIFT;
            same && !entry.is_empty() && entry.marks() & LINK == 0
        };
        (0..WAYS).find(|&slot| fits(&self.0[slot]) && is(self.0[slot].loc()))
    }
}

/// A bucket's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Home(usize),
    Extra(usize),
}

/// An entry's address. Good until the next insertion or removal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    at: At,
    slot: usize,
    home: usize,
}

/// Pages of buckets. They are never copied.
struct Pages {
    pages: Vec<Table<Bucket>>,
    /// Buckets of a page, as a power of two.
    bits: u32,
}

impl Pages {
    const fn new(bits: u32) -> Self {
        Self {
            pages: Vec::new(),
            bits,
        }
    }

    /// Buckets of a page.
    const fn page(&self) -> usize {
        1 << self.bits
    }

    fn get(&self, bucket: usize) -> &Bucket {
        &self.pages[bucket >> self.bits][bucket & (self.page() - 1)]
    }

    fn get_mut(&mut self, bucket: usize) -> &mut Bucket {
        let page = self.page();
        &mut self.pages[bucket >> self.bits][bucket & (page - 1)]
    }

    fn grow(&mut self) {
        self.pages
            .push(Table::filled(self.page(), Bucket([Entry::EMPTY; WAYS])));
    }

    fn bytes(&self) -> usize {
        self.pages.len() * self.page() * size_of::<Bucket>()
    }
}

/// The table. See the [module](self).
pub(super) struct Index {
    homes: Pages,
    /// The smallest number of buckets is one page.
    level: u32,
    split: usize,
    extras: Pages,
    /// Extra buckets that are free.
    spare: Vec<u32>,
    items: usize,
    scratch: Vec<Entry>,
}

impl Index {
    /// Makes an empty table with pages of `page_bytes`, a power of two.
    pub(super) fn new(page_bytes: usize) -> Self {
        let bits = (page_bytes / size_of::<Bucket>()).ilog2();
        let mut homes = Pages::new(bits);
        homes.grow();
        let extras = Pages::new(bits);
        let spare = Vec::new();
        let scratch = Vec::new();

        Self {
            homes,
            level: bits,
            split: 0,
            extras,
            spare,
            items: 0,
            scratch,
        }
    }

    /// Items in it.
    pub(super) const fn len(&self) -> usize {
        self.items
    }

    /// Buckets, extra ones not counted. They are numbered from 0, and a bucket's items move to
    /// higher numbers only, unless the table shrinks.
    pub(super) const fn buckets(&self) -> usize {
        (1 << self.level) + self.split
    }

    /// Returns the number of bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.homes.bytes() + self.extras.bytes() + self.spare.capacity() * size_of::<u32>()
    }

    fn home(&self, hash: u64) -> usize {
        // As if all buckets of this level were divided; if this one is not, one bit less.
        let wide = hash as usize & ((2 << self.level) - 1);
        if wide < self.buckets() {
            wide
        } else {
            wide & ((1 << self.level) - 1)
        }
    }

    fn bucket(&self, at: At) -> &Bucket {
        match at {
            At::Home(bucket) => self.homes.get(bucket),
            At::Extra(bucket) => self.extras.get(bucket),
        }
    }

    fn bucket_mut(&mut self, at: At) -> &mut Bucket {
        match at {
            At::Home(bucket) => self.homes.get_mut(bucket),
            At::Extra(bucket) => self.extras.get_mut(bucket),
        }
    }

    /// Returns the entry with this hash whose place `is` the right one.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is: impl FnMut(Loc) -> bool) -> Option<Place> {
        let home = self.home(hash);
        let mut at = At::Home(home);
        loop {
            let bucket = self.bucket(at);
            if let Some(slot) = bucket.find(hash, &mut is) {
                return Some(Place { at, slot, home });
            }
            at = bucket.0[WAYS - 1].link()?;
        }
    }

    /// Returns the same, for looking at the entry and changing it: the short way of a get.
    #[inline]
    pub(super) fn get_mut(
        &mut self,
        hash: u64,
        mut is: impl FnMut(Loc) -> bool,
    ) -> Option<&mut Entry> {
        let home = self.home(hash);
        let bucket = self.homes.get(home);
        match bucket.find(hash, &mut is) {
            Some(slot) => Some(&mut self.homes.get_mut(home).0[slot]),
            // Most buckets have no extra one, and most misses end here.
            None if bucket.0[WAYS - 1].link().is_none() => None,
            None => self.find(hash, is).map(|place| self.entry_mut(place)),
        }
    }

    /// Has the bucket of a hash fetched from memory.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(self.homes.get(self.home(hash)));
    }

    /// Returns the places of what may be the entry with this hash, as far as its first bucket
    /// tells.
    #[inline]
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = Loc> + '_ {
        let Bucket(entries) = self.homes.get(self.home(hash));
        let fits = move |entry: &&Entry| {
            entry.word >> TAG_SHIFT == hash >> TAG_SHIFT
                && !entry.is_empty()
                && entry.marks() & LINK == 0
        };
        entries.iter().filter(fits).map(Entry::loc)
    }

    pub(super) fn entry(&self, place: Place) -> &Entry {
        &self.bucket(place.at).0[place.slot]
    }

    pub(super) fn entry_mut(&mut self, place: Place) -> &mut Entry {
        &mut self.bucket_mut(place.at).0[place.slot]
    }

    /// Adds an entry; then divides a bucket if the table is dense. `rehash` finds the hash of a
    /// record.
    pub(super) fn insert(&mut self, hash: u64, entry: Entry, rehash: impl Fn(Loc) -> u64) {
        self.put(self.home(hash), entry);
        self.items += 1;
        if self.items * 8 > self.buckets() * DENSE {
            self.divide(rehash);
        }
    }

    /// Removes an entry; then joins two buckets if the table is sparse.
    pub(super) fn remove(&mut self, place: Place) -> Entry {
        let entry = std::mem::replace(self.entry_mut(place), Entry::EMPTY);
        self.items -= 1;
        if self.homes.get(place.home).0[WAYS - 1].link().is_some() {
            // Else extra buckets would stay long after their items have gone.
            self.repack(place.home);
        }

        // Two, so that the table shrinks faster than its items go.
        for _ in 0..2 {
            if self.items * 8 < self.buckets() * SPARSE && self.buckets() > self.homes.page() {
                self.join();
            }
        }

        entry
    }

    /// Calls `visit` with each entry of a bucket.
    pub(super) fn visit(&self, bucket: usize, mut visit: impl FnMut(&Entry)) {
        let mut at = At::Home(bucket);
        loop {
            let Bucket(entries) = self.bucket(at);
            entries
                .iter()
                .filter(|entry| !entry.is_empty() && entry.marks() & LINK == 0)
                .for_each(&mut visit);
            let Some(next) = entries[WAYS - 1].link() else {
                return;
            };
            at = next;
        }
    }

    /// Puts an entry into a bucket, or an extra one.
    fn put(&mut self, home: usize, entry: Entry) {
        let mut at = At::Home(home);
        loop {
            let bucket = self.bucket_mut(at);
            if let Some(empty) = bucket.0.iter_mut().find(|entry| entry.is_empty()) {
                *empty = entry;
                return;
            }

            at = match bucket.0[WAYS - 1].link() {
                Some(next) => next,
                None => break,
            };
        }

        let extra = self.extra();
        // The link takes the fourth place, so its entry goes along.
        let last = std::mem::replace(&mut self.bucket_mut(at).0[WAYS - 1], Entry::to_extra(extra));
        self.extras.get_mut(extra).0[..2].copy_from_slice(&[last, entry]);
    }

    /// Returns an empty extra bucket.
    fn extra(&mut self) -> usize {
        if let Some(extra) = self.spare.pop() {
            return extra as usize;
        }
        let page = self.extras.page();
        let first = self.extras.pages.len() * page;
        self.extras.grow();
        self.spare
            .extend((first + 1..first + page).rev().map(|extra| extra as u32));
        first
    }

    /// Empties a bucket into `scratch`, and frees its extra ones.
    fn take(&mut self, home: usize) {
        self.scratch.clear();
        let mut at = At::Home(home);
        loop {
            let Bucket(entries) =
                std::mem::replace(self.bucket_mut(at), Bucket([Entry::EMPTY; WAYS]));
            let link = entries[WAYS - 1].link();
            let items = entries
                .iter()
                .filter(|entry| !entry.is_empty() && entry.marks() & LINK == 0);
            self.scratch.extend(items);
            if let At::Extra(extra) = at {
                self.spare.push(extra as u32);
            }
            let Some(next) = link else { return };

            at = next;
        }
    }

    /// Closes the gaps of a bucket with extra ones.
    fn repack(&mut self, home: usize) {
        self.take(home);
        for index in 0..self.scratch.len() {
            self.put(home, self.scratch[index]);
        }
    }

    fn divide(&mut self, rehash: impl Fn(Loc) -> u64) {
        let from = self.split;
        let to = self.buckets();
        // The new bucket is the first of a page.
        if to & (self.homes.page() - 1) == 0 {
            self.homes.grow();
        }
        self.take(from);
        self.split += 1;
        // Every bucket of the level has been divided: the next one begins at its first.
        if self.split == 1 << self.level {
            self.level += 1;
            self.split = 0;
        }

        for index in 0..self.scratch.len() {
            let entry = self.scratch[index];
            let home = self.home(rehash(entry.loc()));
            debug_assert!(home == from || home == to);
            self.put(home, entry);
        }
    }

    fn join(&mut self) {
        if self.split == 0 {
            self.level -= 1;
            self.split = 1 << self.level;
        }

        self.split -= 1;
        let from = self.buckets();
        let to = self.split;
        self.take(from);
        for index in 0..self.scratch.len() {
            self.put(to, self.scratch[index]);
        }

        // It was the first of its page, and the only one left.
        if from & (self.homes.page() - 1) == 0 {
            self.homes.pages.pop();
        }
    }
}
