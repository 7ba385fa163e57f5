//! Oracles with real threads and against `VecDeque`. Sizes shrink under Miri, which checks the
//! pointers as well.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;

use super::inbox::Inbox;
use super::inbox::tests::Boxed;
use super::mpsc;
use super::ring::{Owner, Stealer, ring, ring_at};
use super::shared::Injector;

/// Tasks in a test with threads. They are boxes, so that a lost or doubled one is a leak or a
/// double free.
const TASKS: u32 = if cfg!(miri) { 300 } else { 300_000 };

/// The last positions before the wrap at 2^48.
const BEFORE_WRAP: u64 = (1 << 48) - 3;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 6 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Asserts that all of `0..TASKS` came, each once.
fn assert_conserved(seen: impl IntoIterator<Item = Vec<u32>>) {
    let mut all: Vec<u32> = seen.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..TASKS));
}

/// Runs what the thief holds, then steals, until the producer is done and no task is visible any
/// more.
fn steal_all(
    victims: &[Stealer<Box<u32>>],
    mut own: Owner<Box<u32>>,
    done: &AtomicBool,
) -> Vec<u32> {
    let mut seen = Vec::new();
    loop {
        let last = done.load(Ordering::Acquire);
        for victim in victims {
            while let Some(first) = victim
                .steal_half_into(&mut own)
                .or_else(|| victim.steal_one())
            {
                seen.push(*first);
                seen.extend(std::iter::from_fn(|| own.pop()).map(|task| *task));
            }
        }

        if last && victims.iter().all(Stealer::is_empty) {
            return seen;
        }
        thread::yield_now();
    }
}

/// Pushes all tasks, singly and in batches, popping some and sending overflow to `spill`; returns
/// what the owner ran itself.
fn produce(owner: &mut Owner<Box<u32>>, spill: &mut Vec<u32>) -> Vec<u32> {
    let mut seen = Vec::new();
    let mut batch = VecDeque::new();
    for number in 0..TASKS {
        if number % 64 < 20 && number + 1 < TASKS {
            batch.push_back(Box::new(number));
            continue;
        }

        while !batch.is_empty() {
            owner.push_all(&mut batch);
            spill.extend(batch.pop_front().map(|task| *task));
        }

        if let Err(task) = owner.push(Box::new(number)) {
            spill.extend(owner.take_half().map(|task| *task));
            spill.push(*task);
        }

        if number % 3 == 0 {
            seen.extend(owner.pop().map(|task| *task));
        }
    }

    seen.extend(std::iter::from_fn(|| owner.pop()).map(|task| *task));
    seen
}

#[test]
fn ring_conserves_tasks_and_each_thief_sees_them_in_order() {
    for capacity in [1, 2, 8, 64] {
        let mut owner = ring_at(capacity, BEFORE_WRAP);
        let victim = [owner.stealer()];
        let done = AtomicBool::new(false);
        let mut spill = Vec::new();
        let seen = thread::scope(|scope| {
            let thieves: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| steal_all(&victim, ring(capacity), &done)))
                .collect();
            let mut seen = vec![produce(&mut owner, &mut spill)];
            done.store(true, Ordering::Release);
            seen.extend(thieves.into_iter().map(|thief| thief.join().unwrap()));
            seen
        });

        assert!(
            seen.iter().all(|one| one.is_sorted()),
            "capacity {capacity}: out of order"
        );
        assert_conserved(seen.into_iter().chain([spill]));
    }
}

#[test]
fn ring_conserves_tasks_when_thieves_are_robbed() {
    let mut owner = ring(16);
    let middle = ring(8);
    let last = ring(4);
    let victims = [owner.stealer(), middle.stealer()];
    let done = AtomicBool::new(false);
    let mut spill = Vec::new();
    let seen = thread::scope(|scope| {
        let middle = scope.spawn(|| steal_all(&victims[..1], middle, &done));
        let last = scope.spawn(|| steal_all(&victims, last, &done));
        let own = produce(&mut owner, &mut spill);
        done.store(true, Ordering::Release);
        [own, middle.join().unwrap(), last.join().unwrap()]
    });

    assert_conserved(seen.into_iter().chain([spill]));
}

#[test]
fn ring_drops_what_is_left_in_it_and_in_a_batch() {
    let counter = std::sync::Arc::new(());
    let mut owner = ring_at(4, BEFORE_WRAP);
    for _ in 0..4 {
        owner.push(std::sync::Arc::clone(&counter)).unwrap();
    }
    assert!(owner.push(std::sync::Arc::clone(&counter)).is_err());
    drop(owner.take_half());
    assert_eq!(
        (owner.len(), std::sync::Arc::strong_count(&counter)),
        (2, 3)
    );
    let stealer = owner.stealer();

    drop(owner);
    assert_eq!(stealer.len(), 2);
    drop(stealer);
    assert_eq!(std::sync::Arc::strong_count(&counter), 1);
}

/// A predicate that panics leaves the deque as it was: others steal from it.
#[test]
fn a_panic_in_a_thiefs_predicate_takes_nothing() {
    let mut victim = super::deque::deque(4);
    let mut thief = super::deque::deque(4);
    (0..3).for_each(|i| victim.push(i).unwrap());
    let stealer = victim.stealer();
    let steal =
        std::panic::AssertUnwindSafe(|| stealer.steal_into(&mut thief, |_| panic!("undecided")));

    std::panic::catch_unwind(steal).expect_err("a panic");
    assert_eq!((stealer.len(), stealer.steal_one()), (3, Some(0)));
    assert_eq!(victim.pop_oldest(), Some(1));
    assert_eq!(stealer.steal_into(&mut thief, |_| 1), Some(2));
}

#[test]
fn a_ring_does_not_rob_itself_and_stays_within_the_thiefs_room() {
    let mut victim = ring(8);
    let mut thief = ring(2);
    (0..8).for_each(|i| victim.push(i).unwrap());
    assert_eq!(victim.stealer().steal_half_into(&mut victim), None);
    assert_eq!(victim.stealer().steal_into(&mut thief, |_| 0), None);
    assert_eq!(victim.stealer().steal_half_into(&mut thief), Some(0));
    assert_eq!((thief.len(), victim.len()), (2, 5));

    assert_eq!(
        victim.stealer().steal_half_into(&mut thief),
        Some(3),
        "a full thief still gets one to run"
    );
}

#[test]
#[should_panic(expected = "not a power of two")]
fn ring_refuses_an_odd_capacity() {
    ring::<u8>(3);
}

#[test]
fn inbox_conserves_tasks_keeps_each_producers_order_and_reports_empty_once_a_take() {
    let inbox = Inbox::new();
    let firsts = AtomicUsize::new(0);
    let running = AtomicUsize::new(2);
    let (seen, takes) = thread::scope(|scope| {
        for start in 0..2 {
            let inbox = &inbox;
            let firsts = &firsts;
            let running = &running;
            scope.spawn(move || {
                for number in (start..TASKS).step_by(2) {
                    firsts.fetch_add(
                        usize::from(inbox.push(Boxed::new(number))),
                        Ordering::Relaxed,
                    );
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }

        let mut seen = Vec::new();
        let mut takes = 0;
        loop {
            let last = running.load(Ordering::Acquire) == 0;
            let batch = inbox.take_all();
            takes += usize::from(batch.len() > 0);
            seen.extend(batch.map(|task| task.into_value()));
            if last {
                return (seen, takes);
            }
            thread::yield_now();
        }
    });

    assert_eq!(firsts.into_inner(), takes);
    for producer in 0..2 {
        assert!(
            seen.iter()
                .filter(|number| *number % 2 == producer)
                .is_sorted()
        );
    }

    assert_conserved([seen]);
}

#[test]
fn inbox_and_its_batches_drop_what_is_left() {
    // Miri would report a leak.
    let inbox = Inbox::new();
    assert!(inbox.is_empty());
    assert_eq!(
        [1, 2, 3].map(|number| inbox.push(Boxed::new(number))),
        [true, false, false]
    );
    let mut batch = inbox.take_all();
    assert_eq!(batch.next().map(|task| task.into_value()), Some(1));
    assert_eq!(batch.len(), 2);
    inbox.push(Boxed::new(4));
}

#[test]
fn what_was_taken_can_be_turned_round_in_steps_and_dropped_in_between() {
    let inbox = Inbox::new();
    assert!(inbox.take().is_empty() && !inbox.take().step());
    for steps in 0..6 {
        [1, 2, 3, 4]
            .into_iter()
            .for_each(|number| _ = inbox.push(Boxed::new(number)));
        let mut taken = inbox.take();
        assert!(inbox.is_empty() && !taken.is_empty());
        let more: Vec<_> = (0..steps).map(|_| taken.step()).collect();
        assert_eq!(more, [true, true, true, false, false][..steps]);
        assert!(!taken.is_empty());

        // Tasks that come meanwhile belong to another batch. (Miri would report a leak.)
        inbox.push(Boxed::new(5));
        if steps % 2 == 0 {
            let batch = taken.into_batch();
            assert_eq!(
                (batch.len(), batch.map(|task| task.into_value()).collect()),
                (4, vec![1, 2, 3, 4])
            );
        } else {
            drop(taken);
        }

        assert_eq!(
            inbox
                .take_all()
                .map(|task| task.into_value())
                .collect::<Vec<_>>(),
            [5]
        );
    }
}

#[test]
fn messages_arrive_once_in_each_pushers_order_and_wake_the_reader() {
    const PUSHERS: u32 = 3;
    let (queue, reader) = mpsc::mpsc(16);
    let reading = thread::current();
    let seen = thread::scope(|s| {
        for pusher in 0..PUSHERS {
            let queue = &queue;
            let reading = &reading;
            s.spawn(move || {
                for number in (0..TASKS).filter(|number| number % PUSHERS == pusher) {
                    // Any even address; 0 is none.
                    let message =
                        NonNull::new(ptr::without_provenance_mut::<u64>(number as usize * 2 + 2))
                            .unwrap();
                    let push = loop {
                        match queue.push(message) {
                            mpsc::Push::Full => thread::yield_now(),
                            push => break push,
                        }
                    };

                    if push == mpsc::Push::Wake {
                        reading.unpark();
                    }
                }
            });
        }

        let mut seen = Vec::new();
        while seen.len() < TASKS as usize {
            seen.extend(
                std::iter::from_fn(|| reader.pop())
                    .map(|message| (message.addr().get() / 2 - 1) as u32),
            );
            if seen.len() < TASKS as usize && reader.doze() {
                // The next pusher wakes it; nothing else does.
                thread::park();
                reader.rouse();
            }
        }

        seen
    });

    assert!(reader.is_empty());
    for pusher in 0..PUSHERS {
        assert!(
            seen.iter()
                .filter(|number| *number % PUSHERS == pusher)
                .is_sorted()
        );
    }

    assert_conserved([seen]);
}

#[test]
fn injector_conserves_tasks_and_each_taker_sees_them_in_order() {
    let injector = Injector::new();
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let taker = || {
            let mut own = ring(8);
            let mut seen = Vec::new();
            loop {
                let last = done.load(Ordering::Acquire);
                while let Some(task) = injector.pop_batch_into(&mut own, 5) {
                    seen.push(task);
                    seen.extend(std::iter::from_fn(|| own.pop()));
                }

                if last && injector.is_empty() {
                    return seen;
                }
                thread::yield_now();
            }
        };

        let takers = [scope.spawn(taker), scope.spawn(taker)];
        for start in (0..TASKS).step_by(10) {
            injector.push(start);
            injector.push_all(start + 1..start + 10);
        }

        done.store(true, Ordering::Release);
        takers.map(|taker| taker.join().unwrap())
    });

    assert!(seen.iter().all(|one| one.is_sorted()));
    assert_conserved(seen);
}

#[test]
fn injector_survives_a_panicking_iterator() {
    let injector = Injector::new();
    let panics = std::panic::AssertUnwindSafe(|| {
        injector.push_all((0..5).inspect(|i| assert!(*i < 3, "on purpose")))
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!((injector.len(), injector.pop()), (3, Some(0)));
}

proptest! {
    #![proptest_config(config())]

    /// Single-threaded, a ring, its thief and an injector for overflow behave as three `VecDeque`s.
    #[test]
    fn queues_are_vecdeques(steps in prop::collection::vec((0u8..7, 0usize..6), 0..200), size in 0u32..4) {
        let capacity = 1 << size;
        let mut owner = ring_at(capacity, BEFORE_WRAP);
        let mut thief = ring(4);
        let injector = Injector::new();
        let [mut a, mut b, mut spill] = [const { VecDeque::new() }; 3];

        for (number, (step, amount)) in steps.into_iter().enumerate() {
            match step {
                0 | 1 => match owner.push(number) {
                    Ok(()) => a.push_back(number),
                    Err(number) => {
                        prop_assert_eq!(a.len(), capacity);
                        injector.push_all(owner.take_half().chain([number]));
                        spill.extend(a.drain(..capacity.div_ceil(2)).chain([number]));
                    }
                },
                2 => prop_assert_eq!(owner.pop(), a.pop_front()),
                3 => prop_assert_eq!(thief.pop(), b.pop_front()),
                4 => {
                    let n = amount.min(a.len()).min(4 - b.len() + 1);
                    let mut moved = a.drain(..n);
                    let first = moved.next();
                    b.extend(moved);
                    prop_assert_eq!(owner.stealer().steal_into(&mut thief, |_| amount), first);
                }
                5 => {
                    let mut batch: VecDeque<_> = (0..amount).map(|i| number * 10 + i).collect();
                    let n = amount.min(capacity - a.len());
                    a.extend(batch.iter().take(n));
                    let rest: VecDeque<_> = batch.iter().skip(n).copied().collect();
                    owner.push_all(&mut batch);
                    prop_assert_eq!(batch, rest);
                }
                _ => {
                    let n = amount.min(spill.len()).min(capacity - a.len() + 1);
                    let mut moved = spill.drain(..n);
                    let first = moved.next();
                    a.extend(moved);
                    prop_assert_eq!(injector.pop_batch_into(&mut owner, amount), first);
                }
            }

            prop_assert_eq!([owner.len(), thief.len(), injector.len()], [a.len(), b.len(), spill.len()]);
            prop_assert_eq!([owner.free(), thief.free()], [capacity - a.len(), 4 - b.len()]);
        }
    }
}
