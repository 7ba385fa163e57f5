//! Fibers with thread-local storage of their own: to the language each is a thread, wherever it
//! runs. Nearly all tests let started fibers move between two workers while they do what only a
//! thread may do.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
#![allow(clippy::print_stdout, reason = "a fiber prints as a thread does")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::common::*;
use plainweave::{Movement, Runtime, Storage, yield_now};

on_every_setup!(
    keys_keep_their_values,
    destructors_run_before_the_join,
    what_a_destructor_sets_is_destroyed_too,
    a_key_that_its_destructor_sets_is_destroyed_as_often_as_on_a_thread,
    clones_of_an_rc_travel,
    a_borrow_lasts_across_suspensions,
    each_panics_alone,
    a_destructor_suspends_while_its_fiber_panics,
    each_is_a_thread_of_its_own,
    locks_of_std_are_let_go_elsewhere,
    scoped_guards_end_in_any_order,
    spans_stay_entered,
    random_numbers_flow,
    memory_is_freed_elsewhere,
    c_code_finds_its_state,
);

const FIBERS: usize = 100;
const ROUNDS: usize = 50;

fn runtime(setup: Setup, workers: usize) -> Runtime {
    let runtime = setup
        .builder()
        .workers(workers)
        .own_storage()
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime");
    assert_eq!(runtime.storage(), Storage::Own);
    setup.check(runtime)
}

/// The thread under the fiber.
fn os_thread() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// Lets other fibers run, and sometimes sleeps. Counts in `moves` each time that it goes on on
/// another thread.
fn wander(round: usize, moves: &AtomicUsize) {
    let before = os_thread();
    if round % 16 == 15 {
        plainweave::time::sleep(std::time::Duration::from_micros(50)).expect("not cancelled");
    } else {
        // Long enough for the other worker to come by.
        Random::new(round as u64).spin(3);
        yield_now();
    }

    if os_thread() != before {
        moves.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `body` on many fibers that wander, until some have moved: body(number, wander) is to call
/// the latter between its steps.
fn on_wandering_fibers(setup: Setup, body: impl Fn(usize, &dyn Fn(usize)) + Send + Sync + 'static) {
    let runtime = runtime(setup, 2);
    let moves = Arc::new(AtomicUsize::new(0));
    let body = Arc::new(body);

    for _ in 0..100 {
        let fibers: Vec<_> = (0..FIBERS)
            .map(|n| {
                let moves = moves.clone();
                let body = body.clone();
                runtime.spawn(move || body(n, &|round| wander(round, &moves)))
            })
            .collect();
        for fiber in fibers {
            fiber.join().expect("no panic");
        }
        if moves.load(Ordering::Relaxed) > 0 {
            return;
        }
    }

    panic!("no fiber has moved");
}

fn keys_keep_their_values(setup: Setup) {
    thread_local! {
        static CONST: Cell<usize> = const { Cell::new(7) };
        static LAZY: RefCell<Vec<usize>> = RefCell::new(vec![1]);
    }
    on_wandering_fibers(setup, |n, wander| {
        assert_eq!(
            (CONST.get(), LAZY.take()),
            (7, vec![1]),
            "as on a new thread"
        );
        for round in 0..ROUNDS {
            CONST.set(n + round);
            LAZY.with_borrow_mut(|v| v.push(n + round));
            wander(round);
            assert_eq!(CONST.get(), n + round);
            assert_eq!(
                LAZY.with_borrow(|v| (v.len(), v[round])),
                (round + 1, n + round)
            );
        }
    });
}

fn destructors_run_before_the_join(setup: Setup) {
    thread_local!(static KEPT: RefCell<Vec<Counted>> = const { RefCell::new(Vec::new()) });
    let runtime = runtime(setup, 2);
    let counts = Arc::new(Counts::default());

    for n in 1..200 {
        let theirs = counts.clone();
        let fiber = runtime.spawn(move || {
            KEPT.with_borrow(|kept| assert!(kept.is_empty(), "as on a new thread"));
            KEPT.with_borrow_mut(|kept| kept.push(Counted::new(&theirs)));
            yield_now();
            KEPT.with_borrow(|kept| assert_eq!(kept.len(), 1));
        });

        fiber.join().expect("no panic");
        assert_eq!((counts.made(), counts.dropped()), (n, n));
    }
}

fn what_a_destructor_sets_is_destroyed_too(setup: Setup) {
    struct Last(Option<Counted>);
    struct First(Option<Counted>);
    thread_local! {
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        static FIRST: RefCell<Option<First>> = const { RefCell::new(None) };
    }
    impl Drop for First {
        fn drop(&mut self) {
            // A destructor may wait as well, and then go on on another thread.
            plainweave::time::sleep(ms(1)).expect("not cancelled");
            LAST.set(Some(Last(self.0.take())));
        }
    }
    impl Drop for Last {
        fn drop(&mut self) {
            yield_now();
            drop(self.0.take().expect("given on"));
        }
    }
    let runtime = runtime(setup, 2);
    let counts = Arc::new(Counts::default());
    let fibers: Vec<_> = (0..50)
        .map(|_| {
            let counts = counts.clone();
            runtime.spawn(move || FIRST.set(Some(First(Some(Counted::new(&counts))))))
        })
        .collect();

    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
    assert_eq!((counts.made(), counts.dropped()), (50, 50));
}

fn clones_of_an_rc_travel(setup: Setup) {
    thread_local!(static SHARED: Rc<Cell<usize>> = Rc::default());
    on_wandering_fibers(setup, |n, wander| {
        let mut clones = Vec::new();
        for round in 0..ROUNDS {
            clones.push(SHARED.with(Rc::clone));
            clones[round / 2].set(n * ROUNDS + round);
            wander(round);
            assert_eq!(
                SHARED.with(|s| (s.get(), Rc::strong_count(s))),
                (n * ROUNDS + round, round + 2)
            );
        }
    });
}

fn a_borrow_lasts_across_suspensions(setup: Setup) {
    thread_local!(static KEY: RefCell<[usize; ROUNDS]> = const { RefCell::new([0; ROUNDS]) });
    on_wandering_fibers(setup, |n, wander| {
        KEY.with_borrow_mut(|words| {
            for (round, word) in words.iter_mut().enumerate() {
                *word = n ^ round;
                wander(round);
                KEY.with(|key| assert!(key.try_borrow().is_err()));
            }

            assert!(
                words
                    .iter()
                    .enumerate()
                    .all(|(round, word)| *word == n ^ round)
            );
        });
    });
}

fn each_panics_alone(setup: Setup) {
    on_wandering_fibers(setup, |n, wander| {
        for round in 0..10 {
            if n % 2 == 0 {
                let panic = catch_unwind(AssertUnwindSafe(|| {
                    wander(round);
                    std::panic::resume_unwind(Box::new(n));
                }));
                assert_eq!(
                    *panic
                        .expect_err("it panicked")
                        .downcast::<usize>()
                        .expect("a number"),
                    n
                );
            }

            assert!(!std::thread::panicking());
            wander(round);
        }
    });
}

/// glibc calls a key's destructor again if it has set the value again, four times at most.
fn a_key_that_its_destructor_sets_is_destroyed_as_often_as_on_a_thread(setup: Setup) {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    extern "C" fn again(value: *mut libc::c_void) {
        // SAFETY: the test keeps the counter until the fiber or thread has been joined.
        unsafe { &*value.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
        set(value);
    }
    fn set(value: *mut libc::c_void) {
        let key = *KEY.get_or_init(|| {
            let mut key = 0;
            // SAFETY: room for a key, and a destructor for what `set` sets.
            let created = unsafe { libc::pthread_key_create(&mut key, Some(again)) };
            assert_eq!(created, 0);
            key
        });

        // SAFETY: a key that exists.
        let was_set = unsafe { libc::pthread_setspecific(key, value) };
        assert_eq!(was_set, 0);
    }
    let counted = |run: &dyn Fn(usize)| {
        let count = AtomicUsize::new(0);
        run((&raw const count).expose_provenance());
        count.into_inner()
    };

    let begin = |address: usize| set(std::ptr::with_exposed_provenance_mut(address));
    let by_thread = counted(&|address| {
        std::thread::spawn(move || begin(address))
            .join()
            .expect("no panic")
    });

    let runtime = setup.runtime();
    let by_fiber = counted(&|address| {
        runtime
            .spawn(move || begin(address))
            .join()
            .expect("no panic")
    });

    assert_eq!((by_thread, by_fiber), (4, 4));
}

fn a_destructor_suspends_while_its_fiber_panics(setup: Setup) {
    struct Waits<'a>(&'a dyn Fn(usize));
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            for round in 0..ROUNDS {
                assert!(std::thread::panicking());
                (self.0)(round);
            }
        }
    }
    on_wandering_fibers(setup, |n, wander| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _waits = (n % 2 == 0).then(|| Waits(wander));
            if n % 2 == 0 {
                std::panic::resume_unwind(Box::new(n));
            }
            for round in 0..ROUNDS {
                assert!(
                    !std::thread::panicking(),
                    "another fiber panics, not this one"
                );
                wander(round);
            }
        }));
        assert_eq!(result.is_err(), n % 2 == 0);
        assert!(!std::thread::panicking());
    });
}

fn each_is_a_thread_of_its_own(setup: Setup) {
    let seen = Mutex::new(HashSet::new());
    on_wandering_fibers(setup, move |_, wander| {
        let me = std::thread::current();
        let handle = pthread();
        assert!(
            seen.lock().expect("not poisoned").insert(me.id()),
            "the id of another fiber"
        );

        for round in 0..ROUNDS {
            wander(round);
            assert_eq!(std::thread::current().id(), me.id());
            assert_eq!(pthread(), handle);
        }
    });
}

fn pthread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

fn locks_of_std_are_let_go_elsewhere(setup: Setup) {
    let counter = Arc::new(Mutex::new(0usize));
    let theirs = counter.clone();
    on_wandering_fibers(setup, move |n, wander| {
        for round in 0..ROUNDS {
            // `lock` would block the worker while the holder waits for one; so the patient way.
            let mut guard = loop {
                match theirs.try_lock() {
                    Ok(guard) => break guard,
                    Err(_) => wander(round),
                }
            };

            let before = *guard;
            if n % 10 == 0 {
                wander(round);
            }
            *guard = before + 1;
        }

        // Re-entrant, and it knows its owner.
        let _out = std::io::stderr().lock();
        let _again = std::io::stderr().lock();
    });
    assert_eq!(
        *counter.lock().expect("not poisoned") % (FIBERS * ROUNDS),
        0
    );
}

fn scoped_guards_end_in_any_order(setup: Setup) {
    scoped_tls::scoped_thread_local!(static SCOPED: Box<usize>);
    on_wandering_fibers(setup, |n, wander| {
        assert!(!SCOPED.is_set());
        for depth in 0..4 {
            SCOPED.set(&Box::new(n), || {
                for round in 0..ROUNDS / (depth + 1) {
                    wander(round + n);
                    SCOPED.with(|value| assert_eq!(**value, n));
                }
            });
        }
        assert!(!SCOPED.is_set());
    });
}

fn spans_stay_entered(setup: Setup) {
    static SUBSCRIBER: std::sync::Once = std::sync::Once::new();
    SUBSCRIBER.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry())
            .expect("the only one");
    });
    on_wandering_fibers(setup, |n, wander| {
        assert!(tracing::Span::current().is_none());
        let outer = tracing::info_span!("outer", n);
        let _outer = outer.enter();

        for round in 0..ROUNDS {
            let inner = tracing::info_span!("inner", round);
            let _inner = inner.enter();
            wander(round);
            assert_eq!(tracing::Span::current().id(), inner.id());
        }

        assert_eq!(tracing::Span::current().id(), outer.id());
    });
}

fn random_numbers_flow(setup: Setup) {
    use rand::Rng;
    let seen = Mutex::new(HashSet::new());
    on_wandering_fibers(setup, move |_, wander| {
        // Held across suspensions: it is a counted pointer into thread-local storage.
        let mut held = rand::rng();
        for round in 0..ROUNDS {
            let a = held.next_u64();
            let b = rand::rng().next_u64();
            wander(round);
            let mut seen = seen.lock().expect("not poisoned");
            assert!(seen.insert(a) && seen.insert(b), "a number twice");
        }
    });
}

fn memory_is_freed_elsewhere(setup: Setup) {
    let exchange: Mutex<Vec<Vec<u8>>> = Mutex::default();
    on_wandering_fibers(setup, move |n, wander| {
        let mut random = Random::new(n as u64);
        let mut mine = Vec::new();
        for round in 0..ROUNDS {
            for _ in 0..20 {
                let len = 1 + random.below(2000) as usize;
                mine.push(vec![n as u8; len]);
            }

            wander(round);
            assert!(
                mine.iter()
                    .all(|bytes| bytes.iter().all(|byte| *byte == n as u8))
            );
            // Give half away, free half of what others gave.
            let mut exchange = exchange.lock().expect("not poisoned");
            exchange.extend(mine.drain(..10));
            let keep = exchange.len() / 2;

            exchange.truncate(keep);
        }
    });
}

fn c_code_finds_its_state(setup: Setup) {
    // `strtok` keeps its place for the whole process, in threads too: one at a time, but suspended
    // within.
    let strtok = Mutex::new(());
    on_wandering_fibers(setup, move |n, wander| {
        let turn = strtok.try_lock();
        let words = (0..ROUNDS)
            .map(|round| format!("{n}-{round}"))
            .collect::<Vec<_>>();
        let mut text = std::ffi::CString::new(words.join(" "))
            .expect("no zero")
            .into_bytes_with_nul();
        let mut next = text.as_mut_ptr().cast();

        for (round, word) in words.iter().enumerate() {
            // SAFETY: no preconditions; the address is that of a buffer of this thread, 18 bytes.
            let dotted = unsafe {
                *libc::__errno_location() = (n + round) as i32;
                inet_ntoa(libc::in_addr {
                    s_addr: ((round << 8) + n) as u32,
                })
            };

            yield_now();
            // SAFETY: as above; a yield makes no system call.
            unsafe {
                assert_eq!(*libc::__errno_location(), (n + round) as i32);
                assert_eq!(
                    CStr::from_ptr(dotted).to_bytes(),
                    format!("{n}.{round}.0.0").as_bytes()
                );
            }

            if turn.is_ok() {
                // SAFETY: a C string that is writable, and outlives its words; no other fiber is
                // here.
                let found = unsafe { CStr::from_ptr(libc::strtok(next, c" ".as_ptr())) };
                next = std::ptr::null_mut();
                assert_eq!(found.to_bytes(), word.as_bytes());
            }

            wander(round);
        }
    });
}

unsafe extern "C" {
    /// Public in glibc; keeps its result in a thread-local buffer.
    fn inet_ntoa(address: libc::in_addr) -> *const std::ffi::c_char;
}

/// Counts what Rust code has allocated and not freed.
struct Counting;
static IN_USE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator, and a count.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A runtime a round, so that it keeps nothing either. A byte a fiber would be 100 KB.
#[test]
fn a_hundred_thousand_fibers_share_a_few_blocks_and_leave_nothing() {
    const NAME: &str = "a_hundred_thousand_fibers_share_a_few_blocks_and_leave_nothing";
    if !is_child("leaves") {
        let output = in_child(NAME, "leaves", &[]);
        assert!(output.status.success(), "{}", stderr_of(&output));
        return;
    }

    let round = || {
        // No spare workers, which come on a busy machine and keep free blocks of their own.
        let builder = Runtime::builder()
            .workers(2)
            .max_workers(2)
            .report_stalls(false);
        let runtime = builder
            .own_storage()
            .movement(Movement::Anytime)
            .build()
            .expect("a runtime");
        runtime.run(|| (0..1000).for_each(|_| a_hundred_with_thread_locals()));
        let blocks = runtime.metrics().storage_blocks;
        drop(runtime);

        // SAFETY: no preconditions.
        (
            blocks,
            IN_USE.load(Ordering::Relaxed),
            unsafe { libc::mallinfo2() }.uordblks,
        )
    };

    round();
    let (blocks, before, libc_before) = round();
    let (after_blocks, after, libc_after) = round();

    // A hundred at a time, and what two workers keep.
    assert!(
        blocks <= 400 && after_blocks <= blocks + 16,
        "{blocks} blocks, then {after_blocks}"
    );
    // The list of free blocks, which may have grown once more.
    assert!(
        after <= before + 16 * 1024,
        "{before} bytes in use, then {after}"
    );
    // This includes what the allocator keeps in the workers' caches, a few more of each size at
    // times.
    assert!(
        libc_after < libc_before + (1 << 20),
        "{libc_before} bytes in libc's hands, then {libc_after}"
    );
}

fn a_hundred_with_thread_locals() {
    thread_local!(static KEY: RefCell<HashMap<usize, Vec<u8>>> = RefCell::default());
    plainweave::scope(|s| {
        for n in 0..100 {
            s.spawn(move || {
                KEY.with_borrow_mut(|map| {
                    assert!(map.is_empty());
                    map.insert(n, vec![n as u8; n]);
                });
                yield_now();
                KEY.with_borrow(|map| assert_eq!(map[&n].len(), n));
            });
        }
    });
}

/// Fibers that have freed memory of every size that libc's allocator caches, and wait: a cache for
/// each would hold 240 KB.
#[test]
fn a_waiting_fiber_keeps_no_freed_memory() {
    const COUNT: usize = 300;
    let runtime = Runtime::builder()
        .workers(2)
        .report_stalls(false)
        .own_storage()
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime");
    // SAFETY: no preconditions.
    let in_use = || unsafe { libc::mallinfo2() }.uordblks;
    let before = in_use();
    let after = runtime.run(move || {
        let end = Arc::new(plainweave::sync::Semaphore::new(0));
        let (ready, until_ready) = plainweave::sync::channel::unbounded::<()>();
        let fibers: Vec<_> = (0..COUNT)
            .map(|_| {
                let end = end.clone();
                let ready = ready.clone();
                plainweave::spawn(move || {
                    for size in (24..=1032).step_by(16) {
                        drop(std::hint::black_box(
                            [(); 7].map(|()| Vec::<u8>::with_capacity(size)),
                        ));
                    }

                    ready.send(()).expect("the receiver waits");
                    end.acquire().expect("not cancelled").forget();
                })
            })
            .collect();
        (0..COUNT).for_each(|_| until_ready.recv().expect("all get there"));
        let after = in_use();
        (0..COUNT).for_each(|_| end.release());
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        after
    });

    let each = after.saturating_sub(before) / COUNT;
    assert!(each < 24 * 1024, "{each} bytes a fiber");
}

#[test]
fn storage_of_ones_own_is_the_default() {
    assert_eq!(
        Runtime::builder()
            .workers(1)
            .build()
            .expect("a runtime")
            .storage(),
        Storage::Own
    );
    let runtime = Runtime::builder()
        .workers(1)
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime");
    runtime.run(|| println!("a fiber prints"));

    // What may point into one fiber's thread-locals does not go to another.
    let refused = runtime.run(|| {
        plainweave::Builder::new()
            .spawn_local(|| ())
            .expect_err("a thread of its own")
    });

    assert!(refused.to_string().contains("shared_storage"), "{refused}");
}

/// What fibers that hold guards of scoped thread-locals, a lock of `std` that is re-entrant, and a
/// `thread_local!` across suspensions find afterwards; the number of times it was not what they had
/// put there.
fn what_was_not_kept(runtime: &Runtime) -> usize {
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(0) };
        static SCOPE: Cell<usize> = const { Cell::new(0) };
    }
    static HOLDERS: AtomicUsize = AtomicUsize::new(0);
    /// As `scoped-tls`' guard, with an address that is compared and not followed.
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            SCOPE.set(self.0);
        }
    }
    let wrong = Arc::new(AtomicUsize::new(0));
    let counted = wrong.clone();

    // From a fiber: on one worker none of them begins before the last is there.
    runtime.run(move || {
        let fibers: Vec<_> = (1..=20)
            .map(|n| {
                let wrong = counted.clone();
                plainweave::spawn(move || {
                    let check = |kept: bool| wrong.fetch_add(usize::from(!kept), Ordering::Relaxed);
                    MINE.set(n);
                    let value = Box::new(n);
                    let address = std::ptr::from_ref(&*value).addr();
                    let restore = Restore(SCOPE.replace(address));

                    for _ in 0..n {
                        yield_now();
                        check(MINE.get() == n);
                        check(SCOPE.get() == address);
                    }

                    drop(restore);
                    drop(value);
                    // Fibers of one worker that have the same thread's number are let in together.
                    if n <= 2 {
                        let out = std::io::stdout().lock();
                        check(HOLDERS.fetch_add(1, Ordering::SeqCst) == 0);
                        // Not a sleep: whoever wants the lock blocks a worker, perhaps the one with
                        // the timer.
                        (0..50).for_each(|_| yield_now());
                        HOLDERS.fetch_sub(1, Ordering::SeqCst);
                        drop(out);
                    }

                    // With all guards gone, nothing is set: else this is the address of a value
                    // that is gone.
                    check(SCOPE.get() == 0);
                })
            })
            .collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    });
    wrong.load(Ordering::Relaxed)
}

/// One program, on storage of their own and on shared storage. In children, which share no
/// terminal.
#[test]
fn shared_storage_mixes_up_what_own_storage_keeps() {
    const NAME: &str = "shared_storage_mixes_up_what_own_storage_keeps";
    if is_child("own") {
        // Two workers: one may have to wait for the lock, as a thread would.
        let runtime = Runtime::builder()
            .workers(2)
            .report_stalls(false)
            .movement(Movement::Anytime)
            .build()
            .expect("a runtime");
        assert_eq!(what_was_not_kept(&runtime), 0);
        return;
    }

    if is_child("shared") {
        // SAFETY: none; the contract is broken to show what then happens, with addresses that are
        // not followed.
        let builder = unsafe { Runtime::builder().workers(1).shared_storage() };
        assert!(what_was_not_kept(&builder.build().expect("a runtime")) > 20);
        return;
    }

    for part in ["own", "shared"] {
        let output = in_child(NAME, part, &[]);
        assert!(output.status.success(), "{part}: {}", stderr_of(&output));
    }
}

/// `fork` repairs the list of threads in the child, and finds the forking one through its storage.
#[test]
fn a_fiber_forks_and_starts_programs() {
    use std::os::unix::process::CommandExt;
    let runtime = Runtime::builder()
        .workers(2)
        .report_stalls(false)
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime");
    let fibers: Vec<_> = (0..8)
        .map(|n| {
            runtime.spawn(move || {
                yield_now();
                let mut command = std::process::Command::new("true");
                if n % 2 == 0 {
                    // With something to run in between, `std` forks instead of calling
                    // `posix_spawn`. SAFETY: it does nothing.
                    unsafe { command.pre_exec(|| Ok(())) };
                }

                assert!(command.status().expect("it runs").success());
                // SAFETY: the child allocates, as glibc allows after its `fork`, and ends without
                // destructors.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        let numbers: Vec<_> = (0..1000).collect();
                        libc::_exit(if numbers.len() == 1000 && pthread() != 0 {
                            7
                        } else {
                            1
                        });
                    }

                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    assert!(
                        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7,
                        "{status:#x}"
                    );
                }
            })
        })
        .collect();
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
}

/// A handler runs on the storage of whoever was interrupted, worker or fiber.
#[test]
fn signal_handlers_find_whole_storage() {
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: libc::c_int) {
        // SAFETY: reads and writes a word of the interrupted one's storage, and leaves it as it
        // was.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            *errno = 1;
            HANDLED.fetch_add(usize::from(pthread() != 0), Ordering::Relaxed);
            *errno = before;
        }
    }
    if apart() {
        return;
    }

    // SAFETY: a handler that is safe to run anywhere.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
    let runtime = Runtime::builder()
        .workers(2)
        .report_stalls(false)
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime");
    let fibers: Vec<_> = (0..20i32)
        .map(|n| {
            runtime.spawn(move || {
                for _ in 0..200 {
                    // SAFETY: this process; a word of this fiber's storage.
                    unsafe {
                        *libc::__errno_location() = n;
                        // To this OS thread; the kernel would hand a signal for the process to any.
                        libc::syscall(
                            libc::SYS_tgkill,
                            libc::getpid(),
                            libc::syscall(libc::SYS_gettid),
                            libc::SIGUSR1,
                        );
                        yield_now();
                        assert_eq!(*libc::__errno_location(), n);
                    }
                }
            })
        })
        .collect();
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
    assert!(HANDLED.load(Ordering::Relaxed) > 0);
}

/// Each has its own state of the resolver, as threads have.
#[test]
fn fibers_look_names_up_at_once() {
    use std::net::ToSocketAddrs;
    let runtime = Runtime::builder()
        .workers(2)
        .report_stalls(false)
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime");
    let fibers: Vec<_> = (0..50)
        .map(|_| {
            runtime.spawn(|| {
                for _ in 0..10 {
                    assert!(
                        ("localhost", 80)
                            .to_socket_addrs()
                            .expect("localhost is known")
                            .count()
                            > 0
                    );
                    yield_now();
                }
            })
        })
        .collect();
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
}

#[test]
fn what_is_supported_can_be_built() {
    for storage in [Storage::Own, Storage::Shared] {
        storage.supported().expect("on x86-64 Linux with glibc");
    }
    let runtime = Runtime::builder().own_storage().workers(1).build();
    assert_eq!(runtime.expect("supported").storage(), Storage::Own);
}
