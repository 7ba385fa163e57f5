//! The streams of one connection: one of them makes it, the others join it.

use std::cell::{Cell, RefCell};

use plainweave::sync::{Permit, Semaphore};

use super::tally::Failure;

/// What streams share of a connection. A protocol that has none has groups of one.
pub(super) struct Group<C> {
    current: RefCell<Option<C>>,
    /// Who makes the connection.
    maker: Semaphore,
    /// Attempts that have failed, and what the last one came to.
    failed: Cell<(u64, Option<Failure>)>,
}

/// What a stream without a connection gets.
pub(super) enum Entry<'a, C> {
    /// The connection that is there.
    Joined(C),
    /// What came of an attempt that was under way.
    Failed(Failure),
    /// The right to make it.
    Make(Making<'a, C>),
}

/// The right to make the connection.
pub(super) struct Making<'a, C> {
    group: &'a Group<C>,
    _permit: Permit<'a>,
}

impl<C> Group<C> {
    pub(super) fn new(current: Option<C>) -> Self {
        Self {
            current: RefCell::new(current),
            maker: Semaphore::new(1),
            failed: Cell::new((0, None)),
        }
    }

    /// Joins the connection by `join`, which has none for one that takes no more streams. Waits for
    /// an attempt that is under way.
    pub(super) fn enter(&self, join: impl Fn(&C) -> Option<C>) -> Entry<'_, C> {
        let joined = || self.current.borrow().as_ref().and_then(&join);
        if let Some(joined) = joined() {
            return Entry::Joined(joined);
        }
        let (before, _) = self.failed.get();
        let permit = match self.maker.acquire() {
            Ok(permit) => permit,
            Err(error) => return Entry::Failed(error.into()),
        };
        match (joined(), self.failed.get()) {
            (Some(joined), _) => Entry::Joined(joined),
            (None, (attempts, Some(failure))) if attempts != before => Entry::Failed(failure),
            _ => Entry::Make(Making {
                group: self,
                _permit: permit,
            }),
        }
    }
}

impl<C> Making<'_, C> {
    /// Lets the others join.
    pub(super) fn made(self, connection: Option<C>) {
        *self.group.current.borrow_mut() = connection;
    }

    pub(super) fn failed(self, failure: Failure) {
        let (attempts, _) = self.group.failed.get();
        self.group.failed.set((attempts + 1, Some(failure)));
    }
}
