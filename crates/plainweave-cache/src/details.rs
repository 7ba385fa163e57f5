//! `stats detail`: figures by key prefix, when they are switched on.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Prefixes that are followed; keys of others are not counted.
const PREFIXES: usize = 10_000;

/// Figures by prefix. Off, it costs a load.
#[derive(Debug)]
pub(crate) struct Details {
    on: AtomicBool,
    delimiter: u8,
    prefixes: Mutex<BTreeMap<Box<[u8]>, Figures>>,
}

#[derive(Debug, Default)]
struct Figures {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

impl Details {
    pub(crate) fn new(delimiter: u8, on: bool) -> Self {
        Self {
            on: AtomicBool::new(on),
            delimiter,
            prefixes: Mutex::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    pub(crate) fn delimiter(&self) -> char {
        char::from(self.delimiter)
    }

    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    pub(crate) fn get(&self, key: &[u8], hit: bool) {
        self.note(key, |figures| {
            figures.gets += 1;
            figures.hits += u64::from(hit);
        });
    }

    pub(crate) fn set(&self, key: &[u8]) {
        self.note(key, |figures| figures.sets += 1);
    }

    pub(crate) fn delete(&self, key: &[u8]) {
        self.note(key, |figures| figures.deletes += 1);
    }

    /// All prefixes, as `stats detail dump` answers.
    pub(crate) fn dump(&self, out: &mut Vec<u8>) {
        for (prefix, figures) in self.lock().iter() {
            let Figures {
                gets,
                hits,
                sets,
                deletes,
            } = figures;
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            let mut text = String::new();
            let _ = write!(text, " get {gets} hit {hits} set {sets} del {deletes}\r\n");

            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(b"END\r\n");
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn note(&self, key: &[u8], change: impl FnOnce(&mut Figures)) {
        let Some(end) = memchr::memchr(self.delimiter, key) else {
            return;
        };
        let mut prefixes = self.lock();
        if let Some(figures) = prefixes.get_mut(&key[..end]) {
            change(figures);
        } else if prefixes.len() < PREFIXES {
            change(prefixes.entry(key[..end].into()).or_default());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Box<[u8]>, Figures>> {
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
