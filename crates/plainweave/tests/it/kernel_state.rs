//! What a fiber that moves leaves behind: to the language it is a thread, to the kernel it is the
//! worker that runs it. On both drivers, with fibers' own storage and `Movement::Anytime`.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::cell::UnsafeCell;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use plainweave::{Io, Movement, Runtime, spawn, time, yield_now};

on_every_driver!(
    gettid_is_the_workers,
    a_signal_mask_stays_with_the_worker,
    affinity_stays_with_the_worker,
    what_else_the_kernel_keeps_stays_with_the_worker,
    workers_have_what_the_builders_thread_had,
    a_fiber_signals_itself,
    locks_that_know_their_owner_go_along,
    a_priority_inheriting_lock_is_lost_to_a_waiter,
    a_priority_inheriting_lock_is_lost_by_waiting,
    a_lock_of_stderr_goes_along,
    reads_with_a_timeout_end_early_on_uring_only,
    epoll_wait_ends_early_on_uring_only,
    calls_of_std_do_not_end_early,
);

fn runtime(setup: Setup, workers: usize) -> Runtime {
    let builder = setup
        .builder()
        .workers(workers)
        .own_storage()
        .movement(Movement::Anytime);
    setup.check(builder.stall_after(Some(ms(2))).build().expect("a runtime"))
}

fn gettid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// Calls `before` on a fiber, lets that go on on another worker, and calls `after` there. Meanwhile
/// another fiber calls `behind` on the worker that it has left. Both get what `before` returned.
/// Each try is made on new workers.
fn on_moving<A, B, C>(
    setup: Setup,
    before: impl Fn() -> A + Sync,
    after: impl Fn(&A) -> B + Sync,
    behind: impl Fn(&A) -> C + Send + Sync + Clone + 'static,
) -> (B, C)
where
    A: Clone + Send + 'static,
    B: Send,
    C: Send + 'static,
{
    loop {
        let runtime = runtime(setup, 2);
        let outcome = runtime.run(|| {
            let worker = gettid();
            let me = std::thread::current().id();
            let shared = before();
            let (moved, waits) = mpsc::channel::<()>();
            let theirs = shared.clone();
            let behind = behind.clone();
            let other = spawn(move || {
                let value = (gettid() == worker).then(|| behind(&theirs));
                // It keeps its worker, so the fiber has to go on elsewhere.
                let _ = waits.recv();
                value
            });

            yield_now();
            assert_eq!(std::thread::current().id(), me);
            let value = (gettid() != worker).then(|| after(&shared));
            drop(moved);
            value.zip(other.join().expect("no panic"))
        });

        if let Some(outcome) = outcome {
            return outcome;
        }
    }
}

/// Checks that what `set` has changed is not changed where the fiber goes, but is where it was.
fn stays_with_the_worker(setup: Setup, set: fn(), is_set: fn() -> bool) {
    assert_eq!(
        on_moving(setup, set, |()| is_set(), move |()| is_set()),
        (false, true)
    );
}

fn gettid_is_the_workers(setup: Setup) {
    let (moved, left) = on_moving(
        setup,
        gettid,
        |before| *before != gettid(),
        |before| *before == gettid(),
    );
    assert!(moved && left);
}

/// Blocks SIGUSR2 on the calling thread.
fn block_signal() {
    // SAFETY: plain calls with valid arguments.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR2);
        assert_eq!(
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()),
            0
        );
    }
}

fn signal_is_blocked() -> bool {
    let mut set = MaybeUninit::uninit();
    // SAFETY: plain calls; the first writes the mask.
    unsafe {
        assert_eq!(
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr()),
            0
        );
        libc::sigismember(set.as_ptr(), libc::SIGUSR2) == 1
    }
}

fn a_signal_mask_stays_with_the_worker(setup: Setup) {
    stays_with_the_worker(setup, block_signal, signal_is_blocked);
}

fn processors() -> rustix::thread::CpuSet {
    rustix::thread::sched_getaffinity(None).expect("known")
}

fn affinity_stays_with_the_worker(setup: Setup) {
    if processors().count() < 2 {
        return;
    }
    let set = || rustix::thread::sched_setaffinity(None, &one_processor()).expect("set");
    stays_with_the_worker(setup, set, || processors().count() == 1);
}

fn what_else_the_kernel_keeps_stays_with_the_worker(setup: Setup) {
    let name = || {
        // SAFETY: a name with its terminator.
        let found = unsafe { libc::prctl(libc::PR_SET_NAME, c"wanderer".as_ptr()) };
        assert_eq!(found, 0);
    };

    let has_name = || {
        let mut name = [0u8; 16];
        // SAFETY: room for the longest name.
        let found = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        assert_eq!(found, 0);
        name.starts_with(b"wanderer\0")
    };

    stays_with_the_worker(setup, name, has_name);
    let nice = || {
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) }, 0);
    };

    // SAFETY: a plain call.
    stays_with_the_worker(
        setup,
        nice,
        || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) } == 19,
    );
    let slack = || {
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 77_000) }, 0);
    };

    // SAFETY: a plain call.
    stays_with_the_worker(
        setup,
        slack,
        || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) } == 77_000,
    );
}

/// What is to hold for all fibers is set before the runtime is built: workers inherit it, spare
/// ones too.
fn workers_have_what_the_builders_thread_had(setup: Setup) {
    const COUNT: usize = 5;
    let builder = std::thread::spawn(move || {
        block_signal();
        runtime(setup, 2)
    });

    let runtime = builder.join().expect("no panic");
    let blocked = Arc::new(AtomicUsize::new(0));
    let (release, fibers): (Vec<_>, Vec<_>) = (0..COUNT)
        .map(|_| {
            let (blocked, (release, released)) = (blocked.clone(), mpsc::channel::<()>());
            let body = move || {
                blocked.fetch_add(usize::from(signal_is_blocked()), Ordering::SeqCst);
                released.recv().is_err()
            };
            (release, runtime.spawn(body))
        })
        .unzip();
    eventually("each is on a thread of its own", || {
        blocked.load(Ordering::SeqCst) == COUNT
    });
    drop(release);

    fibers
        .into_iter()
        .for_each(|fiber| assert!(fiber.join().expect("no panic")));
}

/// A signal to itself comes to the worker that runs the fiber, before the call returns.
fn a_fiber_signals_itself(setup: Setup) {
    static SEEN_BY: AtomicI32 = AtomicI32::new(0);
    extern "C" fn see(_: libc::c_int) {
        SEEN_BY.store(gettid(), Ordering::SeqCst);
    }
    if apart() {
        return;
    }

    // SAFETY: a handler that stores a number.
    unsafe { libc::signal(libc::SIGUSR1, see as *const () as usize) };
    let signals: [fn() -> i32; 2] = [
        // SAFETY: a plain call.
        || unsafe { libc::raise(libc::SIGUSR1) },
        // SAFETY: a plain call.
        || unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) },
    ];
    for signal in signals {
        let check = move || {
            let worker = gettid();
            (signal(), SEEN_BY.swap(0, Ordering::SeqCst) == worker)
        };

        let (after, _) = on_moving(setup, || (), |()| check(), |()| ());
        assert_eq!(after, (0, true));
    }
}

// From <pthread.h>; the crate `libc` lacks it for this system.
unsafe extern "C" {
    fn pthread_mutexattr_setprotocol(
        attributes: *mut libc::pthread_mutexattr_t,
        protocol: libc::c_int,
    ) -> libc::c_int;
}

/// A lock of the C library.
struct CLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: its functions may be called on any thread.
unsafe impl Send for CLock {}
// SAFETY: as above.
unsafe impl Sync for CLock {}

impl CLock {
    fn new(kind: libc::c_int, protocol: libc::c_int) -> Arc<Self> {
        let lock = Arc::new(Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        // SAFETY: plain calls; the lock stays where it is.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            assert_eq!(libc::pthread_mutexattr_init(attributes.as_mut_ptr()), 0);
            assert_eq!(
                libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind),
                0
            );
            assert_eq!(
                pthread_mutexattr_setprotocol(attributes.as_mut_ptr(), protocol),
                0
            );
            assert_eq!(
                libc::pthread_mutex_init(lock.0.get(), attributes.as_ptr()),
                0
            );
        }
        lock
    }

    fn lock(&self) -> i32 {
        // SAFETY: a lock that exists.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }

    fn try_lock(&self) -> i32 {
        // SAFETY: a lock that exists.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) }
    }

    fn lock_within(&self, limit: Duration) -> i32 {
        // SAFETY: plain calls on a lock that exists; the first one writes the time.
        unsafe {
            let mut time = MaybeUninit::<libc::timespec>::uninit();
            assert_eq!(
                libc::clock_gettime(libc::CLOCK_REALTIME, time.as_mut_ptr()),
                0
            );
            let mut time = time.assume_init();
            let nanos = time.tv_nsec as u64 + u64::from(limit.subsec_nanos());
            time.tv_sec += (limit.as_secs() + nanos / 1_000_000_000) as libc::time_t;
            time.tv_nsec = (nanos % 1_000_000_000) as libc::c_long;
            libc::pthread_mutex_timedlock(self.0.get(), &raw const time)
        }
    }

    /// Returns whether the kernel has marked the lock, which is its first word, as waited for.
    fn is_awaited(&self) -> bool {
        // SAFETY: the C library and the kernel use it as an atomic word too.
        unsafe {
            AtomicU32::from_ptr(self.0.get().cast()).load(Ordering::SeqCst) & libc::FUTEX_WAITERS
                != 0
        }
    }

    fn unlock(&self) -> i32 {
        // SAFETY: a lock that exists.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) }
    }
}

/// The C library knows a lock's owner by a number that is the fiber's: it holds the lock wherever
/// it is, and nobody else does on the worker that it has left. (Nobody waits here: that is another
/// matter for priority inheritance.)
fn locks_that_know_their_owner_go_along(setup: Setup) {
    let again = [
        (libc::PTHREAD_MUTEX_ERRORCHECK, libc::EDEADLK),
        (libc::PTHREAD_MUTEX_RECURSIVE, 0),
    ];
    for protocol in [libc::PTHREAD_PRIO_NONE, libc::PTHREAD_PRIO_INHERIT] {
        for (kind, again) in again {
            let locked = || {
                let lock = CLock::new(kind, protocol);
                assert_eq!(lock.lock(), 0);
                lock
            };

            let after = |lock: &Arc<CLock>| {
                let locked_again = lock.lock();
                if locked_again == 0 {
                    assert_eq!(lock.unlock(), 0);
                }
                (locked_again, lock.clone())
            };

            let ((locked_again, lock), behind) = on_moving(setup, locked, after, |lock| {
                (lock.try_lock(), lock.unlock())
            });
            assert_eq!(
                (locked_again, behind),
                (again, (libc::EBUSY, libc::EPERM)),
                "{kind} {protocol}"
            );
            assert_eq!(lock.try_lock(), libc::EBUSY);
        }
    }
}

/// The kernel knows no thread of the fiber's number. A waiter makes it look for one: from then on
/// the lock is nobody's to unlock, and the waiter waits for good or until its time is over.
fn a_priority_inheriting_lock_is_lost_to_a_waiter(setup: Setup) {
    let lock = CLock::new(libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_PRIO_INHERIT);
    let runtime = runtime(setup, 1);
    let (waited, unlocked) = runtime.run(|| {
        assert_eq!(lock.lock(), 0);
        let theirs = lock.clone();
        let waiter = std::thread::spawn(move || theirs.lock_within(ms(20)));
        while !lock.is_awaited() && !waiter.is_finished() {
            std::thread::yield_now();
        }
        (waiter, lock.unlock())
    });

    assert_eq!(
        (waited.join().expect("no panic"), unlocked),
        (libc::ETIMEDOUT, 0)
    );
    assert_eq!(
        lock.try_lock(),
        libc::EBUSY,
        "it is still locked, whatever `unlock` says"
    );
}

/// A lock that the kernel has passed on to a fiber that waited belongs to the worker's thread. The
/// C library compares the fiber's number.
fn a_priority_inheriting_lock_is_lost_by_waiting(setup: Setup) {
    let lock = CLock::new(libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_PRIO_INHERIT);
    let (theirs, (tell, held)) = (lock.clone(), mpsc::channel());
    let holder = std::thread::spawn(move || {
        assert_eq!(theirs.lock(), 0);
        tell.send(()).expect("the test waits");
        eventually("the worker waits", || theirs.is_awaited());
        assert_eq!(theirs.unlock(), 0);
    });

    held.recv().expect("it is held");
    let outcome = runtime(setup, 1).run(|| (lock.lock(), lock.unlock()));
    holder.join().expect("no panic");
    assert_eq!((outcome, lock.try_lock()), ((0, libc::EPERM), libc::EBUSY));
}

/// The re-entrant locks of `std` go along too. A fiber that wants one meanwhile blocks its worker,
/// until the holder is done.
fn a_lock_of_stderr_goes_along(setup: Setup) {
    let runtime = runtime(setup, 2);
    let order = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        order.store(0, Ordering::SeqCst);
        let theirs = order.clone();
        let holds = order.clone();
        let holder = runtime.spawn(move || {
            let held = std::io::stderr().lock();
            let waiter = spawn(move || {
                let _held = std::io::stderr().lock();
                theirs.load(Ordering::SeqCst)
            });

            for _ in 0..5 {
                time::sleep(ms(1)).expect("not cancelled");
                drop(std::io::stderr().lock());
            }

            holds.store(1, Ordering::SeqCst);
            drop(held);
            waiter.join().expect("no panic")
        });

        assert_eq!(holder.join().expect("no panic"), 1);
    }
}

/// Lets `call` block its worker, at whose driver completions arrive meanwhile: those of reads that
/// began there. Returns what `call` returned; `end` is called when it has, or after a while.
fn beside_completions<T: Send + 'static>(
    setup: Setup,
    call: impl FnOnce() -> T + Send + 'static,
    end: impl FnOnce(),
) -> T {
    let runtime = runtime(setup, 1);
    let (readers, mut writers): (Vec<_>, Vec<_>) = (0..20).map(|_| connected()).unzip();
    let readers = readers
        .into_iter()
        .map(|mut reader| runtime.spawn(move || reader.read_exact(&mut [0; 5])));
    let readers: Vec<_> = readers.collect();
    eventually("all read", || {
        let now = runtime.metrics();
        now.sleeping_workers == 1 + now.spare_workers
    });
    let (tell, thread) = mpsc::channel();
    let caller = runtime.spawn(move || {
        tell.send(gettid()).expect("the test waits");
        call()
    });

    let thread = thread.recv().expect("it runs");
    eventually("the call blocks", || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("proc");
        caller.is_finished()
            || stat
                .rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('S'))
    });
    for _ in 0..5 {
        writers
            .iter_mut()
            .for_each(|writer| writer.write_all(&[1]).expect("sent"));
        std::thread::sleep(ms(2));
    }

    end();
    readers
        .into_iter()
        .for_each(|reader| reader.join().expect("no panic").expect("read"));
    caller.join().expect("no panic")
}

/// Runs `check` until it has seen an interruption, a few times at most: on io_uring the first time,
/// on this kernel. On epoll there is none.
fn is_interrupted(setup: Setup, check: impl Fn() -> bool) {
    let interrupted = (0..5).any(|_| check());
    assert!(!interrupted || setup.io == Io::Uring);
}

/// A socket with a timeout that blocks a worker's thread: what waits in the kernel with a limit is
/// not restarted. What comes later is there for the next call, or for `read_exact`, which makes it.
fn reads_with_a_timeout_end_early_on_uring_only(setup: Setup) {
    is_interrupted(setup, || {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(HANG)).expect("set");
        let call = move || {
            let mut bytes = [0; 4];
            let first = ours.read(&mut bytes[..2]).map_err(|error| error.kind());
            ours.read_exact(&mut bytes[first.unwrap_or(0)..])
                .expect("it goes on by itself");
            (first, bytes)
        };

        let (first, bytes) = beside_completions(setup, call, || {
            theirs.write_all(b"late").expect("sent");
        });
        assert!(
            matches!(first, Ok(1 | 2) | Err(ErrorKind::Interrupted)),
            "{first:?}"
        );
        assert_eq!(&bytes, b"late");
        first.is_err()
    });
}

fn epoll_wait_ends_early_on_uring_only(setup: Setup) {
    is_interrupted(setup, || {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let call = move || {
            let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
                .expect("created");
            let flags = rustix::event::epoll::EventFlags::IN;
            rustix::event::epoll::add(
                &epoll,
                &ours,
                rustix::event::epoll::EventData::new_u64(7),
                flags,
            )
            .expect("added");
            let mut event = libc::epoll_event { events: 0, u64: 0 };

            // SAFETY: a plain call; there is room for one event.
            let mut wait =
                || match unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 60_000) } {
                    -1 => Err(std::io::Error::last_os_error().kind()),
                    count => Ok(count),
                };

            let first = wait();
            let mut last = first;
            while last == Err(ErrorKind::Interrupted) {
                last = wait();
            }
            (first, last)
        };

        let (first, last) = beside_completions(setup, call, || {
            theirs.write_all(b"x").expect("sent");
        });
        assert!(
            matches!(first, Ok(1) | Err(ErrorKind::Interrupted)),
            "{first:?}"
        );
        assert_eq!(last, Ok(1));
        first.is_err()
    });
}

/// What `std` waits with goes on waiting: sleeps, locks, channels, reads without a timeout.
fn calls_of_std_do_not_end_early(setup: Setup) {
    let sleep = || {
        let start = std::time::Instant::now();
        std::thread::sleep(ms(30));
        start.elapsed()
    };

    assert!(beside_completions(setup, sleep, || ()) >= ms(30));

    let (sender, receiver) = mpsc::channel();
    let received = beside_completions(
        setup,
        move || receiver.recv_timeout(HANG),
        || sender.send(5).expect("it waits"),
    );
    assert_eq!(received, Ok(5));

    let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
    let read = beside_completions(
        setup,
        move || ours.read(&mut [0; 4]).map_err(|error| error.kind()),
        || theirs.write_all(b"x").expect("sent"),
    );
    assert_eq!(read, Ok(1));
}
