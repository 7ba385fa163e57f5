//! Loom models of the primitives: the code that runs, with loom's threads as waiters.
//!
//! A lock that loom can bound takes the place of the spin lock, which has a model of its own, and
//! loom's `park` that of a thread's. An impatient thread looks for its grant once and then gives
//! up, so loom tries all ways in which that meets a grant. How fibers get their grants is modelled
//! in `atomics` and `queue/mpsc`.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::cell::Cell;
use std::sync::atomic::AtomicUsize as Count;

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::sync::{Arc, Mutex as ModelMutex};
use loom::thread::{self, Thread};

use super::{
    Barrier, Notify, OnceLock, RwLock, RwLockWriteGuard, Semaphore, WaitGroup, broadcast, promise,
    watch,
};
use crate::fiber::cancel::Interrupt;
use crate::sched::wait::Interrupts;

/// In place of the lock of that name.
pub(super) struct SpinLock<S>(ModelMutex<S>);

impl<S> SpinLock<S> {
    /// Compiles; loom's locks cannot be made at compile time.
    pub(super) const fn new(state: S) -> Self {
        let _ = std::mem::ManuallyDrop::new(state);
        panic!("a model makes its lock with `modelled`")
    }

    pub(super) fn modelled(state: S) -> Self {
        Self(ModelMutex::new(state))
    }

    pub(super) fn with<R>(&self, section: impl FnOnce(&mut S) -> R) -> R {
        section(&mut self.0.lock().unwrap())
    }
}

/// In place of `std`'s `OnceLock`, which loom does not see, for a value that one thread sets.
pub(super) struct OnceCell<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
}

impl<T> OnceCell<T> {
    /// Compiles; loom's atomics cannot be made at compile time.
    pub(super) const fn new() -> Self {
        panic!("a model makes its cell with `modelled`")
    }

    pub(super) fn modelled() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            is_set: AtomicBool::new(false),
        }
    }

    pub(super) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Release);
        Ok(())
    }

    pub(super) fn get(&self) -> Option<&T> {
        self.is_set.load(Acquire).then(|| self.value.get())?
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    pub(super) fn take(&mut self) -> Option<T> {
        self.value.take()
    }

    pub(super) fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> From<T> for OnceCell<T> {
    fn from(value: T) -> Self {
        Self {
            value: value.into(),
            is_set: AtomicBool::new(true),
        }
    }
}

pub(super) type Entry = Thread;

loom::thread_local! {
    static GIVES_UP: Cell<bool> = Cell::new(false);
    static ID: usize = {
        static NEXT: Count = Count::new(1);
        NEXT.fetch_add(1, Relaxed)
    };
}

pub(super) fn this() -> Entry {
    thread::current()
}

pub(super) fn id() -> usize {
    ID.with(|id| *id)
}

pub(super) fn wake(entry: Entry) {
    entry.unpark();
}

pub(super) fn until(
    interrupts: Interrupts,
    granted: impl Fn() -> Option<()>,
) -> Result<(), Interrupt> {
    let gives_up = interrupts == Interrupts::Allowed && GIVES_UP.with(Cell::get);
    while granted().is_none() {
        if gives_up {
            return Err(Interrupt::TimedOut);
        }
        thread::park();
    }
    Ok(())
}

/// Does what may wait; the waits, where they may be interrupted, give up at once.
pub(super) fn impatiently<R>(f: impl FnOnce() -> R) -> R {
    GIVES_UP.with(|gives_up| gives_up.set(true));
    let result = f();
    GIVES_UP.with(|gives_up| gives_up.set(false));
    result
}

/// Starts a thread that does something [`impatiently`].
fn spawn_impatient<R: 'static>(f: impl FnOnce() -> R + 'static) -> thread::JoinHandle<R> {
    thread::spawn(|| impatiently(f))
}

/// Counts values that are dropped.
#[derive(Clone, Default)]
pub(super) struct Drops(std::sync::Arc<Count>);

/// A value that counts when it is dropped.
pub(super) struct Counted(Drops);

impl Drops {
    pub(super) fn value(&self) -> Counted {
        Counted(self.clone())
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}

/// Loom fails if two write at once, or one writes while others read.
type Modelled = RwLock<UnsafeCell<u32>>;

fn rw_lock() -> Arc<Modelled> {
    Arc::new(RwLock::modelled(UnsafeCell::new(0)))
}

fn write(lock: &Modelled) -> bool {
    // SAFETY: what the models check: a writer is alone.
    lock.write()
        .map(|guard| guard.with_mut(|data| unsafe { *data += 1 }))
        .is_ok()
}

fn read(lock: &Modelled) -> Option<u32> {
    // SAFETY: what the models check: nobody writes while one reads.
    lock.read()
        .ok()
        .map(|guard| guard.with(|data| unsafe { *data }))
}

#[test]
fn loom_rw_lock_writers_are_alone() {
    loom::model(|| {
        let lock = rw_lock();
        let first = lock.clone();
        let second = lock.clone();
        let threads = [
            thread::spawn(move || write(&first)),
            thread::spawn(move || write(&second)),
        ];
        assert!(read(&lock).is_some_and(|seen| seen <= 2));
        threads
            .into_iter()
            .for_each(|thread| assert!(thread.join().unwrap()));
        assert_eq!(read(&lock), Some(2));
        assert!(lock.try_write().is_some());
    });
}

/// A writer that comes back at once may pass one that waits, then has to wait for it.
#[test]
fn loom_rw_lock_a_writer_is_passed_once() {
    loom::model(|| {
        let lock = rw_lock();
        let guard = lock.write().unwrap();
        let theirs = lock.clone();
        let other = thread::spawn(move || write(&theirs));
        drop(guard);
        assert!(write(&lock) && write(&lock));
        assert!(other.join().unwrap());
        assert_eq!(read(&lock), Some(3));
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn loom_rw_lock_readers_are_let_in_together() {
    loom::model(|| {
        let lock = rw_lock();
        let guard = lock.write().unwrap();
        let threads = [0, 1].map(|_| {
            let lock = lock.clone();
            thread::spawn(move || read(&lock))
        });

        // SAFETY: what the model checks.
        guard.with_mut(|data| unsafe { *data = 5 });
        drop(guard);
        threads
            .into_iter()
            .for_each(|thread| assert_eq!(thread.join().unwrap(), Some(5)));
        assert!(lock.try_write().is_some());
    });
}

/// A reader waits behind a writer that gives up, perhaps when it has the lock already: the reader
/// gets in.
#[test]
fn loom_rw_lock_a_writer_that_gives_up_lets_readers_in() {
    loom::model(|| {
        let lock = rw_lock();
        let guard = lock.read().unwrap();
        let writer = lock.clone();
        let reader = lock.clone();
        let writer = spawn_impatient(move || write(&writer));
        let reader = thread::spawn(move || read(&reader));

        drop(guard);
        let wrote = writer.join().unwrap();

        assert!(
            reader
                .join()
                .unwrap()
                .is_some_and(|seen| seen <= u32::from(wrote))
        );
        assert!(lock.try_write().is_some());
    });
}

/// The same while the lock stays read: nobody but the writer itself can let the reader in.
#[test]
fn loom_rw_lock_a_writer_that_gives_up_beside_readers_lets_readers_in() {
    loom::model(|| {
        let lock = rw_lock();
        let guard = lock.read().unwrap();
        let writer = lock.clone();
        let reader = lock.clone();
        let writer = spawn_impatient(move || write(&writer));
        let reader = thread::spawn(move || read(&reader));

        assert!(!writer.join().unwrap());
        assert_eq!(reader.join().unwrap(), Some(0));
        drop(guard);
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn loom_rw_lock_a_downgraded_guard_keeps_writers_out() {
    loom::model(|| {
        let lock = rw_lock();
        let guard = lock.write().unwrap();
        let writer = lock.clone();
        let reader = lock.clone();
        let writer = thread::spawn(move || write(&writer));
        let reader = thread::spawn(move || read(&reader));
        let guard = RwLockWriteGuard::downgrade(guard);

        // SAFETY: what the model checks.
        assert_eq!(guard.with(|data| unsafe { *data }), 0);
        drop(guard);
        assert!(writer.join().unwrap());
        assert!(reader.join().unwrap().is_some());
        assert!(lock.try_write().is_some());
    });
}

/// One wants two permits and gives up, another one wants one: whatever is released serves the
/// other.
#[test]
fn loom_semaphore_one_that_gives_up_passes_permits_on() {
    loom::model(|| {
        let permits = Arc::new(Semaphore::modelled(0));
        let many = permits.clone();
        let one = permits.clone();
        let many =
            spawn_impatient(move || many.acquire_many(2).map(|permit| permit.forget()).is_ok());
        let one = thread::spawn(move || one.acquire().map(|permit| permit.forget()).is_ok());

        permits.release();
        if many.join().unwrap() {
            unreachable!("there is only one permit");
        }
        assert!(one.join().unwrap());
        assert_eq!(permits.available(), 0);
    });
}

/// One is granted a permit, or learns that the semaphore is closed: a permit is never lost.
#[test]
fn loom_semaphore_closed_against_released() {
    loom::model(|| {
        let permits = Arc::new(Semaphore::modelled(0));
        let waiter = permits.clone();
        let releaser = permits.clone();
        let waiter = thread::spawn(move || waiter.acquire().map(|permit| permit.forget()).is_ok());
        let releaser = thread::spawn(move || releaser.release());
        permits.close();
        releaser.join().unwrap();
        assert_eq!(permits.available(), usize::from(!waiter.join().unwrap()));
    });
}

/// Of three, one gives up: the other two pass a barrier of two together, or one of them with the
/// third.
#[test]
fn loom_barrier_nobody_passes_with_one_that_has_gone() {
    loom::model(|| {
        let barrier = Arc::new(Barrier::modelled(2));
        let hasty = barrier.clone();
        let patient = barrier.clone();
        let hasty = spawn_impatient(move || hasty.wait().is_ok());
        let patient = thread::spawn(move || patient.wait().unwrap().is_leader());

        // With the patient one, or, if the hasty one has met that one, with nobody.
        let hasty = hasty.join().unwrap();
        if !hasty {
            let led = barrier.wait().unwrap().is_leader();
            assert!(led != patient.join().unwrap());
        } else {
            patient.join().unwrap();
        }
    });
}

#[test]
fn loom_wait_group_ends_with_the_last_member() {
    loom::model(|| {
        let group = WaitGroup::modelled();
        let done = Arc::new(AtomicUsize::new(0));
        let threads = [0, 1].map(|_| {
            let member = group.clone();
            let done = done.clone();
            thread::spawn(move || {
                done.fetch_add(1, SeqCst);
                drop(member);
            })
        });

        group.wait().unwrap();
        assert_eq!(done.load(SeqCst), 2);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

/// The first initialiser fails; one of the others succeeds, and all that wait get its value.
#[test]
fn loom_once_lock_the_next_one_tries() {
    loom::model(|| {
        let cell = Arc::new(OnceLock::modelled());
        let failing = cell.clone();
        let waiting = cell.clone();
        let failing = thread::spawn(move || {
            failing
                .get_or_try_init(|| Err(std::io::Error::other("no")))
                .map(|n: &u32| *n)
                .ok()
        });

        let waiting = thread::spawn(move || *waiting.wait().unwrap());
        assert_eq!(*cell.get_or_init(|| 7).unwrap(), 7);
        assert!(failing.join().unwrap().is_none_or(|n| n == 7));
        assert_eq!(waiting.join().unwrap(), 7);
    });
}

/// One gives up waiting for an initialiser that fails: the third is not forgotten.
#[test]
fn loom_once_lock_one_that_gives_up_forgets_nobody() {
    loom::model(|| {
        let cell = Arc::new(OnceLock::modelled());
        let runs = Arc::new(AtomicUsize::new(0));
        let init = move |fails: bool| {
            runs.fetch_add(1, SeqCst);
            if fails {
                Err(std::io::Error::other("no"))
            } else {
                Ok(1_u32)
            }
        };

        let threads = [(cell.clone(), init.clone()), (cell.clone(), init.clone())];
        let [(hasty, hasty_init), (other, other_init)] = threads;
        let hasty = spawn_impatient(move || hasty.get_or_try_init(|| hasty_init(true)).is_ok());
        let other = thread::spawn(move || other.get_or_try_init(|| other_init(false)).is_ok());
        let _ = cell.get_or_try_init(|| init(true));
        hasty.join().unwrap();
        assert!(other.join().unwrap());
        assert_eq!(cell.get(), Some(&1));
    });
}

/// Two callers initialise a cell; the first `fails` runs fail. Returns what they got.
fn initialised_by_two(fails: u32) -> (Option<u32>, Option<u32>) {
    type Shared = (OnceLock<u32>, UnsafeCell<u32>);
    let shared: Arc<Shared> = Arc::new((OnceLock::modelled(), UnsafeCell::new(0)));
    let init = move |shared: &Shared| {
        let run = || {
            // SAFETY: nobody else runs; loom checks it.
            let runs = shared.1.with_mut(|runs| unsafe {
                *runs += 1;
                *runs
            });

            if runs > fails {
                Ok(runs)
            } else {
                Err(std::io::Error::other("no"))
            }
        };
        shared.0.get_or_try_init(run).map(|n| *n).ok()
    };

    let theirs = shared.clone();
    let other = thread::spawn(move || init(&theirs));
    (init(&shared), other.join().unwrap())
}

/// Initialisers run one at a time, each after what the one before it has done.
#[test]
fn loom_once_lock_one_runs_at_a_time() {
    loom::model(|| {
        let got = initialised_by_two(1);
        assert!(matches!(got, (None, Some(2)) | (Some(2), None)), "{got:?}");
    });
}

/// Once there is a value, no initialiser runs.
#[test]
fn loom_once_lock_one_run_succeeds() {
    loom::model(|| assert_eq!(initialised_by_two(0), (Some(1), Some(1))));
}

/// One notification for two waiters, one of which gives up: it wakes the other, or the first was
/// glad of it.
#[test]
fn loom_notify_one_that_gives_up_leaves_the_notification() {
    loom::model(|| {
        let notify = Arc::new(Notify::modelled());
        let hasty = notify.clone();
        let notifier = notify.clone();
        let hasty = spawn_impatient(move || hasty.wait().is_ok());
        let notifier = thread::spawn(move || notifier.notify_one());
        let woken = hasty.join().unwrap();

        notifier.join().unwrap();
        if !woken {
            notify.wait().unwrap();
        }

        // It was the only one.
        assert_eq!(format!("{:?}", &*notify), "Notify { notified: false }");
    });
}

/// A caller that looks at the flag after it has asked for a `Notified` does not miss the
/// notification.
#[test]
fn loom_notify_waiters_is_not_missed() {
    loom::model(|| {
        let shared = Arc::new((Notify::modelled(), AtomicUsize::new(0)));
        let theirs = shared.clone();
        let notifier = thread::spawn(move || {
            theirs.1.store(1, SeqCst);
            theirs.0.notify_waiters();
        });

        let notified = shared.0.notified();
        if shared.1.load(SeqCst) == 0 {
            notified.wait().unwrap();
        }
        notifier.join().unwrap();
    });
}

#[test]
fn loom_watch_the_last_value_is_seen() {
    loom::model(|| {
        let (sender, receiver) = watch::modelled(0);
        let receivers = [receiver.clone(), receiver].map(|mut receiver| {
            thread::spawn(move || {
                let mut last = 0;
                while receiver.changed().is_ok() {
                    let value = *receiver.get_and_update();
                    assert!(value > last || value == 2);
                    last = value;
                }
                last
            })
        });

        sender.send(1);
        sender.send(2);
        drop(sender);
        receivers
            .into_iter()
            .for_each(|receiver| assert_eq!(receiver.join().unwrap(), 2));
    });
}

/// Each of two receivers accounts for both values: got or lost.
#[test]
fn loom_broadcast_values_come_in_order_or_are_counted() {
    loom::model(|| {
        let (sender, first) = broadcast::modelled(1);
        let receivers = [sender.subscribe(), first].map(|mut receiver| {
            thread::spawn(move || {
                let mut position = 0;
                loop {
                    match receiver.recv() {
                        Ok(value) => {
                            assert_eq!(value, position);
                            position += 1;
                        }
                        Err(error) if error.is_closed() => return position,
                        Err(error) => position += error.lagged().expect("not interrupted"),
                    }
                }
            })
        });

        (0..2).for_each(|n| assert_eq!(sender.send(n), 2));
        drop(sender);
        receivers
            .into_iter()
            .for_each(|receiver| assert_eq!(receiver.join().unwrap(), 2));
    });
}

/// Two wait, perhaps before the value comes: both get it, and it is dropped with the last promise.
#[test]
fn loom_promise_every_waiter_gets_the_value() {
    loom::model(|| {
        let drops = Drops::default();
        let (resolver, promise) = promise::modelled();
        let waiters = [promise.clone(), promise].map(|promise| {
            let drops = drops.clone();
            thread::spawn(move || promise.wait().is_ok() && drops.count() == 0)
        });

        assert!(resolver.resolve(drops.value()).is_ok());
        waiters
            .into_iter()
            .for_each(|waiter| assert!(waiter.join().unwrap()));
        assert_eq!(drops.count(), 1);
    });
}

/// The resolver is dropped without a value: both waiters learn that, whenever they come.
#[test]
fn loom_promise_abandoned_fails_every_waiter() {
    loom::model(|| {
        let (resolver, promise) = promise::modelled::<u32>();
        let waiters = [promise.clone(), promise].map(|promise| {
            thread::spawn(move || promise.wait().is_err_and(|error| error.is_abandoned()))
        });
        drop(resolver);
        waiters
            .into_iter()
            .for_each(|waiter| assert!(waiter.join().unwrap()));
    });
}

/// One of two waiters gives up, perhaps when the value is there: the other gets it.
#[test]
fn loom_promise_one_that_gives_up_leaves_the_value_to_the_other() {
    loom::model(|| {
        let drops = Drops::default();
        let (resolver, promise) = promise::modelled();
        let hasty = promise.clone();
        let hasty = spawn_impatient(move || {
            hasty
                .wait()
                .map_or_else(|error| error.is_timed_out(), |_| true)
        });

        let patient = thread::spawn(move || promise.wait().is_ok());
        assert!(resolver.resolve(drops.value()).is_ok());
        assert!(hasty.join().unwrap() && patient.join().unwrap());
        assert_eq!(drops.count(), 1);
    });
}

/// The only waiter gives up and drops its promise: the value comes back, or is dropped with the
/// promise.
#[test]
fn loom_promise_the_last_one_gives_up() {
    loom::model(|| {
        let drops = Drops::default();
        let gone = Arc::new(AtomicBool::new(false));
        let (resolver, promise) = promise::modelled();
        let theirs = gone.clone();
        let hasty = spawn_impatient(move || {
            let got = promise.wait().is_ok();
            drop(promise);
            theirs.store(true, SeqCst);
            got
        });

        let too_late = gone.load(SeqCst);
        let back = resolver.resolve(drops.value()).err();
        let got = hasty.join().unwrap();
        assert!(if too_late {
            back.is_some()
        } else {
            back.is_none() || !got
        });
        assert_eq!(drops.count(), usize::from(back.is_none()));
    });
}

/// A look while the value comes finds it, or that there is none yet; never that there will be none.
#[test]
fn loom_promise_a_look_does_not_take_it_for_abandoned() {
    loom::model(|| {
        let (resolver, promise) = promise::modelled();
        let theirs = promise.clone();
        let looker = thread::spawn(move || {
            theirs
                .try_get()
                .map_or_else(|error| error.is_pending(), |n| *n == 7)
        });

        resolver.resolve(7).unwrap();
        assert!(looker.join().unwrap());
        assert!(promise.is_ended() && promise.try_get().is_ok());
    });
}
