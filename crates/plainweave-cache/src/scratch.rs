//! What a connection borrows while it is busy: scratch buffers, and a tally that no other
//! connection writes meanwhile.
//!
//! There are about as many as workers, and one for each client that is slow to read its answers:
//! their number is that of the turns in progress, and it has a bound. Idle ones are in a
//! [`Pool`](plainweave_serve::Pool).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use plainweave_serve::Pool;

use super::hotkeys::Sampler;
use super::reply::Replies;
use super::tally::{Sums, Tally};

/// Bytes of one read.
const INPUT: usize = 16 << 10;

/// Received bytes that are not done with: `bytes[start..end]`.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Its own buffer, while it has that of a connection.
    own: Vec<u8>,
}

impl Input {
    fn new() -> Self {
        Self {
            bytes: vec![0; INPUT],
            start: 0,
            end: 0,
            own: Vec::new(),
        }
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
    }

    pub(crate) fn extend(&mut self, len: usize) {
        self.end += len;
    }

    /// Returns where the next read goes. It grows only for a get of very many keys, whose line is
    /// bounded.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }

        if self.end == self.bytes.len() {
            self.bytes.resize(self.end + INPUT, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Puts back what a connection kept since its last turn. A long line comes in the buffer in
    /// which it was left.
    pub(crate) fn restore(&mut self, rest: &mut Vec<u8>) {
        if rest.is_empty() {
            return;
        }
        (self.start, self.end) = (0, rest.len());
        if rest.len() < INPUT {
            self.bytes[..rest.len()].copy_from_slice(rest);
            *rest = Vec::new();
        } else {
            self.own = std::mem::replace(&mut self.bytes, std::mem::take(rest));
        }
    }

    /// Takes out what a connection has to keep.
    pub(crate) fn keep(&mut self, rest: &mut Vec<u8>) {
        if self.start == self.end {
            return;
        }
        if self.end - self.start < INPUT {
            *rest = self.filled().to_vec();
            return;
        }

        let own = std::mem::take(&mut self.own);
        *rest = std::mem::replace(
            &mut self.bytes,
            if own.is_empty() { vec![0; INPUT] } else { own },
        );
        rest.truncate(self.end);
        rest.drain(..self.start);
        (self.start, self.end) = (0, 0);
    }

    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
        if !self.own.is_empty() {
            self.bytes = std::mem::take(&mut self.own);
        } else if self.bytes.len() > INPUT {
            *self = Self::new();
        }
    }
}

/// Buffers and tally of one busy connection.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) input: Input,
    pub(crate) work: Work,
    /// Turns so far.
    pub(crate) turns: u32,
}

/// In use by one connection, or idle.
type Owned = Box<Scratch>;

/// The part that commands write to.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) out: Replies,
    pub(crate) tally: Arc<Tally>,
    pub(crate) sampler: Sampler,
}

/// The scratch buffers of all connections. No lock is held across anything that waits.
pub(crate) struct ScratchPool {
    idle: Pool<Scratch>,
    tallies: Mutex<Tallies>,
    /// Scratch buffers at a time, beside an idle one at each place.
    max: usize,
}

#[derive(Debug, Default)]
struct Tallies {
    live: Vec<Arc<Tally>>,
    /// Of those that were dropped.
    retired: Sums,
    /// What there was at the last reset.
    base: Sums,
}

impl fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScratchPool {{ {} places, .. }}", self.idle.places())
    }
}

impl ScratchPool {
    pub(crate) fn new(workers: usize, max: usize) -> Self {
        Self {
            idle: Pool::with_places(workers),
            tallies: Mutex::default(),
            max,
        }
    }

    /// Runs `work` with scratch buffers that nothing else uses meanwhile. `None`: all that there
    /// may be are in use.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> Option<T> {
        let place = self.idle.here();
        let mut in_use = InUse {
            pool: self,
            scratch: Some(self.idle.take(place).or_else(|| self.another())?),
        };

        let result = work(in_use.scratch.as_mut()?);
        let mut scratch = in_use.scratch.take()?;
        scratch.input.clear();
        scratch.work.out.clear();
        if let Some(extra) = self.idle.put(place, scratch) {
            self.retire(&extra.work.tally);
        }

        Some(result)
    }

    #[cold]
    fn another(&self) -> Option<Owned> {
        let mut tallies = lock(&self.tallies);
        if tallies.live.len() >= self.max.saturating_add(self.idle.places()) {
            drop(tallies);
            return self.idle.take_listed();
        }
        let tally = Arc::new(Tally::default());

        tallies.live.push(tally.clone());
        drop(tallies);
        let work = Work {
            out: Replies::default(),
            tally,
            sampler: Sampler::default(),
        };

        Some(Box::new(Scratch {
            input: Input::new(),
            work,
            turns: 0,
        }))
    }

    /// Returns how many are in use, or ready for the next turn at some CPU.
    pub(crate) fn in_use(&self) -> usize {
        let idle = self.idle.listed();
        lock(&self.tallies).live.len().saturating_sub(idle)
    }

    fn retire(&self, tally: &Arc<Tally>) {
        let mut tallies = lock(&self.tallies);
        tally.sum_into(&mut tallies.retired);
        tallies.live.retain(|live| !Arc::ptr_eq(live, tally));
    }

    /// Returns what has been counted since the last reset.
    pub(crate) fn sums(&self) -> Sums {
        let tallies = lock(&self.tallies);
        tallies.all().since(&tallies.base)
    }

    /// Counts from now on.
    pub(crate) fn reset(&self) {
        let mut tallies = lock(&self.tallies);
        tallies.base = tallies.all();
    }
}

/// Scratch buffers in use. After a panic, which drops this, others may take their place.
struct InUse<'a> {
    pool: &'a ScratchPool,
    scratch: Option<Owned>,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(scratch) = &self.scratch {
            self.pool.retire(&scratch.work.tally);
        }
    }
}

impl Tallies {
    fn all(&self) -> Sums {
        let mut sums = self.retired.clone();
        self.live.iter().for_each(|tally| tally.sum_into(&mut sums));
        sums
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::super::tally::Count;
    use super::*;

    #[test]
    fn input_keeps_what_is_not_done_with() {
        let mut input = Input::new();
        input.space()[..6].copy_from_slice(b"abcdef");
        input.extend(6);
        input.consume(4);
        assert_eq!(input.filled(), b"ef");
        assert_eq!(input.space().len(), INPUT - 2);
        let mut rest = Vec::new();

        input.keep(&mut rest);
        input.clear();
        input.restore(&mut rest);
        assert_eq!((input.filled(), rest.len()), (&b"ef"[..], 0));
        input.extend(INPUT - 2);
        assert_eq!(input.space().len(), INPUT);
    }

    #[test]
    fn a_long_rest_moves_with_its_buffer() {
        let mut input = Input::new();
        let mut rest = Vec::new();
        let mut sent = Vec::new();
        input.space()[..3].copy_from_slice(b"abc");
        input.extend(3);
        input.consume(3);

        for n in 0..50_u8 {
            input.restore(&mut rest);
            let space = input.space();
            let len = space.len().min(7000);
            space[..len].fill(n);
            input.extend(len);
            sent.resize(sent.len() + len, n);
            assert_eq!(input.filled(), sent);
            let buffer = input.filled().as_ptr();

            input.keep(&mut rest);
            assert_eq!(
                rest.as_ptr() == buffer,
                sent.len() >= INPUT,
                "{} bytes are copied",
                sent.len()
            );
            input.clear();
            assert_eq!(
                input.space().len(),
                INPUT,
                "it has a buffer of its own again"
            );
        }

        input.restore(&mut rest);
        assert_eq!(input.filled(), sent);
    }

    #[test]
    fn nothing_counted_is_lost_with_dropped_scratch() {
        let pool = ScratchPool::new(2, usize::MAX);
        fn nested(pool: &ScratchPool, depth: usize) {
            pool.with(|scratch| {
                scratch.work.tally.count(Count::CmdGet);
                if depth > 0 {
                    nested(pool, depth - 1);
                }
            })
            .unwrap();
        }
        // The pool keeps fewer.
        let many = 100;
        nested(&pool, many - 1);
        assert_eq!(pool.sums().get(Count::CmdGet), many as u64);
        assert!(lock(&pool.tallies).live.len() < many);
        pool.reset();
        pool.with(|scratch| scratch.work.tally.count(Count::CmdGet))
            .unwrap();
        assert_eq!(pool.sums().get(Count::CmdGet), 1);
    }

    #[test]
    fn a_panic_costs_no_place() {
        let pool = ScratchPool::new(1, 2);
        for _ in 0..20 {
            let panics = || pool.with(|_| -> () { std::panic::resume_unwind(Box::new("a turn")) });
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        }
        assert_eq!(pool.with(|_| 1), Some(1));
    }

    /// Each of two processors finds its scratch at its own place, whatever is done to the shared
    /// lists meanwhile.
    #[test]
    fn a_turn_takes_no_lock() {
        let all = sched_getaffinity(None).expect("an affinity");
        let pool = ScratchPool::new(2, usize::MAX);
        // Those of even and of odd number have different places.
        let one_of = |place| (0..CpuSet::MAX_CPU).find(|cpu| cpu % 2 == place && all.is_set(*cpu));
        let (Some(even), Some(odd)) = (one_of(0), one_of(1)) else {
            return;
        };
        let turn = |cpu| {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).expect("one of ours");
            pool.with(|scratch| scratch.work.tally.count(Count::CmdGet))
                .expect("there is always another");
        };

        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            scope
                .spawn(|| [even, odd].map(turn))
                .join()
                .expect("both have one now");
            let locks = lock(&pool.tallies);
            for cpu in [even, odd] {
                let turn = &turn;
                let tell = tell.clone();
                scope.spawn(move || {
                    (0..1000).for_each(|_| turn(cpu));
                    tell.send(()).expect("awaited");
                });
            }

            let ended = [even, odd].map(|_| told.recv_timeout(Duration::from_secs(20)));
            drop(locks);
            assert_eq!(ended, [Ok(()), Ok(())], "a lock was waited for");
        });

        assert_eq!(pool.sums().get(Count::CmdGet), 2002);
    }

    #[test]
    fn there_are_as_many_as_allowed_and_they_come_back() {
        fn nested(pool: &ScratchPool) -> usize {
            pool.with(|_| 1 + nested(pool)).unwrap_or(0)
        }
        let pool = ScratchPool::new(1, 7);
        for _ in 0..3 {
            assert_eq!(nested(&pool), 8, "one for the place, and those allowed");
        }
        assert_eq!(pool.in_use(), 1, "the one at the place");
    }
}
