//! A table for debuggers: where they find fibers, and what in them. `tools/gdb/plainweave.py` reads
//! it, from a process or a core file, so it needs no debug information of this crate, whose types
//! have no fixed layout.
//!
//! Fibers that have started are found by their stacks: the table of slabs (`stack/table`) leads to
//! the slots, a slot's owner is a fiber's header.

#![expect(unsafe_code, reason = "a symbol that debuggers find")]

use std::mem::offset_of;

use super::{Header, Own};
use crate::context::SAVED;
use crate::stack::{OverflowInfo, SLABS, SlabLayout};

/// The table. New fields go to the end; a change of another kind changes `version`.
#[repr(C)]
pub(crate) struct FiberLayout {
    magic: [u8; 8],
    version: u32,
    /// Words at the stack pointer of a fiber that does not run: `context::SAVED`.
    saved_words: u32,
    slabs: SlabLayout,
    /// Offsets in a fiber's header.
    name: u32,
    name_len: u32,
    id: u32,
    state: u32,
    phase: u32,
    movement: u32,
    waits: u32,
    last_worker: u32,
    pinned_to: u32,
    /// Where its stack pointer is; 0 while it runs.
    pointer: u32,
    /// Two words, of which one is an address in its stack.
    stack: u32,
}

/// What debuggers look for.
#[used]
// SAFETY: no other program or library has a reason to use the name.
#[unsafe(no_mangle)]
pub(crate) static PLAINWEAVE_FIBERS: FiberLayout = FiberLayout {
    magic: *b"plainwv\0",
    version: 2,
    saved_words: SAVED as u32,
    slabs: SLABS,
    name: (offset_of!(Header, info) + offset_of!(OverflowInfo, name_ptr)) as u32,
    name_len: (offset_of!(Header, info) + offset_of!(OverflowInfo, name_len)) as u32,
    id: (offset_of!(Header, info) + offset_of!(OverflowInfo, id)) as u32,
    state: offset_of!(Header, state) as u32,
    phase: (offset_of!(Header, own) + offset_of!(Own, pinned)) as u32,
    movement: offset_of!(Header, movement) as u32,
    waits: (offset_of!(Header, own) + offset_of!(Own, waits)) as u32,
    last_worker: offset_of!(Header, last_worker) as u32,
    pinned_to: offset_of!(Header, pinned_to) as u32,
    pointer: (offset_of!(Header, own) + offset_of!(Own, context)) as u32,
    stack: (offset_of!(Header, own) + offset_of!(Own, stack)) as u32,
};
