//! Loom models of the [MPMC ring](super). Each starts two tickets before the wrap at 2^64.

#![deny(unsafe_code)]

use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, fence};
use loom::thread;

use super::Mpmc;
use crate::shim::Arc;

/// Returns a queue of this many slots, near the wrap.
fn queue(capacity: usize) -> Arc<Mpmc<u32>> {
    Arc::new(Mpmc::starting_at(capacity, u64::MAX - 1))
}

fn rest(queue: &Mpmc<u32>) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop()).collect()
}

fn assert_conserved(seen: &[&[u32]], last: u32) {
    let mut all = seen.concat();
    all.sort_unstable();
    assert_eq!(
        all,
        (1..=last).collect::<Vec<_>>(),
        "lost or doubled: {seen:?}"
    );
}

/// Two pops that roll back, in either order, around a push.
#[test]
fn loom_mpmc_pops_of_an_empty_queue_roll_back() {
    loom::model(|| {
        let queue = queue(2);
        let pops = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || queue.pop())
        });

        queue.push(1).unwrap();
        let own = queue.pop();
        let seen = pops.map(|pop| pop.join().unwrap());
        assert_conserved(
            &[
                &seen.into_iter().chain([own]).flatten().collect::<Vec<_>>(),
                &rest(&queue),
            ],
            1,
        );
        assert!(queue.is_empty());

        // The tickets are in step again.
        queue.push(2).unwrap();
        assert_eq!(rest(&queue), [2]);
    });
}

/// Two pushes for one place: at least one gets it, and the tickets come back.
#[test]
fn loom_mpmc_pushes_to_a_full_queue_roll_back() {
    loom::model(|| {
        let queue = queue(1);
        let other = queue.clone();
        let other = thread::spawn(move || (other.push(1).err(), other.pop()));
        let own = queue.push(2).err();
        let (refused, popped) = other.join().unwrap();
        assert!(
            own.is_none() || refused.is_none() || popped.is_none(),
            "somebody found room"
        );
        let seen: Vec<u32> = [own, refused, popped].into_iter().flatten().collect();

        assert_conserved(&[&seen, &rest(&queue)], 2);
        queue.push(3).unwrap();
        assert_eq!(queue.push(4), Err(4));
        assert_eq!(rest(&queue), [3]);
    });
}

/// A pop reads what a push has written, and a push writes where a pop has read. Loom goes first
/// through what this thread does, and remembers the last access to a word only. So a look by the
/// second thread hides that of the first, and models that begin with a pop may never try the push
/// before it.
#[test]
fn loom_mpmc_a_slot_is_passed_on() {
    loom::model(|| {
        let queue = queue(1);
        let popper = queue.clone();
        let popper = thread::spawn(move || popper.pop());
        queue.push(1).unwrap();
        let popped: Vec<u32> = popper.join().unwrap().into_iter().collect();
        assert_conserved(&[&popped, &rest(&queue)], 1);
    });
    loom::model(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        let pusher = queue.clone();
        let pusher = thread::spawn(move || pusher.push(2).err());
        let popped: Vec<u32> = queue.pop().into_iter().collect();
        let refused: Vec<u32> = pusher.join().unwrap().into_iter().collect();

        assert_conserved(&[&popped, &refused, &rest(&queue)], 2);
    });
}

/// The slot is written, read and written again while laps change. Either side begins: see
/// [`loom_mpmc_a_slot_is_passed_on`].
#[test]
fn loom_mpmc_goes_round() {
    let push_all = |queue: &Mpmc<u32>| [1, 2, 3].map(|task| queue.push(task).err());
    let pop_two = |queue: &Mpmc<u32>| [queue.pop(), queue.pop()];
    for (capacity, push_first) in [(1, false), (1, true), (2, false), (2, true)] {
        loom::model(move || {
            let queue = queue(capacity);
            let theirs = queue.clone();
            let (refused, seen) = if push_first {
                let consumer = thread::spawn(move || pop_two(&theirs));
                (push_all(&queue), consumer.join().unwrap())
            } else {
                let producer = thread::spawn(move || push_all(&theirs));
                let seen = pop_two(&queue);
                (producer.join().unwrap(), seen)
            };

            let refused: Vec<u32> = refused.into_iter().flatten().collect();
            let seen: Vec<u32> = seen.into_iter().flatten().chain(rest(&queue)).collect();
            assert!(seen.is_sorted(), "out of order: {seen:?}");
            assert_conserved(&[&seen, &refused], 3);
        });
    }
}

/// Begun by the consumer alone: if a push begins, loom also goes through schedules in which a pop
/// and a push that wait for a third thread's push yield to each other for ever.
#[test]
fn loom_mpmc_two_producers_and_a_consumer() {
    loom::model(|| {
        let queue = queue(2);
        let producers = [[1, 2], [3, 4]].map(|tasks| {
            let queue = queue.clone();
            thread::spawn(move || tasks.map(|task| queue.push(task).err()))
        });

        let seen = [queue.pop(), queue.pop()];
        let refused: Vec<u32> = producers
            .map(|p| p.join().unwrap())
            .concat()
            .into_iter()
            .flatten()
            .collect();
        let seen: Vec<u32> = seen.into_iter().flatten().chain(rest(&queue)).collect();
        assert!(seen.iter().filter(|task| **task < 3).is_sorted());
        assert!(seen.iter().filter(|task| **task > 2).is_sorted());
        assert_conserved(&[&seen, &refused], 4);
    });
}

/// The last look before sleep, while a pop by a third thread takes a ticket and perhaps rolls it
/// back.
#[test]
fn loom_mpmc_a_look_does_not_miss_a_push() {
    loom::model(|| {
        let queue = queue(2);
        let asleep = Arc::new(AtomicBool::new(false));
        let sleeper = asleep.clone();
        let looked = queue.clone();
        let sleeper = thread::spawn(move || {
            sleeper.store(true, Relaxed);
            fence(SeqCst);
            looked.is_empty()
        });

        let popper = queue.clone();
        let popper = thread::spawn(move || popper.pop());
        queue.push(1).unwrap();
        fence(SeqCst);
        let wakes = asleep.load(Relaxed);
        let slept = sleeper.join().unwrap();
        let popped = popper.join().unwrap();

        assert!(
            wakes || !slept || popped.is_some(),
            "pushed, not woken, not seen and not taken"
        );
    });
}

/// Two pops whose tickets pass each other: a look that comes after the push sees the task, or a pop
/// returns it.
#[test]
fn loom_mpmc_a_roll_back_overlooks_nothing() {
    loom::model(|| {
        let queue = queue(2);
        queue.push(1).unwrap();
        let pops = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || queue.pop())
        });

        queue.push(2).unwrap();
        let looks_empty = queue.is_empty();
        let popped: Vec<u32> = pops
            .map(|pop| pop.join().unwrap())
            .into_iter()
            .flatten()
            .collect();
        assert!(
            !looks_empty || popped.len() == 2,
            "called empty, but {popped:?} is all that was taken"
        );
        assert_conserved(&[&popped, &rest(&queue)], 2);
    });
}
