//! One of a thing for each processor, each on cache lines of its own, so that processors seldom
//! write to the same memory. Which processor a thread is on is a hint: it may be moved at any time,
//! so each thing is shared all the same.

use std::ops::Deref;

use crossbeam_utils::CachePadded;
use rustix::thread::{sched_getaffinity, sched_getcpu};

/// See the module.
#[derive(Debug)]
pub struct PerCpu<T>(Box<[CachePadded<T>]>);

impl<T> PerCpu<T> {
    /// Makes one for each processor that this process may run on, with whatever share of its time:
    /// under a quota of one processor's time several may run at once.
    pub fn new(make: impl Fn() -> T) -> Self {
        let cpus = sched_getaffinity(None).map_or(1, |cpus| cpus.count() as usize);
        Self::of(cpus, make)
    }

    /// Makes so many, but one at least.
    pub fn of(number: usize, make: impl Fn() -> T) -> Self {
        let places = 0..number.max(1);
        Self(places.map(|_| CachePadded::new(make())).collect())
    }

    /// Returns the place of the one that is the calling thread's now.
    pub fn here(&self) -> usize {
        if self.0.len() == 1 {
            0
        } else {
            sched_getcpu() % self.0.len()
        }
    }

    /// Returns the one that is the calling thread's now.
    pub fn own(&self) -> &T {
        &self.0[self.here()]
    }
}

/// All of them.
impl<T> Deref for PerCpu<T> {
    type Target = [CachePadded<T>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
