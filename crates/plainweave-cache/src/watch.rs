//! `watch`: events as lines, for clients that asked for them.
//!
//! An event is worded once and handed to each watcher's buffer. A watcher that reads too slowly
//! loses events rather than delay commands; it is notified how many were lost.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plainweave::Fiber;
use plainweave::net::TcpStream;

use super::proto::Verb;
use super::store::{Record, Stored, Time};
use super::stream::Stream;

/// Bits of the kinds of events, in the order of `WATCHES`.
const EVICTIONS: u16 = 1 << 0;
pub(crate) const FETCHERS: u16 = 1 << 1;
pub(crate) const MUTATIONS: u16 = 1 << 2;
pub(crate) const CONNEVENTS: u16 = 1 << 3;
/// Bytes that wait for one watcher.
const BUFFER: usize = 256 << 10;
/// Watchers at a time.
const WATCHERS: usize = 20;

/// What has happened.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    Get {
        key: &'a [u8],
        found: bool,
        client: u64,
        size: usize,
    },
    Store {
        key: &'a [u8],
        stored: Stored,
        verb: Verb,
        ttl: u32,
        client: u64,
        size: usize,
    },
    Evicted {
        record: &'a Record<'a>,
        now: Time,
    },
    Opened {
        client: u64,
        peer: &'a str,
    },
    Closed {
        client: u64,
        peer: &'a str,
        reason: &'static str,
    },
}

/// All watchers.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// Kinds that are being watched.
    kinds: AtomicU16,
    list: Mutex<Vec<Arc<Watcher>>>,
    events: AtomicU64,
    skipped: AtomicU64,
}

#[derive(Debug)]
struct Watcher {
    kinds: u16,
    buffer: Mutex<Vec<u8>>,
    fiber: Fiber,
    gone: AtomicBool,
}

impl Watchers {
    /// Returns the kinds of events that are being watched.
    pub(crate) fn kinds(&self) -> u16 {
        self.kinds.load(Relaxed)
    }

    /// Watchers, and events that some of them have lost.
    pub(crate) fn figures(&self) -> (usize, u64) {
        (self.lock().len(), self.skipped.load(Relaxed))
    }

    /// Sends an event to all watchers of its kind; counts it for those whose buffer is full.
    pub(crate) fn send(&self, kind: u16, event: &Event<'_>) {
        let line = worded(event, self.events.fetch_add(1, Relaxed) + 1);
        for watcher in self
            .lock()
            .iter()
            .filter(|watcher| watcher.kinds & kind != 0)
        {
            let mut buffer = watcher
                .buffer
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if buffer.len() + line.len() > BUFFER {
                self.skipped.fetch_add(1, Relaxed);
                continue;
            }

            let wake = buffer.is_empty();
            buffer.extend_from_slice(line.as_bytes());
            drop(buffer);
            if wake {
                watcher.fiber.unpark();
            }
        }
    }

    /// The store, under a shard's lock, with an item that is about to go.
    pub(crate) fn evicted(&self, record: &Record<'_>, now: Time) {
        if self.kinds() & EVICTIONS != 0 {
            self.send(EVICTIONS, &Event::Evicted { record, now });
        }
    }

    /// Sends events of these kinds until the client leaves or the server stops.
    /// `reader`: the socket below.
    pub(crate) fn watch(&self, kinds: u16, stream: &mut Stream, reader: TcpStream) {
        let fiber = plainweave::current();
        let watcher = Arc::new(Watcher {
            kinds,
            buffer: Mutex::default(),
            fiber,
            gone: AtomicBool::new(false),
        });

        if self.lock().len() >= WATCHERS {
            let _ = say(stream, b"WATCHER_TOO_MANY log watcher limit reached\r\n");
            return;
        }

        self.change(|list| list.push(watcher.clone()));
        if let Ok(reader) = reader.try_clone() {
            let watcher = watcher.clone();
            plainweave::spawn(move || until_gone(reader, &watcher));
        }

        if say(stream, b"OK\r\n").is_ok() {
            watcher.serve(stream);
        }
        self.change(|list| list.retain(|other| !Arc::ptr_eq(other, &watcher)));
        stream.end();
        let _ = reader.shutdown(std::net::Shutdown::Both);
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Watcher>>)) {
        let mut list = self.lock();
        change(&mut list);
        self.kinds.store(
            list.iter().fold(0, |kinds, watcher| kinds | watcher.kinds),
            Relaxed,
        );
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Watcher>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    fn serve(&self, stream: &mut Stream) {
        while !self.gone.load(Relaxed) {
            let lines =
                std::mem::take(&mut *self.buffer.lock().unwrap_or_else(PoisonError::into_inner));
            let done = if lines.is_empty() {
                plainweave::park()
            } else {
                say(stream, &lines)
            };

            if done.is_err() {
                return;
            }
        }
    }
}

fn say(stream: &mut Stream, lines: &[u8]) -> io::Result<()> {
    stream.write_all(lines)?;
    stream.flush()
}

/// Reads what the client sends, which means nothing any more, until it leaves. Over TLS it is not
/// decrypted.
fn until_gone(mut stream: TcpStream, watcher: &Watcher) {
    while let Ok(1..) = stream.read(&mut [0; 512]) {}
    watcher.gone.store(true, Relaxed);
    watcher.fiber.unpark();
}

/// Returns the event in memcached's words.
fn worded(event: &Event<'_>, number: u64) -> String {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut line = format!(
        "ts={}.{} gid={number} type=",
        time.as_secs(),
        time.subsec_micros()
    );
    let _ = match event {
        Event::Get {
            key,
            found,
            client,
            size,
        } => {
            let status = if *found { "found" } else { "not_found" };
            writeln!(
                line,
                "item_get key={} status={status} clsid=0 cfd={client} size={size}",
                Escaped(key)
            )
        }
        Event::Store {
            key,
            stored,
            verb,
            ttl,
            client,
            size,
        } => {
            let status = status(*stored);
            let verb = format!("{verb:?}").to_lowercase();
            let key = Escaped(key);
            writeln!(
                line,
                "item_store key={key} status={status} cmd={verb} ttl={ttl} clsid=0 cfd={client} size={size}"
            )
        }
        Event::Evicted { record, now } => {
            let key = Escaped(record.key);
            let fetch = if record.fetched { "yes" } else { "no" };
            let ttl = record
                .expiry
                .time()
                .map_or(-1, |end| i64::from(end.since(*now)));
            let la = now.since(record.access);
            let class = record.class + 1;
            let size = record.size;

            writeln!(
                line,
                "eviction key={key} fetch={fetch} ttl={ttl} la={la} clsid={class} size={size}"
            )
        }
        Event::Opened { client, peer } => writeln!(line, "conn_new {peer} cfd={client}"),
        Event::Closed {
            client,
            peer,
            reason,
        } => writeln!(line, "conn_close {peer} reason={reason} cfd={client}"),
    };

    line
}

fn status(stored: Stored) -> &'static str {
    match stored {
        Stored::Stored { .. } => "stored",
        Stored::NotStored => "not_stored",
        Stored::Exists => "exists",
        Stored::NotFound => "not_found",
        Stored::TooLarge => "too_large",
        Stored::OutOfMemory => "no_memory",
    }
}

/// A key with all but letters, digits and `-._~` percent-encoded.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in self.0 {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    f.write_char(char::from(*byte))?
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}
