//! Stages: fibers of a pool that pass items on through bounded queues.
//!
//! A stage is a function, a number of fibers that run it, and a queue in front of them. Whoever
//! sends into a full queue waits, so a slow stage slows all before it, back to where the items come
//! from.
//!
//! A stage **fails** when its function panics or returns an error, or when one of its fibers ends
//! otherwise (its pool ends, or has no stack for it). Its other fibers are then cancelled and take
//! no more items; those who send into it get the reason, with their item. If the stage before
//! passes that on, it fails too, and so on to the source. Items that were in the queue or in work
//! are lost, and [`Stage::join`] returns an error with their number.
//!
//! *Failure, in order.* 1. The reason is stored, then `failed` is set. 2. The fibers are cancelled,
//! so that those that wait for an item or in the function look up. (A fiber that starts later looks
//! at `failed` first.) 3. Each fiber drops its end of the queue; with the last, senders that wait
//! for room get their item back.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::Pool;
use super::spec::invalid;
use crate::sched::closure::drop_contained;
use crate::sched::wait;
use crate::sync::channel::{self, Receiver, SendError, Sender};
use crate::thread::{self, Fiber, JoinHandle, panic_text};
use crate::time;

/// Fibers of a pool that run a function on items from a bounded queue.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use plainweave::pools::{PoolSpec, Pools, Stage};
///
/// let pools = Pools::build(PoolSpec::parse("parse:fifo/1,sum:fifo/1")?)?;
/// static SUM: AtomicU64 = AtomicU64::new(0);
/// let sum = Stage::new(pools.get("sum").unwrap(), 8, 1, |n: u64| {
///     SUM.fetch_add(n, Ordering::Relaxed);
///     Ok(())
/// })?;
/// let parse = sum.fed_by(pools.get("parse").unwrap(), 8, 2, |line: &str, next| {
///     let number = line.parse().map_err(std::io::Error::other)?;
///     Ok(next.send(number)?)
/// })?;
/// for line in ["1", "2", "3"] {
///     parse.send(line)?;
/// }
/// parse.join()?;
/// assert_eq!(sum.join()?.done, 3);
/// assert_eq!(SUM.load(Ordering::Relaxed), 6);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Dropping it lets the fibers finish what has been sent, detached; errors then go unseen.
#[derive(Debug)]
#[must_use = "join it to learn whether it has done everything"]
pub struct Stage<T> {
    input: StageSender<T>,
    fibers: Vec<JoinHandle<()>>,
}

/// Sends items into a [`Stage`]; clones send into the same one. The stage ends when all are
/// dropped.
pub struct StageSender<T> {
    queue: Sender<T>,
    stage: Arc<Shared>,
}

/// Sends items from one stage to the next, and counts for how long the next is full.
pub struct Next<T> {
    to: StageSender<T>,
    from: Arc<Shared>,
}

/// An item that could not be sent, and why.
pub struct Unsent<T> {
    /// The item.
    pub item: T,
    /// The stage has failed ([`io::ErrorKind::BrokenPipe`]), or the sender was cancelled or ran
    /// into its deadline while the queue was full; or the queue is full and the sender did not want
    /// to wait ([`io::ErrorKind::WouldBlock`]).
    pub error: io::Error,
}

/// Counters of a stage, read while it runs: they are not a snapshot of one moment, and an item that
/// has just been sent may not be counted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageMetrics {
    /// Items that were sent into the queue.
    pub received: u64,
    /// Items for which the function has returned `Ok`.
    pub done: u64,
    /// Items in the queue.
    pub queued: u64,
    /// Time that its fibers have spent waiting for room in the next stage, added up; a wait counts
    /// when it ends.
    pub blocked: Duration,
    /// Whether the stage has failed.
    pub failed: bool,
}

#[derive(Debug)]
struct Shared {
    pool: String,
    received: AtomicU64,
    begun: AtomicU64,
    done: AtomicU64,
    blocked_ns: AtomicU64,
    failed: AtomicBool,
    /// Why it failed first.
    why: OnceLock<String>,
    /// Its fibers, to be cancelled when it fails.
    fibers: Mutex<Vec<Fiber>>,
}

impl<T: Send + 'static> Stage<T> {
    /// Starts a stage that is the last one: its function passes nothing on. Its queue holds
    /// `capacity` items, besides one in the hands of each of its `fibers`, which count towards the
    /// limit of `pool`.
    ///
    /// # Errors
    /// `capacity` or `fibers` is 0, or the pool's limit is less than `fibers`; or as for
    /// [`Pool::spawn`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn new<F>(pool: &Pool, capacity: usize, fibers: usize, f: F) -> io::Result<Self>
    where
        F: Fn(T) -> io::Result<()> + Send + Sync + 'static,
    {
        let stage = Arc::new(Shared::new(pool));
        Self::start(stage, pool, (capacity, fibers), f)
    }

    /// Starts a stage that sends to this one: the function gets each item, and the way to send on
    /// any number of others. This stage ends only after that one.
    ///
    /// # Errors
    /// As for [`Self::new`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn fed_by<S, F>(
        &self,
        pool: &Pool,
        capacity: usize,
        fibers: usize,
        f: F,
    ) -> io::Result<Stage<S>>
    where
        S: Send + 'static,
        F: Fn(S, &Next<T>) -> io::Result<()> + Send + Sync + 'static,
    {
        let stage = Arc::new(Shared::new(pool));
        let next = Next {
            to: self.input.clone(),
            from: stage.clone(),
        };
        Stage::start(stage, pool, (capacity, fibers), move |item| f(item, &next))
    }

    fn start<F>(
        stage: Arc<Shared>,
        pool: &Pool,
        (capacity, fibers): (usize, usize),
        f: F,
    ) -> io::Result<Self>
    where
        F: Fn(T) -> io::Result<()> + Send + Sync + 'static,
    {
        let name = pool.name();
        if capacity == 0 {
            return Err(invalid(format!(
                "a stage on the pool '{name}': a queue holds at least 1 item, not 0"
            )));
        }
        if fibers == 0 {
            return Err(invalid(format!(
                "a stage on the pool '{name}': at least 1 fiber, not 0"
            )));
        }
        if let Some(most) = pool.max_fibers().filter(|most| *most < fibers) {
            let text = format!(
                "a stage on the pool '{name}': {fibers} fibers are more than its limit, {most}"
            );
            return Err(invalid(text));
        }
        let (sender, receiver) = channel::bounded(capacity);
        let f = Arc::new(f);
        let mut started = Self {
            input: StageSender {
                queue: sender,
                stage: stage.clone(),
            },
            fibers: Vec::new(),
        };
        for _ in 0..fibers {
            // Counts as a death of the stage if the fiber never starts.
            let alive = Alive {
                stage: stage.clone(),
                ended_well: false,
            };

            let queue = receiver.clone();
            let f = f.clone();
            let fiber = pool.spawn(move || alive.run(&queue, &*f))?;
            stage.fibers().push(fiber.fiber());
            started.fibers.push(fiber);
        }
        if stage.has_failed() {
            // It may have failed before all of them were known.
            stage.cancel_fibers();
        }
        Ok(started)
    }

    /// Sends an item; waits while the queue is full.
    ///
    /// # Errors
    /// As for [`StageSender::send`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn send(&self, item: T) -> Result<(), Unsent<T>> {
        self.input.send(item)
    }

    /// Returns a sender; the stage does not end before that is dropped.
    pub fn sender(&self) -> StageSender<T> {
        self.input.clone()
    }

    /// Returns its counters.
    #[must_use]
    pub fn metrics(&self) -> StageMetrics {
        self.input.stage.metrics()
    }

    /// Lets the stage end: waits until all other senders are dropped and all items done. Returns
    /// its final counters. Join the stages in the order in which items travel.
    ///
    /// # Errors
    /// The stage has failed ([`io::ErrorKind::BrokenPipe`]): the message says why, and how many
    /// items it had received and not done. Or the caller was cancelled or ran into its deadline:
    /// then the fibers go on, detached.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn join(self) -> io::Result<StageMetrics> {
        let Self { input, fibers } = self;
        let stage = input.stage.clone();
        drop(input);

        for fiber in fibers {
            match fiber.join() {
                Err(error) if error.is_cancelled() || error.is_timed_out() => {
                    return Err(error.into());
                }
                // A fiber that could not start has made the stage fail.
                _ => {}
            }
        }

        let metrics = stage.metrics();
        if !metrics.failed {
            return Ok(metrics);
        }
        let lost = metrics.received.saturating_sub(metrics.done);
        let text = format!(
            "{}; of {} items, {lost} are not done",
            stage.reason(),
            metrics.received
        );

        Err(io::Error::new(io::ErrorKind::BrokenPipe, text))
    }
}

impl<T> StageSender<T> {
    /// Sends an item; waits while the queue is full.
    ///
    /// # Errors
    /// The stage has failed; or, while the queue was full, the caller was cancelled or ran into its
    /// deadline. The error holds the item.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn send(&self, item: T) -> Result<(), Unsent<T>> {
        self.send_by(item, Sender::send)
    }

    /// Sends an item if there is room now.
    ///
    /// # Errors
    /// The queue is full, or the stage has failed. The error holds the item.
    pub fn try_send(&self, item: T) -> Result<(), Unsent<T>> {
        self.send_by(item, Sender::try_send)
    }

    fn send_by(
        &self,
        item: T,
        send: impl FnOnce(&Sender<T>, T) -> Result<(), SendError<T>>,
    ) -> Result<(), Unsent<T>> {
        if self.stage.has_failed() {
            return Err(Unsent {
                item,
                error: self.stage.error(),
            });
        }
        if let Err(unsent) = send(&self.queue, item) {
            let error = self.error_of(&unsent);
            return Err(Unsent {
                item: unsent.into_inner(),
                error,
            });
        }
        self.stage.received.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn error_of(&self, unsent: &SendError<T>) -> io::Error {
        if unsent.is_full() {
            let text = format!(
                "the queue of the stage on the pool '{}' is full",
                self.stage.pool
            );
            return io::Error::new(io::ErrorKind::WouldBlock, text);
        }

        unsent
            .interrupt()
            .map_or_else(|| self.stage.error(), io::Error::from)
    }
}

impl<T> Next<T> {
    /// Sends an item to the next stage; waits while its queue is full, which
    /// [`StageMetrics::blocked`] of the sending stage counts.
    ///
    /// # Errors
    /// As for [`StageSender::send`]. Passed on by `?`, the error makes the sending stage fail too.
    ///
    /// Context: a fiber of the sending stage, or one that it has spawned; may suspend.
    pub fn send(&self, item: T) -> Result<(), Unsent<T>> {
        let item = match self.to.try_send(item) {
            Err(full) if full.error.kind() == io::ErrorKind::WouldBlock => full.item,
            sent => return sent,
        };
        let start = time::now();
        let sent = self.to.send(item);
        let blocked = time::now().saturating_duration_since(start);
        self.from
            .blocked_ns
            .fetch_add(wait::nanos(blocked), Ordering::Relaxed);
        sent
    }
}

impl Shared {
    fn new(pool: &Pool) -> Self {
        Self {
            pool: pool.name().to_owned(),
            received: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            blocked_ns: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            why: OnceLock::new(),
            fibers: Mutex::new(Vec::new()),
        }
    }

    fn metrics(&self) -> StageMetrics {
        let failed = self.has_failed();
        // In this order: an item that has been taken was in the queue before.
        let [done, begun, received] =
            [&self.done, &self.begun, &self.received].map(|n| n.load(Ordering::Acquire));
        let blocked = Duration::from_nanos(self.blocked_ns.load(Ordering::Relaxed));
        StageMetrics {
            received,
            done,
            queued: received.saturating_sub(begun),
            blocked,
            failed,
        }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn fail(&self, why: String) {
        let _ = self.why.set(why);
        self.failed.store(true, Ordering::Release);
        self.cancel_fibers();
    }

    fn cancel_fibers(&self) {
        // Outside the lock: waking may wait for other locks.
        let fibers = self.fibers().clone();
        let me = thread::current().id();
        fibers
            .iter()
            .filter(|fiber| fiber.id() != me)
            .for_each(Fiber::cancel);
    }

    fn fibers(&self) -> MutexGuard<'_, Vec<Fiber>> {
        self.fibers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that and why it has failed.
    fn reason(&self) -> String {
        let why = self.why.get().map_or("", String::as_str);
        format!("the stage on the pool '{}' has failed: {why}", self.pool)
    }

    fn error(&self) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, self.reason())
    }
}

/// A fiber of a stage, started or not. If it is dropped before its queue has ended, the stage
/// fails.
struct Alive {
    stage: Arc<Shared>,
    ended_well: bool,
}

impl Alive {
    /// Runs the function on items until there will be no more, or the stage fails.
    fn run<T>(mut self, queue: &Receiver<T>, f: &impl Fn(T) -> io::Result<()>) {
        while !self.stage.has_failed() {
            let item = match queue.recv() {
                Ok(item) => item,
                Err(error) if error.is_closed() => {
                    self.ended_well = true;
                    return;
                }
                Err(error) => return self.stage.fail(io::Error::from(error).to_string()),
            };

            self.stage.begun.fetch_add(1, Ordering::Release);
            match catch_unwind(AssertUnwindSafe(|| f(item))) {
                Ok(Ok(())) => self.stage.done.fetch_add(1, Ordering::Release),
                Ok(Err(error)) => return self.stage.fail(error.to_string()),
                Err(panic) => {
                    self.stage
                        .fail(format!("its function panicked: {}", panic_text(&*panic)));
                    return drop_contained(panic);
                }
            };
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if !self.ended_well && !self.stage.has_failed() {
            self.stage
                .fail("one of its fibers could not start, or was ended".to_owned());
        }
    }
}

impl<T> Clone for StageSender<T> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            stage: self.stage.clone(),
        }
    }
}

impl<T> From<Unsent<T>> for io::Error {
    fn from(unsent: Unsent<T>) -> Self {
        unsent.error
    }
}

impl<T> fmt::Display for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> fmt::Debug for Unsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unsent").field(&self.error).finish()
    }
}

impl<T> std::error::Error for Unsent<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> fmt::Debug for StageSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a sender into the stage on the pool '{}'",
            self.stage.pool
        )
    }
}

impl<T> fmt::Debug for Next<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to.fmt(f)
    }
}
