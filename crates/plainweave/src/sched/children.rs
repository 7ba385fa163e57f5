//! What a scope shares with its children: how many still run, the node that cancels them, the first
//! panic.

use std::any::Any;
use std::sync::{Arc, Mutex};

use super::closure;
use super::pool::PoolShared;
use super::wait::{self, Interrupts, WaitSpec, Waker};
use crate::atomics::live_count::LiveCount;
use crate::fiber::cancel::Node;
use crate::fiber::note::{Asker, Describe, Note, Object};
use crate::fiber::{self, FiberHandle, Header, Reason};

/// The data that children share with their scope. Outlives both.
#[derive(Debug)]
pub(crate) struct ScopeData {
    pub(crate) node: Arc<Node>,
    running: LiveCount,
    owner: Waker,
    /// The first panic that no handle has taken.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ScopeData {
    /// Creates the data of a scope that the calling fiber or thread owns.
    pub(crate) fn new(node: Arc<Node>) -> Arc<Self> {
        Arc::new(Self {
            node,
            running: LiveCount::new(),
            owner: Waker::current(),
            panic: Mutex::new(None),
        })
    }

    /// Counts a child as ended. The child calls this last: nothing of `'scope` is used after it.
    pub(crate) fn child_ended(&self) {
        if self.running.end() {
            self.owner.wake();
        }
    }

    /// Waits for all children, even if the owner is cancelled. If the owner is cancelled meanwhile
    /// (by its handle or by shutdown, which know no scopes) it cancels the scope too. `pool` is
    /// that of the children.
    pub(crate) fn wait(&self, pool: &PoolShared, me: Option<&Header>) {
        if !self.has_ended() {
            self.node.note_awaited();
            pool.let_start_in(&self.node);
        }

        let done = || self.has_ended().then_some(());
        let note = Note::of(self);
        let waited = wait::until(
            WaitSpec::new(Reason::Scope, Interrupts::Ignored).note(&note),
            || {
                if let Some(reason) = me.and_then(Header::stop_reason) {
                    self.node.cancel(reason);
                }
                done()
            },
        );
        if waited.is_err() {
            // Only the bounded wait of a panicking fiber ends early, and that aborts.
            unreachable!("a wait for children has no deadline");
        }
    }

    /// Returns whether no child runs.
    pub(crate) fn has_ended(&self) -> bool {
        self.running.get() == 0
    }

    pub(crate) fn keep_panic(&self, payload: Box<dyn Any + Send>) {
        let mut first = self.panic.lock().unwrap_or_else(|e| e.into_inner());
        if first.is_none() {
            *first = Some(payload);
            return;
        }

        drop(first);
        closure::drop_contained(payload);
    }

    pub(crate) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

impl Describe for ScopeData {
    fn describe(&self, asker: &Asker, object: &mut Object) {
        let running = self.running.get();
        (object.kind, object.address) = ("scope", std::ptr::from_ref(self).addr());
        let here = |child: &Header| std::ptr::eq(child.pool_ptr().as_ptr(), asker.pool);
        object.fibers = self.node.members(asker.children, here);
        object.unknown = running.saturating_sub(object.fibers.len());
        object.about = format!("{running} of its fibers have not ended");
    }
}

/// A running child's entry in its scope's node, or in its own below that.
pub(crate) struct Membership {
    data: Arc<ScopeData>,
    /// The child's own node below the scope's, if it has one.
    own: Option<Arc<Node>>,
    key: Option<usize>,
}

impl Membership {
    /// Counts a child that is about to be spawned.
    pub(crate) fn of_new_child(data: &Arc<ScopeData>, own: Option<Arc<Node>>) -> Self {
        data.running.begin();
        Self {
            data: data.clone(),
            own,
            key: None,
        }
    }

    /// Enters the child into its node when it starts.
    pub(crate) fn enter(&mut self) {
        if let Some(header) = fiber::current() {
            self.key = Some(self.node().enter(FiberHandle::from_ref(header)));
        }
    }

    fn node(&self) -> &Node {
        self.own.as_ref().unwrap_or(&self.data.node)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.node().leave(key);
            if let Some(me) = fiber::current() {
                me.worker().pool().let_start_in(&self.data.node);
            }
        }
    }
}
