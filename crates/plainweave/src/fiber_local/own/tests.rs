//! Blocks without fibers: how glibc sees them, and that ending them leaks nothing.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Block, base};

/// Returns the bytes that libc's allocator has given out.
fn in_use() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::mallinfo2() }.uordblks
}

/// Runs `f` on the block.
fn on<R>(block: &Block, f: impl FnOnce() -> R) -> R {
    // SAFETY: nobody else is on the block; what `f` does with thread-locals is in functions of
    // libc.
    unsafe { base::on(block.base(), f) }
}

#[test]
fn a_block_is_a_thread_to_libc() {
    let one = Block::new().expect("a block");
    let two = Block::new().expect("a block");
    // SAFETY: no preconditions.
    let errno = || unsafe { libc::__errno_location().addr() };

    // SAFETY: no preconditions.
    let me = || unsafe { libc::pthread_self() as usize };
    let here = errno();
    assert!(on(&one, errno) != here && on(&one, errno) != on(&two, errno) && errno() == here);
    assert_eq!((on(&one, me), on(&two, me)), (one.base(), two.base()));

    // Restartable sequences are not registered for the block, so the kernel is asked.
    // SAFETY: no preconditions.
    assert!(on(&one, || unsafe { libc::sched_getcpu() }) >= 0);
    // SAFETY: a locale to be freed is not in use; the string is valid.
    let upper = on(&one, || unsafe { libc::toupper(i32::from(b'x')) });
    assert_eq!(upper, i32::from(b'X'));
    assert!(one.end().is_ok() && two.end().is_ok());
}

/// Recursive locks know their owner by the thread's number: no two blocks share one, and none has a
/// thread's.
#[test]
fn recursive_locks_tell_blocks_apart() {
    // SAFETY: plain calls in the order that they prescribe, on places that outlive them.
    unsafe {
        let mut attributes = std::mem::zeroed();
        let mut lock = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_settype(&mut attributes, libc::PTHREAD_MUTEX_RECURSIVE);
        libc::pthread_mutex_init(&mut lock, &attributes);
        let lock = &raw mut lock;
        let one = Block::new().expect("a block");
        let two = Block::new().expect("a block");

        assert_eq!(on(&one, || libc::pthread_mutex_lock(lock)), 0);
        assert_eq!(on(&two, || libc::pthread_mutex_trylock(lock)), libc::EBUSY);
        assert_eq!(libc::pthread_mutex_trylock(lock), libc::EBUSY);
        let owner = one.base();

        // On another thread it is still the owner.
        let place = lock.expose_provenance();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let lock = std::ptr::with_exposed_provenance_mut(place);
                let ended = base::on(owner, || {
                    [
                        libc::pthread_mutex_lock(lock),
                        libc::pthread_mutex_unlock(lock),
                    ]
                });

                assert_eq!(ended, [0, 0]);
                assert_eq!(base::on(owner, || libc::pthread_mutex_unlock(lock)), 0);
            });
        });

        assert_eq!(on(&two, || libc::pthread_mutex_trylock(lock)), 0);
        assert_eq!(on(&two, || libc::pthread_mutex_unlock(lock)), 0);
        assert!(one.end().is_ok() && two.end().is_ok());
    }
}

/// What a fiber frees stays with the worker: other fibers of this worker, and only of this one,
/// find it again.
#[test]
fn a_block_allocates_from_the_cache_of_its_worker() {
    // SAFETY: freed once, or given out by `malloc`; black boxes, lest the compiler removes the
    // calls.
    let allocate = || unsafe {
        std::hint::black_box(libc::malloc(std::hint::black_box(500))).expose_provenance()
    };
    // SAFETY: as above.
    let free = |address| unsafe { libc::free(std::ptr::with_exposed_provenance_mut(address)) };
    let home = super::base_of_worker();
    let one = Block::new().expect("a block");
    let two = Block::new().expect("a block");

    one.lend_malloc_cache(home);
    two.lend_malloc_cache(home);

    // Once before: an allocation that finds the cache empty may fill it, and then it takes nothing
    // back.
    on(&one, || free(allocate()));
    let address = on(&one, allocate);
    on(&one, || free(address));
    assert_eq!(on(&two, allocate), address);
    on(&two, || free(address));
    assert_eq!(allocate(), address);

    // After a move, from the other thread's.
    let (freed, found, one) = std::thread::scope(|threads| {
        let other = threads.spawn(move || {
            one.lend_malloc_cache(super::base_of_worker());
            on(&one, || free(allocate()));
            let address = on(&one, allocate);
            on(&one, || free(address));
            (address, allocate(), one)
        });
        other.join().expect("no panic")
    });

    assert_eq!(freed, found);
    assert_ne!(freed, address);
    free(freed);
    free(address);

    // The loan of a thread that has ended is taken back.
    assert!(one.end().is_ok() && two.end().is_ok());
    let address = allocate();
    free(address);
    assert_eq!(allocate(), address);
    free(address);
}

/// Blocks of a worker whose arena has heaps of its own, as all but the main one have, allocate
/// there, also what no cache has. In rounds, because a test's thread may have got the main one.
#[test]
fn a_block_allocates_from_the_arena_of_its_worker() {
    const HEAP: usize = 64 << 20;
    // SAFETY: freed at once; too large for the cache, too small for a mapping of its own.
    let heap = || unsafe {
        let memory = std::hint::black_box(libc::malloc(std::hint::black_box(20_000)));
        let start = memory.addr() / HEAP;
        libc::free(memory);
        start
    };
    let round = move || {
        let home = super::base_of_worker();
        let blocks: Vec<_> = (0..40).map(|_| Block::new().expect("a block")).collect();
        let mut found: Vec<_> = blocks
            .iter()
            .map(|block| {
                block.lend_malloc_cache(home);
                on(block, heap)
            })
            .collect();

        blocks
            .into_iter()
            .for_each(|block| assert!(block.end().is_ok()));
        found.retain(|start| *start != heap());
        found.is_empty()
    };

    let rounds = (0..20).map(|_| std::thread::spawn(round).join().expect("no panic"));
    assert!(rounds.collect::<Vec<_>>().contains(&true));
}

/// In rounds, because other tests use the same allocator meanwhile: sooner or later nothing else
/// happens in one.
#[test]
fn the_end_of_a_block_leaves_nothing_allocated() {
    fn round() -> usize {
        let before = in_use();
        let block = Block::new().expect("a block");
        block.lend_malloc_cache(super::base_of_worker());
        on(&block, || {
            // SAFETY: freed at once. Too large for the cache, so that the block gets an arena.
            unsafe {
                (1..60).for_each(|n| libc::free(std::hint::black_box(libc::malloc(n * 1600))))
            };
        });
        assert!(block.end().is_ok());

        in_use().abs_diff(before)
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while let left @ 1.. = round() {
        assert!(
            Instant::now() < deadline,
            "{left} bytes left in the last round"
        );
    }
}

#[test]
fn values_of_pthread_keys_are_destroyed() {
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn destroy(value: *mut std::ffi::c_void) {
        DESTROYED.fetch_add(value.addr(), Ordering::Relaxed);
    }
    super::base_of_worker(); // It finds what says whether there are values.
    let mut block = Block::new().expect("a block");

    for n in 1..=100 {
        let mut key = 0;
        // SAFETY: a place for the key, a function for its values, which are never followed.
        unsafe {
            assert_eq!(libc::pthread_key_create(&mut key, Some(destroy)), 0);
            let value = std::ptr::without_provenance(n);
            on(&block, || libc::pthread_setspecific(key, value));
            on(&block, super::end_of_fiber);
            assert!(on(&block, || libc::pthread_getspecific(key)).is_null());

            // Keep every other key, so that values come to lie in arrays of later levels.
            if n % 2 == 0 {
                libc::pthread_key_delete(key);
            }
        }

        block.reset();
        assert_eq!(DESTROYED.load(Ordering::Relaxed), (1..=n).sum());
    }

    assert!(block.end().is_ok());
}

/// A destructor that sets a value again each time is not called for ever, and what it has set last
/// does not come to the next fiber on the block.
#[test]
fn a_value_that_comes_back_does_not_outlive_its_fiber() {
    static KEY: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn set_again(value: *mut std::ffi::c_void) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a key of this test's.
        unsafe {
            libc::pthread_setspecific(KEY.load(Ordering::Relaxed) as libc::pthread_key_t, value)
        };
    }

    let mut block = Block::new().expect("a block");
    // Enough for the value to lie in the first array, and in a later one.
    for n in 0..40 {
        let mut key = 0;
        // SAFETY: a place for the key, a function for its values, which are never followed.
        unsafe {
            assert_eq!(libc::pthread_key_create(&mut key, Some(set_again)), 0);
            KEY.store(key as usize, Ordering::Relaxed);
            on(&block, || {
                libc::pthread_setspecific(key, std::ptr::without_provenance(7))
            });
            on(&block, super::end_of_fiber);
            block.reset();
            assert!(
                on(&block, || libc::pthread_getspecific(key)).is_null(),
                "key {key}"
            );
        }

        assert_eq!(
            CALLS.load(Ordering::Relaxed),
            (n + 1) * 4,
            "as often as for a thread"
        );
    }

    assert!(block.end().is_ok());
}
