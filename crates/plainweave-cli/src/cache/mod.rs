//! `plainweave cache`: a server that speaks memcached's protocol.
//!
//! [`store`] keeps the items; it does no I/O and knows nothing of fibers. `proto` reads commands, `exec` carries them
//! out, `session` joins the two for one connection; none of them does I/O either. `conn` is the loop of a connection,
//! `server` the glue to the runtime. What is counted on the way is in `tally`, `hotkeys` and `details`, and goes out by
//! `stats`, `admin` and `watch`.

mod admin;
mod clients;
mod conn;
mod details;
mod dump;
mod exec;
mod exec_meta;
mod extended;
mod flags;
mod hotkeys;
mod lanes;
mod listen;
mod proto;
mod reply;
mod server;
mod session;
mod settings;
mod stats;
pub mod store;
mod tally;
mod watch;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context;

use crate::stop::Stop;
use crate::web::say;
pub(crate) use flags::Flags;
use settings::Settings;

/// What `version` says: the memcached whose protocol this is, and ourselves.
macro_rules! version {
    () => {
        concat!("1.6.18-plainweave-", env!("CARGO_PKG_VERSION"))
    };
}
pub(crate) use version;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) store: store::Store,
    pub(crate) clock: store::Clock,
    pub(crate) settings: Settings,
    pub(crate) lanes: lanes::Lanes,
    pub(crate) hot: hotkeys::HotKeys,
    pub(crate) details: details::Details,
    pub(crate) watchers: Arc<watch::Watchers>,
    pub(crate) clients: Arc<clients::Clients>,
    verbosity: AtomicU32,
    stopping: AtomicBool,
    /// Where the wish to stop goes.
    stop: mpsc::Sender<()>,
}

impl Cache {
    /// An empty cache, and where a client's wish that it stop arrives.
    pub(crate) fn new(store: store::Config, settings: Settings) -> (Self, mpsc::Receiver<()>) {
        let (stop, asked) = mpsc::channel();
        let watchers = Arc::new(watch::Watchers::default());
        let mut store = store::Store::new(store);
        let tell = watchers.clone();
        store.on_eviction(move |record, now| tell.evicted(record, now));
        let cache = Self {
            store,
            clock: store::Clock::start(),
            lanes: lanes::Lanes::new(settings.threads),
            hot: hotkeys::HotKeys::default(),
            details: details::Details::new(b':', false),
            watchers,
            clients: Arc::new(clients::Clients::new(settings.connections)),
            verbosity: AtomicU32::new(settings.verbosity),
            stopping: AtomicBool::new(false),
            stop,
            settings,
        };
        (cache, asked)
    }

    /// At most 2, as there.
    pub(crate) fn set_verbosity(&self, level: u32) {
        self.verbosity.store(level.min(2), Relaxed);
    }

    pub(crate) fn verbosity(&self) -> u32 {
        self.verbosity.load(Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// A client may and does ask the server to stop.
    pub(crate) fn ask_to_stop(&self) {
        let _ = self.stop.send(());
    }
}

/// Serves until a signal asks to stop.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let engine = &flags.engine;
    let runtime = crate::engine::start("cache", engine.threads, engine.io, engine.policy.as_deref())?;
    let settings = Settings::of(flags, runtime.workers());
    let config = store::Config {
        memory: (flags.memory.memory_limit.get() as usize) << 20,
        item_max: flags.memory.max_item_size,
        evict: !flags.memory.disable_evictions,
        // One worker shares with nobody but the maintenance, which it runs itself.
        shards: if runtime.workers() == 1 { 1 } else { 4 * runtime.workers() },
    };
    let (mut cache, asked) = Cache::new(config, settings);
    if let Some(delimiter) = flags.allowed.prefix_delimiter {
        let delimiter = u8::try_from(delimiter).context("-D takes one ASCII character")?;
        cache.details = details::Details::new(delimiter, true);
    }
    let listeners = listen::all(&flags.listen)?;
    let stop = Stop::install().context("the signals could not be caught")?;
    let extended = flags.limits.extended();
    for name in flags.meaningless.given().into_iter().chain(extended.meaningless.iter().map(String::as_str)) {
        say(io::stderr(), &format!("plainweave cache: {name} is accepted and means nothing here"));
    }
    if let Some(path) = &engine.pidfile {
        let written = std::fs::write(path, format!("{}\n", std::process::id()));
        written.with_context(|| format!("cannot write {} (give another file with -P)", path.display()))?;
    }
    say(io::stdout(), &format!("plainweave cache: {} ({})", listeners, crate::engine::Described(&runtime)));
    let server = server::Server::new(runtime, cache, flags.engine.fiber_per_connection);
    let finished = server.run(listeners, stop, asked, Duration::from_secs(flags.limits.grace.into()))?;
    if let Some(path) = &engine.pidfile {
        let _ = std::fs::remove_file(path);
    }
    if !finished {
        say(io::stderr(), "plainweave cache: stopped with commands in progress; --grace gives them longer");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
