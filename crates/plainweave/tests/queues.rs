//! Oracles of the queues, through what is public: with threads, nothing is lost, nothing comes
//! twice, and each producer stays in order where that is promised; on one thread they are
//! `VecDeque`s. Sizes shrink under Miri, which checks the pointers as well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use plainweave::queue::deque::{self, deque};
use plainweave::queue::mpmc::Mpmc;
use plainweave::queue::ring::ring;
use plainweave::queue::shared::Sharded;
use proptest::prelude::*;

/// Tasks in a test with threads. They are boxes, so that a lost or doubled one is a leak or a
/// double free.
const TASKS: u32 = if cfg!(miri) { 300 } else { 200_000 };

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 6 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// All of `0..TASKS`, each once.
#[track_caller]
fn assert_conserved(seen: impl IntoIterator<Item = Vec<u32>>) {
    let mut all: Vec<u32> = seen.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(
        all.into_iter().eq(0..TASKS),
        "something was lost or came twice"
    );
}

/// Two threads push, two pop until all is there. What each popper saw; the producer of a task is
/// its number modulo 2.
fn between_threads(
    push: impl Fn(Box<u32>) + Sync,
    pop: impl Fn() -> Option<Box<u32>> + Sync,
) -> Vec<Vec<u32>> {
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        let poppers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut seen = Vec::new();
                while taken.load(Ordering::Relaxed) < TASKS as usize {
                    match pop() {
                        Some(task) => {
                            seen.push(*task);
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                        None => thread::yield_now(),
                    }
                }
                seen
            })
        });

        for start in 0..2 {
            let push = &push;
            scope.spawn(move || {
                (start..TASKS)
                    .step_by(2)
                    .for_each(|number| push(Box::new(number)))
            });
        }

        poppers.map(|popper| popper.join().unwrap()).into()
    })
}

fn assert_producers_in_order(seen: &[Vec<u32>]) {
    for one in seen {
        for producer in 0..2 {
            assert!(
                one.iter()
                    .filter(|number| *number % 2 == producer)
                    .is_sorted(),
                "out of order"
            );
        }
    }
}

#[test]
fn mpmc_conserves_tasks_and_keeps_each_producers_order() {
    for capacity in [1, 2, 64] {
        let queue = Mpmc::new(capacity);
        let push = |mut task| {
            while let Err(back) = queue.push(task) {
                task = back;
                thread::yield_now();
            }
        };

        let seen = between_threads(push, || queue.pop());
        assert_producers_in_order(&seen);
        assert_conserved(seen);
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}

#[test]
fn sharded_conserves_tasks_and_one_part_keeps_each_producers_order() {
    for (queue, parts) in [
        (Sharded::lock_free(1), 1),
        (Sharded::locked(1), 1),
        (Sharded::lock_free(3), 3),
    ] {
        let seen = between_threads(
            |task| queue.push(*task as usize % parts, task),
            || queue.pop(parts / 2),
        );
        if parts == 1 {
            assert_producers_in_order(&seen);
        }
        assert_conserved(seen);
        assert!(queue.is_empty() && queue.pop(0).is_none());
    }
}

/// Takes from the victim until the owner is done and nothing is seen any more.
fn steal_all(
    victim: &deque::Stealer<Box<u32>>,
    mut own: deque::Owner<Box<u32>>,
    done: &AtomicBool,
) -> Vec<Vec<u32>> {
    let mut batches = Vec::new();
    loop {
        let last = done.load(Ordering::Acquire);
        while let Some(first) = victim
            .steal_into(&mut own, |len| len.div_ceil(2))
            .or_else(|| victim.steal_one())
        {
            let mut batch = vec![*first];
            batch.extend(std::iter::from_fn(|| own.pop_oldest()).map(|task| *task));
            batches.push(batch);
        }
        if last && victim.is_empty() {
            return batches;
        }
        thread::yield_now();
    }
}

/// Pushes all tasks, popping some at either end; `full` makes room, or takes the task.
fn work(
    owner: &mut deque::Owner<Box<u32>>,
    mut full: impl FnMut(&mut deque::Owner<Box<u32>>, Box<u32>),
) -> Vec<u32> {
    let mut seen = Vec::new();
    for number in 0..TASKS {
        if let Err(task) = owner.push(Box::new(number)) {
            full(owner, task);
        }
        match number % 8 {
            0 | 3 => seen.extend(owner.pop_newest().map(|task| *task)),
            5 => seen.extend(owner.pop_oldest().map(|task| *task)),
            _ => {}
        }
    }

    seen.extend(std::iter::from_fn(|| owner.pop_newest()).map(|task| *task));
    seen
}

fn deque_against_two_thieves(
    capacity: usize,
    full: impl FnMut(&mut deque::Owner<Box<u32>>, Box<u32>),
) -> Vec<Vec<u32>> {
    let mut owner = deque(capacity);
    let victim = owner.stealer();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let thieves: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| steal_all(&victim, deque(capacity), &done)))
            .collect();
        let mut seen = vec![work(&mut owner, full)];
        done.store(true, Ordering::Release);

        for thief in thieves {
            let batches = thief.join().unwrap();
            assert!(
                batches.iter().all(|batch| batch.is_sorted()),
                "a batch is not oldest first"
            );
            seen.extend(batches);
        }

        seen
    })
}

#[test]
fn deque_conserves_tasks_and_gives_thieves_the_oldest_first() {
    for capacity in [1, 2, 8, 64] {
        let mut spill = Vec::new();
        let seen = deque_against_two_thieves(capacity, |owner, task| {
            spill.extend(owner.take_half().map(|task| *task));
            spill.push(*task);
        });
        assert_conserved(seen.into_iter().chain([spill]));
    }
}

#[test]
fn deque_conserves_tasks_while_it_grows() {
    let seen = deque_against_two_thieves(1, |owner, task| {
        if owner.free() == 0 {
            assert!(owner.grow());
        }
        assert!(owner.push(task).is_ok(), "after a growth there is room");
    });
    assert_conserved(seen);
}

#[test]
fn queues_drop_what_is_left_in_them() {
    let counter = Arc::new(());
    let task = || Arc::clone(&counter);
    let mut owner = deque(2);
    (0..2).for_each(|_| owner.push(task()).unwrap());
    assert!(owner.push(task()).is_err() && owner.grow());
    owner.push(task()).unwrap();
    drop(owner.take_half());
    assert_eq!((owner.len(), Arc::strong_count(&counter)), (1, 2));
    let mpmc = Mpmc::new(2);
    let sharded = Sharded::lock_free(2);

    mpmc.push(task()).unwrap();
    sharded.push(1, task());
    assert_eq!(Arc::strong_count(&counter), 4);
    drop((mpmc, sharded));
    let stealer = owner.stealer();
    drop(owner);
    assert_eq!((stealer.len(), Arc::strong_count(&counter)), (1, 2));
    drop(stealer);
    assert_eq!(Arc::strong_count(&counter), 1);
}

#[test]
fn a_deque_does_not_rob_itself_and_stays_within_the_thiefs_room() {
    let mut victim = deque(8);
    let mut thief = deque(2);
    (0..8).for_each(|i| victim.push(i).unwrap());
    assert_eq!(victim.stealer().steal_into(&mut victim, |len| len), None);
    assert_eq!(victim.stealer().steal_into(&mut thief, |_| 0), None);
    assert_eq!(victim.stealer().steal_into(&mut thief, |len| len), Some(0));
    assert_eq!((thief.len(), victim.len()), (2, 5));

    assert_eq!(
        victim.stealer().steal_into(&mut thief, |len| len),
        Some(3),
        "a full thief still gets one to run"
    );
}

#[test]
#[cfg_attr(miri, ignore = "a million slots")]
fn a_deque_grows_to_its_bound() {
    let mut owner = deque::<u8>(deque::MAX_CAPACITY / 2);
    assert!(owner.grow() && !owner.grow());
    assert_eq!(owner.capacity(), deque::MAX_CAPACITY);
}

#[test]
#[should_panic(expected = "not a power of two")]
fn mpmc_refuses_an_odd_capacity() {
    let _ = Mpmc::<u8>::new(3);
}

proptest! {
    #![proptest_config(config())]

    /// A deque and its thief behave as two `VecDeque`s, growth included.
    #[test]
    fn deques_are_vecdeques(steps in prop::collection::vec((0u8..8, 0usize..6), 0..200), size in 0u32..4) {
        let mut owner = deque(1 << size);
        let mut thief = deque(4);
        let [mut a, mut b] = [const { VecDeque::new() }; 2];
        for (number, (step, amount)) in steps.into_iter().enumerate() {
            match step {
                0..=2 => match owner.push(number) {
                    Ok(()) => a.push_back(number),
                    Err(_) if amount < 2 => {
                        prop_assert_eq!(a.len(), owner.capacity());
                        prop_assert!(owner.take_half().eq(a.drain(..a.len().div_ceil(2)).collect::<Vec<_>>()));
                    }
                    Err(number) => {
                        prop_assert!(owner.grow());
                        owner.push(number).unwrap();
                        a.push_back(number);
                    }
                },
                3 => prop_assert_eq!(owner.pop_newest(), a.pop_back()),
                4 => prop_assert_eq!(owner.pop_oldest(), a.pop_front()),
                5 => prop_assert_eq!(thief.pop_newest(), b.pop_back()),
                6 => prop_assert_eq!(owner.stealer().steal_one(), a.pop_front()),
                _ => {
                    let n = amount.min(a.len()).min(4 - b.len() + 1);
                    let mut moved = a.drain(..n);
                    let first = moved.next();
                    b.extend(moved);
                    prop_assert_eq!(owner.stealer().steal_into(&mut thief, |_| amount), first);
                }
            }

            prop_assert_eq!([owner.len(), thief.len()], [a.len(), b.len()]);
            prop_assert_eq!([owner.free(), thief.free()], [owner.capacity() - a.len(), 4 - b.len()]);
        }
    }

    /// So do the shared queues on one thread; past a full ring, and in batches.
    #[test]
    fn shared_queues_are_vecdeques(steps in prop::collection::vec((0u8..6, 0usize..6), 0..200), size in 0u32..4) {
        let capacity = 1 << size;
        let mpmc = Mpmc::new(capacity);
        let sharded = Sharded::lock_free(1);
        let mut owner = ring(4);
        let [mut bounded, mut all, mut own] = [const { VecDeque::new() }; 3];

        for (number, (step, amount)) in steps.into_iter().enumerate() {
            match step {
                0 | 1 => {
                    let room = bounded.len() < capacity;
                    prop_assert_eq!(mpmc.push(number).is_ok(), room);
                    bounded.extend(room.then_some(number));
                    sharded.push(0, number);
                    all.push_back(number);
                }
                2 => {
                    sharded.push_all(0, number..number + 400 * amount);
                    all.extend(number..number + 400 * amount);
                }
                3 => {
                    prop_assert_eq!(mpmc.pop(), bounded.pop_front());
                    prop_assert_eq!(sharded.pop(0), all.pop_front());
                }
                4 => prop_assert_eq!(owner.pop(), own.pop_front()),
                _ => {
                    // A batch comes from the ring or from behind it.
                    let found = sharded.pop_batch_into(0, &mut owner, amount);
                    prop_assert_eq!(found.is_some(), amount > 0 && !all.is_empty());
                    prop_assert_eq!(found, found.and_then(|_| all.pop_front()));
                    own.extend((own.len()..owner.len()).filter_map(|_| all.pop_front()));
                }
            }
            prop_assert_eq!([mpmc.len(), sharded.len(), owner.len()], [bounded.len(), all.len(), own.len()]);
        }
    }
}
