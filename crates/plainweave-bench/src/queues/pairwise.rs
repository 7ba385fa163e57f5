//! Queues to one taker: from one thread, or an inbox.

use std::time::Instant;

use crossbeam_queue::{ArrayQueue, SegQueue};
use plainweave::queue::inbox::{Letter, Letters};
use plainweave::queue::mpmc::Mpmc;
use plainweave::queue::spsc;

use super::repetition::{Job, Tally, two, wait};

pub(super) const SPSC: [&str; 4] = ["plainweave spsc", "plainweave mpmc", "rtrb", "crossbeam ArrayQueue"];
pub(super) const INBOX: [&str; 4] = ["plainweave inbox", "plainweave mpmc", "crossbeam SegQueue", "std channel"];

const CAPACITY: usize = 1024;

pub(super) fn spsc(job: &Job) -> anyhow::Result<f64> {
    let (mpmc, array) = (Mpmc::new(CAPACITY), ArrayQueue::new(CAPACITY));
    match job.system.as_str() {
        "plainweave spsc" => {
            let (mut producer, mut consumer) = spsc::spsc(CAPACITY);
            pass(job, |item| producer.push(item).is_ok(), || consumer.pop())
        }
        "rtrb" => {
            let (mut producer, mut consumer) = rtrb::RingBuffer::new(CAPACITY);
            pass(job, |item| producer.push(item).is_ok(), || consumer.pop().ok())
        }
        "plainweave mpmc" => pass(job, |item| mpmc.push(item).is_ok(), || mpmc.pop()),
        "crossbeam ArrayQueue" => pass(job, |item| array.push(item).is_ok(), || array.pop()),
        _ => job.unknown(),
    }
}

/// All items through a queue, one by one.
fn pass(
    job: &Job,
    push: impl FnMut(u64) -> bool + Send,
    mut pop: impl FnMut() -> Option<u64> + Send,
) -> anyhow::Result<f64> {
    let take = |tally: &mut Tally| std::iter::from_fn(&mut pop).for_each(|item| tally.add(item));
    through(job, push, take)
}

pub(super) fn inbox(job: &Job) -> anyhow::Result<f64> {
    let (letters, mpmc, seg) = (Letters::new(), Mpmc::new(CAPACITY), SegQueue::new());
    match job.system.as_str() {
        // Fibers have their link within them; letters are made before, and unmade after, the time that counts.
        "plainweave inbox" => {
            let mut ready: Vec<_> = (1..=job.items).rev().map(Letter::new).collect();
            let mut read = Vec::with_capacity(job.items as usize);
            let push = |_| {
                ready.pop().is_some_and(|letter| {
                    letters.push(letter);
                    true
                })
            };
            through(job, push, |tally| {
                for letter in letters.take_all() {
                    letter.with(|item| tally.add(*item));
                    read.push(letter);
                }
            })
        }
        "plainweave mpmc" => pass(job, |item| mpmc.push(item).is_ok(), || mpmc.pop()),
        "crossbeam SegQueue" => {
            let push = |item| {
                seg.push(item);
                true
            };
            pass(job, push, || seg.pop())
        }
        "std channel" => {
            let (sender, receiver) = std::sync::mpsc::channel();
            pass(job, |item| sender.send(item).is_ok(), move || receiver.try_recv().ok())
        }
        _ => job.unknown(),
    }
}

/// All items; `take` takes what there is.
fn through(
    job: &Job,
    mut push: impl FnMut(u64) -> bool + Send,
    mut take: impl FnMut(&mut Tally) + Send,
) -> anyhow::Result<f64> {
    let items = job.items;
    let mut push = |item| {
        let mut turns = 0;
        while !push(item) {
            wait(&mut turns);
        }
    };
    let (ns, tally) = if job.threads == 1 {
        let (mut tally, start) = (Tally::default(), Instant::now());
        for first in (1..=items).step_by(64) {
            (first..=items.min(first + 63)).for_each(&mut push);
            take(&mut tally);
        }
        (start.elapsed().as_nanos() as f64, tally)
    } else {
        let take = || {
            let (mut tally, mut turns) = (Tally::default(), 0);
            while tally.count < items {
                let before = tally.count;
                take(&mut tally);
                if tally.count == before {
                    wait(&mut turns);
                } else {
                    turns = 0;
                }
            }
            tally
        };
        let (ns, (), tally) = two(|| (1..=items).for_each(push), take)?;
        (ns, tally)
    };
    tally.check(items)?;
    Ok(ns / items as f64)
}
