//! Run queues that can be stolen from.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_deque as crossbeam;
use plainweave::queue::{deque, ring};

use super::repetition::{Job, Tally, two, wait};

pub(super) const FIFO: [&str; 4] = [
    "plainweave ring",
    "plainweave deque fifo",
    "crossbeam fifo",
    "st3 fifo",
];
pub(super) const LIFO: [&str; 4] = [
    "plainweave deque lifo",
    "locked VecDeque lifo",
    "crossbeam lifo",
    "st3 lifo",
];
pub(super) const GROWING: [&str; 3] = [
    "plainweave deque lifo",
    "locked VecDeque lifo",
    "crossbeam lifo",
];

const CAPACITY: usize = 256;

/// A run queue. crossbeam's have no bound: their pushes do not fail.
trait Run: Send {
    type Thief: Thief;
    fn new(capacity: usize) -> Self;
    fn push(&mut self, item: u64) -> Result<(), u64>;
    fn pop(&mut self) -> Option<u64>;
    fn thief(&self) -> Self::Thief;
    /// Makes room, if it can.
    fn grow(&mut self) {}
}

/// Has a run queue of its own.
trait Thief: Send {
    /// Steals half and takes out what it has; whether there was something.
    fn rob(&mut self, tally: &mut Tally) -> bool;
}

fn run_all(first: Option<u64>, mut rest: impl FnMut() -> Option<u64>, tally: &mut Tally) -> bool {
    let found = first.is_some();
    if found {
        first
            .into_iter()
            .chain(std::iter::from_fn(&mut rest))
            .for_each(|item| tally.add(item));
    }
    found
}

impl Run for ring::Owner<u64> {
    type Thief = (ring::Stealer<u64>, ring::Owner<u64>);

    fn new(capacity: usize) -> Self {
        ring::ring(capacity)
    }

    #[inline]
    fn push(&mut self, item: u64) -> Result<(), u64> {
        self.push(item)
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        self.pop()
    }

    fn thief(&self) -> Self::Thief {
        (self.stealer(), ring::ring(CAPACITY))
    }
}

impl Thief for (ring::Stealer<u64>, ring::Owner<u64>) {
    fn rob(&mut self, tally: &mut Tally) -> bool {
        let first = self.0.steal_into(&mut self.1, |len| len.div_ceil(2));
        run_all(first, || self.1.pop(), tally)
    }
}

/// Ours, with an order.
struct Deque<const LIFO: bool>(deque::Owner<u64>);

impl<const LIFO: bool> Run for Deque<LIFO> {
    type Thief = (deque::Stealer<u64>, deque::Owner<u64>);

    fn new(capacity: usize) -> Self {
        Self(deque::deque(capacity))
    }

    #[inline]
    fn push(&mut self, item: u64) -> Result<(), u64> {
        self.0.push(item)
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        if LIFO {
            self.0.pop_newest()
        } else {
            self.0.pop_oldest()
        }
    }

    fn thief(&self) -> Self::Thief {
        (self.0.stealer(), deque::deque(CAPACITY))
    }

    fn grow(&mut self) {
        self.0.grow();
    }
}

impl Thief for (deque::Stealer<u64>, deque::Owner<u64>) {
    fn rob(&mut self, tally: &mut Tally) -> bool {
        let first = self.0.steal_into(&mut self.1, |len| len.div_ceil(2));
        run_all(first, || self.1.pop_oldest(), tally)
    }
}

/// A deque behind a lock, last in, first out.
struct Locked {
    capacity: usize,
    items: Arc<Mutex<VecDeque<u64>>>,
}

impl Run for Locked {
    type Thief = (Arc<Mutex<VecDeque<u64>>>, VecDeque<u64>);

    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            items: Arc::default(),
        }
    }

    #[inline]
    fn push(&mut self, item: u64) -> Result<(), u64> {
        let mut items = self.items.lock().expect("no panic");
        if items.len() == self.capacity {
            return Err(item);
        }
        items.push_back(item);
        Ok(())
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        self.items.lock().expect("no panic").pop_back()
    }

    fn thief(&self) -> Self::Thief {
        (self.items.clone(), VecDeque::new())
    }

    fn grow(&mut self) {
        self.capacity *= 2;
    }
}

impl Thief for (Arc<Mutex<VecDeque<u64>>>, VecDeque<u64>) {
    fn rob(&mut self, tally: &mut Tally) -> bool {
        let mut items = self.0.lock().expect("no panic");
        let half = items.len().div_ceil(2);
        self.1.extend(items.drain(..half));
        drop(items);
        let first = self.1.pop_front();
        run_all(first, || self.1.pop_front(), tally)
    }
}

struct Crossbeam<const LIFO: bool>(crossbeam::Worker<u64>);

impl<const LIFO: bool> Run for Crossbeam<LIFO> {
    type Thief = (crossbeam::Stealer<u64>, crossbeam::Worker<u64>);

    fn new(_: usize) -> Self {
        Self(if LIFO {
            crossbeam::Worker::new_lifo()
        } else {
            crossbeam::Worker::new_fifo()
        })
    }

    #[inline]
    fn push(&mut self, item: u64) -> Result<(), u64> {
        self.0.push(item);
        Ok(())
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        self.0.pop()
    }

    fn thief(&self) -> Self::Thief {
        (self.0.stealer(), crossbeam::Worker::new_fifo())
    }
}

impl Thief for (crossbeam::Stealer<u64>, crossbeam::Worker<u64>) {
    fn rob(&mut self, tally: &mut Tally) -> bool {
        let first = self.0.steal_batch_and_pop(&self.1).success();
        run_all(first, || self.1.pop(), tally)
    }
}

macro_rules! st3 {
    ($module:ident) => {
        impl Run for st3::$module::Worker<u64> {
            type Thief = (st3::$module::Stealer<u64>, st3::$module::Worker<u64>);

            fn new(capacity: usize) -> Self {
                st3::$module::Worker::new(capacity)
            }

            #[inline]
            fn push(&mut self, item: u64) -> Result<(), u64> {
                st3::$module::Worker::push(self, item)
            }

            #[inline]
            fn pop(&mut self) -> Option<u64> {
                st3::$module::Worker::pop(self)
            }

            fn thief(&self) -> Self::Thief {
                (self.stealer(), st3::$module::Worker::new(CAPACITY))
            }
        }

        impl Thief for (st3::$module::Stealer<u64>, st3::$module::Worker<u64>) {
            fn rob(&mut self, tally: &mut Tally) -> bool {
                let first = self.0.steal_and_pop(&self.1, |len| len.div_ceil(2)).ok();
                run_all(first.map(|(first, _)| first), || self.1.pop(), tally)
            }
        }
    };
}

st3!(fifo);
st3!(lifo);

/// What to do with the run queue that the job names.
trait Workload {
    fn run<R: Run>(self) -> anyhow::Result<f64>;
}

fn with(job: &Job, workload: impl Workload) -> anyhow::Result<f64> {
    match job.system.as_str() {
        "plainweave ring" => workload.run::<ring::Owner<u64>>(),
        "plainweave deque fifo" => workload.run::<Deque<false>>(),
        "plainweave deque lifo" => workload.run::<Deque<true>>(),
        "locked VecDeque lifo" => workload.run::<Locked>(),
        "crossbeam fifo" => workload.run::<Crossbeam<false>>(),
        "crossbeam lifo" => workload.run::<Crossbeam<true>>(),
        "st3 fifo" => workload.run::<st3::fifo::Worker<u64>>(),
        "st3 lifo" => workload.run::<st3::lifo::Worker<u64>>(),
        _ => job.unknown(),
    }
}

pub(super) fn own(job: &Job) -> anyhow::Result<f64> {
    struct Own<'a>(&'a Job);
    impl Workload for Own<'_> {
        fn run<R: Run>(self) -> anyhow::Result<f64> {
            let items = self.0.items.max(200);
            let waiting = 100;
            let mut queue = R::new(CAPACITY);
            let mut tally = Tally::default();
            let push = |queue: &mut R, item| assert!(queue.push(item).is_ok(), "there is room");
            (1..=waiting).for_each(|item| push(&mut queue, item));
            let start = Instant::now();

            for item in waiting + 1..=items {
                push(&mut queue, item);
                queue.pop().into_iter().for_each(|item| tally.add(item));
            }

            let ns = start.elapsed().as_nanos() as f64;
            tally
                .and(Tally::of(std::iter::from_fn(|| queue.pop())))
                .check(items)?;
            Ok(ns / (items - waiting) as f64)
        }
    }
    with(job, Own(job))
}

pub(super) fn grow(job: &Job) -> anyhow::Result<f64> {
    struct Grow<'a>(&'a Job);
    impl Workload for Grow<'_> {
        fn run<R: Run>(self) -> anyhow::Result<f64> {
            let mut queue = R::new(64);
            let start = Instant::now();
            for item in 1..=self.0.items {
                if let Err(item) = queue.push(item) {
                    queue.grow();
                    assert!(queue.push(item).is_ok(), "there is room after a growth");
                }
            }

            let tally = Tally::of(std::iter::from_fn(|| queue.pop()));
            let ns = start.elapsed().as_nanos() as f64;
            tally.check(self.0.items)?;
            Ok(ns / self.0.items as f64)
        }
    }
    with(job, Grow(job))
}

pub(super) fn steal(job: &Job) -> anyhow::Result<f64> {
    struct Steal<'a>(&'a Job);
    impl Workload for Steal<'_> {
        fn run<R: Run>(self) -> anyhow::Result<f64> {
            let items = self.0.items;
            let mut queue = R::new(CAPACITY);
            let done = AtomicBool::new(false);
            let mut thief = queue.thief();
            let mut work = |mut between: Option<&mut dyn FnMut()>| {
                let mut tally = Tally::default();
                for item in 1..=items {
                    let mut back = queue.push(item);
                    while let Err(item) = back {
                        queue.pop().into_iter().for_each(|item| tally.add(item));
                        back = queue.push(item);
                    }

                    if item % 2 == 0 {
                        queue.pop().into_iter().for_each(|item| tally.add(item));
                    }
                    if item % 64 == 0
                        && let Some(between) = &mut between
                    {
                        between();
                    }
                }

                std::iter::from_fn(|| queue.pop()).for_each(|item| tally.add(item));
                done.store(true, Ordering::Release);
                tally
            };

            let (ns, tally) = if self.0.threads == 1 {
                let mut stolen = Tally::default();
                let start = Instant::now();
                let own = work(Some(&mut || _ = thief.rob(&mut stolen)));
                (start.elapsed().as_nanos() as f64, own.and(stolen))
            } else {
                let rob = || {
                    let mut tally = Tally::default();
                    let mut turns = 0;
                    loop {
                        let last = done.load(Ordering::Acquire);
                        if thief.rob(&mut tally) {
                            turns = 0;
                        } else if last {
                            return tally;
                        } else {
                            wait(&mut turns);
                        }
                    }
                };

                let (ns, own, stolen) = two(|| work(None), rob)?;
                (ns, own.and(stolen))
            };

            tally.check(items)?;
            Ok(ns / items as f64)
        }
    }
    with(job, Steal(job))
}
