//! Cancellation and deadlines: a tree of scopes, and an ordinary error at the leaves.
//!
//! * A fiber is cancelled alone (`JoinHandle::cancel`, shutdown of the runtime: its own word) or
//!   with the scope it belongs to (a [`Node`]). The call that is blocked, or the next one that
//!   would block, returns an error made from [`Interrupt`]. Nothing is unwound by force.
//! * A deadline needs no node: it is a number in the fiber, inherited by the fibers it spawns into
//!   scopes, and every blocking call arms one timer for the nearest.
//!
//! Cancelling a node: 1. set its word. 2. under its lock, take a reference to every member fiber
//! and child node. 3. wake the fibers and cancel the children, iteratively: scopes may be nested
//! deeper than a stack allows. A fiber enters a node under the same lock, and checks the word
//! before it blocks but *after* it has registered with the waking side (`sched/wait`). So either
//! step 2 sees the fiber, or the fiber sees the word (`loom_a_fiber_is_woken_or_sees_the_word`). A
//! node enters its parent likewise, and then looks at the parent's word
//! (`loom_a_scope_below_is_cancelled_too`).

#![deny(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, Weak};

use slab::Slab;

use super::{FiberHandle, Header};
use crate::shim::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::shim::{Mutex, MutexGuard};

/// Why a fiber was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The program asked for it.
    Requested,
    /// A sibling in the same scope panicked, or could not start.
    SiblingPanicked,
    /// The scope's own body panicked.
    ScopePanicked,
    /// The runtime is shutting down.
    Shutdown,
}

/// The typed source of the error that a cancelled call returns; `is_cancelled` finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// The reason.
    pub reason: CancelReason,
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            CancelReason::Requested => "the fiber was cancelled",
            CancelReason::SiblingPanicked => {
                "the fiber was cancelled because a sibling in its scope panicked"
            }
            CancelReason::ScopePanicked => "the fiber was cancelled because its scope panicked",
            CancelReason::Shutdown => {
                "the fiber was cancelled because the runtime is shutting down"
            }
        })
    }
}

impl std::error::Error for Cancelled {}

/// Returns whether an error says that the calling fiber was cancelled (a deadline is
/// [`io::ErrorKind::TimedOut`] instead).
///
/// ```
/// # use std::time::Duration;
/// plainweave::run(|| {
///     let sleeper = plainweave::spawn(|| plainweave::time::sleep(Duration::from_secs(60)));
///     sleeper.cancel();
///     assert!(plainweave::is_cancelled(&sleeper.join().unwrap().unwrap_err()));
/// });
/// ```
#[must_use]
pub fn is_cancelled(error: &io::Error) -> bool {
    cancel_reason(error).is_some()
}

/// Returns why the calling fiber was cancelled, if that is what the error says.
///
/// ```
/// # use std::time::Duration;
/// use plainweave::{CancelReason, cancel_reason};
///
/// plainweave::run(|| {
///     let sleeper = plainweave::spawn(|| plainweave::time::sleep(Duration::from_secs(60)));
///     sleeper.cancel();
///     let error = sleeper.join().unwrap().unwrap_err();
///     assert!(matches!(cancel_reason(&error), Some(CancelReason::Requested)));
/// });
/// ```
#[must_use]
pub fn cancel_reason(error: &io::Error) -> Option<CancelReason> {
    error
        .get_ref()?
        .downcast_ref::<Cancelled>()
        .map(|c| c.reason)
}

/// What ends a wait early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    Cancelled(CancelReason),
    TimedOut,
}

impl From<Interrupt> for io::Error {
    fn from(interrupt: Interrupt) -> Self {
        match interrupt {
            // `Other`: never `Interrupted`, which std's helpers retry.
            Interrupt::Cancelled(reason) => io::Error::other(Cancelled { reason }),
            Interrupt::TimedOut => io::Error::new(io::ErrorKind::TimedOut, "deadline exceeded"),
        }
    }
}

/// Returns why a fiber does not start: its runtime is shutting down.
pub(crate) fn shutting_down() -> io::Error {
    Interrupt::Cancelled(CancelReason::Shutdown).into()
}

/// What has a say in whether a fiber is cancelled, beside its own word and its pool's. One byte:
/// the header is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CancelRules(u8);

impl CancelRules {
    /// The fiber has a [`Node`] from the start.
    const IN_SCOPE: u8 = 1;
    /// Its cancellation waits (`crate::cancel::shielded`).
    const SHIELDED: u8 = 2;

    pub(crate) fn of_new(in_scope: bool) -> Self {
        Self(if in_scope { Self::IN_SCOPE } else { 0 })
    }

    /// Returns whether there are none.
    #[inline(always)]
    pub(crate) fn are_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn is_shielded(self) -> bool {
        self.0 & Self::SHIELDED != 0
    }

    /// Returns the same with the shield, or without.
    pub(crate) fn with_shield(self, shielded: bool) -> Self {
        Self(if shielded {
            self.0 | Self::SHIELDED
        } else {
            self.0 & !Self::SHIELDED
        })
    }
}

/// The first reason given for a cancellation, or none.
#[derive(Debug)]
pub(crate) struct CancelWord(AtomicU8);

impl CancelWord {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Sets the reason. Returns true for the first call only.
    pub(crate) fn set(&self, reason: CancelReason) -> bool {
        let code = match reason {
            CancelReason::Requested => 1,
            CancelReason::SiblingPanicked => 2,
            CancelReason::ScopePanicked => 3,
            CancelReason::Shutdown => 4,
        };

        self.0
            .compare_exchange(0, code, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the reason, if one is set.
    #[inline]
    pub(crate) fn get(&self) -> Option<CancelReason> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            1 => Some(CancelReason::Requested),
            2 => Some(CancelReason::SiblingPanicked),
            3 => Some(CancelReason::ScopePanicked),
            _ => Some(CancelReason::Shutdown),
        }
    }
}

/// A scope in the tree of scopes. `F` refers to a fiber in it.
#[derive(Debug)]
pub(crate) struct Node<F = FiberHandle> {
    word: CancelWord,
    inner: Mutex<Inner<F>>,
    /// The parent scope, and this one's key there. (With a counted reference, dropping the
    /// innermost of many scopes would free them all by recursion.)
    parent: Option<(Weak<Self>, usize)>,
    /// The place that the fiber of this node takes up in its pool, until its closure has returned
    /// and all below it.
    place: Option<PlaceId>,
    given_back: AtomicBool,
    /// Whether the scope's owner waits for its fibers.
    is_awaited: AtomicBool,
}

/// A fiber's place in a pool that limits its fibers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlaceId {
    /// Which limit it counts towards.
    pub(crate) limit: u64,
    /// Which of the places that this limit has ever given it is.
    pub(crate) number: u64,
}

#[derive(Debug)]
struct Inner<F> {
    members: Slab<F>,
    children: Slab<Weak<Node<F>>>,
}

impl<F: Clone> Node<F> {
    /// Creates a scope below `parent`; it is cancelled already if `parent` is.
    pub(crate) fn below(parent: Option<&Arc<Self>>) -> Arc<Self> {
        Self::create(parent, None)
    }

    /// Creates the node of one fiber, which takes up that place.
    pub(crate) fn with_place(parent: Option<&Arc<Self>>, place: PlaceId) -> Arc<Self> {
        Self::create(parent, Some(place))
    }

    fn create(parent: Option<&Arc<Self>>, taken: Option<PlaceId>) -> Arc<Self> {
        let below = |parent| Self {
            word: CancelWord::new(),
            inner: Mutex::new(Inner {
                members: Slab::new(),
                children: Slab::new(),
            }),
            parent,
            place: taken,
            given_back: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
        };

        let Some(parent) = parent else {
            return Arc::new(below(None));
        };
        let mut inner = parent.lock();
        let node = Arc::new(below(Some((
            Arc::downgrade(parent),
            inner.children.vacant_key(),
        ))));
        inner.children.insert(Arc::downgrade(&node));
        drop(inner);

        // Only now: whoever cancels the parent from here on finds this one in the list.
        if let Some(reason) = parent.word.get() {
            node.word.set(reason);
        }
        node
    }

    /// Adds a fiber, which is woken when the node is cancelled. Returns the key for `leave`.
    pub(crate) fn enter(&self, fiber: F) -> usize {
        self.lock().members.insert(fiber)
    }

    /// Removes the fiber that `enter` gave this key.
    pub(crate) fn leave(&self, key: usize) {
        // Drop it after the lock: the last reference to a fiber may run a destructor.
        let fiber = self.lock().members.try_remove(key);
        drop(fiber);
    }

    #[inline]
    pub(crate) fn cancelled(&self) -> Option<CancelReason> {
        self.word.get()
    }

    /// Cancels the scope, the fibers in it and the scopes below. `wake` wakes a fiber (`sched/wake`
    /// has [`Node::cancel`], which knows how).
    pub(crate) fn cancel_with(&self, reason: CancelReason, wake: fn(&F)) {
        let mut below = self.cancel_alone(reason, wake);
        while let Some(node) = below.pop() {
            below.extend(node.cancel_alone(reason, wake));
        }
    }

    /// Cancels the scope and its fibers. Returns its child scopes; none if the scope was cancelled
    /// already.
    fn cancel_alone(&self, reason: CancelReason, wake: fn(&F)) -> Vec<Arc<Self>> {
        if !self.word.set(reason) {
            return Vec::new();
        }
        let (fibers, children): (Vec<_>, Vec<_>) = {
            let inner = self.lock();
            let children = inner
                .children
                .iter()
                .filter_map(|(_, child)| child.upgrade());
            (
                inner
                    .members
                    .iter()
                    .map(|(_, fiber)| fiber.clone())
                    .collect(),
                children.collect(),
            )
        };

        fibers.iter().for_each(wake);
        children
    }
}

impl<F> Node<F> {
    fn lock(&self) -> MutexGuard<'_, Inner<F>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Returns the numbers of fibers in the scope, at most so many, for dumps. A child that takes
    /// up a place has a node of its own, below.
    pub(crate) fn members(&self, most: usize, wanted: impl Fn(&Header) -> bool) -> Vec<u64> {
        let own = |node: &Self, ids: &mut Vec<u64>| {
            let inner = node.lock();
            let members = inner
                .members
                .iter()
                .map(|(_, fiber)| fiber.header())
                .filter(|fiber| wanted(fiber));
            ids.extend(members.map(Header::id).take(most.saturating_sub(ids.len())));
        };

        let mut ids = Vec::new();
        own(self, &mut ids);
        self.with_places()
            .iter()
            .for_each(|node| own(node, &mut ids));
        ids
    }

    /// Returns the nodes of the scope's fibers that have one of their own. They are dropped without
    /// the lock: the last reference leaves its place in here.
    fn with_places(&self) -> Vec<Arc<Self>> {
        let inner = self.lock();
        let below = inner.children.iter().filter_map(|(_, node)| node.upgrade());
        let below: Vec<_> = below.collect();
        drop(inner);
        below
            .into_iter()
            .filter(|node| node.place.is_some())
            .collect()
    }

    /// Notes that the scope's owner waits for its fibers from now on. It does not return before
    /// others can see that.
    pub(crate) fn note_awaited(&self) {
        self.is_awaited.swap(true, Ordering::SeqCst);
    }

    /// Returns whether the scope's owner waits for its fibers, while none of them has started.
    pub(crate) fn waits_for_a_start(&self) -> bool {
        let is_empty = |node: &Self| node.lock().members.is_empty();
        self.is_awaited.load(Ordering::Relaxed)
            && is_empty(self)
            && self.with_places().iter().all(|node| is_empty(node))
    }

    /// Returns the scope that a fiber of this node belongs to: this one, or the one above, if this
    /// is the fiber's own.
    pub(crate) fn scope(self: &Arc<Self>) -> Option<Arc<Self>> {
        match (&self.place, &self.parent) {
            (Some(_), Some((parent, _))) => parent.upgrade(),
            _ => Some(self.clone()),
        }
    }

    /// Returns the places that nobody gets before the fibers of this node have ended: its own, and
    /// those above it, whose fibers wait for these.
    pub(crate) fn places(self: &Arc<Self>) -> Vec<PlaceId> {
        let mut places = Vec::new();
        let mut node = Some(self.clone());
        while let Some(here) = node {
            places.extend(
                here.place
                    .filter(|_| !here.given_back.load(Ordering::Relaxed)),
            );
            node = here
                .parent
                .as_ref()
                .and_then(|(parent, _)| parent.upgrade());
        }

        places
    }

    /// Notes that the fiber of this node has given back its place, if this is it.
    pub(crate) fn give_back(&self, place: PlaceId) {
        if self.place == Some(place) {
            self.given_back.store(true, Ordering::Relaxed);
        }
    }
}

impl<F> Drop for Node<F> {
    fn drop(&mut self) {
        let Some((parent, place)) = self.parent.take() else {
            return;
        };
        if let Some(parent) = parent.upgrade() {
            parent.lock().children.try_remove(place);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_scope_that_has_ended_leaves_its_place() {
        let above = Node::<FiberHandle>::below(None);
        let mut below: Vec<_> = (0..100).map(|_| Node::below(Some(&above))).collect();
        assert_eq!(above.lock().children.len(), 100);
        below.truncate(10);
        assert_eq!(above.lock().children.len(), 10);
        above.cancel(CancelReason::Requested);
        assert!(
            below
                .iter()
                .all(|node| node.cancelled() == Some(CancelReason::Requested))
        );
        assert_eq!(
            Node::below(Some(&above)).cancelled(),
            Some(CancelReason::Requested),
            "cancelled from the start"
        );
        drop(above);
        drop(below);
    }

    #[test]
    fn a_long_chain_of_scopes_is_cancelled_and_freed() {
        let mut chain = vec![Node::<FiberHandle>::below(None)];
        for n in 0..200_000 {
            chain.push(Node::below(chain.get(n)));
        }
        chain[0].cancel(CancelReason::Shutdown);
        assert!(chain.iter().all(|node| node.cancelled().is_some()));

        // Dropped from the outermost inwards.
        chain.into_iter().for_each(drop);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::{Arc as Shared, Condvar};

    type Token = Shared<(Mutex<bool>, Condvar)>;

    fn wake(token: &Token) {
        *token.0.lock().unwrap() = true;
        token.1.notify_one();
    }

    /// A fiber enters a scope and blocks, unless it sees that the scope is cancelled. (Loom reports
    /// a deadlock if it blocks for ever.)
    fn block_in(scope: &Node<Token>) {
        let token = Token::new((Mutex::new(false), Condvar::new()));
        let key = scope.enter(token.clone());
        while scope.cancelled().is_none() {
            let mut woken = token.0.lock().unwrap();
            while !*woken {
                woken = token.1.wait(woken).unwrap();
            }
            *woken = false;
        }

        scope.leave(key);
    }

    #[test]
    fn loom_a_fiber_is_woken_or_sees_the_word() {
        loom::model(|| {
            let scope = Node::below(None);
            let fibers = [0; 2].map(|_| {
                let scope = scope.clone();
                loom::thread::spawn(move || block_in(&scope))
            });

            scope.cancel_with(CancelReason::Requested, wake);
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
    }

    /// A scope that is opened while the one above it is cancelled, and a fiber in it.
    #[test]
    fn loom_a_scope_below_is_cancelled_too() {
        loom::model(|| {
            let above = Node::below(None);
            let parent = above.clone();
            let fiber = loom::thread::spawn(move || block_in(&Node::below(Some(&parent))));
            above.cancel_with(CancelReason::Shutdown, wake);
            fiber.join().unwrap();
        });
    }
}
