//! What all threads may touch of a worker.

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
use crate::sched::worker_io::WorkerIo;
use crate::shim;

/// Grants to a worker's fibers that may be on their way to it; those beyond it go through its inbox.
const GRANTS: usize = 256;

/// What all threads may touch of a worker.
pub(crate) struct WorkerShared {
    pub(crate) inbox: CachePadded<Inbox<FiberTask>>,
    /// Fibers that stay there and have been granted what they wait for.
    pub(crate) granted: CachePadded<shim::Arc<Mpsc<Header>>>,
    /// For the worker, when it starts.
    reader: Mutex<Option<Reader<Header>>>,
    wakeup: OnceLock<Arc<Wakeup>>,
    pub(crate) released: Arc<Released>,
    /// This and the five words that follow are written by the worker alone.
    pub(crate) spawned: AtomicU64,
    pub(crate) finished: AtomicU64,
    /// Fibers that have started and stay there.
    pub(crate) live: AtomicUsize,
    /// It is out of fibers: it looks for some, sleeps, or is about to run one.
    pub(crate) dry: AtomicBool,
    pub(crate) switches: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    /// Idle connections at the worker's driver; written by whoever has its claim (`atomics/biased_lock`).
    pub(crate) idle_conns: AtomicU64,
    pub(crate) driver_name: OnceLock<&'static str>,
    /// Its thread, by the kernel's number; 0 before it has started.
    thread: AtomicU32,
    /// Fibers that have started there and may move, so that shutdown finds them. (Anchored ones are on the worker's own
    /// list.)
    movable: CachePadded<Mutex<Slab<Registered>>>,
    /// While the worker's loop runs.
    remote_io: Mutex<Option<RemoteIo>>,
}

/// A fiber on record: alive, because it is removed under the same lock before it is freed.
pub(crate) struct Registered(pub(crate) NonNull<Header>);
// SAFETY: used under the list's lock only, to take a counted reference.
unsafe impl Send for Registered {}

/// Switches (in strides) and sleeps of a worker: they stand still while a fiber holds it up.
pub(crate) type Beat = (u64, u64);

/// The way to a worker's driver, timers and idle connections.
pub(crate) struct RemoteIo {
    worker_io: NonNull<WorkerIo>,
    watched: Option<Arc<PollFd<OwnedFd>>>,
}

// SAFETY: whoever has it holds the lock that the worker needs to end the `WorkerIo`, which hands its content to
// one thread at a time by its claim. Of a driver that is bound to its thread (`watched` is `None`) the watchdog uses
// nothing.
unsafe impl Send for RemoteIo {}

impl RemoteIo {
    pub(crate) fn worker_io(&self) -> &WorkerIo {
        // SAFETY: open, so the worker's loop runs, and does not end before the lock is given back.
        unsafe { self.worker_io.as_ref() }
    }

    /// With another name of the driver's descriptor, if others may poll the driver.
    pub(crate) fn watched(&self) -> Option<&Arc<PollFd<OwnedFd>>> {
        self.watched.as_ref()
    }
}

/// Takes the remote access to a worker's I/O back when dropped.
pub(crate) struct OpenRemoteIo<'a>(&'a WorkerShared);

impl Drop for OpenRemoteIo<'_> {
    fn drop(&mut self) {
        *self.0.remote_io() = None;
    }
}

impl WorkerShared {
    pub(crate) fn new() -> Self {
        let (granted, reader) = mpsc(GRANTS);
        Self {
            inbox: CachePadded::new(Inbox::new()),
            granted: CachePadded::new(granted),
            reader: Mutex::new(Some(reader)),
            wakeup: OnceLock::new(),
            released: Arc::default(),
            spawned: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            dry: AtomicBool::new(true),
            switches: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            idle_conns: AtomicU64::new(0),
            driver_name: OnceLock::new(),
            thread: AtomicU32::new(0),
            movable: CachePadded::default(),
            remote_io: Mutex::default(),
        }
    }

    /// The worker, before its loop: lets the watchdog in until the result is dropped. `watched`: [`WorkerIo::watched`].
    pub(crate) fn open_remote_io(&self, worker_io: &WorkerIo, watched: Option<PollFd<OwnedFd>>) -> OpenRemoteIo<'_> {
        *self.remote_io() = Some(RemoteIo { worker_io: NonNull::from(worker_io), watched: watched.map(Arc::new) });
        OpenRemoteIo(self)
    }

    /// The watchdog. The worker's loop does not end while it holds this.
    pub(crate) fn remote_io(&self) -> MutexGuard<'_, Option<RemoteIo>> {
        self.remote_io.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The worker, before its loop: which thread it is.
    pub(crate) fn set_thread(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_pid() as u32, Ordering::Release);
    }

    /// Any thread. Which thread it is.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Acquire)
    }

    /// Any thread. Only grows.
    pub(crate) fn beat(&self) -> Beat {
        (self.switches.load(Ordering::Relaxed), self.sleeps.load(Ordering::Relaxed))
    }

    /// Any thread. Its fibers on record that may move.
    pub(crate) fn movable(&self) -> MutexGuard<'_, Slab<Registered>> {
        self.movable.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The worker, once.
    pub(crate) fn take_reader(&self) -> Option<Reader<Header>> {
        self.reader.lock().unwrap_or_else(|e| e.into_inner()).take()
    }

    pub(crate) fn inbox(&self) -> &Inbox<FiberTask> {
        &self.inbox
    }

    pub(crate) fn set_wakeup(&self, wakeup: Arc<Wakeup>) {
        let _ = self.wakeup.set(wakeup);
    }

    /// The worker. Sleeps without its driver, at most so long.
    pub(crate) fn doze(&self, limit: Option<Duration>) {
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.doze(limit);
        }
    }

    /// Any thread. Ends the worker's sleep.
    pub(crate) fn signal(&self) {
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.wake();
        }
    }
}
