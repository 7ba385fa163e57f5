//! Workers that a program adds while it runs.

#![deny(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Runtime;
use crate::sched::pool::PoolShared;

/// More workers, until it is dropped; see [`Runtime::add_workers`].
#[derive(Debug)]
#[must_use = "the workers rest when this is dropped"]
pub struct AddedWorkers {
    pool: Arc<PoolShared>,
    count: usize,
}

impl AddedWorkers {
    /// Returns how many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for AddedWorkers {
    fn drop(&mut self) {
        self.pool.added.fetch_sub(self.count, Ordering::Relaxed);
        self.pool.watchdog_bell.ring();
    }
}

impl Runtime {
    /// Adds this many workers until the returned value is dropped; then they finish the fiber in
    /// hand and rest. They start within some milliseconds, each with a thread, the first four also
    /// with a driver, which a later addition uses again; the fibers of others wait at a driver that
    /// these share. They run fibers that others may take, one at a time
    /// ([`Policy::pop_spare`](crate::policy::Policy::pop_spare)).
    ///
    /// # Errors
    /// There would be more than
    /// [`RuntimeBuilder::max_workers`](crate::RuntimeBuilder::max_workers), or fibers do not
    /// migrate at any time, or the policy has nothing for spare workers (`local-*`), or stalls are
    /// not detected ([`RuntimeBuilder::stall_after`](crate::RuntimeBuilder::stall_after)): the
    /// watchdog starts these workers.
    pub fn add_workers(&self, count: usize) -> io::Result<AddedWorkers> {
        let pool = self.pool.clone();
        let most = pool.numbers.spares;
        let more = |added: usize| added.checked_add(count).filter(|sum| *sum <= most);
        if pool
            .added
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_err()
        {
            let text = if most == 0 {
                let remedy = "use Movement::Anytime, stall_after, a policy with pop_spare, and max_workers above the \
                              number of workers";
                format!("add_workers: there can be no more workers here ({remedy})")
            } else {
                format!(
                    "add_workers: {count} more would exceed max_workers, {}",
                    pool.numbers.most()
                )
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        pool.watchdog_bell.ring();

        Ok(AddedWorkers { pool, count })
    }
}
