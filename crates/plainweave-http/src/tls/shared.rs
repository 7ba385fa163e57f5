//! What the TLS connections of an acceptor share: certificates, the stage that computes, counts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use rustls::ServerConfig;

use super::config::{Config, Loaded};
use super::error::Error;
use super::stage::Stage;

type Hook = Box<dyn Fn(&Error, Option<SocketAddr>) + Send + Sync>;

/// See [`super::Acceptor`].
pub(super) struct Shared {
    config: Config,
    loaded: RwLock<Arc<Loaded>>,
    /// Held from the reading of the files to their use, so that of two reloads at once the one that
    /// has read last is the one that stays. Nothing suspends a fiber meanwhile.
    reloads: Mutex<()>,
    pub(super) stage: Stage,
    on_failure: OnceLock<Hook>,
    completed: AtomicU64,
    resumed: AtomicU64,
    failed: AtomicU64,
}

/// Handshakes so far. See [`Acceptor::counts`](super::Acceptor::counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Those that have succeeded.
    pub completed: u64,
    /// Those of them that took up an earlier session.
    pub resumed: u64,
    /// Those that have failed, for whatever reason.
    pub failed: u64,
}

impl Shared {
    pub(super) fn new(config: Config) -> Result<Self, Error> {
        let loaded = RwLock::new(Arc::new(Loaded::read(&config, None)?));
        let completed = AtomicU64::new(0);
        let resumed = AtomicU64::new(0);
        let failed = AtomicU64::new(0);
        let stage = Stage::new(config.handshakes);
        let on_failure = OnceLock::new();
        let reloads = Mutex::new(());
        Ok(Self {
            config,
            loaded,
            reloads,
            stage,
            on_failure,
            completed,
            resumed,
            failed,
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Reads the files of all of them again, and takes up all of them or none.
    pub(super) fn reload(all: &[&Self]) -> Result<(), Error> {
        let alone = all.iter().map(|one| &one.reloads);
        let _alone: Vec<_> = alone
            .map(|reloads| reloads.lock().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let read = all
            .iter()
            .map(|one| Loaded::read(&one.config, Some(&one.loaded())));
        let read: Vec<_> = read.collect::<Result<_, _>>()?;

        for (one, loaded) in all.iter().zip(read) {
            *one.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        }
        Ok(())
    }

    /// Sets the hook, unless there is one.
    pub(super) fn on_failure(&self, hook: Hook) {
        let _ = self.on_failure.set(hook);
    }

    pub(super) fn counts(&self) -> Counts {
        let Self {
            completed,
            resumed,
            failed,
            ..
        } = self;
        // In this order: of those that it counts, none is missing in the others.
        let resumed = resumed.load(Relaxed);
        Counts {
            completed: completed.load(Relaxed),
            resumed,
            failed: failed.load(Relaxed),
        }
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        self.loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns what a handshake that begins now goes by. `multiplexes`: its connection can speak
    /// HTTP/2.
    pub(super) fn for_handshake(
        &self,
        name: Arc<OnceLock<String>>,
        multiplexes: bool,
    ) -> Arc<ServerConfig> {
        self.loaded().for_handshake(name, multiplexes)
    }

    pub(super) fn completed(&self, resumed: bool) {
        self.completed.fetch_add(1, Relaxed);
        self.resumed.fetch_add(u64::from(resumed), Relaxed);
    }

    pub(super) fn failed(&self, error: &Error, peer: Option<SocketAddr>) {
        self.failed.fetch_add(1, Relaxed);
        if let Some(hook) = self.on_failure.get() {
            hook(error, peer);
        }
    }
}
