//! Fibers in the shape of `std::thread`.

#![expect(
    unsafe_code,
    reason = "promises `Send` and `'static`, or the pin, to `closure::create`"
)]

use std::any::Any;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fiber::cancel::{CancelReason, Interrupt, Node, PlaceId};
use crate::fiber::{self, FiberHandle, FiberSpec, Header, Movement, NEVER, Switch, Urgency};
use crate::sched::closure::{self, End, Failure, RawJoin};
use crate::sched::pool::{self, PoolShared};
use crate::sched::wait::{self, Interrupts, ThreadEntry};
use crate::sched::worker::{WorkerCtx, current_worker};

/// Waits for a fiber. Dropping it detaches the fiber.
#[derive(Debug)]
pub struct JoinHandle<T>(RawJoin<T>);

/// Waits for a fiber of this worker whose result need not be `Send`. Dropping it detaches the
/// fiber.
#[derive(Debug)]
pub struct LocalJoinHandle<T> {
    raw: RawJoin<T>,
    _here: PhantomData<*const ()>,
}

macro_rules! handle_methods {
    ($handle:ident, $raw:tt) => {
        impl<T> $handle<T> {
            /// Waits for the fiber's end and returns its value.
            ///
            /// # Errors
            /// The fiber's panic, or why it could not start; or the *caller* was cancelled or ran
            /// into its deadline: then the fiber goes on, detached.
            pub fn join(self) -> Result<T, JoinError> {
                self.$raw
                    .wait(Interrupts::Allowed)
                    .map_err(JoinError::interrupted)?;
                self.$raw.take().map_err(JoinError::failed)
            }

            /// Requests that the fiber stop: its current or next blocking call returns an error
            /// that [`crate::is_cancelled`] recognises.
            pub fn cancel(&self) {
                self.fiber().cancel();
            }

            /// Returns whether the fiber has ended.
            #[must_use]
            pub fn is_finished(&self) -> bool {
                self.$raw.is_done()
            }

            /// Returns the fiber's handle, for `unpark` and the like.
            #[must_use]
            pub fn fiber(&self) -> Fiber {
                Fiber::of(self.$raw.header())
            }

            /// Returns the fiber's end, for a select.
            pub(crate) fn end(&mut self) -> &mut dyn End {
                &mut self.$raw
            }
        }
    };
}

handle_methods!(JoinHandle, 0);
handle_methods!(LocalJoinHandle, raw);

impl<T> JoinHandle<T> {
    /// Waits whatever happens to the caller: when this returns, the fiber has ended.
    pub(crate) fn join_always(self) -> Result<T, JoinError> {
        self.0
            .wait(Interrupts::Ignored)
            .expect("an uninterruptible wait ends with its condition");
        self.0.take().map_err(JoinError::failed)
    }

    /// Notes that the caller waits for the fiber's end in another way than by joining it.
    pub(crate) fn want(&self) {
        self.0.want();
    }

    /// Returns a counted reference to the fiber.
    pub(crate) fn handle(&self) -> FiberHandle {
        FiberHandle::from_ref(self.0.header())
    }

    pub(crate) fn into_raw(self) -> RawJoin<T> {
        self.0
    }
}

/// Why `join` returns no value.
pub struct JoinError(Kind);

enum Kind {
    /// The payload (behind a lock so that the error is `Sync`, as boxed errors usually must be) and
    /// its message.
    Panicked(Mutex<Box<dyn Any + Send>>, String),
    Refused(io::Error),
    Interrupted(Interrupt),
}

impl JoinError {
    pub(crate) fn failed(failure: Failure) -> Self {
        Self(match failure {
            Failure::Panicked(payload) => {
                let text = panic_text(&*payload).to_owned();
                Kind::Panicked(Mutex::new(payload), text)
            }
            Failure::Refused(error) => Kind::Refused(error),
        })
    }

    pub(crate) fn interrupted(interrupt: Interrupt) -> Self {
        Self(Kind::Interrupted(interrupt))
    }

    /// Returns whether the fiber panicked.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Kind::Panicked(..))
    }

    /// Returns whether the fiber did not start: there was no stack for it, or its runtime was
    /// shutting down ([`crate::is_cancelled`] recognises that in the [`io::Error`] made of this).
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.0, Kind::Refused(_))
    }

    /// Returns whether the *joining* fiber was cancelled; the other goes on.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Kind::Interrupted(Interrupt::Cancelled(_)))
    }

    /// Returns whether the *joining* fiber or thread ran into its deadline; the other goes on.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self.0, Kind::Interrupted(Interrupt::TimedOut))
    }

    /// Returns the panic's payload, for [`std::panic::resume_unwind`].
    ///
    /// # Errors
    /// Returns the error itself if it is not a panic.
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.0 {
            Kind::Panicked(payload, _) => {
                Ok(payload.into_inner().unwrap_or_else(|e| e.into_inner()))
            }
            other => Err(Self(other)),
        }
    }

    pub(crate) fn into_io(self) -> io::Error {
        match self.0 {
            Kind::Interrupted(interrupt) => interrupt.into(),
            Kind::Refused(error) => error,
            Kind::Panicked(_, text) => io::Error::other(format!("a fiber panicked: {text}")),
        }
    }
}

pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Panicked(_, text) => f.debug_tuple("Panicked").field(text).finish(),
            Kind::Refused(error) => f.debug_tuple("Refused").field(error).finish(),
            Kind::Interrupted(interrupt) => f.debug_tuple("Interrupted").field(interrupt).finish(),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Panicked(_, text) => write!(f, "the fiber panicked: {text}"),
            Kind::Refused(error) => write!(f, "the fiber could not start: {error}"),
            Kind::Interrupted(interrupt) => io::Error::from(*interrupt).fmt(f),
        }
    }
}

impl std::error::Error for JoinError {}

/// Settings of a new fiber: its name, its stack size, and hints for the policy.
///
/// Priority, deadline and weight matter to the policies that rank by them (`priority`, `edf`,
/// `shares`, `policy::Tiers`); other policies ignore them.
///
/// ```
/// plainweave::run(|| {
///     let deep = plainweave::Builder::new().name("deep").stack_size(4 << 20);
///     assert_eq!(deep.spawn(|| 7).unwrap().join().unwrap(), 7);
/// });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<Box<str>>,
    stack_size: usize,
    priority: Option<u8>,
    weight: Option<u32>,
    deadline: Option<Instant>,
    in_turn: bool,
}

impl Builder {
    /// Creates a builder: no name, the runtime's stack size.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name that reports and the overflow message show.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into_boxed_str());
        self
    }

    /// Sets the bytes of stack, rounded up to a power of two. Such stacks come from a pool of their
    /// size, not from the workers' caches: use it for the few fibers that recurse deeply.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Sets how urgent the fiber is: 255 is the most urgent, [`crate::policy::PRIORITY`] (128) the
    /// default.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the fiber's share relative to others, 1 to 1,000; the default is
    /// [`crate::policy::WEIGHT`] (100).
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Sets when the fiber should have run. Nothing fails when it is late: for that see
    /// [`crate::time::with_timeout`], whose deadline policies see as well.
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Hands the fiber to the next of the runtime's workers in turn, in place of the spawner's own.
    /// It is for the connections of a server, which wait for their peers on the worker that began
    /// to serve them: those that one accepting fiber spawns would otherwise all wait on its worker,
    /// and reach the others only by being stolen.
    ///
    /// The turn decides where the fiber is queued. An idle worker may steal it from there;
    /// `spawn_local` and spawning into a [`Pool`](crate::pools::Pool) ignore it. Handing a fiber
    /// over costs about as much as unparking one that sleeps on another worker.
    #[must_use]
    pub fn in_turn(mut self) -> Self {
        self.in_turn = true;
        self
    }

    /// Spawns a fiber on the current runtime, like [`spawn`].
    ///
    /// # Errors
    /// The stack size or the weight is out of range, or the caller runs on no runtime.
    pub fn spawn<T, F>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let pool =
            pool::try_current_pool().ok_or_else(|| io::Error::other("spawn: no runtime here"))?;
        self.spawn_on(&pool, f)
    }

    /// Spawns a fiber on the current worker, like [`spawn_local`].
    ///
    /// # Errors
    /// The stack size or the weight is out of range; the caller is not a fiber, or is one that may
    /// migrate, or one with thread-local storage of its own.
    #[track_caller]
    pub fn spawn_local<T: 'static, F: FnOnce() -> T + 'static>(
        self,
        f: F,
    ) -> io::Result<LocalJoinHandle<T>> {
        let me = fiber::current()
            .ok_or_else(|| io::Error::other("spawn_local: called from outside a fiber"))?;
        let ctx = me.worker();
        let refused = |why| Err(io::Error::new(io::ErrorKind::Unsupported, why));
        if me.owns_storage() {
            return refused(
                "spawn_local: fibers with thread-local storage of their own are threads to the language, and only what \
                 is Send goes from one to another; use spawn, or storage that they share (shared_storage)",
            );
        }
        if me.pinned_to() != Some(ctx.id()) {
            return refused(
                "spawn_local: the calling fiber may move to another worker (Movement::Anytime)",
            );
        }
        self.check()?;
        let mut spec = ctx.pool().spec(Some(ctx.id()), None, NEVER);
        self.apply_to(ctx.pool(), &mut spec);
        spec.pinned_to = Some(ctx.id());
        spec.movement = Movement::Never;
        // SAFETY: pinned to this worker for good, like the caller; the handle is not Send.
        let (task, raw) = unsafe { closure::create(spec, None, f) };
        ctx.pool().spawn(task, Some(ctx));
        Ok(LocalJoinHandle {
            raw,
            _here: PhantomData,
        })
    }

    pub(crate) fn spawn_on<T, F>(self, pool: &PoolShared, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.check()?;
        // SAFETY: 'static and Send.
        Ok(unsafe { self.spawn_unchecked(pool, f) })
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        let range = crate::stack::MIN_SIZE..=crate::stack::MAX_SIZE;
        if self.stack_size != 0 && !range.contains(&self.stack_size) {
            let message = format!(
                "a fiber stack has {} to {} bytes",
                range.start(),
                range.end()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }

        if self
            .weight
            .is_some_and(|weight| !(1..=1000).contains(&weight))
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a fiber's weight is 1 to 1,000",
            ));
        }
        Ok(())
    }

    /// Writes this builder's settings into a fiber's spec.
    fn apply_to(self, pool: &PoolShared, spec: &mut FiberSpec) {
        spec.name = self.name;
        // `check` made sure that it is less than this.
        spec.stack_size = u32::try_from(self.stack_size).unwrap_or(u32::MAX);
        let default = Urgency::default();
        spec.urgency = Urgency {
            priority: self.priority.unwrap_or(default.priority),
            weight: self.weight.unwrap_or(default.weight),
            due: self.deadline.map_or(default.due, |at| pool.nanos(at)),
        };
    }

    /// Spawns a fiber into a pool that may be ending; `None` if it is. `place` is the one that the
    /// fiber takes up.
    pub(crate) fn spawn_into<T, F>(
        self,
        pool: &PoolShared,
        place: Option<PlaceId>,
        f: F,
    ) -> io::Result<Option<JoinHandle<T>>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.check()?;
        Ok(pool.spawn_if_open(|here| {
            let node = place.map(|place| Node::with_place(None, place));
            let mut spec = pool.spec(here.map(WorkerCtx::id), node, NEVER);
            self.apply_to(pool, &mut spec);

            // SAFETY: 'static and Send.
            let (task, raw) = unsafe { closure::create(spec, None, f) };
            (task, JoinHandle(raw))
        }))
    }

    /// # Safety
    /// As for `closure::create`.
    pub(crate) unsafe fn spawn_unchecked<T, F: FnOnce() -> T>(
        self,
        pool: &PoolShared,
        f: F,
    ) -> JoinHandle<T> {
        let here = current_worker().filter(|ctx| std::ptr::eq(ctx.pool(), pool));
        let home = self.in_turn.then(|| pool.next_home());
        let mut spec = pool.spec(home.or(here.map(WorkerCtx::id)), None, NEVER);
        self.apply_to(pool, &mut spec);
        // SAFETY: the caller's promise.
        let (task, raw) = unsafe { closure::create(spec, None, f) };
        match home {
            Some(home) => pool.spawn_at(home, task, here),
            None => pool.spawn(task, here),
        }
        JoinHandle(raw)
    }
}

/// Spawns a fiber on the current runtime; from a plain thread use [`crate::Runtime::spawn`].
///
/// The new fiber is detached from the caller's scope and deadline: it ends by itself, by its
/// handle's `cancel` or with the runtime. [`Movement`] says which workers may run it.
///
/// # Panics
/// If called outside a runtime.
///
/// ```
/// plainweave::run(|| {
///     let sum = plainweave::spawn(|| (1..=100).sum::<u64>());
///     assert_eq!(sum.join().unwrap(), 5050);
/// });
/// ```
#[track_caller]
pub fn spawn<T, F>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let Some(me) = fiber::current() else {
        pool::no_runtime("spawn")
    };
    // SAFETY: 'static and Send.
    unsafe { Builder::new().spawn_unchecked(me.worker().pool(), f) }
}

/// Spawns a fiber that waits in the calling fiber's place, and as urgently. Returns `None` on a
/// plain thread.
pub(crate) fn spawn_waiting<T, F>(f: F) -> Option<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let me = fiber::current()?;
    let ctx = me.worker();
    let mut spec = ctx.pool().spec(Some(ctx.id()), None, NEVER);
    spec.urgency = me.urgency();
    // SAFETY: 'static and Send.
    let (task, raw) = unsafe { closure::create(spec, None, f) };
    ctx.pool().spawn(task, Some(ctx));
    Some(JoinHandle(raw))
}

/// Spawns a fiber on the current *worker*, pinned to it, so closure and result need not be `Send`.
/// Only for fibers that share their worker's thread-local storage
/// ([`crate::RuntimeBuilder::shared_storage`]): with storage of their own, fibers are threads to
/// the language, and what may point into the thread-locals of one may not go to another.
///
/// # Panics
/// If called outside a fiber, by one that may migrate ([`Movement::Anytime`]), or by one with
/// storage of its own.
pub fn spawn_local<T: 'static, F: FnOnce() -> T + 'static>(f: F) -> LocalJoinHandle<T> {
    match Builder::new().spawn_local(f) {
        Ok(handle) => handle,
        Err(error) => panic!("{error}"),
    }
}

/// Lets other fibers run; on a plain thread, other threads. Never an error: a cancelled fiber goes
/// on.
///
/// The policy decides where the fiber waits for its next turn. [`yield_local`] and [`yield_shared`]
/// ask for a place.
///
/// ```
/// # use std::sync::{Arc, Mutex};
/// plainweave::Runtime::builder().workers(1).build()?.run(|| {
///     let order = Arc::new(Mutex::new(Vec::new()));
///     let other = { let order = order.clone(); plainweave::spawn(move || order.lock().unwrap().push("other")) };
///     plainweave::yield_now();
///     order.lock().unwrap().push("caller");
///     other.join().unwrap();
///     assert_eq!(*order.lock().unwrap(), ["other", "caller"]);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn yield_now() {
    yield_as(Switch::Yield);
}

/// Whether [`preemption_point`] does anything in this build.
pub(crate) const HAS_POINTS: bool = cfg!(any(debug_assertions, feature = "preemption-points"));

/// Lets any fiber go on that is ready, before this one does what others may see: on virtual time,
/// if the build [has such points](HAS_POINTS). Nothing otherwise. So a test finds what depends on
/// the order of two such steps, which without it only a wait in between would show.
#[inline(always)]
pub(crate) fn preemption_point() {
    #[cold]
    fn on_virtual_time() {
        let simulated = |header: &&Header| header.worker().pool().virtual_time;
        if wait::suspendable().filter(simulated).is_some() && !std::thread::panicking() {
            // A soft one: by `yield_now` a fiber says that it has nothing to do.
            yield_local();
        }
    }

    if HAS_POINTS {
        on_virtual_time();
    }
}

/// Yields like [`yield_now`], and waits among this worker's own fibers: a *soft* yield, in the
/// words of the OCaml schedulers' thesis. The fiber's data stays where it is, and thieves may take
/// the fiber as any other. It waits as long as the policy lets those fibers wait.
///
/// Policies that have only one place for such a fiber treat all three yields alike: those with one
/// queue for all, with lanes that belong to nobody, or with nothing that workers share.
///
/// ```
/// plainweave::run(|| {
///     for n in 0..1_000_000u32 {
///         if n % 10_000 == 0 {
///             plainweave::yield_local(); // Lets others run, and keeps this fiber's data in this core's cache.
///         }
///     }
/// });
/// ```
pub fn yield_local() {
    yield_as(Switch::YieldLocal);
}

/// Yields like [`yield_now`], and waits in the queue that all workers share: a *hard* yield, in the
/// words of the OCaml schedulers' thesis. Any worker may run the fiber next. Each looks there when
/// it has nothing else, and on a schedule, so that its own fibers do not starve this one.
///
/// A fiber that is pinned stays with its worker, as does one whose worker is alone. Policies
/// without such a queue treat all three yields alike; see [`yield_local`].
pub fn yield_shared() {
    yield_as(Switch::YieldShared);
}

#[inline(always)]
fn yield_as(how: Switch) {
    match wait::suspendable() {
        Some(header) => header.switch(how),
        None => std::thread::yield_now(),
    }
}

/// Waits until another fiber or thread calls [`Fiber::unpark`]; a token left before makes it return
/// at once. Works on plain threads too.
///
/// # Errors
/// The caller was cancelled, or ran into its deadline ([`io::ErrorKind::TimedOut`]).
///
/// ```
/// plainweave::run(|| {
///     let me = plainweave::current();
///     plainweave::spawn(move || me.unpark());
///     plainweave::park().unwrap();
/// });
/// ```
// Inlined into the caller's own frame: see the head of `sched/wait`.
#[inline(always)]
pub fn park() -> io::Result<()> {
    Ok(wait::park(None)?)
}

/// Waits like [`park`], for at most `limit`.
///
/// # Errors
/// As for `park`; [`io::ErrorKind::TimedOut`] when the time is over.
///
/// ```
/// # use std::{io::ErrorKind, time::Duration};
/// plainweave::run(|| {
///     let late = plainweave::park_timeout(Duration::from_millis(1)).unwrap_err();
///     assert_eq!(late.kind(), ErrorKind::TimedOut);
/// });
/// ```
pub fn park_timeout(limit: Duration) -> io::Result<()> {
    Ok(wait::park(Some(limit))?)
}

/// Returns the number of the worker that runs the calling fiber, or `None` on a plain thread.
/// Workers count from 0; added and spare ones come after those that the runtime began with. A fiber
/// that moves may find another after each call that suspends.
///
/// ```
/// let runtime = plainweave::Runtime::builder().workers(1).max_workers(1).build()?;
/// assert_eq!(runtime.run(plainweave::worker_index), Some(0));
/// assert_eq!(plainweave::worker_index(), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn worker_index() -> Option<usize> {
    fiber::current_host().map(|host| host.id)
}

/// Returns the calling fiber, or the calling plain thread.
///
/// ```
/// plainweave::run(|| {
///     let named = plainweave::Builder::new().name("loader").spawn(|| plainweave::current().name().map(str::to_owned));
///     assert_eq!(named.unwrap().join().unwrap().as_deref(), Some("loader"));
/// });
/// ```
#[must_use]
pub fn current() -> Fiber {
    match fiber::current() {
        Some(header) => Fiber::of(header),
        None => Fiber(Inner::Thread(wait::this_thread())),
    }
}

/// Returns whether the caller runs on a fiber.
///
/// ```
/// assert!(!plainweave::on_fiber());
/// assert!(plainweave::run(plainweave::on_fiber));
/// ```
#[must_use]
pub fn on_fiber() -> bool {
    fiber::current().is_some()
}

/// A handle to a fiber (or to a plain thread that uses this crate's waits), as
/// [`std::thread::Thread`].
///
/// ```
/// # use std::time::Duration;
/// plainweave::run(|| {
///     let sleeper = plainweave::spawn(|| plainweave::time::sleep(Duration::from_secs(60)));
///     let fiber = sleeper.fiber();
///     fiber.cancel();
///     assert!(plainweave::is_cancelled(&sleeper.join().unwrap().unwrap_err()));
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Fiber(Inner);

#[derive(Clone, Debug)]
enum Inner {
    Fiber(FiberHandle),
    Thread(Arc<ThreadEntry>),
}

impl Fiber {
    pub(crate) fn of(header: &Header) -> Self {
        Self(Inner::Fiber(FiberHandle::from_ref(header)))
    }

    /// Leaves the token that ends the fiber's [`park`], now or when it next calls it.
    #[inline]
    pub fn unpark(&self) {
        match &self.0 {
            // What was written before is visible to the caller that takes the token.
            Inner::Fiber(fiber) => fiber.unpark(),
            Inner::Thread(entry) => {
                entry.token.store(true, Ordering::Release);
                wait::Waker::Thread(entry.clone()).wake();
            }
        }
    }

    /// Requests that a fiber stop: its current or next blocking call returns an error that
    /// [`crate::is_cancelled`] recognises. Plain threads cannot be cancelled.
    pub fn cancel(&self) {
        if let Inner::Fiber(fiber) = &self.0 {
            fiber.header().cancel.set(CancelReason::Requested);
            fiber.wake();
        }
    }

    /// Returns the fiber's number, unique among the fibers of the process; 0 for a plain thread.
    #[must_use]
    pub fn id(&self) -> u64 {
        match &self.0 {
            Inner::Fiber(fiber) => fiber.header().id(),
            Inner::Thread(_) => 0,
        }
    }

    /// Returns the fiber's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Inner::Fiber(fiber) => fiber.header().name(),
            Inner::Thread(entry) => entry.thread.name(),
        }
    }
}
