//! Thread-local storage of a fiber's own: to the language, the fiber is then a thread.
//!
//! On x86-64 everything that belongs to a thread is found through the *base*, the register `fs`.
//! Above it is glibc's descriptor of the thread (`struct pthread`), below it the thread-locals of
//! all modules loaded at start (static TLS); those of libraries loaded later hang off a table, the
//! dtv. A [`Block`] is all of that for one fiber. Each switch writes the base of whoever goes on
//! into `fs`, a fiber's or the worker's: then keys, `Rc`s taken from them, scoped guards, the panic
//! count, `thread::current()` and `errno` travel with the fiber, and it may migrate between workers
//! at any time in safe Rust.
//!
//! # Why it is hard
//! glibc offers no way to create such a block without a thread, so parts of this module rely on
//! what it exports for other purposes: for its own dynamic loader (`_dl_allocate_tls`), for
//! debuggers (`_thread_db_*`, which say where the members of `struct pthread` are). All of it is
//! looked up at run time and checked against a living thread (`glibc`); if anything is missing or
//! not as expected, the builder returns an error that says what.
//!
//! # The life of a block
//! 1. **Allocated** by `_dl_allocate_tls`: static TLS with the modules' initial values, a zeroed
//!    descriptor, a dtv.
//! 2. **Initialised** as glibc does for a thread (`block`): the descriptor's pointers to itself;
//!    the stack protector's and pointer guard's secrets, copied; empty robust list and list links;
//!    resolver state; the character tables of the locale; a restartable-sequence area that reads
//!    "uninitialised", so that `sched_getcpu` asks the kernel.
//! 3. **Given a thread number of its own**, above all that the kernel assigns. glibc's recursive
//!    and error-checking locks know their owner by that word. Two fibers must never show the same
//!    number, or both would own a lock: not when they run on two workers, and also not one after
//!    the other on the same worker, while the first holds the lock and is suspended. So it is the
//!    block's number, not that of the thread that runs it; calls that pass it to the kernel
//!    (`pthread_kill` to another fiber, priorities, priority-inheriting locks that somebody waits
//!    for) find no such thread.
//! 4. **Switched** by one instruction, with the stack (`context`): nothing between the two uses
//!    thread-local storage. Before the first resume, and whenever the fiber has moved, the worker
//!    lends it the allocator's cache of free memory that its own thread has, and its arena
//!    ([`Block::lend_malloc_cache`]). With caches of their own, 100,000 suspended fibers would keep
//!    up to 240 KB each that nobody can use; arenas of their own would keep free memory apart.
//! 5. **The fiber ends**, still on its storage ([`end_of_fiber`]): destructors of thread-locals run
//!    (`__call_tls_dtors`), then those of pthread keys; then the join is notified. They may block:
//!    the fiber still exists.
//! 6. **Recycled** ([`Block::reset`]): thread-locals of the program and its libraries get their
//!    initial values again. libc's own stay: the allocator's arena, lookup state, `strtok`'s place.
//!    The locale is restored.
//! 7. **Freed** ([`Block::end`]): a new thread switches to the block and ends. glibc then releases
//!    for it everything that it releases for a thread, such as the arena, which no exported
//!    function does.
//!
//! # What runs on which storage
//! The worker's loop, drivers and timers: the worker's. A fiber's calls into this crate, and what
//! the next one does for it when it has left its stack (`sched/direct`): the fiber's; they use no
//! thread-local but [`crate::fiber::current`]'s, which a fiber sets once on its own storage. Signal
//! handlers: that of the interrupted code, a whole descriptor either way (one instruction leads
//! from one to the other): they see the `errno` and the `thread::current()` of the fiber, not of
//! the worker. This crate's two, for overflows and for stalls, use none: they may run between the
//! write of a base and the state that goes with it.
//!
//! # Rejected
//! * *Leaving a fiber's base in place while the worker's loop runs*: a suspended fiber may be
//!   resumed by another worker at once, and two threads on one block corrupt the allocator. (A
//!   direct switch needs no base of the worker's: when the fiber is published as suspended, the
//!   next one's is in force.)
//! * *Writing the worker's thread number at each resume.* Point 3: wrong for a lock that is held
//!   across a suspension, and an additional store.
//! * *A copy of some thread's block.* It carries that thread's state (caches, lists, stack), and
//!   glibc gives no list of what to clear.
//! * *Linking blocks into glibc's list of threads*, so that `dlopen` initialises them too: `setuid`
//!   and `fork` walk it and expect threads. So libraries with initial-exec thread-locals must be
//!   loaded before the first fiber.
//! * *`arch_prctl`* where the kernel does not allow the instruction: a system call per switch.

mod cache; // Free blocks, a worker's and the process's.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(target_feature = "crt-static"),
    not(miri)
))]
mod own; // The parts that only x86-64 Linux with glibc has.
#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(target_feature = "crt-static"),
    not(miri)
)))]
#[path = "absent.rs"]
mod own;

use std::io;

pub(crate) use cache::{Cache, blocks, tidy};
pub(crate) use own::{Block, available, base_of_worker, end_of_fiber, on, set};

/// Whose thread-local storage a fiber sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// That of the worker that runs it.
    Shared,
    /// Its own.
    Own,
}

impl Storage {
    /// Returns whether fibers can have it in this program, on this machine.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) says why not; [`Storage::Shared`] is supported
    /// everywhere.
    ///
    /// Context: any thread or fiber; the first call may start a thread, which has ended when it
    /// returns.
    pub fn supported(self) -> io::Result<()> {
        match self {
            Self::Shared => Ok(()),
            Self::Own => available(),
        }
    }
}
