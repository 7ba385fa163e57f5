//! The limit on a pool's fibers, and why waiting for a place never lasts for ever unnoticed.
//!
//! # Concepts
//! A fiber that is spawned into a pool with a limit takes a *place* first and gives it back when it
//! ends. Without a free place the spawner waits, in order, or is refused if it does not want to.
//!
//! # Why it is hard
//! A spawner may be a fiber that has a place itself. If all fibers of `a` call into `b`, and all
//! fibers of `b` into `a`, each waits for a place that only one of the others could give back. Such
//! a circle may lead through pools without a limit, through scopes, and through one pool alone
//! (whose only fiber spawns another).
//!
//! # Protocol
//! 1. Each fiber with a place records it in its node of the tree of scopes (`fiber/cancel`). So a
//!    waiter finds all places that cannot be given back while it waits: its own, and those of the
//!    fibers that wait for it as their call or their scope's child.
//! 2. A waiter with such places enters itself in [`WAITS`] and looks there, all under one lock. A
//!    pool is *stuck* if every one of its places is blocked by waiters for places in stuck pools.
//!    If that includes the pool that it wants to enter, it is the one that closes the circle: it
//!    takes its entry back and fails.
//! 3. A waiter that gets a place removes its entry, and only then gives the place a number. So a
//!    place that has been granted to a waiter that has not run since is on nobody's record, and its
//!    pool has fewer on record than there are: it does not count as stuck, nor does what waits for
//!    it. The same holds for a place that is free.
//!
//! A circle is closed by the last waiter to enter itself, who sees the others; whatever else
//! changes (a fiber ends, a wait fails) frees a place. Waiters without a place, such as plain
//! threads, block nobody and do not enter.
//!
//! Not seen: waits that pools do not know. A fiber with a place may join, lock or receive, and what
//! it waits for may need that place.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;

use crate::fiber;
use crate::fiber::cancel::PlaceId;
use crate::sync::Semaphore;

/// The limit of one pool.
pub(super) struct Limit {
    id: u64,
    pool: Box<str>,
    most: usize,
    free: Semaphore,
    numbers: AtomicU64,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Place {
    limit: Arc<Limit>,
    id: PlaceId,
}

/// What a spawner wants when there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenFull {
    Wait,
    Refuse,
}

/// A waiter that keeps places from being given back.
struct Wait {
    places: Vec<PlaceId>,
    target: Arc<Limit>,
}

/// All such waiters of the process.
struct Waits {
    waits: Slab<Wait>,
    /// How often their places belong to each limit.
    blocked: BTreeMap<u64, usize>,
}

static WAITS: Mutex<Waits> = Mutex::new(Waits {
    waits: Slab::new(),
    blocked: BTreeMap::new(),
});

impl Limit {
    /// Creates the limit of the pool of that name, of at least one place.
    pub(super) fn new(pool: &str, most: usize) -> Arc<Self> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            pool: pool.into(),
            most,
            free: Semaphore::new(most),
            numbers: AtomicU64::new(0),
        })
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes a place.
    ///
    /// # Errors
    /// There is none, and the caller does not want to wait, or would for ever; or it was cancelled,
    /// or ran into its deadline, while it waited.
    pub(super) fn enter(self: &Arc<Self>, when_full: WhenFull) -> io::Result<Place> {
        if let Some(permit) = self.free.try_acquire() {
            permit.forget();
        } else if when_full == WhenFull::Refuse {
            let text = format!(
                "the pool '{}' is full: it has {} fibers, its limit",
                self.pool, self.most
            );
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        } else {
            self.wait()?;
        }

        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Ok(Place {
            limit: self.clone(),
            id: PlaceId {
                limit: self.id,
                number,
            },
        })
    }

    #[cold]
    fn wait(self: &Arc<Self>) -> io::Result<()> {
        let places =
            fiber::current().and_then(|me| me.own.node.borrow().as_ref().map(|node| node.places()));
        let places = places.unwrap_or_default();
        if places.is_empty() {
            self.free.acquire()?.forget();
            return Ok(());
        }

        let key = Waits::lock().begin(places, self)?;
        let waited = self.free.acquire();
        Waits::lock().end(key);
        waited?.forget();

        Ok(())
    }

    /// Lets nobody in any more, and ends all waits for a place with an error, because the pool is
    /// ending.
    pub(super) fn close(&self) {
        self.free.close();
    }
}

impl Waits {
    fn lock() -> MutexGuard<'static, Self> {
        WAITS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a waiter for `target`, which keeps these places from being given back.
    ///
    /// # Errors
    /// It would close a circle.
    fn begin(&mut self, places: Vec<PlaceId>, target: &Arc<Limit>) -> io::Result<usize> {
        for place in &places {
            *self.blocked.entry(place.limit).or_default() += 1;
        }
        let key = self.waits.insert(Wait {
            places,
            target: target.clone(),
        });

        let stuck = self.stuck(target);
        if stuck.is_empty() {
            return Ok(key);
        }
        self.end(key);
        Err(io::Error::new(
            io::ErrorKind::Deadlock,
            circle(target, &stuck),
        ))
    }

    fn end(&mut self, key: usize) {
        for place in self.waits.remove(key).places {
            let count = self.blocked.get_mut(&place.limit).expect("counted");
            *count -= 1;
            if *count == 0 {
                self.blocked.remove(&place.limit);
            }
        }
    }

    /// Returns the stuck pools, if `target` is one.
    fn stuck(&self, target: &Arc<Limit>) -> Vec<Arc<Limit>> {
        if !self.may_be_stuck(target) {
            return Vec::new();
        }
        let mut pools: BTreeMap<u64, &Arc<Limit>> = self
            .waits
            .iter()
            .map(|(_, w)| (w.target.id, &w.target))
            .collect();
        pools.retain(|_, pool| self.may_be_stuck(pool));

        loop {
            let before = pools.len();
            let waits = self
                .waits
                .iter()
                .filter(|(_, wait)| pools.contains_key(&wait.target.id));
            let mut places: Vec<_> = waits
                .flat_map(|(_, wait)| wait.places.iter().copied())
                .collect();
            places.sort_unstable();
            places.dedup();
            pools.retain(|id, pool| {
                places.iter().filter(|place| place.limit == *id).count() >= pool.most
            });
            if !pools.contains_key(&target.id) {
                return Vec::new();
            }
            if pools.len() == before {
                return pools.into_values().cloned().collect();
            }
        }
    }

    /// Returns whether all places of a pool may be blocked: whether they would be if no two waiters
    /// kept the same one.
    fn may_be_stuck(&self, pool: &Limit) -> bool {
        let blocked = self.blocked.get(&pool.id);
        blocked.is_some_and(|count| *count >= pool.most)
    }
}

/// Says which pools wait for each other.
fn circle(target: &Limit, stuck: &[Arc<Limit>]) -> String {
    let others = stuck.iter().filter(|pool| pool.id != target.id);
    let pools: Vec<_> = std::iter::once(target)
        .chain(others.map(|pool| &**pool))
        .collect();
    let names: Vec<_> = pools
        .iter()
        .map(|pool| format!("'{}' ({} fibers)", pool.pool, pool.most))
        .collect();
    let names = names.join(" and ");
    let pool = &target.pool;

    format!(
        "waiting for room in the pool '{pool}' would never end: all fibers of {names} wait for room in these pools"
    )
}

impl Place {
    pub(super) fn id(&self) -> PlaceId {
        self.id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The fiber may go on, in destructors that its closure leaves behind, and wait for a place
        // itself.
        if let Some(node) = fiber::current().and_then(|me| me.own.node.borrow().clone()) {
            node.give_back(self.id);
        }
        self.limit.free.release();
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the pool '{}' of at most {} fibers",
            self.pool, self.most
        )
    }
}
