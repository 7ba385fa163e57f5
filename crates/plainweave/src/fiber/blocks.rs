//! Memory for fibers: a worker keeps the blocks of ended fibers for new ones.
//!
//! A fiber's block is a few hundred bytes, and bursts of fibers come and go by the thousand. That
//! is more than the per-thread cache of `malloc` holds, so its slow path (and, where the heap
//! shrinks and grows again, the kernel) would cost more than the fiber. Blocks are plain
//! allocations of rounded sizes; any worker may keep what any other allocated.

#![expect(unsafe_code, reason = "allocates and frees those blocks")]

use std::alloc::{self, Layout, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;

/// Sizes are rounded up to this, which is also the alignment.
const UNIT: usize = 64;
/// Number of size classes; larger blocks are not kept.
const CLASSES: usize = 16;
/// Bytes that a worker keeps of each size class.
const KEPT: usize = 512 * 1024;

/// A worker's kept blocks.
///
/// Context: its thread only.
#[derive(Debug, Default)]
pub(crate) struct Blocks(RefCell<[Vec<NonNull<u8>>; CLASSES]>);

/// Returns the size class of a layout, if its blocks are kept, and the layout to ask the allocator
/// for.
const fn class(layout: Layout) -> (Option<usize>, Layout) {
    let units = layout.size().div_ceil(UNIT);
    if units == 0 || units > CLASSES || layout.align() > UNIT {
        return (None, layout);
    }
    match Layout::from_size_align(units * UNIT, UNIT) {
        Ok(rounded) => (Some(units - 1), rounded),
        Err(_) => (None, layout),
    }
}

/// Returns a block for `layout`, from `here` if it keeps one.
#[inline]
pub(crate) fn take(layout: Layout, here: Option<&Blocks>) -> NonNull<u8> {
    let (class, rounded) = class(layout);
    if let (Some(class), Some(blocks)) = (class, here)
        && let Some(block) = blocks.0.borrow_mut()[class].pop()
    {
        return block;
    }

    // SAFETY: a fiber's layout has a size.
    NonNull::new(unsafe { alloc::alloc(rounded) }).unwrap_or_else(|| handle_alloc_error(rounded))
}

/// Frees a block, or keeps it in `here`.
///
/// # Safety
/// The block came from `take` with the same layout and is no longer used.
#[inline]
pub(crate) unsafe fn put(block: NonNull<u8>, layout: Layout, here: Option<&Blocks>) {
    let (class, rounded) = class(layout);
    if let (Some(class), Some(blocks)) = (class, here) {
        let kept = &mut blocks.0.borrow_mut()[class];
        if kept.len() < KEPT / rounded.size() {
            kept.push(block);
            return;
        }
    }
    // SAFETY: allocated with the same rounded layout.
    unsafe { alloc::dealloc(block.as_ptr(), rounded) };
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (class, kept) in self.0.get_mut().iter_mut().enumerate() {
            let layout = Layout::from_size_align((class + 1) * UNIT, UNIT).expect("small");
            // SAFETY: kept blocks were allocated with this layout.
            kept.drain(..)
                .for_each(|block| unsafe { alloc::dealloc(block.as_ptr(), layout) });
        }
    }
}
