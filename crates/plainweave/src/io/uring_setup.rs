//! Setting up an io_uring and entering it: the part that deals with kernel versions.
//!
//! Flag sets are tried from the best to none at all; EINVAL means that the kernel does not know one
//! of the flags. If io_uring itself or a required feature is missing, the error says so, and the
//! epoll driver takes over. Linux 5.11 (EXT_ARG: a timeout with the wait) is the oldest supported:
//! older kernels would need a separate timeout entry for each sleep, which could not be tested
//! here.

#![expect(unsafe_code, reason = "`io_uring_enter` and `io_uring_register`")]

use std::io;
use std::os::fd::RawFd;

use super::driver::Access;
use super::file_call::FileCalls;
use io_uring::{EnterFlags, IoUring, Probe, opcode};

/// IORING_REGISTER_RING_FDS and its inverse.
const REGISTER_RING: u32 = 20;
const UNREGISTER_RING: u32 = 21;
/// Completions far outnumber what is submitted at once: wake-ups come in bursts, and each overflow
/// costs an allocation.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// Builds a ring for this access, with a submission queue of `entries`. Returns also which calls on
/// files it can make.
pub(crate) fn build(entries: u32, access: Access) -> io::Result<(IoUring, FileCalls)> {
    // A child of fork(2) does not need the ring's mappings. To say so takes madvise(2), which may be
    // forbidden where io_uring is not.
    let ring = build_with(entries, access, true)
        .or_else(|error| build_with(entries, access, false).map_err(|_| error))?;
    let probe = check_features(&ring)?;
    Ok((ring, FileCalls::of(&probe)))
}

fn build_with(entries: u32, access: Access, dontfork: bool) -> io::Result<IoUring> {
    let sized = || {
        let mut builder = IoUring::builder();
        if dontfork {
            builder.dontfork();
        }
        builder
            .setup_clamp()
            .setup_cqsize(entries * COMPLETIONS_PER_ENTRY);
        builder
    };

    // Linux 6.1: completions wait until the ring is entered, so they do not interrupt a running
    // fiber.
    let deferred = || {
        let mut builder = sized();
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(entries)
    };

    // Linux 5.19: no interrupt, but completions are processed at any return from the kernel.
    let cooperative = || {
        sized()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(entries)
    };

    let ring = match access {
        Access::OwnerThread | Access::OwnerEnters => or_with_fewer_flags(deferred(), cooperative),
        Access::AnyThread => cooperative(),
    };

    or_with_fewer_flags(ring, || sized().build(entries))
}

fn or_with_fewer_flags(
    ring: io::Result<IoUring>,
    build: impl FnOnce() -> io::Result<IoUring>,
) -> io::Result<IoUring> {
    match ring {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => build(),
        ring => ring,
    }
}

/// Returns which operations the ring has, if those that are needed are among them.
fn check_features(ring: &IoUring) -> io::Result<Probe> {
    let lacks = |what: &str| {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's io_uring lacks {what}"),
        ))
    };

    let features = ring.params();
    if !features.is_feature_ext_arg()
        || !features.is_feature_nodrop()
        || !features.is_feature_fast_poll()
    {
        return lacks("timeouts, lossless completions or poll (Linux 5.11 has them)");
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        ("POLL_ADD", opcode::PollAdd::CODE),
        ("RECV", opcode::Recv::CODE),
        ("RECVMSG", opcode::RecvMsg::CODE),
        ("SEND", opcode::Send::CODE),
        ("SENDMSG", opcode::SendMsg::CODE),
        ("ACCEPT", opcode::Accept::CODE),
        ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ];

    match needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
        Some((name, _)) => lacks(name),
        None => Ok(probe),
    }
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct WaitArgument {
    mask: u64,
    mask_len: u32,
    min_wait_us: u32,
    time: u64,
}

/// `struct io_uring_rsrc_update`, as the registration of ring descriptors uses it.
#[repr(C)]
struct RingSlot {
    index: u32,
    reserved: u32,
    fd: u64,
}

/// The handle for entering a ring: its descriptor, or the thread's registered slot for it.
///
/// In a process of several threads each system call takes and drops a reference to its descriptor;
/// a registered slot (Linux 5.18) saves that. It belongs to the thread that registered it, so a
/// ring that others may call has none: their call would fail, or meet a slot of their own.
#[derive(Debug)]
pub(crate) struct Gate {
    fd: RawFd,
    slot: Option<u32>,
}

impl Gate {
    /// Creates the gate of the ring `fd`; `access` is the ring's.
    pub(crate) fn new(fd: RawFd, access: Access) -> Self {
        let mut slot = RingSlot {
            index: u32::MAX,
            reserved: 0,
            fd: fd as u64,
        };

        let registered =
            access == Access::OwnerThread && register(fd, REGISTER_RING, &mut slot) == 1;
        Self {
            fd,
            slot: registered.then_some(slot.index),
        }
    }

    /// Calls io_uring_enter(2); `collect` runs deferred work and fetches overflowed completions.
    ///
    /// Context: a thread that the ring's access allows.
    pub(crate) fn enter(
        &self,
        submit: u32,
        min: u32,
        nanoseconds: Option<u64>,
        collect: bool,
    ) -> io::Result<u32> {
        let mut flags = EnterFlags::empty();
        flags.set(EnterFlags::GETEVENTS, collect);
        flags.set(EnterFlags::REGISTERED_RING, self.slot.is_some());
        flags.set(EnterFlags::EXT_ARG, nanoseconds.is_some());
        let fd = self.slot.map_or(self.fd, |slot| slot as RawFd);
        let n = nanoseconds.unwrap_or(0);

        // The kernel's own time type: two 64-bit numbers on every architecture.
        let time = [(n / 1_000_000_000) as i64, (n % 1_000_000_000) as i64];
        let argument = WaitArgument {
            mask: 0,
            mask_len: 8,
            min_wait_us: 0,
            time: (&raw const time) as u64,
        };

        let (pointer, len) = match nanoseconds {
            Some(_) => (&raw const argument, size_of::<WaitArgument>()),
            None => (std::ptr::null(), 0),
        };

        // SAFETY: the argument and the time live across the call; the submitted entries are their
        // pushers' concern.
        let n = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                submit,
                min,
                flags.bits(),
                pointer,
                len,
            )
        };

        if n < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(n as u32)
        }
    }

    /// Gives the slot back: it would keep the ring open until the thread ends.
    ///
    /// Context: the ring's thread only.
    pub(crate) fn close(&mut self) {
        if let Some(index) = self.slot.take() {
            register(
                self.fd,
                UNREGISTER_RING,
                &mut RingSlot {
                    index,
                    reserved: 0,
                    fd: 0,
                },
            );
        }
    }
}

fn register(fd: RawFd, action: u32, slot: &mut RingSlot) -> i64 {
    // SAFETY: one element of the type that these two actions take.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd,
            action,
            std::ptr::from_mut(slot),
            1,
        )
    }
}
