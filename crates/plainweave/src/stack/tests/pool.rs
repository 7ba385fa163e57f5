//! The pool through its crate-visible surface: bounds, recycling, fallbacks.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use super::super::free::{ALWAYS_HOT, HOT_FOR, WARM_BYTES, WARM_FOR};
use super::super::guard::{Guards, mappings};
use super::super::table;
use super::*;
use crate::context::tests::{Flow, flow};

const SIZE: usize = 128 << 10;

#[test]
fn sizes_are_checked_and_rounded() {
    let error = StackPool::new(config(MIN_SIZE - 1)).expect_err("too small");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(&MIN_SIZE.to_string()), "{error}");
    assert_eq!(
        StackPool::new(config(MAX_SIZE + 1))
            .expect_err("too large")
            .kind(),
        ErrorKind::InvalidInput
    );
    let none = StackConfig {
        max_stacks: 0,
        ..config(SIZE)
    };

    assert_eq!(
        StackPool::new(none).expect_err("no stacks").kind(),
        ErrorKind::InvalidInput
    );

    let pool = StackPool::new(config(MIN_SIZE + 1)).expect("pool");
    assert_eq!(pool.config().size, MIN_SIZE + page_size());
    let stack = pool.take().expect("stack");
    assert_eq!(stack.size(), MIN_SIZE + page_size());
    assert_eq!(size_of::<Stack>(), 16);
    pool.put(stack);
}

#[test]
fn a_flow_runs_on_it_and_it_can_be_put_back() {
    extern "C" fn add(argument: usize, first: usize) -> ! {
        let flow = flow(argument);
        let second = flow.answer(first + 1);
        flow.end(first + second)
    }

    let pool = StackPool::new(config(SIZE)).expect("pool");
    let stack = pool.take().expect("stack");
    let runs = Flow::new(stack.bottom_address(), stack.base(), add);

    assert_eq!(runs.ask(20), 21);
    assert_eq!(runs.ask(22), 42);
    assert!((1..SIZE).contains(&stack.high_water()));
    pool.put(stack);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn the_guard_faults_and_the_stack_does_not() {
    for guard in [GuardMode::Auto, GuardMode::Mprotect] {
        let pool = StackPool::new(StackConfig {
            guard,
            ..config(SIZE)
        })
        .expect("pool");
        let stacks = take(&pool, 70);
        for stack in &stacks {
            let bottom = stack.bottom();
            assert!(writable(bottom) && writable(bottom.wrapping_add(SIZE - 1)));
            assert!(
                !writable(bottom.wrapping_sub(1)) && !writable(bottom.wrapping_sub(GUARD_SIZE))
            );
            stack.shrink(0);
            assert!(
                !writable(bottom.wrapping_sub(1)),
                "a guard survives the return of the pages"
            );
        }

        stacks.into_iter().for_each(|stack| pool.put(stack));
    }
}

#[test]
fn stacks_begin_at_four_distances_from_the_page() {
    let pool = StackPool::new(config(SIZE)).expect("pool");
    let stacks = take(&pool, 8);
    let colours: HashSet<usize> = stacks
        .iter()
        .map(|stack| stack.top().addr().get() - stack.base())
        .collect();
    assert_eq!(colours, HashSet::from([0, 256, 512, 768]));

    for stack in &stacks {
        assert_eq!(stack.top().addr().get() - stack.bottom_address(), SIZE);
    }

    stacks.into_iter().for_each(|stack| pool.put(stack));
}

#[test]
fn high_water_counts_pages_down_to_the_deepest() {
    let pool = StackPool::new(config(SIZE)).expect("pool");
    let stack = pool.take().expect("stack");
    assert_eq!(stack.high_water(), 0);
    touch(&stack, 1);
    assert_eq!(stack.high_water(), page_size());
    touch(&stack, 40 << 10);
    assert_eq!(stack.high_water(), 40 << 10);
    touch(&stack, SIZE);
    assert_eq!(stack.high_water(), SIZE);
    stack.shrink(8 << 10);
    assert_eq!(stack.high_water(), 8 << 10);
    pool.put(stack);
    pool.note_high_water(3);
    assert_eq!(pool.stats().high_water, 8 << 10);
}

#[test]
fn owners_are_listed_until_the_stack_comes_back() {
    let pool = StackPool::new(config(SIZE)).expect("pool");
    let stacks = take(&pool, 100);
    let words: Vec<u8> = vec![0; 100];
    for (stack, word) in stacks.iter().zip(&words) {
        assert!(stack.owner().is_null());
        stack.set_owner(std::ptr::from_ref(word).cast());
    }

    let mut seen = HashSet::new();
    pool.for_each_owner(|owner| assert!(seen.insert(owner)));
    assert_eq!(seen.len(), 100);
    stacks.into_iter().for_each(|stack| pool.put(stack));
    pool.for_each_owner(|_| panic!("put clears the owner"));
}

#[test]
fn the_bound_is_an_error_and_a_put_lifts_it() {
    let pool = StackPool::new(StackConfig {
        max_stacks: 10,
        ..config(SIZE)
    })
    .expect("pool");
    let mut stacks = take(&pool, 10);
    let error = pool.take().expect_err("bound");
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    assert!(error.to_string().contains("all 10 fiber stacks"), "{error}");
    pool.put(stacks.pop().expect("one"));
    stacks.push(pool.take().expect("one is free again"));
    stacks.into_iter().for_each(|stack| pool.put(stack));
}

#[test]
fn slabs_double() {
    let pool = StackPool::new(config(MIN_SIZE)).expect("pool");
    let stacks = take(&pool, 64 + 128 + 256 + 1);
    let stats = pool.stats();
    assert_eq!(
        (stats.slots, stats.in_use, stats.free, stats.slabs),
        (449, 449, 0, 4)
    );
    stacks.into_iter().for_each(|stack| pool.put(stack));
    assert_eq!(pool.stats().free, 449);
}

#[test]
fn above_max_free_stacks_come_back_cold() {
    let pool = StackPool::new(StackConfig {
        max_free: 4,
        ..config(SIZE)
    })
    .expect("pool");
    let stacks = take(&pool, 10);
    let aliases: Vec<Stack> = stacks.iter().map(Stack::alias).collect();
    stacks.iter().for_each(|stack| touch(stack, SIZE));
    stacks.into_iter().for_each(|stack| pool.put(stack));
    let resident = aliases
        .iter()
        .filter(|stack| stack.high_water() > 0)
        .count();

    assert_eq!(resident, 4);
    assert_eq!(pool.stats().free, 10);
    assert_eq!(pool.stats().high_water, SIZE);
}

#[test]
fn idle_stacks_are_trimmed_and_used_ones_are_not() {
    let pool = StackPool::new(config(SIZE)).expect("pool");
    let start = Instant::now();
    let stacks = take(&pool, ALWAYS_HOT + 72);
    let aliases: Vec<Stack> = stacks.iter().map(Stack::alias).collect();
    stacks.iter().for_each(|stack| touch(stack, 100 << 10));
    stacks.into_iter().for_each(|stack| pool.put(stack));
    let deep = || {
        aliases
            .iter()
            .filter(|stack| stack.high_water() == 100 << 10)
            .count()
    };

    pool.tidy_at(start + HOT_FOR / 2, usize::MAX);
    assert_eq!(deep(), ALWAYS_HOT + 72, "too early");
    pool.tidy_at(start + 10 * HOT_FOR, usize::MAX);
    assert_eq!(
        deep(),
        ALWAYS_HOT + 72,
        "all were in use since the last time"
    );

    let used = take(&pool, ALWAYS_HOT + 32);
    used.into_iter().rev().for_each(|stack| pool.put(stack));
    pool.tidy_at(start + 20 * HOT_FOR, usize::MAX);
    assert_eq!(deep(), ALWAYS_HOT + 32, "40 were idle");
    assert!(
        aliases[..40]
            .iter()
            .all(|stack| stack.high_water() == WARM_BYTES),
        "those put first"
    );
    pool.tidy_at(start + 30 * HOT_FOR, usize::MAX);
    assert_eq!(deep(), ALWAYS_HOT, "a small stock stays hot");
    assert_eq!(pool.stats().high_water, 100 << 10);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn warm_stacks_without_use_give_all_their_pages_back() {
    let pool = StackPool::new(config(SIZE)).expect("pool");
    let stacks = take(&pool, ALWAYS_HOT + 72);
    let aliases: Vec<Stack> = stacks.iter().map(Stack::alias).collect();
    stacks.iter().for_each(|stack| touch(stack, 4 << 10));
    stacks.into_iter().for_each(|stack| pool.put(stack));
    let resident = || {
        aliases
            .iter()
            .filter(|stack| stack.high_water() > 0)
            .count()
    };

    let start = Instant::now();
    pool.tidy_at(start + HOT_FOR, usize::MAX);
    pool.tidy_at(start + 2 * HOT_FOR, usize::MAX);
    assert_eq!(resident(), ALWAYS_HOT + 72, "72 are warm");
    pool.tidy_at(start + WARM_FOR, usize::MAX);
    assert_eq!(
        resident(),
        ALWAYS_HOT + 72,
        "they have been for less than a period"
    );

    let used = take(&pool, ALWAYS_HOT + 32);
    pool.tidy_at(start + 2 * WARM_FOR, usize::MAX);
    assert_eq!(resident(), ALWAYS_HOT + 32, "40 were not used since");
    used.iter().for_each(|stack| touch(stack, 4 << 10));
    used.into_iter().for_each(|stack| pool.put(stack));
    for period in 3..=6 {
        pool.tidy_at(start + period * WARM_FOR, usize::MAX);
    }
    assert_eq!(resident(), ALWAYS_HOT, "a small stock stays hot");
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_cache_recycles_the_newest_and_returns_all() {
    let pool = Arc::new(StackPool::new(config(SIZE)).expect("pool"));
    let mut mine = StackCache::new(Arc::clone(&pool));
    let first = mine.take().expect("stack");
    first.set_owner(std::ptr::dangling::<()>());
    let top = first.top();
    mine.put(first);
    let again = mine.take().expect("stack");

    assert_eq!(again.top(), top);
    assert!(again.owner().is_null());
    let many: Vec<Stack> = (0..500).map(|_| mine.take().expect("stack")).collect();
    assert_eq!(pool.stats().in_use, 501);
    mine.put(again);
    many.into_iter().for_each(|stack| mine.put(stack));
    let stats = pool.stats();

    assert_eq!((stats.in_use, stats.free), (0, stats.slots));
    drop(mine);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.free), (0, stats.slots));
}

#[test]
fn four_threads_never_share_a_slot() {
    let pool = Arc::new(StackPool::new(config(MIN_SIZE)).expect("pool"));
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            let mut mine = StackCache::new(Arc::clone(&pool));
            scope.spawn(move || {
                let token = Box::new(seed);
                let me: *const () = std::ptr::from_ref(&*token).cast();
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut held = Vec::new();

                for _ in 0..50_000 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;

                    if state % 1000 < 500 + 200 * u64::from(held.len() < 150) {
                        let stack = mine.take().expect("stack");
                        assert!(stack.owner().is_null());
                        stack.set_owner(me);
                        held.push(stack);
                    } else if !held.is_empty() {
                        let stack = held.swap_remove((state >> 32) as usize % held.len());
                        assert_eq!(stack.owner(), me);
                        mine.put(stack);
                    }
                }

                held.into_iter().for_each(|stack| mine.put(stack));
            });
        }
    });

    assert_eq!(pool.stats().in_use, 0);
    let all = take(&pool, pool.stats().slots);
    let tops: HashSet<_> = all.iter().map(|stack| stack.top()).collect();
    assert_eq!(tops.len(), all.len());
    all.into_iter().for_each(|stack| pool.put(stack));
}

#[test]
fn an_address_leads_to_its_slot() {
    let pool = StackPool::new(config(SIZE)).expect("pool");
    let stacks = take(&pool, 3);
    let owner = 7u64;
    stacks[1].set_owner(std::ptr::from_ref(&owner).cast());
    let top = stacks[1].top().addr().get();
    let base = top - SIZE - GUARD_SIZE;

    // SAFETY: the pool outlives the calls.
    let find = |address| unsafe { table::lookup(address) };
    let guard = find(base).expect("the guard's first byte");
    assert_eq!(
        (guard.slot_base, guard.size, guard.is_guard),
        (base, SIZE, true)
    );
    assert_eq!(guard.owner, std::ptr::from_ref(&owner).cast());
    assert!(
        find(base + GUARD_SIZE - 1)
            .expect("the guard's last byte")
            .is_guard
    );
    assert!(
        !find(base + GUARD_SIZE)
            .expect("the stack's first byte")
            .is_guard
    );
    assert_eq!(
        find(top - 1).expect("the stack's last byte").slot_base,
        base
    );
    assert_eq!(find(top).expect("the next slot").slot_base, top);
    assert_eq!(find(std::ptr::from_ref(&owner).addr()), None);
    stacks.into_iter().for_each(|stack| pool.put(stack));
}

#[test]
fn a_dropped_pool_unmaps_unless_a_stack_is_out() {
    let pool = StackPool::new(config(SIZE)).expect("pool");
    let stack = pool.take().expect("stack");
    touch(&stack, 1);
    drop(pool);
    touch(&stack, SIZE);

    // SAFETY: the pool was leaked, so its slab is mapped for good.
    assert!(unsafe { table::lookup(stack.top().addr().get() - 1) }.is_some());

    // Another test may map the same addresses at once, so this pool's stacks have a size of their
    // own.
    let size = SIZE + 5 * page_size();
    let pool = StackPool::new(config(size)).expect("pool");
    let stack = pool.take().expect("stack");
    let address = stack.top().addr().get() - 1;

    // SAFETY: the pool is there.
    let found = unsafe { table::lookup(address) };
    assert_eq!(found.map(|hit| hit.size), Some(size));
    pool.put(stack);
    drop(pool);
    let mut resident = 0u8;
    let page = std::ptr::without_provenance_mut::<libc::c_void>(address & !(page_size() - 1));

    // SAFETY: `mincore` only asks, and writes one byte.
    let mapped = unsafe { libc::mincore(page, page_size(), &mut resident) } == 0;
    // SAFETY: only the table is of interest; a pool of another test that holds the address now may
    // not be dropped meanwhile, which is why the lookup runs only when nothing is mapped there.
    assert!(mapped || unsafe { table::lookup(address) }.is_none());
}

/// Acts like a kernel before 6.13.
fn refuse(_: *mut u8) -> std::io::Result<()> {
    Err(std::io::Error::from_raw_os_error(libc::EINVAL))
}

#[test]
fn an_old_kernel_means_mprotect_or_an_error() {
    let auto = StackPool::with_guards(
        config(SIZE),
        Guards::new(GuardMode::Auto).with_light(refuse),
    )
    .expect("pool");
    assert_eq!(auto.stats().guard, GuardKind::Mprotect);
    let stack = auto.take().expect("stack");
    assert!(!writable(stack.bottom().wrapping_sub(1)));
    auto.put(stack);
    let forced = Guards::new(GuardMode::Madvise).with_light(refuse);
    let error = StackPool::with_guards(config(SIZE), forced).expect_err("not available");

    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("MADV_GUARD_INSTALL"), "{error}");
}

#[test]
fn mprotect_stops_before_the_mapping_limit() {
    let limit = mappings() + 2000;
    let guards = Guards::new(GuardMode::Mprotect).with_map_limit(limit);
    let pool = StackPool::with_guards(config(MIN_SIZE), guards).expect("pool");
    let mut stacks = Vec::new();
    let error = loop {
        match pool.take() {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };

    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    assert!(
        error.to_string().contains("sysctl -w vm.max_map_count="),
        "{error}"
    );
    // Other tests map and unmap meanwhile, so check only roughly.
    assert!((100..1100).contains(&stacks.len()), "{}", stacks.len());
    stacks.into_iter().for_each(|stack| pool.put(stack));

    assert!(
        pool.take().map(|stack| pool.put(stack)).is_ok(),
        "what there is goes round"
    );
}
