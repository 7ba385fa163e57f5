//! Several pools of workers in one process, each with its own policy, workers, movement, storage
//! and limit.
//!
//! A [`Pool`] is a [`Runtime`] with a name. Any fiber or thread may [spawn](Pool::spawn) into it,
//! or [call](Pool::call) it: run a closure there and wait here. A scope may lend to fibers of other
//! pools ([`Scope::spawn_in`](crate::Scope::spawn_in)). A pool with a limit
//! ([`PoolSpec::max_fibers`]) makes spawners wait while it is full.
//!
//! ```
//! use plainweave::pools::{PoolSpec, Pools};
//! use plainweave::Runtime;
//!
//! let pools = Pools::build([
//!     PoolSpec::new("web").runtime(Runtime::builder().workers(2)),
//!     PoolSpec::new("disk").runtime(Runtime::builder().workers(1).policy("priority")).max_fibers(4),
//! ])?;
//! let (web, disk) = (pools.get("web").unwrap(), pools.get("disk").unwrap());
//! let name = String::from("index.html");
//! let length = web.call(|| disk.call(|| name.len()))??;
//! assert_eq!(length, 10);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Each worker has a driver of its own, so pools share none; a descriptor may be used by fibers of
//! all pools. Workers are threads, and pools that share processors share them as the kernel divides
//! them among threads.

mod limit; // A pool's limit on fibers; refusing a wait that cannot end.
mod spec; // What a pool is built from.
mod stage; // Functions on items from bounded queues, one feeding the next.
mod text; // Pools as text: `web:fifo/2,disk:priority/4`.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metrics::Metrics;
use crate::runtime::{Runtime, Shutdown};
use crate::sched::pool::PoolShared;
use crate::sched::wait;
use crate::scope::{ChildSpec, Scope, ScopedJoinHandle, call_on};
use crate::thread::{Builder as FiberBuilder, JoinHandle};
use crate::time::saturating_add;
use limit::{Limit, Place, WhenFull};
pub use spec::PoolSpec;
pub use stage::{Next, Stage, StageMetrics, StageSender, Unsent};
pub use text::PoolTextError;

/// A named pool of workers, part of [`Pools`]. Clones are the same pool.
///
/// It may outlive the pool's end; what is spawned or called then fails with
/// [`io::ErrorKind::BrokenPipe`].
///
/// ```
/// use plainweave::pools::{PoolSpec, Pools};
///
/// let pools = Pools::build(PoolSpec::parse("web:fifo/1,disk:fifo/1").unwrap())?;
/// let (web, disk) = (pools.get("web").unwrap(), pools.get("disk").unwrap());
/// let path = String::from("/proc/sys/kernel/ostype");
/// let read = web.call(|| disk.call(|| std::fs::read(&path)))???;
/// assert_eq!(read, b"Linux\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    name: Box<str>,
    pool: Arc<PoolShared>,
    limit: Option<Arc<Limit>>,
}

/// The pools of a program. Dropping it ends them all as dropping a [`Runtime`] does: fibers are
/// cancelled and waited for.
///
/// # Panics
/// Dropping it on a fiber of one of its pools panics: the fiber would wait for its own end.
///
/// ```
/// use plainweave::pools::{PoolSpec, Pools};
///
/// let pools = Pools::build(PoolSpec::parse("web:fifo/1,disk:priority/1").unwrap())?;
/// let disk = pools.get("disk").expect("named above");
/// assert_eq!(disk.spawn(|| 6 * 7)?.join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Pools {
    pools: Vec<Pool>,
    runtimes: Vec<Runtime>,
}

impl Pool {
    fn new(name: &str, limit: Option<usize>, runtime: &Runtime) -> Self {
        let limit = limit.map(|most| Limit::new(name, most));
        Self(Arc::new(Inner {
            name: name.into(),
            pool: runtime.pool.clone(),
            limit,
        }))
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the most fibers that may be in it at once, if it has a limit: see
    /// [`PoolSpec::max_fibers`].
    #[must_use]
    pub fn max_fibers(&self) -> Option<usize> {
        self.0.limit.as_ref().map(|limit| limit.most())
    }

    /// Returns its current metrics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.0.pool)
    }

    /// Spawns a fiber into this pool; waits while the pool is full. Like that of [`crate::spawn`],
    /// the fiber is detached from the caller's scope and deadline.
    ///
    /// # Errors
    /// The pool has ended or is ending ([`io::ErrorKind::BrokenPipe`]). While it was full, the
    /// caller was cancelled, ran into its deadline, or would have waited for ever, because all
    /// fibers of this pool (and perhaps of others) wait for room in turn
    /// ([`io::ErrorKind::Deadlock`]). The closure is dropped.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn spawn<T, F>(&self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_with(FiberBuilder::new(), f)
    }

    /// Spawns a fiber like [`Self::spawn`], as `builder` describes it.
    ///
    /// # Errors
    /// As for [`Self::spawn`]; or the stack size or the weight is out of range.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn spawn_with<T, F>(&self, builder: FiberBuilder, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        builder.check()?;
        let place = self.enter(WhenFull::Wait)?;
        self.spawn_at(place, builder, f)
    }

    /// Spawns a fiber like [`Self::spawn`] if the pool is not full.
    ///
    /// # Errors
    /// The pool is full ([`io::ErrorKind::WouldBlock`]), or has ended or is ending
    /// ([`io::ErrorKind::BrokenPipe`]). The closure is dropped.
    pub fn try_spawn<T, F>(&self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let place = self.enter(WhenFull::Refuse)?;
        self.spawn_at(place, FiberBuilder::new(), f)
    }

    /// Runs `f` on a fiber of this pool and waits for its value; `f` may borrow. The caller's
    /// deadline and cancellation reach that fiber, whose blocking calls then fail; the call itself
    /// returns only when the fiber has ended, because that may use what it borrows. The value is
    /// delivered even if the caller was cancelled meanwhile.
    ///
    /// # Errors
    /// As for [`Self::spawn`], or the caller was cancelled or ran into its deadline before: then
    /// `f` is dropped without being run. So it is if the pool ends before the fiber starts, has no
    /// stack for it, or its policy drops it.
    ///
    /// # Panics
    /// With `f`'s panic.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn call<T, F>(&self, f: F) -> io::Result<T>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        if let Some(interrupt) = wait::interrupted() {
            return Err(wait::failed_at_once(interrupt.into()));
        }
        let place = self.enter(WhenFull::Wait)?;
        let id = place.as_ref().map(Place::id);
        call_on(&self.0.pool, ChildSpec::in_place(id), in_place(place, f))
            .unwrap_or_else(|| Err(self.ended()))
    }

    fn spawn_at<T, F>(
        &self,
        place: Option<Place>,
        builder: FiberBuilder,
        f: F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let id = place.as_ref().map(Place::id);
        builder
            .spawn_into(&self.0.pool, id, in_place(place, f))?
            .ok_or_else(|| self.ended())
    }

    /// Takes a place, if the pool has a limit.
    fn enter(&self, when_full: WhenFull) -> io::Result<Option<Place>> {
        if self.0.pool.is_closing() {
            return Err(self.ended());
        }
        let Some(limit) = &self.0.limit else {
            return Ok(None);
        };
        let place = limit.enter(when_full);

        // The wait may have ended with the pool.
        if self.0.pool.is_closing() {
            Err(self.ended())
        } else {
            place.map(Some)
        }
    }

    fn ended(&self) -> io::Error {
        io::Error::new(
            io::ErrorKind::BrokenPipe,
            format!("the pool '{}' has ended", self.name()),
        )
    }

    /// Lets nobody in any more and cancels its fibers.
    fn close(&self) {
        self.0.pool.cancel_all();
        if let Some(limit) = &self.0.limit {
            limit.close();
        }
    }
}

/// Lets a fiber give its place back when it ends, or is dropped without being run.
fn in_place<T>(place: Option<Place>, f: impl FnOnce() -> T) -> impl FnOnce() -> T {
    move || {
        let _place = place;
        f()
    }
}

impl Pools {
    /// Builds and starts the pools.
    ///
    /// # Errors
    /// There is none, two have the same name, or one cannot be built: the message says which and
    /// why.
    pub fn build(specs: impl IntoIterator<Item = PoolSpec>) -> io::Result<Self> {
        let mut built = Self {
            pools: Vec::new(),
            runtimes: Vec::new(),
        };

        for spec in specs {
            let name = spec.name();
            if built.get(name).is_some() {
                return Err(spec::invalid(format!("two pools are called '{name}'")));
            }
            let runtime = spec.start()?;
            built.pools.push(Pool::new(name, spec.limit(), &runtime));
            built.runtimes.push(runtime);
        }

        if built.pools.is_empty() {
            Err(spec::invalid("there are no pools".to_owned()))
        } else {
            Ok(built)
        }
    }

    /// Returns the pool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name() == name)
    }

    /// Returns all pools, in the order of their specs.
    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    /// Returns the runtime that is the pool of that name. What is spawned through it does not count
    /// towards the pool's limit.
    #[must_use]
    pub fn runtime(&self, name: &str) -> Option<&Runtime> {
        self.pools
            .iter()
            .zip(&self.runtimes)
            .find(|(pool, _)| pool.name() == name)
            .map(|(_, runtime)| runtime)
    }

    /// Cancels every fiber of all pools and waits for them until `limit` has passed; then ends the
    /// workers. Returns what each pool left behind, in order.
    ///
    /// # Panics
    /// If called on a fiber of one of the pools.
    pub fn shutdown(mut self, limit: Duration) -> Vec<Shutdown> {
        self.check_and_close();
        let deadline = saturating_add(Instant::now(), limit);
        let left =
            |runtime: Runtime| runtime.shutdown(deadline.saturating_duration_since(Instant::now()));
        std::mem::take(&mut self.runtimes)
            .into_iter()
            .map(left)
            .collect()
    }

    /// Closes all pools before the first is waited for, because fibers of one may wait for those of
    /// another.
    fn check_and_close(&self) {
        assert!(
            !self.runtimes.iter().any(Runtime::on_own_fiber),
            "pools were dropped by a fiber of one of them, which they would have to wait for"
        );
        if !self.runtimes.is_empty() {
            self.pools.iter().for_each(Pool::close);
        }
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_and_close();
        } else if !self.runtimes.iter().any(Runtime::on_own_fiber) {
            self.pools.iter().for_each(Pool::close);
        }
        // Else this is a fiber that panics already, perhaps because of this very mistake: each
        // runtime sees to itself.
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Spawns a fiber like [`Self::spawn`] into another pool; waits while that is full. It may
    /// borrow, is waited for and cancelled with the scope, and inherits the deadline, like any
    /// other of the scope.
    ///
    /// # Errors
    /// As for [`Pool::spawn`]; then nothing was spawned, and the scope goes on.
    ///
    /// Context: any thread or fiber that has the scope; may suspend.
    pub fn spawn_in<T, F>(
        &'scope self,
        pool: &Pool,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let place = pool.enter(WhenFull::Wait)?;
        let id = place.as_ref().map(Place::id);
        self.spawn_to(&pool.0.pool, ChildSpec::in_place(id), in_place(place, f))
            .ok_or_else(|| pool.ended())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the pool '{}' of {} workers",
            self.name(),
            self.0.pool.regular()
        )
    }
}
