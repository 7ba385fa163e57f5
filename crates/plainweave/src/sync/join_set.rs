//! A set of fibers whose results are taken as they end.
//!
//! Each fiber reports its key to a channel when its closure is over, however that ends; the set
//! then joins it, which takes no longer than the destructors of its thread-locals. The report is
//! made by a destructor, so a closure that panics makes it, and one that never starts does too.

#[cfg(all(test, loom))]
mod models;

use std::collections::VecDeque;
use std::fmt;
#[cfg(not(all(test, loom)))]
use std::io;

use slab::Slab;

#[cfg(not(all(test, loom)))]
use super::channel::unbounded;
use super::channel::{Receiver, RecvError, Sender};
use super::select::{Case, RecvBranch, Selector, Source};
#[cfg(not(all(test, loom)))]
use crate::runtime::Runtime;
use crate::sched::closure::drop_contained;
use crate::sched::pool;
use crate::thread::JoinError;
#[cfg(not(all(test, loom)))]
use crate::thread::{self, Fiber, JoinHandle};

#[cfg(all(test, loom))]
use super::channel::modelled as unbounded;
#[cfg(all(test, loom))]
use models::{self as thread, Fiber, JoinHandle, Runtime};

/// Fibers that end in any order: [`JoinSet::join_next`] waits for the next that does.
///
/// The set is structured: dropping it cancels the fibers that are left and waits for them, so none
/// outlives it unless it was [detached](JoinSet::detach_all). Unlike a [`scope`](crate::scope()),
/// it takes more fibers while others end, its fibers borrow nothing, and neither a panic of one of
/// them nor the cancellation of the owner cancels them.
///
/// ```
/// use plainweave::sync::JoinSet;
/// plainweave::run(|| {
///     let mut squares = JoinSet::new();
///     for n in 1..=10 {
///         squares.spawn(move || n * n);
///     }
///     let mut sum = 0;
///     while let Some(square) = squares.join_next() {
///         sum += square.unwrap();
///     }
///     assert_eq!(sum, 385);
/// });
/// ```
pub struct JoinSet<T> {
    fibers: Slab<Member<T>>,
    ended: Receiver<usize>,
    report: Sender<usize>,
    /// Reports that `spawn_limited` has waited for; they come before those in `ended`.
    noted: VecDeque<usize>,
    /// The key of the fiber that was last said to be wanted.
    wanted: usize,
}

#[derive(Debug)]
struct Member<T> {
    fiber: JoinHandle<T>,
    /// Whether its report is in `noted`.
    has_reported: bool,
}

/// Reports the end of a closure when it is dropped with it.
struct Report {
    to: Sender<usize>,
    key: usize,
}

impl Drop for Report {
    fn drop(&mut self) {
        // There is always room, and if the set is gone, or has detached the fiber, nobody wants to
        // know.
        drop(self.to.send(self.key));
    }
}

impl<T> JoinSet<T> {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        let (report, ended) = unbounded();
        Self {
            fibers: Slab::new(),
            ended,
            report,
            noted: VecDeque::new(),
            wanted: 0,
        }
    }

    /// Waits for a report that `noted` does not have.
    fn next_report(&mut self) -> Result<usize, RecvError> {
        if let Ok(key) = self.ended.try_recv() {
            return Ok(key);
        }

        want_one(&self.fibers, &mut self.wanted);
        self.ended.recv()
    }

    /// Returns the number of fibers in the set, running or ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fibers.len()
    }

    /// Returns whether no fiber is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fibers.is_empty()
    }

    /// Returns the number of fibers in the set that have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.fibers.len() - self.noted.len() - self.ended.len()
    }

    /// Waits until one of the fibers has ended, takes it out of the set and returns its result.
    /// Fibers are returned in the order in which they end; `None` if the set is empty.
    ///
    /// # Errors
    /// The fiber's panic, or why it could not start; or, while none had ended, the *caller* was
    /// cancelled ([`JoinError::is_cancelled`]) or ran into its deadline: then all fibers go on, and
    /// are still in the set.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        if self.is_empty() {
            return None;
        }
        let noted = self.noted.pop_front();
        let next = noted.map_or_else(|| self.next_report(), Ok);
        Some(match next {
            Ok(key) => self.fibers.remove(key).fiber.join_always(),
            Err(error) => Err(JoinError::interrupted(error.interrupt())),
        })
    }

    /// Takes a fiber that has ended out of the set and returns its result; `None` if there is none.
    ///
    /// # Errors
    /// The fiber's panic, or why it could not start.
    ///
    /// Context: any thread or fiber; may wait for destructors of the fiber's thread-locals.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let key = next_ended(&mut self.noted, &self.ended)?;
        Some(self.fibers.remove(key).fiber.join_always())
    }

    /// Requests that all fibers stop, as [`JoinHandle::cancel`] does. They stay in the set until
    /// they are joined.
    pub fn cancel_all(&self) {
        self.fibers
            .iter()
            .for_each(|(_, member)| member.fiber.cancel());
    }

    /// Empties the set and lets its fibers go on by themselves.
    pub fn detach_all(&mut self) {
        self.noted.clear();
        // With a channel of its own, so that their reports do not come here.
        (self.report, self.ended) = unbounded();
        self.fibers.clear();
    }

    /// Returns the next end as a branch of a select.
    #[doc(hidden)]
    pub fn select_branch(&mut self) -> JoinNextBranch<'_, T> {
        let watched = RecvBranch::new(&self.ended);
        JoinNextBranch {
            noted: &mut self.noted,
            ended: &self.ended,
            watched,
            fibers: &mut self.fibers,
            wanted: &mut self.wanted,
            chosen: None,
        }
    }
}

/// Says of one of the fibers that somebody waits for it: the one of that key, or the next that has
/// not ended. Workers may be held up by what the set's owner holds, and the set's fibers be held
/// back for them (`sched/held_back`): one of them must start.
fn want_one<T>(fibers: &Slab<Member<T>>, wanted: &mut usize) {
    let keys = fibers.capacity();
    let all = (*wanted..keys).chain(0..keys.min(*wanted));
    let mut members = all.filter_map(|key| Some((key, fibers.get(key)?)));
    if let Some((key, member)) = members.find(|(_, member)| !member.has_reported) {
        member.fiber.want();
        *wanted = key;
    }
}

/// Returns the fiber that has ended first of those that are still in the set; `None` if none has.
fn next_ended(noted: &mut VecDeque<usize>, ended: &Receiver<usize>) -> Option<usize> {
    noted.pop_front().or_else(|| ended.try_recv().ok())
}

impl<T: Send + 'static> JoinSet<T> {
    /// Spawns a fiber into the set, on the current runtime, and returns its handle, for `cancel`
    /// and the like.
    ///
    /// # Panics
    /// If called outside a runtime; there use [`Self::spawn_on`].
    #[track_caller]
    pub fn spawn<F: FnOnce() -> T + Send + 'static>(&mut self, f: F) -> Fiber {
        if !thread::on_fiber() {
            // Before there is a closure that reports its end.
            pool::no_runtime("JoinSet::spawn");
        }

        let body = self.reporting(f);
        self.insert(thread::spawn(body))
    }

    /// Spawns a fiber into the set, on a runtime.
    ///
    /// Context: any thread or fiber.
    pub fn spawn_on<F: FnOnce() -> T + Send + 'static>(
        &mut self,
        runtime: &Runtime,
        f: F,
    ) -> Fiber {
        let body = self.reporting(f);
        self.insert(runtime.spawn(body))
    }

    /// Waits until fewer than `most` fibers of the set run, and spawns one like [`Self::spawn`]. So
    /// ten thousand jobs need the stacks of `most` fibers, not one each, as they do where each
    /// waits for a permit of a semaphore. Results stay in the set until they are joined.
    ///
    /// ```
    /// use plainweave::sync::JoinSet;
    /// plainweave::run(|| {
    ///     let mut jobs = JoinSet::new();
    ///     for n in 0..1000_u64 {
    ///         jobs.spawn_limited(16, move || n % 7).unwrap();
    ///         assert!(jobs.running() <= 16);
    ///     }
    ///     let results = std::iter::from_fn(|| jobs.join_next());
    ///     assert_eq!(results.map(|job| job.unwrap()).sum::<u64>(), 2997);
    /// });
    /// ```
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited: `f` is dropped, and the set is as it was.
    /// `most` is zero ([`io::ErrorKind::InvalidInput`]).
    ///
    /// # Panics
    /// As for [`Self::spawn`].
    ///
    /// Context: a fiber; may suspend.
    #[cfg(not(all(test, loom)))]
    #[track_caller]
    pub fn spawn_limited<F: FnOnce() -> T + Send + 'static>(
        &mut self,
        most: usize,
        f: F,
    ) -> io::Result<Fiber> {
        if most == 0 {
            let message = "a set of which no fiber may run would wait for ever";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }

        while self.running() >= most {
            let key = self
                .next_report()
                .map_err(|error| io::Error::from(error.interrupt()))?;
            self.fibers[key].has_reported = true;
            self.noted.push_back(key);
        }

        Ok(self.spawn(f))
    }

    /// Returns the closure of the next fiber.
    fn reporting<F: FnOnce() -> T + Send + 'static>(
        &self,
        f: F,
    ) -> impl FnOnce() -> T + Send + use<T, F> {
        let report = Report {
            to: self.report.clone(),
            key: self.fibers.vacant_key(),
        };
        move || {
            let _report = report;
            f()
        }
    }

    fn insert(&mut self, fiber: JoinHandle<T>) -> Fiber {
        let handle = fiber.fiber();
        self.fibers.insert(Member {
            fiber,
            has_reported: false,
        });
        handle
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.cancel_all();
        for member in self.fibers.drain() {
            // As with a handle that is dropped, nobody asks for the result.
            drop_contained(member.fiber.join_always());
        }
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}

/// The next end of a fiber of a set, waited for beside others.
#[derive(Debug)]
pub struct JoinNextBranch<'a, T> {
    noted: &'a mut VecDeque<usize>,
    ended: &'a Receiver<usize>,
    /// For its watcher alone: no peer claims a receive from a channel with room.
    watched: RecvBranch<'a, usize>,
    fibers: &'a mut Slab<Member<T>>,
    wanted: &'a mut usize,
    /// The next to end, out of the set already, or `None` in an empty set.
    chosen: Option<Option<JoinHandle<T>>>,
}

impl<T> JoinNextBranch<'_, T> {
    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what `join_next` would, if it was chosen.
    pub fn output(self) -> Option<Option<Result<T, JoinError>>> {
        Some(self.chosen?.map(JoinHandle::join_always))
    }
}

impl<T> Source for JoinNextBranch<'_, T> {
    fn attempt(&mut self) -> bool {
        if self.fibers.is_empty() {
            self.chosen = Some(None);
        } else if let Some(key) = next_ended(self.noted, self.ended) {
            // A report and its fiber go together, whatever becomes of the branch.
            self.chosen = Some(Some(self.fibers.remove(key).fiber));
        }
        self.chosen.is_some()
    }

    fn watch(&mut self, selector: &Selector, branch: usize) -> bool {
        want_one(self.fibers, self.wanted);
        self.watched.watch(selector, branch)
    }

    fn unwatch(&mut self, selector: &Selector, branch: usize, claimed: bool) {
        self.watched.unwatch(selector, branch, claimed);
    }
}
