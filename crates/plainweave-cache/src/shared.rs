//! What all connections of the cache server share.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Instant;

use plainweave::net::TcpStream;
use plainweave_serve::Listeners;
use plainweave_serve::accept::{ConnectionLimit, Fault};

use super::certificates::{self, Security};
use super::settings::Settings;
use super::{clients, details, hotkeys, memory_budget, pinned, scratch, store, tls, users, watch};
use plainweave_daemon::architecture::Handling;
use plainweave_daemon::console::say;
use plainweave_daemon::replace::Heir;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) store: store::Store,
    pub(crate) clock: store::Clock,
    pub(crate) settings: Settings,
    pub(crate) scratch: scratch::ScratchPool,
    pub(crate) hot: hotkeys::HotKeys,
    pub(crate) details: details::Details,
    pub(crate) watchers: Arc<watch::Watchers>,
    /// Who may use it; none: everybody.
    pub(crate) users: Option<users::Users>,
    /// What those listeners speak that are to be secure.
    pub(crate) tls: Option<tls::Tls>,
    /// Where it listens.
    pub(crate) addresses: Vec<(SocketAddr, Security)>,
    /// And on a Unix socket, too.
    pub(crate) has_unix: bool,
    /// The last wish of a client to have its files read again.
    pub(crate) refreshing: plainweave::sync::Mutex<Refreshing>,
    pub(crate) clients: Arc<clients::Clients>,
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) memory_budget: Arc<memory_budget::MemoryBudget>,
    /// Segments of the store that unread replies hold.
    pub(crate) pinned: Arc<pinned::Pinned>,
    verbosity: AtomicU32,
    stopping: AtomicBool,
    /// The server that goes on with the connections.
    pub(crate) heir: OnceLock<Heir>,
    /// A client has asked for all that has expired to be reclaimed.
    crawl: AtomicBool,
    /// Where commands are carried out.
    pub(crate) handling: Handling,
    /// Where the wish to stop goes.
    stop: mpsc::Sender<()>,
}

/// The last reading of the files of TLS that a client wished for.
#[derive(Debug)]
pub(crate) struct Refreshing {
    /// When it began.
    pub(crate) began: Instant,
    pub(crate) answer: &'static [u8],
    /// The error, as it was said.
    pub(crate) said: String,
}

impl Default for Refreshing {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            answer: b"",
            said: String::new(),
        }
    }
}

impl Cache {
    /// Makes an empty cache, and the channel on which a client's request to stop arrives.
    pub(crate) fn new(store: store::Config, settings: Settings) -> (Self, mpsc::Receiver<()>) {
        let (stop, asked) = mpsc::channel();
        // Beyond it they are let in, to be told that they are too many.
        let most = if settings.maxconns_fast {
            usize::MAX
        } else {
            settings.connections
        };
        let watchers = Arc::new(watch::Watchers::default());
        let wanted = memory_budget::MemoryBudget::wanted(store.memory, store.item_max);
        let memory_budget = memory_budget::MemoryBudget::new(wanted.min(settings.budget));
        let mut store = store::Store::new(store);

        // As much of the store's own memory, whatever else there is.
        let pinned = pinned::Pinned::new(wanted, store.segment_len());
        let tell = watchers.clone();
        store.on_eviction(move |record, now| tell.evicted(record, now));
        let cache = Self {
            store,
            clock: store::Clock::start(),
            scratch: scratch::ScratchPool::new(settings.threads, settings.turns),
            hot: hotkeys::HotKeys::default(),
            details: details::Details::new(b':', false),
            watchers,
            users: None,
            tls: None,
            addresses: Vec::new(),
            has_unix: false,
            refreshing: plainweave::sync::Mutex::new(Refreshing::default()),
            clients: Arc::default(),
            connection_limit: ConnectionLimit::new(most, 0),
            listeners: Arc::default(),
            memory_budget,
            pinned,
            verbosity: AtomicU32::new(settings.verbosity),
            stopping: AtomicBool::new(false),
            heir: OnceLock::new(),
            crawl: AtomicBool::new(false),
            handling: Handling::default(),
            stop,
            settings,
        };

        (cache, asked)
    }

    /// A line on standard error.
    pub(crate) fn tell(&self, text: &str) {
        say(io::stderr(), &format!("plainweave cache: {text}"));
    }

    /// At most 2, as there.
    pub(crate) fn set_verbosity(&self, level: u32) {
        self.verbosity.store(level.min(2), Relaxed);
    }

    pub(crate) fn verbosity(&self) -> u32 {
        self.verbosity.load(Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// The maintenance is to look at all items, as soon as it can without holding anybody up.
    pub(crate) fn ask_to_crawl(&self) {
        self.crawl.store(true, Relaxed);
    }

    /// Returns whether that was asked for since the last time.
    pub(crate) fn is_to_crawl(&self) -> bool {
        self.crawl.swap(false, Relaxed)
    }

    /// The server ends: it accepts no more, connections are not to begin anything, and those that
    /// wait for a command have waited, unless another server goes on with them.
    pub(crate) fn begin_to_stop(&self, heir: Option<Heir>) {
        let goes_on = heir.is_some_and(|heir| self.heir.set(heir).is_ok());
        // First, for those that the rest wakes look at it. Sequentially consistent, as accepting
        // asks for.
        self.stopping.store(true, SeqCst);
        self.listeners.close();
        self.connection_limit.wake();
        if !goes_on {
            self.clients.end();
        }
    }

    /// Returns how many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.connection_limit.connections()
    }

    /// Returns whether there are as many as there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.connections() >= self.settings.connections
    }

    /// Returns whether a connection that another server has accepted, without TLS, is one that a
    /// listener of this one might have accepted so.
    pub(crate) fn is_open_to(&self, stream: &TcpStream) -> bool {
        let Ok(local) = stream.local_addr() else {
            // A Unix socket has no address.
            return self.tls.is_none() || self.has_unix;
        };
        self.tls.is_none() || certificates::is_plain(&self.addresses, local)
    }

    /// With -v it is said why connections have to wait.
    pub(crate) fn report(&self, fault: &Fault<'_>) {
        if self.verbosity() == 0 {
            return;
        }
        match fault {
            Fault::Overload { backlog } => self.tell(&format!(
                "more clients come than can be served: {backlog} may wait from now on"
            )),
            Fault::AtConnectionLimit { max, waiting } => {
                self.tell(&format!("{max} connections are open, and {waiting} wait"));
            }
            // The listener says it.
            _ => {}
        }
    }

    /// A client may and does ask the server to stop.
    pub(crate) fn ask_to_stop(&self) {
        let _ = self.stop.send(());
    }
}
