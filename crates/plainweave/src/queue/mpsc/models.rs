//! Loom models of the [queue of messages](super), before the wrap at 2^62.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::ptr::{self, NonNull};

use loom::thread;

use super::{Push, Reader, mpsc_at};
use crate::atomics::sleepers::Sleepers;
use crate::shim::atomic::{AtomicUsize, Ordering};
use crate::shim::{Arc, UnsafeCell};

/// Two positions before the wrap.
const FIRST: usize = (1 << 62) - 2;

fn node(number: usize) -> NonNull<u64> {
    NonNull::new(ptr::without_provenance_mut(number * 2)).unwrap()
}

fn pop(reader: &Reader<u64>) -> Option<usize> {
    reader.pop().map(|node| node.addr().get() / 2)
}

/// Memory that a pusher writes before it pushes: the reader must see it.
struct Written(UnsafeCell<usize>);

// SAFETY: written before a push, read after its pop: what the models check.
unsafe impl Sync for Written {}

fn written<const N: usize>() -> Arc<[Written; N]> {
    Arc::new(std::array::from_fn(|_| Written(UnsafeCell::new(0))))
}

impl Written {
    fn write(&self, number: usize) {
        // SAFETY: this pusher's own until it has pushed.
        self.0.with_mut(|place| unsafe { *place = number });
    }

    fn read(&self) -> usize {
        // SAFETY: its pusher has pushed, and no longer uses it.
        self.0.with(|place| unsafe { *place })
    }
}

/// Two pushers and a reader: each accepted message comes once, each pusher's in order.
#[test]
fn loom_mpsc_loses_nothing() {
    for capacity in [1, 2] {
        loom::model(move || {
            let (queue, reader) = mpsc_at(capacity, FIRST);
            let written = written::<5>();
            let pushers = [[1, 2], [3, 4]].map(|numbers| {
                let queue = queue.clone();
                let written = written.clone();
                thread::spawn(move || {
                    numbers.map(|n| {
                        written[n].write(n);
                        if queue.push(node(n)) == Push::Full {
                            n
                        } else {
                            0
                        }
                    })
                })
            });

            let mut seen: Vec<usize> = (0..2).filter_map(|_| pop(&reader)).collect();
            assert!(seen.iter().all(|n| written[*n].read() == *n));
            let refused: Vec<usize> = pushers
                .into_iter()
                .flat_map(|pusher| pusher.join().unwrap())
                .collect();
            seen.extend(std::iter::from_fn(|| pop(&reader)));
            let of = |low: bool| seen.iter().filter(move |n| (**n <= 2) == low);

            assert!(
                of(true).is_sorted() && of(false).is_sorted(),
                "out of order: {seen:?}"
            );
            let mut all: Vec<usize> = seen
                .into_iter()
                .chain(refused.into_iter().filter(|n| *n > 0))
                .collect();

            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4]);
        });
    }
}

/// A reader that dozes is woken, or has found a message; rousing does not block a push.
#[test]
fn loom_doze_against_push() {
    loom::model(|| {
        let (queue, reader) = mpsc_at(2, FIRST);
        let pushers = [1, 2].map(|number| {
            let queue = queue.clone();
            thread::spawn(move || queue.push(node(number)))
        });

        let dozed = reader.doze();
        if !dozed {
            assert!(pop(&reader).is_some(), "awake for nothing");
        }
        let pushed = pushers.map(|pusher| pusher.join().unwrap());
        let woken = pushed.iter().filter(|push| **push == Push::Wake).count();
        let refused = pushed.iter().filter(|push| **push == Push::Full).count();

        assert_eq!(
            woken,
            usize::from(dozed),
            "of several the first wakes: {pushed:?}"
        );
        let rest = std::iter::from_fn(|| pop(&reader)).count();

        assert_eq!(rest + refused + usize::from(!dozed), 2);
    });
}

#[test]
fn loom_rouse_against_push() {
    loom::model(|| {
        let (queue, reader) = mpsc_at(1, FIRST);
        assert!(reader.doze());
        let pusher = thread::spawn(move || queue.push(node(1)));
        reader.rouse();
        assert_ne!(pusher.join().unwrap(), Push::Full, "there was room");
        assert_eq!(pop(&reader), Some(1));
        assert!(reader.is_empty() && reader.doze(), "free for the next lap");
    });
}

/// Two pushers that find no room use the inbox, beside the queue's mark: a worker that sleeps with
/// something to read has been signalled.
#[test]
fn loom_full_goes_by_the_inbox() {
    struct Model {
        idle: Sleepers,
        inbox: AtomicUsize,
        signals: AtomicUsize,
    }
    loom::model(|| {
        let (queue, reader) = mpsc_at(1, FIRST);
        let shared = Arc::new(Model {
            idle: Sleepers::new(1, 0),
            inbox: AtomicUsize::new(0),
            signals: AtomicUsize::new(0),
        });

        let pushers = [1, 2].map(|number| {
            let queue = queue.clone();
            let shared = shared.clone();
            thread::spawn(move || {
                let signal = match queue.push(node(number)) {
                    Push::Done => false,
                    Push::Wake => true,
                    // As `wake::send_to`.
                    Push::Full => {
                        shared.inbox.fetch_add(1, Ordering::AcqRel) == 0
                            && shared.idle.wake_worker(0)
                    }
                };

                shared
                    .signals
                    .fetch_add(usize::from(signal), Ordering::Relaxed);
            })
        });

        // As `Worker::idle`.
        shared.idle.begin_sleep(0, false);
        let work = !reader.doze() || !reader.is_empty() || shared.inbox.load(Ordering::Relaxed) > 0;
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let left = !reader.is_empty() || shared.inbox.load(Ordering::Relaxed) > 0;
        assert!(
            work || !left || shared.signals.load(Ordering::Relaxed) > 0,
            "asleep, with something to read"
        );
    });
}
