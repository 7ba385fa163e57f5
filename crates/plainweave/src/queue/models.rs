//! Loom models: every interleaving (up to a bound on preemptions) of the few steps that the essays
//! argue about.
//!
//! `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p plainweave --release --lib loom_`

use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, fence};
use loom::thread;

use super::deque::deque;
use super::inbox::Inbox;
use super::inbox::tests::Boxed;
use super::ring::{Owner, Stealer, ring, ring_at};
use super::shared::Injector;
use crate::shim::Arc;

/// Two positions before the wrap at 2^48: each model crosses it.
const BEFORE_WRAP: u64 = (1 << 48) - 2;

/// Returns a ring near the wrap that holds `tasks`.
fn filled(capacity: usize, tasks: &[u32]) -> Owner<u32> {
    let mut owner = ring_at(capacity, BEFORE_WRAP);
    for &task in tasks {
        owner.push(task).unwrap();
    }
    owner
}

fn drained(owner: &mut Owner<u32>) -> Vec<u32> {
    std::iter::from_fn(|| owner.pop()).collect()
}

/// A thief with a ring of its own that steals half once, then runs all it has.
fn steal_half(victim: &Stealer<u32>, own: &mut Owner<u32>) -> Vec<u32> {
    let first = victim.steal_half_into(own);
    let rest = drained(own);
    first.into_iter().chain(rest).collect()
}

/// Asserts that each of `1..=last` was seen once, by any thread.
fn assert_conserved(seen: &[&[u32]], last: u32) {
    let mut all = seen.concat();
    all.sort_unstable();
    assert_eq!(
        all,
        (1..=last).collect::<Vec<_>>(),
        "lost or doubled: {seen:?}"
    );
}

#[test]
fn loom_a_thief_against_push_and_pop() {
    loom::model(|| {
        let mut owner = filled(2, &[1, 2]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || steal_half(&victim, &mut ring(2)));

        // Full, until the pop or the thief's release: the push must never land on a slot being
        // copied.
        let mut own: Vec<u32> = owner.push(3).err().into_iter().collect();
        own.extend(owner.pop());
        own.extend(owner.push(4).err());
        let mut late = drained(&mut owner);
        let stolen = thief.join().unwrap();

        assert!(stolen.is_sorted());
        late.append(&mut own);
        assert_conserved(&[&late, &stolen], 4);
    });
}

#[test]
fn loom_a_thief_against_a_batch_of_pushes() {
    loom::model(|| {
        let mut owner = filled(2, &[1]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || {
            let first = steal_half(&victim, &mut ring(2));
            [first, steal_half(&victim, &mut ring(2))].concat()
        });

        // There is room for one or two, as the thief has come.
        let mut batch = [2, 3].into();
        owner.push_all(&mut batch);
        let mut own = drained(&mut owner);
        own.extend(batch);
        let stolen = thief.join().unwrap();

        assert!(own.is_sorted() && stolen.is_sorted());
        assert_conserved(&[&own, &stolen], 3);
    });
}

#[test]
fn loom_a_ring_of_one() {
    loom::model(|| {
        let mut owner = filled(1, &[1]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || [victim.steal_one(), victim.steal_one()]);
        let mut own: Vec<u32> = owner.push(2).err().into_iter().collect();
        own.extend(owner.pop());
        own.extend(owner.push(3).err());
        own.extend(drained(&mut owner));
        let stolen: Vec<u32> = thief.join().unwrap().into_iter().flatten().collect();

        assert!(stolen.is_sorted());
        assert_conserved(&[&own, &stolen], 3);
    });
}

#[test]
fn loom_a_batch_steal_against_pops() {
    loom::model(|| {
        // Half of four is two: the copy takes several steps, and the owner pops behind the held
        // slots.
        let mut owner = filled(4, &[1, 2, 3, 4]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || steal_half(&victim, &mut ring(2)));
        let mut own: Vec<u32> = owner.pop().into_iter().collect();
        own.extend(owner.push(5).err());
        own.extend(owner.pop());
        assert!(own.iter().filter(|task| **task < 5).is_sorted());
        own.extend(drained(&mut owner));
        assert_conserved(&[&own, &thief.join().unwrap()], 5);
    });
}

#[test]
fn loom_two_thieves() {
    loom::model(|| {
        let mut owner = filled(4, &[1, 2, 3]);
        let thieves = [owner.stealer(), owner.stealer()]
            .map(|victim| thread::spawn(move || steal_half(&victim, &mut ring(2))));
        let mut own: Vec<u32> = owner.pop().into_iter().collect();
        own.extend(owner.push(4).err());
        let [x, y] = thieves.map(|thief| thief.join().unwrap());

        own.extend(drained(&mut owner));
        assert_conserved(&[&own, &x, &y], 4);
    });
}

#[test]
fn loom_a_thief_is_robbed_while_it_steals() {
    loom::model(|| {
        let mut owner = filled(4, &[1, 2, 3]);
        let mut middle = filled(2, &[4]);
        let first = owner.stealer();
        let second = middle.stealer();
        let middle = thread::spawn(move || steal_half(&first, &mut middle));
        let last = thread::spawn(move || steal_half(&second, &mut ring(2)));
        let [x, y] = [middle, last].map(|thief| thief.join().unwrap());

        assert_conserved(&[&drained(&mut owner), &x, &y], 4);
    });
}

#[test]
fn loom_overflow_against_a_thief() {
    loom::model(|| {
        let mut owner = filled(2, &[1, 2]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || steal_half(&victim, &mut ring(2)));
        let mut own = Vec::new();
        if let Err(task) = owner.push(3) {
            own.extend(owner.take_half());
            own.push(task);
        }

        own.extend(owner.push(4).err());
        own.extend(drained(&mut owner));
        assert_conserved(&[&own, &thief.join().unwrap()], 4);
    });
}

/// The last look before sleep: push, fence, read the sleeper against announce, fence, look. Both
/// must not miss.
fn assert_no_lost_wake<Q: Send + Sync + 'static>(
    queue: Q,
    push: impl FnOnce(),
    empty: impl Fn(&Q) -> bool + Send + 'static,
) {
    let asleep = Arc::new(AtomicBool::new(false));
    let sleeper = Arc::clone(&asleep);
    let worker = thread::spawn(move || {
        sleeper.store(true, Relaxed);
        fence(SeqCst);
        empty(&queue)
    });

    push();
    fence(SeqCst);
    let wakes = asleep.load(Relaxed);
    assert!(
        wakes || !worker.join().unwrap(),
        "pushed, not woken, and not seen"
    );
}

#[test]
fn loom_a_look_does_not_miss_a_push() {
    loom::model(|| {
        let mut owner = filled(2, &[1]);
        owner.pop();
        let stealer = owner.stealer();
        assert_no_lost_wake(
            stealer,
            move || owner.push(2).unwrap(),
            |queue| queue.is_empty(),
        );
    });
    loom::model(|| {
        let mut owner = deque(2);
        let stealer = owner.stealer();
        assert_no_lost_wake(
            stealer,
            move || owner.push(2).unwrap(),
            |queue| queue.is_empty(),
        );
    });
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let pusher = Arc::clone(&inbox);
        assert_no_lost_wake(
            inbox,
            move || assert!(pusher.push(Boxed::new(1))),
            |queue| queue.is_empty(),
        );
    });
    loom::model(|| {
        let injector = Arc::new(Injector::new());
        let pusher = Arc::clone(&injector);
        assert_no_lost_wake(injector, move || pusher.push(1), |queue| queue.is_empty());
    });
}

#[test]
fn loom_inbox_two_producers() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let producers = [[1, 2], [3, 4]].map(|numbers| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || numbers.map(|number| inbox.push(Boxed::new(number))))
        });

        // Until all have come, yielding in between: loom does not preempt before a take whose look
        // (a plain load) is followed by a producer's own load, so a single early take would only
        // ever find the inbox empty.
        let mut seen = Vec::new();
        let mut takes = 0;
        while seen.len() < 4 {
            let batch = inbox.take_all();
            takes += usize::from(batch.len() > 0);
            seen.extend(batch.map(|task| task.into_value()));
            thread::yield_now();
        }

        let firsts = producers.map(|producer| producer.join().unwrap()).concat();
        assert_eq!(
            firsts.into_iter().filter(|first| *first).count(),
            takes,
            "one wake-up a take"
        );
        assert!(seen.iter().filter(|number| **number <= 2).is_sorted());
        assert!(seen.iter().filter(|number| **number > 2).is_sorted());
        assert_conserved(&[&seen], 4);
    });
}

/// Of several pushes only the one that found the inbox empty checks whether the worker sleeps: if
/// the worker's last look misses the others' tasks, it misses that one's as well, and that push
/// wakes the worker.
#[test]
fn loom_the_first_of_several_wakes() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let asleep = Arc::new(AtomicBool::new(false));
        let post = |number| {
            let inbox = Arc::clone(&inbox);
            let asleep = Arc::clone(&asleep);
            move || {
                inbox.push(Boxed::new(number)) && {
                    fence(SeqCst);
                    asleep.load(Relaxed)
                }
            }
        };

        let first = thread::spawn(post(1));
        let second = post(2);
        let sleeper = {
            let inbox = Arc::clone(&inbox);
            let asleep = Arc::clone(&asleep);
            thread::spawn(move || {
                // What it finds while awake, then its last look.
                let before = inbox.take_all().count();
                asleep.store(true, Relaxed);
                fence(SeqCst);
                (before, inbox.is_empty())
            })
        };

        let woken = [second(), first.join().unwrap()];
        let (before, empty) = sleeper.join().unwrap();
        let left = 2 - before;
        assert!(
            left == 0 || !empty || woken.contains(&true),
            "pushed, not woken, and not seen"
        );
    });
}

#[test]
fn loom_injector_length() {
    loom::model(|| {
        let injector = Arc::new(Injector::new());
        let producer = Arc::clone(&injector);
        let producer = thread::spawn(move || {
            producer.push_all([1, 2]);
            producer.push(3);
        });

        let other = Arc::clone(&injector);
        let other = thread::spawn(move || other.pop());
        let mut own = ring(2);
        let first = injector.pop_batch_into(&mut own, 2);
        producer.join().unwrap();
        let other = other.join().unwrap();
        let mut rest = Vec::new();

        while let Some(task) = injector.pop() {
            rest.push(task);
        }
        assert!(
            injector.is_empty(),
            "nothing is queued, and the length says so"
        );
        let seen = [
            first.into_iter().collect(),
            drained(&mut own),
            other.into_iter().collect(),
            rest,
        ]
        .concat();
        assert_conserved(&[&seen], 3);
    });
}
