//! Loom models of sets of fibers: the code that runs, with loom's threads as fibers.
//!
//! A fiber of the models reports as all do, by the channel that runs, and hands its result over by
//! the word that runs (`atomics/join`). A notification takes the place of its cancellation, which
//! has models of its own.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::iter;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::Arc as Shared;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread::{self, Thread};

use super::JoinSet;
use crate::atomics::join::{Finished, Join};
use crate::sched::closure::Failure;
use crate::sync::Notify;
use crate::sync::models::{Drops, impatiently};
use crate::thread::JoinError;

/// In place of the handle of that name.
pub(super) struct JoinHandle<T> {
    packet: Arc<Packet<T>>,
    fiber: Fiber,
}

/// What a fiber and its handle share.
struct Packet<T> {
    join: Join<Thread>,
    result: UnsafeCell<Option<Result<T, Failure>>>,
}

/// In place of the handle of that name.
#[derive(Clone)]
pub struct Fiber(Arc<Notify>);

/// In place of the type of that name: a runtime without stacks, so its fibers never start.
pub struct Runtime;

loom::thread_local! {
    static ME: RefCell<Option<Fiber>> = RefCell::new(None);
}

impl<T> Packet<T> {
    /// Publishes the result and wakes the joiner, as `sched/closure` does.
    fn end(&self, result: Result<T, Failure>) {
        // SAFETY: what the models check: nobody reads the result before `finish`.
        self.result
            .with_mut(|place| unsafe { *place = Some(result) });
        match self.join.finish() {
            Finished::Kept => {}
            Finished::Wake(joiner) => joiner.unpark(),
            Finished::Abandoned => drop(self.take()),
        }
    }

    fn take(&self) -> Option<Result<T, Failure>> {
        // SAFETY: what the models check: the result has one owner.
        self.result.with_mut(|place| unsafe { (*place).take() })
    }
}

impl<T> JoinHandle<T> {
    pub(super) fn join_always(self) -> Result<T, JoinError> {
        let join = &self.packet.join;
        if !join.is_done() && join.wait(thread::current()) {
            while !join.is_done() {
                thread::park();
            }
        }
        self.packet
            .take()
            .expect("a result is taken once")
            .map_err(JoinError::failed)
    }

    pub(super) fn want(&self) {
        self.packet.join.want();
    }

    pub(super) fn cancel(&self) {
        self.fiber.cancel();
    }

    pub(super) fn fiber(&self) -> Fiber {
        self.fiber.clone()
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.packet.join.abandon() {
            drop(self.packet.take());
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle")
    }
}

impl Fiber {
    fn cancel(&self) {
        self.0.notify_one();
    }
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fiber")
    }
}

impl Runtime {
    pub(super) fn spawn<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        start(|| {
            drop(f);
            Err(Failure::Refused(io::ErrorKind::OutOfMemory.into()))
        })
    }
}

pub(super) fn on_fiber() -> bool {
    true
}

pub(super) fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    start(|| Ok(f()))
}

fn start<T: 'static>(body: impl FnOnce() -> Result<T, Failure> + 'static) -> JoinHandle<T> {
    let packet = Arc::new(Packet {
        join: Join::new(),
        result: UnsafeCell::new(None),
    });

    let fiber = Fiber(Arc::new(Notify::modelled()));
    let theirs = packet.clone();
    let me = fiber.clone();
    thread::spawn(move || {
        ME.with(|place| *place.borrow_mut() = Some(me));
        theirs.end(body());
    });

    JoinHandle { packet, fiber }
}

/// Waits, on a fiber of the models, until it is cancelled.
fn until_cancelled() {
    let me = ME
        .with(|place| place.borrow().clone())
        .expect("called by a fiber");
    me.0.wait().unwrap();
}

/// One fiber has a result, the other cannot start: each is joined once.
#[test]
fn loom_join_set_every_end_is_joined_once() {
    loom::model(|| {
        let mut set = JoinSet::new();
        set.spawn(|| 7);
        set.spawn_on(&Runtime, || 8);
        let mut ends = [0; 2].map(|_| set.join_next().unwrap());
        ends.sort_by_key(Result::is_err);
        assert!(
            matches!(&ends, [Ok(7), Err(error)] if error.is_refused()),
            "{ends:?}"
        );
        assert!(set.join_next().is_none());
    });
}

/// One that gives up, perhaps when a fiber has ended, leaves what it has not got in the set.
#[test]
fn loom_join_set_one_that_gives_up_loses_no_result() {
    loom::model(|| {
        let mut set = JoinSet::new();
        let drops = Drops::default();
        for n in 0..2 {
            let value = drops.value();
            set.spawn(move || (n, value));
        }

        let first = impatiently(|| set.join_next()).unwrap().ok();
        assert_eq!(set.len(), 2 - first.iter().len());
        let rest = iter::from_fn(|| set.join_next()).map(Result::unwrap);
        let results: Vec<_> = first.into_iter().chain(rest).collect();
        assert_eq!(results.iter().map(|(n, _)| n).sum::<usize>(), 1);
        assert_eq!((results.len(), drops.count()), (2, 0));
        drop(results);
        assert_eq!(drops.count(), 2);
    });
}

/// A fiber goes on for as long as nobody cancels it: one that has ended is joined before it.
#[test]
fn loom_join_set_what_ends_first_is_joined_first() {
    loom::model(|| {
        let mut set = JoinSet::new();
        set.spawn(|| {
            until_cancelled();
            7
        });
        set.spawn(|| 8);
        assert_eq!(set.join_next().unwrap().unwrap(), 8);
        assert!(set.try_join_next().is_none());
        set.cancel_all();
        assert_eq!(set.join_next().unwrap().unwrap(), 7);
    });
}

/// Another thread cancels the only fiber while the owner waits for its end, or before, or when it
/// is over.
#[test]
fn loom_join_set_a_fiber_that_others_cancel_is_joined() {
    loom::model(|| {
        let mut set = JoinSet::new();
        let fiber = set.spawn(until_cancelled);
        let canceller = thread::spawn(move || fiber.cancel());
        set.join_next().unwrap().unwrap();
        assert!(set.is_empty());
        canceller.join().unwrap();
    });
}

/// One fiber ends by itself, the other when it is cancelled: when the set is gone, so are both, and
/// their results.
#[test]
fn loom_join_set_dropped_cancels_and_waits() {
    loom::model(|| {
        let mut set = JoinSet::new();
        let drops = Drops::default();
        let ended = Shared::new(AtomicUsize::new(0));

        for waits in [true, false] {
            let value = drops.value();
            let ended = ended.clone();
            set.spawn(move || {
                if waits {
                    until_cancelled();
                }
                ended.fetch_add(1, Relaxed);
                value
            });
        }

        drop(set);
        assert_eq!((ended.load(Relaxed), drops.count()), (2, 2));
    });
}

/// A fiber ends while it is detached: its report is not taken for that of the next fiber, which has
/// the same key.
#[test]
fn loom_join_set_a_detached_fiber_reports_to_nobody() {
    loom::model(|| {
        let mut set = JoinSet::new();
        set.spawn(|| {});
        set.detach_all();
        set.spawn(until_cancelled);
        assert!(set.try_join_next().is_none());
        set.cancel_all();
        set.join_next().unwrap().unwrap();
        assert!(set.join_next().is_none());
    });
}
