//! Free blocks: each worker keeps a few, the process the rest.
//!
//! Blocks belong to no runtime, so one that is built later finds those of one that has ended. A worker exchanges half
//! of what it keeps at a time, as it does with stacks. The process keeps as many blocks as were in use at once; when
//! workers come to rest, what is more than [`KEPT`] is freed by a thread in the background, 64 at a time: an end costs
//! as much as a thread's, some 20 us.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Block;

/// Blocks that a worker keeps at most.
const CAPACITY: usize = 128;
/// Blocks that change hands at once.
const BATCH: usize = CAPACITY / 2;
/// Free blocks that the process keeps however long it rests.
const KEPT: usize = 256;

struct Shared {
    free: Vec<Block>,
    /// A thread is freeing blocks.
    freeing: bool,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { free: Vec::new(), freeing: false });
/// Blocks there are: in use, in caches and free.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Any thread. Blocks there are in the process.
pub(crate) fn blocks() -> usize {
    BLOCKS.load(Ordering::Relaxed)
}

/// A worker's free blocks. Its thread only.
#[derive(Debug, Default)]
pub(crate) struct Cache(Vec<Block>);

impl Cache {
    /// A block as good as new.
    ///
    /// # Errors
    /// No memory; or the platform cannot have them, which `available` would have told.
    pub(crate) fn take(&mut self) -> io::Result<Block> {
        if let Some(block) = self.0.pop() {
            return Ok(block);
        }
        {
            let mut shared = shared();
            let left = shared.free.len().saturating_sub(BATCH);
            self.0.extend(shared.free.drain(left..));
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

/// A worker about to sleep. Sees to it that free blocks beyond [`KEPT`] are freed.
pub(crate) fn tidy() {
    let mut shared = shared();
    if shared.freeing || shared.free.len() <= KEPT {
        return;
    }
    // Without a thread to do it they stay, until the next time.
    let started = std::thread::Builder::new().name("plainweave-storage".into()).spawn(free_surplus);
    shared.freeing = started.is_ok();
}

/// On a thread of its own.
fn free_surplus() {
    loop {
        let mut surplus: Vec<Block> = {
            let mut shared = shared();
            let count = shared.free.len().saturating_sub(KEPT).min(BATCH);
            if count == 0 {
                shared.freeing = false;
                return;
            }
            shared.free.drain(..count).collect()
        };
        while let Some(block) = surplus.pop() {
            if let Err(block) = block.end() {
                // No thread could be made for it.
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
