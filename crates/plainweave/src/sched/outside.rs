//! Pushes from threads outside the pool, for any policy.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::abort::abort;
use crate::fiber::FiberTask;
use crate::policy::{Cx, Policy, Ready, Wake};

/// A call of a policy, from here to [`Self::end`]. If it unwinds, the process ends: which fibers
/// the policy has, and whether it will ever give them back, nobody knows. (Without a field, so that
/// hot code stores nothing for it.)
pub(super) struct PolicyCall;

impl PolicyCall {
    #[inline(always)]
    pub(super) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for PolicyCall {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        abort(format_args!(
            "a scheduling policy has panicked, and its fibers would wait for ever"
        ));
    }
}

/// Pushes fibers to a policy of any type, from outside the pool.
pub(crate) trait PushOutside: Send + Sync {
    fn push(&self, task: FiberTask, why: Ready) -> Wake;
    /// Returns whether a spare worker would find a task.
    fn maybe_ready_spare(&self) -> bool;
}

pub(crate) struct Outside<P> {
    pub(crate) policy: Arc<P>,
    pub(crate) cx: Mutex<Cx>,
    /// The start of the pool's clock; `None` if time is virtual.
    pub(crate) epoch: Option<Instant>,
}

impl<P: Policy<FiberTask>> PushOutside for Outside<P> {
    fn push(&self, task: FiberTask, why: Ready) -> Wake {
        let call = PolicyCall;
        let mut cx = self.cx.lock().unwrap_or_else(|e| e.into_inner());
        // On virtual time only workers know the clock: fibers pushed from outside then seem to have
        // waited long.
        if let Some(epoch) = self.epoch {
            cx.set_now(epoch.elapsed().as_nanos() as u64);
        }
        let wake = self.policy.push(&mut cx, None, task, why);
        call.end();

        wake
    }

    fn maybe_ready_spare(&self) -> bool {
        let call = PolicyCall;
        let ready = self.policy.maybe_ready_spare();
        call.end();
        ready
    }
}
