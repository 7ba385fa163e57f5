//! Recycles what a fiber needs to start: a stack and, with fiber-local storage, a block. A worker keeps some of each.

use std::cell::{Cell, RefCell};
use std::io;

use crate::fiber_local::{self, Block, Storage};
use crate::sched::pool::PoolShared;
use crate::stack::{Stack, StackCache};

/// Stacks unused for this long are trimmed.
const TIDY_NS: u64 = 150_000_000;
/// Rounds of trimming after the last fiber's end: a stack is trimmed when it was unused in two of them.
const TIDY_ROUNDS: u8 = 3;

/// A worker's stacks and blocks.
///
/// Context: its thread only.
pub(crate) struct Recycler {
    stacks: RefCell<StackCache>,
    blocks: RefCell<fiber_local::Cache>,
    /// Rounds that are still due, and the time of the last.
    tidy: Cell<(u8, u64)>,
}

impl Recycler {
    pub(crate) fn new(pool: &PoolShared) -> Self {
        let stacks = RefCell::new(StackCache::new(pool.stacks.clone()));
        Self { stacks, blocks: RefCell::default(), tidy: Cell::new((0, 0)) }
    }

    /// Returns a stack and perhaps a block for a fiber that starts; `size` is that of its stack, 0 for the pool's.
    /// (Inlined: a result that is written to memory in pieces and read as a whole stalls the processor for as long as
    /// all the rest takes.)
    #[inline(always)]
    pub(crate) fn take(&self, pool: &PoolShared, size: usize) -> io::Result<(Stack, Option<Block>)> {
        let stack = if size == 0 { self.stacks.borrow_mut().take() } else { pool.take_sized(size) }?;
        if pool.storage == Storage::Shared {
            return Ok((stack, None));
        }
        match self.take_block() {
            Ok(block) => Ok((stack, Some(block))),
            Err(error) => {
                self.put_stack(pool, stack, size);
                Err(error)
            }
        }
    }

    #[inline(never)]
    fn take_block(&self) -> io::Result<Block> {
        self.blocks.borrow_mut().take()
    }

    /// Takes back the stack and the block of a fiber that has ended.
    #[inline(always)]
    pub(crate) fn put(&self, pool: &PoolShared, stack: Option<Stack>, block: Option<Block>, size: usize) {
        if let Some(stack) = stack {
            self.put_stack(pool, stack, size);
            self.tidy.set((TIDY_ROUNDS, self.tidy.get().1));
        }
        if let Some(block) = block {
            self.blocks.borrow_mut().put(block);
        }
    }

    #[inline]
    fn put_stack(&self, pool: &PoolShared, stack: Stack, size: usize) {
        if size == 0 { self.stacks.borrow_mut().put(stack) } else { pool.put_sized(stack) }
    }

    /// Trims what lies unused, at intervals and only for a while after fibers have ended. Returns when it should run
    /// next.
    ///
    /// Context: a worker about to sleep.
    pub(crate) fn tidy(&self, pool: &PoolShared, now: impl FnOnce() -> u64) -> Option<u64> {
        let (rounds, last) = self.tidy.get();
        if rounds == 0 {
            return None;
        }
        let now = now();
        if now < last + TIDY_NS {
            return Some(last + TIDY_NS);
        }
        pool.stacks.tidy();
        if pool.storage == Storage::Own {
            fiber_local::tidy();
        }
        self.tidy.set((rounds - 1, now));
        (rounds > 1).then_some(now + TIDY_NS)
    }

    /// Has some of the blocks freed that lie unused, at the same intervals: a worker that never sleeps would keep all
    /// that a storm of fibers has needed. (Of stacks the pool trims a few whenever it is visited.)
    ///
    /// Context: a busy worker, once a stride.
    #[inline]
    pub(crate) fn tidy_in_passing(&self, pool: &PoolShared, now: u64) {
        let (rounds, last) = self.tidy.get();
        if rounds > 0 && now >= last + TIDY_NS && pool.storage == Storage::Own {
            fiber_local::tidy_in_passing();
            self.tidy.set((rounds, now));
        }
    }
}
