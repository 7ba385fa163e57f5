//! Where fibers are, and how many: places for those under way, the pools that they are spread over.

use std::sync::Arc;

use crate::scheduler::shim::Shim;

/// Places for as many as may be under way at once, if there is a bound.
pub(super) struct Room<S: Shim>(Option<S::Semaphore>);

impl<S: Shim> Room<S> {
    /// 0: no bound.
    pub(super) fn new(places: u64) -> Self {
        Self((places > 0).then(|| {
            let free = S::semaphore();
            (0..places).for_each(|_| S::release(&free));
            free
        }))
    }

    /// Waits for a place.
    pub(super) async fn enter(&self) {
        if let Some(free) = &self.0 {
            S::acquire(free).await;
        }
    }

    pub(super) fn leave(&self) {
        if let Some(free) = &self.0 {
            S::release(free);
        }
    }
}

/// The pools that a workload is spread over, with their workers' numbers counted on from pool to
/// pool.
pub(super) struct Spread<S: Shim>(Arc<[(S::Pool, usize)]>);

impl<S: Shim> Spread<S> {
    /// `workers`: of each pool; none if the workload is on a single runtime.
    pub(super) fn new(pools: Vec<S::Pool>, workers: &[usize]) -> Self {
        let mut first = 0;
        let place = |(pool, workers): (S::Pool, &usize)| {
            first += workers;
            (pool, first - workers)
        };
        Self(pools.into_iter().zip(workers).map(place).collect())
    }

    /// Spawns into the pool with that number, of as many as there are.
    pub(super) fn spawn(&self, pool: usize, body: impl Future<Output = ()> + Send + 'static) {
        match self.0.len() {
            0 => drop(S::spawn(body)),
            pools => S::spawn_in(&self.0[pool % pools].0, body),
        }
    }

    /// Returns the number, among those of all pools, of the worker that runs the caller, a thread
    /// of that pool.
    pub(super) fn worker(&self, pool: usize) -> usize {
        let first = if self.0.is_empty() {
            0
        } else {
            self.0[pool % self.0.len()].1
        };
        first + S::worker()
    }
}

impl<S: Shim> Clone for Spread<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Runs that many fibers, and waits for all of them.
pub(super) async fn all<S: Shim, F: Future<Output = ()> + Send + 'static>(
    count: u64,
    body: impl Fn(u64) -> F,
) {
    let joins: Vec<_> = (0..count).map(|i| S::spawn(body(i))).collect();
    for join in joins {
        S::join(join).await;
    }
}
