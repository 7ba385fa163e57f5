//! Recycles what a fiber needs to start: a stack and, with fiber-local storage, a block. A worker
//! keeps some of each.

use std::cell::{Cell, RefCell};
use std::io;

use crate::fiber_local::{self, Block, Storage};
use crate::sched::pool::PoolShared;
use crate::stack::{Left, Stack, StackCache};
use crate::timer::Nanos;

/// How often a worker looks for stacks and blocks that are no longer used, while there are any.
const TIDY_NS: u64 = 150_000_000;
/// Looks after the last fiber's end, at least.
const TIDY_ROUNDS: u8 = 3;
/// How many stacks it cools at a time, 50 us, and after what time the next ones.
const AT_A_TIME: usize = 32;
const NEXT_NS: u64 = 1_000_000;

/// A worker's stacks and blocks.
///
/// Context: its thread only.
pub(crate) struct Recycler {
    stacks: RefCell<StackCache>,
    blocks: RefCell<fiber_local::Cache>,
    /// How often to look at least for something to tidy, and when to look next.
    tidy: Cell<(u8, u64)>,
}

impl Recycler {
    pub(crate) fn new(pool: &PoolShared) -> Self {
        let stacks = RefCell::new(StackCache::new(pool.stacks.clone()));
        Self {
            stacks,
            blocks: RefCell::default(),
            tidy: Cell::new((0, 0)),
        }
    }

    /// Returns a stack and perhaps a block for a fiber that starts; `size` is that of its stack, 0
    /// for the pool's. (Inlined: a result that is written to memory in pieces and read as a whole
    /// stalls the processor for as long as all the rest takes.)
    #[inline(always)]
    pub(crate) fn take(
        &self,
        pool: &PoolShared,
        size: usize,
    ) -> io::Result<(Stack, Option<Block>)> {
        let stack = if size == 0 {
            self.stacks.borrow_mut().take()
        } else {
            pool.take_sized(size)
        }?;
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

    /// Returns whether [`Self::take`] would find both among what the worker keeps.
    pub(crate) fn has_some(&self, size: usize) -> bool {
        size == 0 && !self.stacks.borrow().is_empty() && !self.blocks.borrow().is_empty()
    }

    /// Returns whether [`Self::put`] would keep both here.
    pub(crate) fn has_room(&self) -> bool {
        !self.stacks.borrow().is_full() && !self.blocks.borrow().is_full()
    }

    #[inline(never)]
    fn take_block(&self) -> io::Result<Block> {
        self.blocks.borrow_mut().take()
    }

    /// Takes back the stack and the block of a fiber that has ended.
    #[inline(always)]
    pub(crate) fn put(
        &self,
        pool: &PoolShared,
        stack: Option<Stack>,
        block: Option<Block>,
        size: usize,
    ) {
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
        if size == 0 {
            self.stacks.borrow_mut().put(stack)
        } else {
            pool.put_sized(stack)
        }
    }

    /// Gives back a little of the memory that has not been used for a while, if it is time to.
    /// Returns when it should be called next; `None` when nothing is left until another fiber ends.
    ///
    /// Context: a worker at its turn.
    #[inline]
    pub(crate) fn tidy(&self, pool: &PoolShared, now: Nanos) -> Option<Nanos> {
        match self.tidy.get() {
            (0, _) => None,
            (_, next) if now < next => Some(next),
            (rounds, _) => self.tidy_now(pool, rounds, now),
        }
    }

    #[cold]
    fn tidy_now(&self, pool: &PoolShared, rounds: u8, now: Nanos) -> Option<Nanos> {
        let stacks = pool.stacks.tidy(AT_A_TIME);
        let blocks = pool.storage == Storage::Own && fiber_local::tidy();
        let (rounds, next) = match stacks {
            Left::More => (rounds, now + NEXT_NS),
            Left::Nothing if !blocks => (rounds - 1, now + TIDY_NS),
            _ => (rounds, now + TIDY_NS),
        };

        self.tidy.set((rounds, next));
        (rounds > 0).then_some(next)
    }
}
