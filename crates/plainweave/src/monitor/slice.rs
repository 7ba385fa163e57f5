//! How long a turn a thread asks of the kernel's scheduler.
//!
//! Since Linux 6.6 (EEVDF) a thread that has been given a processor keeps it for a slice, 1 to 4 ms, whoever wakes
//! meanwhile. So whatever wakes on the processor of a fiber that computes is late by milliseconds, though another
//! processor be idle: the monitor, a worker that it has called, a client on the same machine. Since 6.12 a thread that
//! asks for a shorter slice goes first (sched_setattr(2), `sched_runtime`; `PREEMPT_SHORT` in kernel/sched/features.h).
//! Shares of the processor stay what they were, in either direction, and no privilege is needed.
//!
//! * The monitor asks for the shortest: it runs for some 20 us at a time, and is of use at once or not at all.
//! * A stalled worker is given the longest until it goes on: it computes, so it does not mind when.
//!
//! A kernel without this, a thread of another class (`SCHED_FIFO`), or a refusal: everything stays as it was.

/// The bounds of sched_setattr(2), in nanoseconds.
const SHORTEST: u64 = 100_000;
const LONGEST: u64 = 100_000_000;

/// `struct sched_attr` of the kernel's interface, as it first was.
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

/// What a thread had before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before(Attributes);

/// The calling thread goes before others.
pub(super) fn shorten() {
    ask(0, SHORTEST);
}

/// Others go before that thread of this process. `None`: nothing has changed.
pub(super) fn lengthen(thread: u32) -> Option<Before> {
    ask(thread, LONGEST)
}

/// After [`lengthen`].
pub(super) fn restore(thread: u32, before: Before) {
    set(thread, before.0);
}

fn ask(thread: u32, slice: u64) -> Option<Before> {
    let now = get(thread)?;
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(now.policy as i32));
    // A kernel that knows no slices of ordinary threads says 0.
    (ordinary && now.runtime != 0 && set(thread, Attributes { runtime: slice, ..now })).then_some(Before(now))
}

fn get(thread: u32) -> Option<Attributes> {
    let (mut now, size) = (Attributes::default(), size_of::<Attributes>() as u32);
    // SAFETY: the kernel writes at most `size` bytes, which `now` has, and any bytes are a value of it.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut now, size, 0) };
    (result == 0).then_some(now)
}

fn set(thread: u32, attributes: Attributes) -> bool {
    // SAFETY: the kernel reads the `size` bytes that the value says it has.
    unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_lengthened_and_restored() {
        let own = rustix::thread::gettid().as_raw_pid() as u32;
        let slice = || get(own).unwrap().runtime;
        let usual = slice();
        match lengthen(own) {
            Some(before) => {
                assert_eq!(slice(), LONGEST);
                restore(own, before);
                assert_eq!(slice(), usual);
            }
            None => assert_eq!(usual, 0, "this kernel has slices, and none could be asked for"),
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_no_harm() {
        assert!(lengthen(i32::MAX as u32).is_none());
    }
}
