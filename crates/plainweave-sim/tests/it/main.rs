//! The simulator, from outside and as a program.

mod moved;
mod program;
mod runs;

use plainweave_sim::WholeLines;

#[global_allocator]
static ALLOCATOR: WholeLines = WholeLines;
