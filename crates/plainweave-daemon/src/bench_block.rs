//! `--bench-block`: requests that block, for benchmarks. Neither server has handlers of users,
//! which might.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::flag;

/// How often, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchBlock {
    time: Duration,
    every: NonZeroU64,
}

impl BenchBlock {
    /// Reads `TIME/N`; the message says how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (time, every) = text.split_once('/').ok_or("write TIME/N, as in 50ms/100")?;
        let every = every
            .parse()
            .map_err(|_| "N is a whole number from 1, as in 50ms/100")?;
        Ok(Self {
            time: flag::time(time)?,
            every,
        })
    }
}

/// Counts requests, and blocks as asked.
#[derive(Debug)]
pub struct Blocker {
    block: BenchBlock,
    requests: AtomicU64,
}

impl Blocker {
    /// Begins to count.
    pub fn new(block: BenchBlock) -> Self {
        Self {
            block,
            requests: AtomicU64::new(0),
        }
    }

    /// Is called once for each request. Blocks the calling *thread*, as a handler does that knows
    /// no fibers.
    pub fn pass(&self) {
        if (self.requests.fetch_add(1, Relaxed) + 1).is_multiple_of(self.block.every.get()) {
            thread::sleep(self.block.time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_often_and_how_long() {
        let block = BenchBlock::parse("50ms/100").unwrap();
        assert_eq!(
            (block.time, block.every.get()),
            (Duration::from_millis(50), 100)
        );
        for text in ["", "50ms", "50ms/0", "50ms/x", "/100", "0s/100"] {
            assert!(BenchBlock::parse(text).is_err(), "{text}");
        }
    }
}
