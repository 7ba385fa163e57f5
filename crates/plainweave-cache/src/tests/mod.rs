//! The protocol without a socket: bytes in, bytes out.

mod fuzz;
mod packet;
mod packets;
mod script;

use super::Cache;
use super::exec::{After, Exec};
use super::reply::{OUTPUT, Replies};
use super::scratch::Work;
use super::session::{Session, Step};
use super::settings::Settings;
use super::store::{Config, Time};

/// A cache and one connection to it.
pub(crate) struct Rig {
    pub(crate) cache: Cache,
    session: Session,
    work: Work,
    rest: Vec<u8>,
    /// The time of all commands: it stands still, so that what is left of an item's time is known.
    now: Time,
    /// The most that has piled up for one send.
    pub(crate) piled: usize,
    /// What the connection is to become, once it is no longer one.
    pub(crate) ended: Option<After>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let config = Config {
            memory: 8 << 20,
            item_max: 64 << 10,
            ..Config::default()
        };

        let (cache, _) = Cache::new(config, settings);
        let now = cache.clock.now();
        let work = Work {
            out: Replies::default(),
            tally: Default::default(),
            sampler: Default::default(),
        };

        Self {
            cache,
            session: Session::default(),
            work,
            rest: Vec::new(),
            now,
            piled: 0,
            ended: None,
        }
    }

    /// Another connection to the same cache.
    pub(crate) fn reconnect(&mut self) {
        (self.session, self.rest, self.ended) = (Session::default(), Vec::new(), None);
    }

    /// Hands in bytes and takes all replies. Nothing is answered once the connection has ended.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut replies = Vec::new();
        self.rest.extend_from_slice(bytes);
        while self.ended.is_none() {
            let mut exec = Exec::new(&self.cache, &mut self.work, 1);
            exec.now = self.now;
            let (done, step) =
                self.session
                    .run(&self.rest, &mut exec, self.cache.settings.commands);
            self.rest.drain(..done);

            // As the loop of a connection does.
            if step == Step::Busy && self.work.out.len() < OUTPUT {
                continue;
            }
            self.piled = self.piled.max(self.work.out.len());
            self.work
                .out
                .pieces()
                .iter()
                .for_each(|piece| replies.extend_from_slice(piece));
            self.work.out.clear();

            match step {
                Step::Hungry => break,
                Step::Busy => {}
                Step::End(after) => self.ended = Some(after),
            }
        }

        replies
    }

    /// Bytes that the connection holds for a command that is not complete.
    pub(crate) fn held(&self) -> usize {
        self.rest.len()
    }
}
