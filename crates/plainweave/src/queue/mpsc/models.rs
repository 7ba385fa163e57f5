//! Loom models of the [queue of messages](super), before the wrap at 2^62.

use std::ptr::{self, NonNull};

use loom::thread;

use super::{Push, Reader, mpsc_at};

/// Two positions before the wrap.
const FIRST: usize = (1 << 62) - 2;

fn node(number: usize) -> NonNull<u64> {
    NonNull::new(ptr::without_provenance_mut(number * 2)).unwrap()
}

fn pop(reader: &Reader<u64>) -> Option<usize> {
    reader.pop().map(|node| node.addr().get() / 2)
}

/// Two pushers and a reader: what was not refused comes, once, each pusher's in order.
#[test]
fn loom_mpsc_loses_nothing() {
    for capacity in [1, 2] {
        loom::model(move || {
            let (queue, reader) = mpsc_at(capacity, FIRST);
            let pushers = [[1, 2], [3, 4]].map(|numbers| {
                let queue = queue.clone();
                thread::spawn(move || numbers.map(|n| if queue.push(node(n)) == Push::Full { n } else { 0 }))
            });
            let mut seen: Vec<usize> = (0..2).filter_map(|_| pop(&reader)).collect();
            let refused: Vec<usize> = pushers.into_iter().flat_map(|pusher| pusher.join().unwrap()).collect();
            seen.extend(std::iter::from_fn(|| pop(&reader)));
            let of = |low: bool| seen.iter().filter(move |n| (**n <= 2) == low);
            assert!(of(true).is_sorted() && of(false).is_sorted(), "out of order: {seen:?}");
            let mut all: Vec<usize> = seen.into_iter().chain(refused.into_iter().filter(|n| *n > 0)).collect();
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4]);
        });
    }
}

/// A reader that dozes is woken, or has found something; rousing does not stand in a push's way.
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
        assert_eq!(woken, usize::from(dozed), "of several the first wakes: {pushed:?}");
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
