//! The cases: how each crate is set up, and what each fiber does with it.

use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::sync::{Arc, LazyLock, OnceLock};

/// A crate, and what is done with it.
pub struct Case {
    pub name: &'static str,
    pub what: &'static str,
    /// What the page says of it.
    pub note: &'static str,
    pub set_up: fn(),
    pub uses: fn(),
    pub limits: Limits,
}

/// What 10,000 fibers may take each at most, some three times what was measured.
pub struct Limits {
    pub us: f64,
    pub kib: f64,
    /// Some of them panic, and the page says so.
    pub fails: bool,
}

const fn limits(us: f64, kib: f64) -> Limits {
    Limits {
        us,
        kib,
        fails: false,
    }
}

fn nothing() {}

macro_rules! case {
    ($name:literal, $what:literal, $note:literal, $set_up:expr, $limits:expr, $uses:expr) => {
        Case {
            name: $name,
            what: $what,
            note: $note,
            set_up: $set_up,
            uses: $uses,
            limits: $limits,
        }
    };
}

static LOCK: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);
static CONFIG: LazyLock<arc_swap::ArcSwap<u64>> =
    LazyLock::new(|| arc_swap::ArcSwap::from_pointee(7));
static MAP: LazyLock<dashmap::DashMap<u64, u64>> = LazyLock::new(dashmap::DashMap::new);
static EACH: LazyLock<thread_local::ThreadLocal<Cell<u64>>> =
    LazyLock::new(thread_local::ThreadLocal::new);
static WORDS: once_cell::sync::Lazy<Vec<u64>> = once_cell::sync::Lazy::new(|| vec![1, 2, 3]);
static DATE: LazyLock<regex::Regex> =
    LazyLock::new(|| regex::Regex::new(r"^(\d{4})-(\d{2})-(\d{2})$").expect("it is one"));
static REQUESTS: LazyLock<prometheus::IntCounterVec> = LazyLock::new(|| {
    let options = prometheus::Opts::new("requests", "what came");
    prometheus::IntCounterVec::new(options, &["method"]).expect("names")
});
static POOL: OnceLock<r2d2::Pool<Numbers>> = OnceLock::new();

/// Connections that are numbers.
struct Numbers;

impl r2d2::ManageConnection for Numbers {
    type Connection = u64;
    type Error = std::io::Error;

    fn connect(&self) -> Result<u64, Self::Error> {
        Ok(0)
    }

    fn is_valid(&self, _: &mut u64) -> Result<(), Self::Error> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u64) -> bool {
        false
    }
}

pub const CASES: &[Case] = &[
    case!(
        "(nothing)",
        "what the fiber itself takes; the others are without it",
        "",
        nothing,
        limits(60.0, 40.0),
        nothing
    ),
    case!(
        "std `HashMap`",
        "a map with a key",
        "keys of the hash, once a fiber",
        nothing,
        limits(10.0, 2.0),
        || {
            let mut map = HashMap::new();
            map.insert(black_box(1u64), 2u64);
            black_box(map.get(&1));
        }
    ),
    case!(
        "anyhow",
        "an error with a context",
        "",
        nothing,
        limits(10.0, 2.0),
        || {
            let error = anyhow::anyhow!("no such user").context("login");
            black_box(error.to_string());
        }
    ),
    case!(
        "arc-swap",
        "`ArcSwap::load`",
        "the first load of a fiber searches a list of all",
        || drop(CONFIG.load()),
        limits(3000.0, 3.0),
        || {
            black_box(**CONFIG.load());
        }
    ),
    case!(
        "arc-swap, `with_worker_storage`",
        "`load_full` in it",
        "",
        || drop(CONFIG.load()),
        limits(20.0, 2.0),
        || {
            black_box(plainweave::with_worker_storage(|| CONFIG.load_full()));
        }
    ),
    case!(
        "bytes",
        "`BytesMut`, frozen and shared",
        "",
        nothing,
        limits(10.0, 2.0),
        || {
            let mut buffer = bytes::BytesMut::with_capacity(256);
            buffer.extend_from_slice(b"HTTP/1.1 200 OK");
            black_box(buffer.freeze().clone());
        }
    ),
    case!(
        "chrono",
        "`Local::now`",
        "the time zone is read once a fiber",
        nothing,
        limits(200.0, 16.0),
        || {
            black_box(chrono::Local::now().to_rfc3339());
        }
    ),
    case!(
        "crossbeam-channel",
        "`send` and `try_recv`",
        "",
        nothing,
        limits(10.0, 4.0),
        || {
            let (sender, receiver) = crossbeam_channel::bounded(4);
            sender.send(7u64).expect("room");
            assert_eq!(receiver.try_recv(), Ok(7));
        }
    ),
    case!(
        "crossbeam-epoch",
        "`pin`",
        "a record for each fiber, in a list that collections walk",
        nothing,
        limits(400.0, 16.0),
        || {
            drop(crossbeam_epoch::pin());
        }
    ),
    case!(
        "crossbeam-epoch, `with_worker_storage`",
        "`pin` in it",
        "",
        nothing,
        limits(20.0, 2.0),
        || plainweave::with_worker_storage(|| drop(crossbeam_epoch::pin()))
    ),
    case!(
        "dashmap",
        "`insert` and `get`",
        "",
        nothing,
        limits(10.0, 2.0),
        || {
            MAP.insert(black_box(7), 8);
            black_box(MAP.get(&7).map(|value| *value));
        }
    ),
    case!(
        "flate2",
        "1 KiB compressed",
        "64 KiB of the stack, which [go back](stacks.md)",
        nothing,
        limits(400.0, 100.0),
        || {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&[b'x'; 1024]).expect("to memory");
            black_box(encoder.finish().expect("to memory"));
        }
    ),
    case!(
        "flume",
        "`send` and `try_recv`",
        "",
        nothing,
        limits(10.0, 4.0),
        || {
            let (sender, receiver) = flume::bounded(4);
            sender.send(7u64).expect("room");
            assert_eq!(receiver.try_recv(), Ok(7));
        }
    ),
    case!(
        "log, env_logger",
        "a line",
        "a buffer for each fiber",
        || {
            let sink = Box::new(std::io::sink());
            env_logger::Builder::new()
                .filter_level(log::LevelFilter::Info)
                .target(env_logger::Target::Pipe(sink))
                .init();
        },
        limits(40.0, 6.0),
        || log::info!("request {} served", black_box(7))
    ),
    case!(
        "once_cell",
        "`Lazy`",
        "",
        nothing,
        limits(10.0, 2.0),
        || {
            black_box(WORDS.len());
        }
    ),
    case!(
        "parking_lot",
        "`Mutex`",
        "",
        nothing,
        limits(10.0, 2.0),
        || {
            *LOCK.lock() += 1;
        }
    ),
    case!(
        "prometheus",
        "a counter with a label",
        "",
        nothing,
        limits(10.0, 2.0),
        || {
            REQUESTS.with_label_values(&["GET"]).inc();
        }
    ),
    case!(
        "r2d2",
        "a connection of ten",
        "",
        || {
            let pool = r2d2::Pool::builder().max_size(10).build(Numbers);
            assert!(POOL.set(pool.expect("connections")).is_ok());
        },
        limits(60.0, 4.0),
        || {
            let pool = POOL.get().expect("set up");
            *pool.get().expect("a connection") += 1;
        }
    ),
    case!(
        "rand",
        "`rand::rng`",
        "a generator for each fiber, seeded by the kernel",
        nothing,
        limits(20.0, 3.0),
        || {
            black_box(rand::random::<u64>());
        }
    ),
    case!(
        "rayon",
        "`join` of two small functions",
        "the worker waits for rayon's threads",
        || {
            rayon::join(nothing, nothing);
        },
        limits(200.0, 4.0),
        || {
            black_box(rayon::join(|| black_box(1), || black_box(2)));
        }
    ),
    case!(
        "regex",
        "`captures`",
        "",
        || assert!(!DATE.is_match("")),
        limits(40.0, 3.0),
        || {
            let found = DATE.captures(black_box("2026-11-28")).expect("a date");
            black_box(found.get(1).map(|year| year.as_str().len()));
        }
    ),
    case!(
        "serde_json",
        "a value, read and written",
        "",
        nothing,
        limits(20.0, 3.0),
        || {
            let value: serde_json::Value =
                serde_json::from_str(black_box(r#"{"user":7,"tags":["a","b"]}"#)).expect("JSON");
            black_box(value.to_string());
        }
    ),
    case!(
        "thread_local",
        "`get_or`",
        "",
        nothing,
        limits(10.0, 2.0),
        || {
            let count = EACH.get_or(|| Cell::new(0));
            count.set(count.get() + 1);
        }
    ),
    case!(
        "tokio, sync",
        "`mpsc`, by `block_on`",
        "",
        nothing,
        limits(20.0, 4.0),
        || {
            let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
            sender.try_send(7u64).expect("room");
            assert_eq!(
                plainweave::future::block_on(receiver.recv()).ok().flatten(),
                Some(7)
            );
        }
    ),
    case!(
        "tracing, tracing-subscriber",
        "a span and an event",
        "its registry knows 4,096 threads: take plainweave-tracing's",
        || {
            tracing_subscriber::fmt()
                .with_writer(std::io::sink)
                .with_max_level(tracing::Level::INFO)
                .init();
        },
        Limits {
            us: 200.0,
            kib: 12.0,
            fails: true
        },
        in_a_span
    ),
    case!(
        "tracing, plainweave-tracing",
        "the same",
        "",
        || {
            use tracing_subscriber::layer::SubscriberExt;
            let layer = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
            let all = plainweave_tracing::registry().with(layer);
            tracing::subscriber::set_global_default(all).expect("the first");
        },
        limits(60.0, 6.0),
        in_a_span
    ),
    case!(
        "uuid",
        "`new_v4`",
        "a system call each",
        nothing,
        limits(20.0, 2.0),
        || {
            black_box(uuid::Uuid::new_v4());
        }
    ),
];

fn in_a_span() {
    let span = tracing::info_span!("request", id = 7);
    let _entered = span.enter();
    tracing::info!("served");
    black_box(Arc::new(7));
}
