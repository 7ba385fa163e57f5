//! System calls that several layers make, each wrapped once: poll(2), signals, and time slices
//! (sched_setattr(2)); the processor's time stamp counter; and the allocator's `malloc_trim`.

#![expect(
    unsafe_code,
    reason = "`sched_setattr(2)`; `sigaction(2)`; the time stamp counter; `malloc_trim(3)`"
)]

use std::hint::black_box;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, io};

pub(crate) use rustix::event::{PollFd as PollEntry, PollFlags};
use rustix::event::{Timespec, poll as ppoll};
use rustix::process::{Resource, getrlimit};

/// Turns the `0` / `-1` of a system call into a result.
pub(crate) fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns whether the calling thread's allocator has this many bytes in one piece at the moment.
/// What fails to allocate ends the program, so whoever works unasked (the watchdog) or to help (a
/// dump) looks first, and leaves its work undone.
pub(crate) fn has_memory(bytes: usize) -> bool {
    let mut probe = Vec::<u8>::new();
    let there = probe.try_reserve_exact(bytes).is_ok();
    // Or the compiler removes both.
    black_box(&probe);
    there
}

/// Returns the bytes that the process may still map, if that is limited (`ulimit -v`).
pub(crate) fn address_space_left() -> Option<usize> {
    let most = usize::try_from(getrlimit(Resource::As).current?).ok()?;
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split(' ').next()?.parse().ok()?;
    Some(most.saturating_sub(pages * rustix::param::page_size()))
}

/// Keeps the C library from taking what is left of a limited address space: each thread's first
/// allocation maps 128 MB for a moment and keeps 64, for an arena that the thread can do without.
/// Stacks it cannot do without. Threads share the arenas that there are from then on, unless the
/// environment says how many there may be.
fn spare_address_space() {
    const PLENTY: usize = 1 << 30;
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Relaxed) || address_space_left().is_none_or(|room| room >= PLENTY) {
        return;
    }
    let is_said = ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"].map(|name| env::var_os(name).is_some());
    if !DONE.swap(true, Relaxed) && !is_said.contains(&true) {
        // SAFETY: the manual has it unsafe beside other threads for the first call of the
        // allocator, which was made long ago, and for the word that is set: it is written once,
        // under the main arena's lock, and read as one word.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1)
        };
    }
}

/// Starts a thread of this library's own. `std` ends the program when a new thread has got a stack
/// and finds no memory for its signal stack, so there must be more than the former takes.
///
/// # Errors
/// As for [`Builder::spawn`](thread::Builder::spawn), or [`io::ErrorKind::OutOfMemory`].
pub(crate) fn start_thread<T: Send + 'static>(
    builder: thread::Builder,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    const ENOUGH: usize = 4 << 20;
    spare_address_space();
    if !has_memory(ENOUGH) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    builder.spawn(body)
}

/// Waits until one of the entries is ready, for at most `limit` (`None`: for ever), and returns how
/// many are.
///
/// # Errors
/// As for ppoll(2); [`io::ErrorKind::Interrupted`] after a signal.
pub(crate) fn poll_all(
    entries: &mut [PollEntry<'_>],
    limit: Option<Duration>,
) -> io::Result<usize> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    Ok(ppoll(entries, limit.as_ref())?)
}

/// Waits until `fd` is ready for one of `events` (errors and hang-ups count), for at most `limit`.
/// Returns whether it is: false after the limit and after a signal.
///
/// # Errors
/// As for ppoll(2).
pub(crate) fn poll(fd: impl AsFd, events: PollFlags, limit: Option<Duration>) -> io::Result<bool> {
    match poll_all(&mut [PollEntry::new(&fd, events)], limit) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        result => Ok(result? > 0),
    }
}

/// A signal handler, as SA_SIGINFO asks for it.
pub(crate) type SignalHandler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Returns what the process does on a signal.
///
/// # Errors
/// As for sigaction(2).
pub(crate) fn signal_action(signal: libc::c_int) -> io::Result<libc::sigaction> {
    // SAFETY: all zeroes is a valid `sigaction`: the default action, no flags, no signals masked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only asks.
    check(unsafe { libc::sigaction(signal, ptr::null(), &mut action) })?;
    Ok(action)
}

/// Installs a signal handler. It runs on the thread's alternate stack, which is small, so no other
/// handler interrupts it. `flags` are added to those that this takes.
///
/// # Errors
/// As for sigaction(2).
///
/// # Safety
/// The handler does only what a signal handler may do.
pub(crate) unsafe fn handle_signal(
    signal: libc::c_int,
    handler: SignalHandler,
    flags: libc::c_int,
) -> io::Result<()> {
    // SAFETY: as in `signal_action`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | flags;

    // SAFETY: fills a mask of our own.
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    // SAFETY: the handler has the signature that SA_SIGINFO asks for; the caller promises the rest.
    check(unsafe { libc::sigaction(signal, &action, ptr::null_mut()) })
}

/// Returns whether the calling thread has a signal blocked, and so will those that it starts.
pub(crate) fn is_blocked(signal: libc::c_int) -> bool {
    // SAFETY: all zeroes is a valid set: an empty one.
    let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives across the calls; without a new set nothing changes.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut blocked) != 0
            || libc::sigismember(&blocked, signal) == 1
    }
}

/// The bounds of sched_setattr(2) for a time slice, in nanoseconds.
pub(crate) const SHORTEST_SLICE: u64 = 100_000;
pub(crate) const LONGEST_SLICE: u64 = 100_000_000;
/// Requests the kernel's default slice.
const DEFAULT_SLICE: u64 = 0;

/// The kernel's `struct sched_attr`, in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Returns a thread's time slice in nanoseconds; 0 means the calling thread. `None` for a thread
/// outside the ordinary scheduling classes, or on a kernel without slices for them.
pub(crate) fn time_slice(thread: u32) -> Option<u64> {
    attributes(thread).map(|now| now.runtime)
}

/// Gives the thread a slice and returns its previous one; `None` if nothing has changed.
pub(crate) fn set_time_slice(thread: u32, slice: u64) -> Option<u64> {
    let now = attributes(thread).filter(|now| now.runtime != slice)?;
    let new = Attributes {
        runtime: slice,
        ..now
    };

    // SAFETY: the kernel reads the `size` bytes that the value says it has.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const new, 0) == 0 };
    set.then_some(now.runtime)
}

/// Gives the thread back its slice, unless it was changed again after it was set to the longest.
pub(crate) fn restore_time_slice(thread: u32, usual: u64) {
    if time_slice(thread) == Some(LONGEST_SLICE) {
        set_time_slice(thread, usual);
    }
}

/// Gives the calling thread, which a stalled worker may have started, the usual slice.
pub(crate) fn forget_inherited_slice() {
    restore_time_slice(0, DEFAULT_SLICE);
}

fn attributes(thread: u32) -> Option<Attributes> {
    let mut now = Attributes::default();
    let size = size_of::<Attributes>() as u32;
    // SAFETY: the kernel writes at most `size` bytes, which `now` has, and any bytes are a value of
    // it.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut now, size, 0) };
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(now.policy as i32));

    // Other kernels report 0.
    (result == 0 && ordinary && now.runtime != 0).then_some(now)
}

/// Returns whether the kernel keeps time by the processors' time stamp counters: then they run at a
/// constant rate, never stop, and agree with each other.
pub(crate) fn counter_is_clock() -> bool {
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(clock).is_ok_and(|name| name.trim() == "tsc")
}

/// Reads the time stamp counter; 0 where there is none.
#[inline]
pub(crate) fn read_counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction exists on all of these processors, and Linux does not forbid it
    // unless a process asks for that by prctl(2).
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Has the C library's allocator give the memory that it keeps free back to the kernel; returns
/// whether it gave any.
///
/// glibc keeps what was freed in the middle of its arenas, whatever its size in all: after a crowd
/// of clients a server may hold a thousand times what it uses. This takes some tens of milliseconds
/// for a gigabyte, during which calls of the allocator in the arena at hand wait, so it is for a
/// program that has little to do. False, and nothing done, where the program has another C library;
/// another allocator's memory is not touched.
///
/// Context: any thread or fiber; does not suspend.
pub fn trim_heap() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, by any thread, and takes no pointer.
    return unsafe { libc::malloc_trim(0) } != 0;
    #[cfg(not(target_env = "gnu"))]
    false
}
