//! Tests of the stacks: the pool's bounds and cooling, guards of both kinds, and (in child
//! processes) overflows.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

mod measure;
mod overflow;
mod pool;

use super::slab::page_size;
use super::*;

/// Returns a configuration small enough to inspect.
fn config(size: usize) -> StackConfig {
    StackConfig {
        size,
        max_stacks: 10_000,
        ..StackConfig::default()
    }
}

fn take(pool: &StackPool, count: usize) -> Vec<Stack> {
    (0..count).map(|_| pool.take().expect("a stack")).collect()
}

/// Touches the page that lies `depth` bytes below the top, and all above it.
fn touch(stack: &Stack, depth: usize) {
    for offset in (0..depth).step_by(page_size()) {
        // SAFETY: nothing runs on the stack, and the byte is one of its `size` usable ones.
        unsafe { stack.top().as_ptr().sub(offset + 1).write_volatile(1) };
    }
}

/// Returns whether the kernel can write to an address; a guard makes it fail with `EFAULT` and no
/// signal.
fn writable(address: *mut u8) -> bool {
    let file = std::fs::File::open("/dev/zero").expect("/dev/zero");
    // SAFETY: `read` checks the address itself; the byte belongs to a stack or a guard of the
    // calling test.
    let code = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&file), address.cast(), 1) };
    code == 1
}
