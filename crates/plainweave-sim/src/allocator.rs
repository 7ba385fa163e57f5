//! Memory in whole pairs of cache lines, so that a run can be repeated bit for bit.
//!
//! The simulator tells cache lines apart by the addresses of the words in them. With an allocator
//! that packs small objects, the words that share a line would depend on what the process has
//! allocated before. With this one they depend on their place in their object alone. Programs and
//! tests that repeat runs install it as `#[global_allocator]`.

#![expect(unsafe_code, reason = "an allocator passes its calls on")]

use std::alloc::{GlobalAlloc, Layout, System};

use crate::lines::LINE;

/// The system's allocator, with each object on lines of its own.
#[derive(Debug)]
pub struct WholeLines;

fn whole(layout: Layout) -> Layout {
    layout.align_to(LINE).unwrap_or(layout)
}

// SAFETY: every method passes the same change of a layout on to the system's allocator, whose
// contract is this one's; a stricter alignment satisfies the one that was asked for.
unsafe impl GlobalAlloc for WholeLines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout`, whose size is unchanged.
        unsafe { System.alloc(whole(layout)) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` or `realloc` with the same change of the same layout.
        unsafe { System.dealloc(at, whole(layout)) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; the caller promises that `size` is valid.
        unsafe { System.realloc(at, whole(layout), size) }
    }
}
