//! Free blocks: each worker keeps a few, the process the rest.
//!
//! Blocks belong to no runtime, so a new runtime finds those of one that has ended. A worker exchanges half of its
//! blocks at a time, as it does with stacks. The process keeps as many blocks as were in use at once; when workers
//! become idle, a background thread frees those beyond [`KEPT`], 64 at a time: ending a block costs as much as ending a
//! thread, some 20 us. While workers are busy it frees, now and then, a part of those that nobody has needed since the
//! last time, so that fibers that come and go in waves find theirs, and what a storm has left goes all the same.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Block;

/// The most blocks that a worker keeps.
const CAPACITY: usize = 128;
/// Blocks exchanged at once.
const BATCH: usize = CAPACITY / 2;
/// Free blocks that the process keeps however long it is idle.
const KEPT: usize = 256;
/// Blocks that are freed at a time while workers are busy, if there are as many: half of those unused, or these.
const PIECE: usize = 2048;
/// The least time between two such pieces.
const INTERVAL: Duration = Duration::from_millis(100);

struct FreeBlocks {
    free: Vec<Block>,
    /// The fewest that were free since busy workers last had some freed, and when that was.
    fewest: usize,
    tidied: Option<Instant>,
    /// Whether a thread is freeing blocks.
    freeing: bool,
}

static SHARED: Mutex<FreeBlocks> = Mutex::new(FreeBlocks { free: Vec::new(), fewest: 0, tidied: None, freeing: false });
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
    /// Returns a block as good as new.
    ///
    /// # Errors
    /// No memory; or the platform does not support blocks, which `available` reports first.
    pub(crate) fn take(&mut self) -> io::Result<Block> {
        if let Some(block) = self.0.pop() {
            return Ok(block);
        }
        {
            let mut shared = shared();
            let left = shared.free.len().saturating_sub(BATCH);
            self.0.extend(shared.free.drain(left..));
            shared.fewest = shared.fewest.min(left);
        }
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
        if self.0.len() == CAPACITY {
            shared().free.extend(self.0.drain(..BATCH));
        }
        self.0.push(block);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        shared().free.append(&mut self.0);
    }
}

/// Has free blocks beyond [`KEPT`] freed in the background.
///
/// Context: a worker about to sleep.
pub(crate) fn tidy() {
    let mut shared = shared();
    start_freeing(&mut shared, usize::MAX);
}

/// Has a part freed of the blocks beyond [`KEPT`] that nobody has needed since the last call.
///
/// Context: a busy worker, at intervals.
pub(crate) fn tidy_in_passing() {
    let (mut shared, now) = (shared(), Instant::now());
    // Every worker calls.
    if shared.tidied.is_some_and(|last| now.duration_since(last) < INTERVAL) {
        return;
    }
    shared.tidied = Some(now);
    let free = shared.free.len();
    let unused = std::mem::replace(&mut shared.fewest, free).min(free).saturating_sub(KEPT);
    start_freeing(&mut shared, (unused / 2).max(PIECE).min(unused));
}

/// Starts a thread that frees at most this many blocks.
fn start_freeing(shared: &mut FreeBlocks, most: usize) {
    if shared.freeing || most == 0 || shared.free.len() <= KEPT {
        return;
    }
    // Without a thread to do it the blocks stay until the next call.
    let thread = std::thread::Builder::new().name("plainweave-storage".into());
    shared.freeing = thread.spawn(move || free_surplus(most)).is_ok();
}

/// Frees surplus blocks, at most this many, on a thread of its own.
fn free_surplus(mut most: usize) {
    loop {
        let mut surplus: Vec<Block> = {
            let mut shared = shared();
            let count = shared.free.len().saturating_sub(KEPT).min(BATCH).min(most);
            most -= count;
            if count == 0 {
                shared.freeing = false;
                return;
            }
            shared.free.drain(..count).collect()
        };
        while let Some(block) = surplus.pop() {
            if let Err(block) = block.end() {
                // No thread could be created for it.
                surplus.push(block);
                let mut shared = shared();
                shared.free.append(&mut surplus);
                shared.freeing = false;
                return;
            }
            BLOCKS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
