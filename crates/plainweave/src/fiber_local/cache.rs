//! Free blocks: each worker keeps a few, the process the rest.
//!
//! Blocks belong to no runtime, so a new runtime finds those of one that has ended. A worker
//! exchanges half of its blocks at a time, as it does with stacks. The process keeps as many blocks
//! as were in use at once lately; those that nothing has used for [`IDLE`], beyond [`KEPT`], a
//! background thread frees, 64 at a time: ending a block costs as much as ending a thread, some 20
//! us.
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Block;
use crate::aging::Aging;
use crate::sys;

/// The most blocks that a worker keeps.
const CAPACITY: usize = 128;
/// Blocks exchanged at once.
const BATCH: usize = CAPACITY / 2;
/// Free blocks that the process keeps however long it is idle.
const KEPT: usize = 256;

/// Blocks are freed when nothing has used them for one to two of these periods.
const IDLE: Duration = Duration::from_millis(300);

struct FreeBlocks {
    free: Aging<Block>,
    /// Whether a thread is freeing blocks.
    freeing: bool,
}

static SHARED: LazyLock<Mutex<FreeBlocks>> = LazyLock::new(|| {
    Mutex::new(FreeBlocks {
        free: Aging::new(IDLE, KEPT),
        freeing: false,
    })
});
/// The number of blocks: in use, in caches and free.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

fn shared() -> MutexGuard<'static, FreeBlocks> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of blocks in the process.
pub(crate) fn blocks() -> usize {
    BLOCKS.load(Ordering::Relaxed)
}

/// A worker's free blocks, used by its thread only.
#[derive(Debug, Default)]
pub(crate) struct Cache(Vec<Block>);

impl Cache {
    /// Returns whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the next put moves some to the process's.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == CAPACITY
    }

    /// Returns a block as good as new.
    ///
    /// # Errors
    /// No memory; or the platform does not support blocks, which `available` reports first.
    pub(crate) fn take(&mut self) -> io::Result<Block> {
        if let Some(block) = self.0.pop() {
            return Ok(block);
        }
        self.0.extend(shared().free.take_newest(BATCH));
        if let Some(block) = self.0.pop() {
            return Ok(block);
        }
        let block = Block::new()?;
        BLOCKS.fetch_add(1, Ordering::Relaxed);

        Ok(block)
    }

    /// Keeps the block of a fiber that has ended.
    pub(crate) fn put(&mut self, mut block: Block) {
        block.reset();
        if self.is_full() {
            shared().free.extend(self.0.drain(..BATCH));
        }
        self.0.push(block);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        shared().free.extend(self.0.drain(..));
    }
}

/// Has the free blocks that were not used for a while, beyond [`KEPT`], freed in the background.
/// Says whether there are any to free later.
///
/// Context: a worker at its turn.
pub(crate) fn tidy() -> bool {
    let mut shared = shared();
    if shared.free.len() <= KEPT {
        return false;
    }
    shared.free.look(Instant::now());

    if !shared.freeing && shared.free.due() > 0 {
        // Without a thread to do it the blocks stay until the next call.
        let thread = std::thread::Builder::new().name("plainweave-storage".into());
        shared.freeing = sys::start_thread(thread, free_aged).is_ok();
    }

    true
}

/// Frees blocks that were not used for a while, on a thread of its own.
fn free_aged() {
    loop {
        let mut surplus: Vec<Block> = {
            let mut shared = shared();
            let aged = shared.free.take_aged(BATCH);
            if aged.is_empty() {
                shared.freeing = false;
                return;
            }

            aged
        };

        while let Some(block) = surplus.pop() {
            if let Err(block) = block.end() {
                // No thread could be created for it.
                surplus.push(block);
                let mut shared = shared();
                shared.free.extend(surplus);
                shared.freeing = false;
                return;
            }
            BLOCKS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
