//! Pushes from threads outside the pool, for any policy.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::fiber::FiberTask;
use crate::policy::{Cx, Policy, Ready, Wake};

/// Pushes fibers to a policy of any type, from outside the pool.
pub(crate) trait PushOutside: Send + Sync {
    fn push(&self, task: FiberTask, why: Ready) -> Wake;
}

pub(crate) struct Outside<P> {
    pub(crate) policy: Arc<P>,
    pub(crate) cx: Mutex<Cx>,
    /// The start of the pool's clock; `None` if time is virtual.
    pub(crate) epoch: Option<Instant>,
}

impl<P: Policy<FiberTask>> PushOutside for Outside<P> {
    fn push(&self, task: FiberTask, why: Ready) -> Wake {
        let mut cx = self.cx.lock().unwrap_or_else(|e| e.into_inner());
        // On virtual time only workers know the clock: fibers pushed from outside then seem to have waited long.
        if let Some(epoch) = self.epoch {
            cx.set_now(epoch.elapsed().as_nanos() as u64);
        }
        self.policy.push(&mut cx, None, task, why)
    }
}
