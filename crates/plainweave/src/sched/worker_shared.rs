//! The part of a worker that all threads may touch.

#![expect(
    unsafe_code,
    reason = "sends those pointers; the watchdog's way to a worker's driver"
)]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use slab::Slab;

use crate::fiber::{FiberTask, Header};
use crate::io::driver::PollFd;
use crate::io::eventfd::Wakeup;
use crate::io::release::Released;
use crate::queue::inbox::Inbox;
use crate::queue::mpsc::{Mpsc, Reader, mpsc};
use crate::sched::counts::PublishedCounts;
use crate::sched::spare::{Role, RoleCell};
use crate::sched::worker_io::WorkerIo;
use crate::shim;

/// Grants that may be in flight to a worker's fibers; more go through its inbox.
const GRANTS: usize = 256;

/// The shared part of a worker.
pub(crate) struct WorkerShared {
    pub(crate) inbox: CachePadded<Inbox<FiberTask>>,
    /// Grants to fibers that are pinned there.
    pub(crate) granted: CachePadded<shim::Arc<Mpsc<Header>>>,
    /// The reader of `granted`, until the worker starts.
    reader: Mutex<Option<Reader<Header>>>,
    wakeup: OnceLock<Arc<Wakeup>>,
    pub(crate) released: Arc<Released>,
    /// The worker alone writes this and the next six fields.
    pub(crate) spawned: AtomicU64,
    pub(crate) finished: AtomicU64,
    /// Fibers that have started and are pinned there.
    pub(crate) live: AtomicUsize,
    /// Whether it is out of fibers: it searches, sleeps, or is about to run one.
    pub(crate) dry: AtomicBool,
    pub(crate) switches: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) counts: CachePadded<PublishedCounts>,
    /// Idle connections at the worker's driver; written under its I/O lock (`atomics/biased_lock`).
    pub(crate) idle_conns: AtomicU64,
    /// Of these, how many are listeners.
    pub(crate) idle_listeners: AtomicU64,
    pub(crate) driver_name: OnceLock<&'static str>,
    /// The kernel's number of its thread; 0 if it has none.
    thread: AtomicU32,
    /// Fibers that have started there and may move, so that shutdown finds them. (Pinned ones are
    /// on the worker's own list.)
    movable: CachePadded<Mutex<Slab<Registered>>>,
    /// Since when a fiber has held it up, in nanoseconds since the pool's epoch, as the watchdog
    /// sees it; 0 if none does.
    pub(crate) held_since: AtomicU64,
    /// Set while the worker's loop runs.
    remote_io: Mutex<Option<RemoteIo>>,
    pub(crate) role: RoleCell,
}

/// A fiber on record: alive, because it is removed under the same lock before it is freed.
pub(crate) struct Registered(pub(crate) NonNull<Header>);
// SAFETY: used under the list's lock only, to take a counted reference.
unsafe impl Send for Registered {}

/// Switches (counted by strides) and sleeps of a worker: they stand still while a fiber holds it
/// up.
pub(crate) type Beat = (u64, u64);

/// Remote access to a worker's driver, timers and idle connections.
pub(crate) struct RemoteIo {
    worker_io: NonNull<WorkerIo>,
    watched: Option<Arc<PollFd<OwnedFd>>>,
}

// SAFETY: its holder holds the lock that the worker needs to drop the `WorkerIo`, which hands its
// content to one thread at a time by its biased lock. Of a driver that is bound to its thread
// (`watched` is `None`) the watchdog uses nothing.
unsafe impl Send for RemoteIo {}

impl RemoteIo {
    pub(crate) fn worker_io(&self) -> &WorkerIo {
        // SAFETY: it is open, so the worker's loop runs, and does not end before the lock is
        // released.
        unsafe { self.worker_io.as_ref() }
    }

    /// Returns a duplicate of the driver's descriptor, if other threads may poll the driver.
    pub(crate) fn watched(&self) -> Option<&Arc<PollFd<OwnedFd>>> {
        self.watched.as_ref()
    }
}

/// Revokes the remote access to a worker's I/O when dropped.
pub(crate) struct OpenRemoteIo<'a>(&'a WorkerShared);

impl Drop for OpenRemoteIo<'_> {
    fn drop(&mut self) {
        *self.0.remote_io() = None;
    }
}

impl WorkerShared {
    /// Creates it for a worker in this role: a regular one is active, a spare one absent.
    pub(crate) fn new(role: Role) -> Self {
        // A spare worker has no fibers that are pinned for good, so nobody sends it grants.
        let (granted, reader) = mpsc(if role == Role::Absent { 1 } else { GRANTS });
        Self {
            inbox: CachePadded::new(Inbox::new()),
            granted: CachePadded::new(granted),
            reader: Mutex::new(Some(reader)),
            wakeup: OnceLock::new(),
            released: Arc::new(Released::new()),
            spawned: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            dry: AtomicBool::new(true),
            switches: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            counts: CachePadded::default(),
            idle_conns: AtomicU64::new(0),
            idle_listeners: AtomicU64::new(0),
            driver_name: OnceLock::new(),
            thread: AtomicU32::new(0),
            movable: CachePadded::default(),
            held_since: AtomicU64::new(0),
            remote_io: Mutex::default(),
            role: RoleCell::new(role),
        }
    }

    /// Gives the watchdog access until the result is dropped. `watched`: [`WorkerIo::watched`].
    ///
    /// Context: the worker, before its loop.
    pub(crate) fn open_remote_io(
        &self,
        worker_io: &WorkerIo,
        watched: Option<PollFd<OwnedFd>>,
    ) -> OpenRemoteIo<'_> {
        *self.remote_io() = Some(RemoteIo {
            worker_io: NonNull::from(worker_io),
            watched: watched.map(Arc::new),
        });
        OpenRemoteIo(self)
    }

    /// Locks the remote access. The worker's loop does not end while the lock is held.
    ///
    /// Context: the watchdog.
    pub(crate) fn remote_io(&self) -> MutexGuard<'_, Option<RemoteIo>> {
        self.remote_io.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Records the calling thread as the worker's.
    pub(crate) fn set_thread(&self) {
        self.thread.store(
            rustix::thread::gettid().as_raw_pid() as u32,
            Ordering::Release,
        );
    }

    /// Returns the kernel's number of its thread.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Acquire)
    }

    /// Returns its counts, which only grow.
    pub(crate) fn beat(&self) -> Beat {
        (
            self.switches.load(Ordering::Relaxed),
            self.sleeps.load(Ordering::Relaxed),
        )
    }

    /// Locks the list of its started fibers that may move.
    pub(crate) fn movable(&self) -> MutexGuard<'_, Slab<Registered>> {
        self.movable.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the reader of its grants; `None` while another thread of this worker has it.
    ///
    /// Context: the worker, as it starts.
    pub(crate) fn take_reader(&self) -> Option<Reader<Header>> {
        self.reader.lock().unwrap_or_else(|e| e.into_inner()).take()
    }

    /// Notes that the worker's thread ends, so that another can start in its place.
    ///
    /// Context: the worker, as the last thing.
    pub(crate) fn leave(&self, grants: Reader<Header>) {
        *self.reader.lock().unwrap_or_else(|e| e.into_inner()) = Some(grants);
        self.thread.store(0, Ordering::Release);
    }

    /// Returns whether it has ever had a thread.
    pub(crate) fn has_started(&self) -> bool {
        self.driver_name.get().is_some()
    }

    pub(crate) fn inbox(&self) -> &Inbox<FiberTask> {
        &self.inbox
    }

    pub(crate) fn set_wakeup(&self, wakeup: Arc<Wakeup>) {
        let _ = self.wakeup.set(wakeup);
    }

    /// Returns the wake-up of a worker without a driver: the same for each thread that it has one
    /// after another.
    pub(crate) fn own_wakeup(&self) -> Arc<Wakeup> {
        self.wakeup
            .get_or_init(|| Arc::new(Wakeup::without_descriptor()))
            .clone()
    }

    /// Sleeps on the wake-up alone, without the driver, for at most `limit`.
    ///
    /// Context: the worker.
    pub(crate) fn doze(&self, limit: Option<Duration>) {
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.doze(limit);
        }
    }

    /// Ends the worker's sleep.
    pub(crate) fn signal(&self) {
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.wake();
        }
    }
}
