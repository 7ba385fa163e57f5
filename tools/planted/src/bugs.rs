// The bugs: the same text for each system, over a module `on` that has its threads and locks. A
// program panics where its bug has shown, or never ends.

use super::on::{AtomicUsize, Condvar, Mutex, spawn, yield_now};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

pub const BUGS: &[(&str, fn())] = &[
    ("check, then act", check_then_act),
    ("a lost update", lost_update),
    ("a place taken twice", taken_twice),
    ("released twice", released_twice),
    ("made twice", made_twice),
    ("an update in two halves", two_halves),
    ("locks in two orders", two_orders),
    ("a lost wake-up", lost_wake_up),
    ("the wrong one woken", wrong_one_woken),
    ("awake, though there is nothing", awake_for_nothing),
    ("a head that was there before (ABA)", aba),
    ("ten steps between two", long_way),
];

/// Programs without a bug, which must not show one.
#[allow(dead_code, reason = "not all systems are tried on them")]
pub const SOUND: &[(&str, fn())] = &[
    ("checked and done in one", check_and_act),
    ("counted", counted),
];

fn check_and_act() {
    let left = Arc::new(Mutex::new(1));
    both(&left, |left| {
        let mut left = left.lock();
        if *left > 0 {
            *left -= 1;
        }
    });
    assert_eq!(*left.lock(), 0);
}

fn counted() {
    let sum = Arc::new(AtomicUsize::new(0));
    both(&sum, |sum| _ = sum.fetch_add(1, SeqCst));
    assert_eq!(sum.load(SeqCst), 2);
}

/// Two that do the same.
fn both<T: Send + Sync + 'static>(shared: &Arc<T>, act: fn(&T)) {
    let [first, second] = [Arc::clone(shared), Arc::clone(shared)];
    let other = spawn(move || act(&first));
    act(&second);
    other.join();
}

fn check_then_act() {
    let left = Arc::new(Mutex::new(1));
    both(&left, |left| {
        if *left.lock() > 0 {
            *left.lock() -= 1;
        }
    });
    assert_eq!(*left.lock(), 0);
}

fn lost_update() {
    let sum = Arc::new(AtomicUsize::new(0));
    both(&sum, |sum| sum.store(sum.load(SeqCst) + 1, SeqCst));
    assert_eq!(sum.load(SeqCst), 2);
}

fn taken_twice() {
    let pool = Arc::new((Mutex::new(vec![1, 2]), Mutex::new(Vec::new())));
    both(&pool, |(pool, taken)| {
        let last = *pool.lock().last().expect("one for each");
        pool.lock().pop();
        taken.lock().push(last);
    });
    let taken = pool.1.lock().clone();
    assert_ne!(taken[0], taken[1]);
}

fn released_twice() {
    let permits = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    both(&permits, |(count, is_released)| {
        if is_released.load(SeqCst) == 0 {
            is_released.store(1, SeqCst);
            count.fetch_add(1, SeqCst);
        }
    });
    assert_eq!(permits.0.load(SeqCst), 1);
}

fn made_twice() {
    let cell = Arc::new((Mutex::new(None), AtomicUsize::new(0)));
    both(&cell, |(cell, made)| {
        let is_made = cell.lock().is_some();
        if !is_made {
            made.fetch_add(1, SeqCst);
            *cell.lock() = Some(7);
        }
    });
    assert_eq!(cell.1.load(SeqCst), 1);
}

fn two_halves() {
    let halves = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let other = Arc::clone(&halves);
    let writer = spawn(move || {
        other.0.store(1, SeqCst);
        other.1.store(1, SeqCst);
    });
    let first = halves.0.load(SeqCst);
    let second = halves.1.load(SeqCst);
    writer.join();
    assert!((first, second) != (0, 1));
}

fn two_orders() {
    let locks = Arc::new((Mutex::new(0), Mutex::new(0)));
    let other = Arc::clone(&locks);
    let turned = spawn(move || {
        let mut second = other.1.lock();
        *second += *other.0.lock();
    });
    let mut first = locks.0.lock();
    *first += *locks.1.lock();
    drop(first);
    turned.join();
}

fn lost_wake_up() {
    let shared = Arc::new((Mutex::new(()), Condvar::new(), AtomicUsize::new(0)));
    let other = Arc::clone(&shared);
    let waker = spawn(move || {
        other.2.store(1, SeqCst);
        other.1.notify_all();
    });
    // Between the look and the wait the other may have called.
    while shared.2.load(SeqCst) == 0 {
        let guard = shared.0.lock();
        drop(shared.1.wait(guard));
    }
    waker.join();
}

/// A queue of one place, and one condition for those who put and those who take.
fn wrong_one_woken() {
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let work = |by: fn(&mut i32) -> bool| {
        let shared = Arc::clone(&shared);
        spawn(move || {
            let mut count = shared.0.lock();
            while !by(&mut count) {
                count = shared.1.wait(count);
            }
            shared.1.notify_one();
        })
    };
    let put: fn(&mut i32) -> bool = |count| {
        let may = *count == 0;
        *count += i32::from(may);
        may
    };
    let take: fn(&mut i32) -> bool = |count| {
        let may = *count == 1;
        *count -= i32::from(may);
        may
    };
    let all = [put, put, put, take, take, take].map(work);
    all.into_iter().for_each(|one| one.join());
}

/// Two wait for one thing, both are woken, and neither looks again.
fn awake_for_nothing() {
    let shared = Arc::new((Mutex::new((Vec::new(), false)), Condvar::new()));
    let takers = [(); 2].map(|()| {
        let shared = Arc::clone(&shared);
        spawn(move || {
            let mut state = shared.0.lock();
            if state.0.is_empty() && !state.1 {
                state = shared.1.wait(state);
            }
            if !state.1 {
                state.0.pop().expect("something to take");
            }
        })
    });
    shared.0.lock().0.push(7);
    shared.1.notify_all();
    yield_now();
    shared.0.lock().1 = true;
    shared.1.notify_all();
    takers.into_iter().for_each(|taker| taker.join());
}

/// A stack of places by the number of the first: 1, then 2; 0 is none.
struct Stack(AtomicUsize, [AtomicUsize; 3]);

impl Stack {
    fn pop(&self) -> usize {
        loop {
            let head = self.0.load(SeqCst);
            if head == 0 {
                return 0;
            }
            let next = self.1[head].load(SeqCst);
            if self.0.compare_exchange(head, next, SeqCst, SeqCst).is_ok() {
                return head;
            }
        }
    }

    fn push(&self, place: usize) {
        loop {
            let head = self.0.load(SeqCst);
            self.1[place].store(head, SeqCst);
            if self.0.compare_exchange(head, place, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }
}

fn aba() {
    let stack = Arc::new(Stack(AtomicUsize::new(1), [0, 2, 0].map(AtomicUsize::new)));
    let other = Arc::clone(&stack);
    let popper = spawn(move || _ = other.pop());
    let (first, second) = (stack.pop(), stack.pop());
    if first != 0 {
        stack.push(first);
    }
    popper.join();
    // Ours is on the stack again, or for the other: never the second.
    assert!(second == 0 || stack.0.load(SeqCst) != second);
}

/// Shows only if ten steps of one come between two of the other.
fn long_way() {
    let steps = Arc::new(AtomicUsize::new(0));
    let other = Arc::clone(&steps);
    let walker = spawn(move || {
        for _ in 0..10 {
            other.fetch_add(1, SeqCst);
        }
    });
    let before = steps.load(SeqCst);
    let behind = steps.load(SeqCst);
    walker.join();
    assert!(behind - before < 10);
}
