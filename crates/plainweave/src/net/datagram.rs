//! Datagrams of any family: one call each, or many in one call.

#![expect(unsafe_code, reason = "message headers for the kernel")]

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockAddr, SockAddrStorage};

use super::connection::Connection;
use crate::io::op::{Interest, Op};
use crate::sched::io_call::{perform, perform_now};
use crate::sched::wait;
use crate::thread::yield_now;
use crate::time::{now, sleep};

/// The most datagrams of one call (the kernel's own limit, UIO_MAXIOV).
pub(super) const MOST: usize = 1024;

/// A datagram that has come, with an address of any family.
pub(super) struct Raw {
    pub(super) len: usize,
    pub(super) from: SockAddr,
    pub(super) is_truncated: bool,
    /// The length of each of several that the kernel has put together.
    pub(super) segment: Option<usize>,
}

/// Receives a datagram.
pub(super) fn receive(connection: &Connection, buf: &mut [u8]) -> io::Result<Raw> {
    receive_message(connection, buf, &mut [])
}

/// Receives a datagram, and what the kernel says of it as control data.
pub(super) fn receive_message(
    connection: &Connection,
    buf: &mut [u8],
    control: &mut [u64],
) -> io::Result<Raw> {
    let mut storage = SockAddrStorage::zeroed();
    let mut slice = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: all zeroes is a valid header.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_name = (&raw mut storage).cast();
    message.msg_namelen = storage.size_of();
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    if !control.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(control);
    }

    let op = Op::RecvVectored {
        msg: &raw mut message,
    };
    let source = &connection.source;
    let mut len = None;
    if connection.likely.is_so() && wait::interrupted().is_none() {
        // SAFETY: header, address, buffer and control data outlive the call.
        match unsafe { perform_now(source, op) } {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.likely.was_not_so();
            }
            result => {
                len = Some(result?);
                if connection.likely.was_so() {
                    yield_now();
                }
            }
        }
    }

    let len = match len {
        Some(len) => len,
        // SAFETY: as above; the call does not return while the kernel may use them.
        None => unsafe { perform(source, op, connection.read_timeout()) }?,
    };
    // SAFETY: written by the kernel, with that length.
    let from = unsafe { SockAddr::new(storage, message.msg_namelen) };
    Ok(Raw {
        len: len as usize,
        from,
        is_truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        segment: segment(&message),
    })
}

/// Has the kernel put datagrams together, or not.
pub(super) fn set_gro(connection: &Connection, on: bool) -> io::Result<()> {
    connection.source.check_open()?;
    let on = libc::c_int::from(on);
    // SAFETY: a number, and its length.
    let set = unsafe {
        libc::setsockopt(
            connection.source.raw(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The length of each datagram, if the kernel has put several together.
fn segment(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has written the control data, and how long they are.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) {
        return None;
    }
    // SAFETY: behind a header of this kind there is a number.
    let each = unsafe {
        libc::CMSG_DATA(header)
            .cast::<libc::c_int>()
            .read_unaligned()
    };
    usize::try_from(each).ok()
}

/// Sends a datagram to where the socket is connected.
pub(super) fn send(connection: &Connection, buf: &[u8]) -> io::Result<usize> {
    send_message(connection, &[IoSlice::new(buf)], None, &mut [])
}

/// Sends a datagram to an address.
pub(super) fn send_to(connection: &Connection, buf: &[u8], to: &SockAddr) -> io::Result<usize> {
    send_message(connection, &[IoSlice::new(buf)], Some(to), &mut [])
}

/// Sends a datagram, or with control data several.
///
/// Not as an operation of a driver: on io_uring a datagram of a Unix socket that found no room is
/// sent empty when there is some (Linux 6.18 tries again behind the bytes that it has copied).
pub(super) fn send_message(
    connection: &Connection,
    bufs: &[IoSlice<'_>],
    to: Option<&SockAddr>,
    control: &mut [u64],
) -> io::Result<usize> {
    // SAFETY: all zeroes is a valid header.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    if let Some(to) = to {
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
    }
    message.msg_iov = bufs.as_ptr().cast_mut().cast();
    message.msg_iovlen = bufs.len();
    if !control.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(control);
    }

    if let Some(interrupt) = wait::interrupted() {
        return Err(wait::failed_at_once(interrupt.into()));
    }
    let (mut pause, longest) = PAUSE;
    let mut waited_since = None;
    loop {
        let source = &connection.source;
        source.check_open().map_err(wait::failed_at_once)?;
        // SAFETY: header, address, buffers and control data are valid.
        let sent = unsafe { libc::sendmsg(source.raw(), &raw const message, FLAGS) };
        match (counted(sent), waited_since) {
            (Ok(len), _) => return Ok(len),
            (Err(Errno::INTR), _) => {}
            (Err(Errno::AGAIN), None) => {
                waited_since = Some(now());
                connection.wait(Interest::Write)?;
            }
            // A Unix socket that is not connected is always writable, and no event says when its
            // receiver has room.
            (Err(Errno::AGAIN), Some(since)) => {
                let limit = connection.write_timeout();
                if limit.is_some_and(|limit| now() - since >= limit) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                sleep(pause)?;
                pause = longest.min(pause * 2);
            }
            (Err(error), _) => return Err(wait::failed_at_once(error.into())),
        }
    }
}

/// How a send is made.
const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
/// Pauses between attempts to send: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));

/// What the kernel writes of many datagrams.
pub(super) struct Headers {
    addresses: Vec<SockAddrStorage>,
    slices: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are to the vectors beside them, and to buffers that a call borrows.
unsafe impl Send for Headers {}
// SAFETY: nothing is reached through a shared reference.
unsafe impl Sync for Headers {}

impl Headers {
    pub(super) fn new() -> Self {
        Self {
            addresses: Vec::new(),
            slices: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Receives as many datagrams as are there, one at least, each into its part of `buf`.
    pub(super) fn receive(
        &mut self,
        connection: &Connection,
        buf: &mut [u8],
        each: usize,
    ) -> io::Result<usize> {
        self.begin(buf.len() / each);
        for part in buf.chunks_exact_mut(each) {
            self.slices.push(libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
        }
        self.lead_to_slices();
        for (message, address) in self.messages.iter_mut().zip(&mut self.addresses) {
            message.msg_hdr.msg_name = ptr::from_mut(address).cast();
            message.msg_hdr.msg_namelen = address.size_of();
        }

        let messages = &mut self.messages;
        connection.transfer(Interest::Read, || {
            let flags = libc::MSG_DONTWAIT;
            // SAFETY: as many headers as there are; they lead to addresses and buffers that nobody
            // else uses meanwhile.
            let got = unsafe {
                libc::recvmmsg(
                    connection.source.raw(),
                    messages.as_mut_ptr(),
                    messages.len() as libc::c_uint,
                    flags,
                    ptr::null_mut(),
                )
            };
            counted(got as isize)
        })
    }

    /// Sends datagrams, as many as there is room for and one at least; returns how many.
    pub(super) fn send(
        &mut self,
        connection: &Connection,
        datagrams: &[(&[u8], Option<SockAddr>)],
    ) -> io::Result<usize> {
        self.begin(datagrams.len());
        for (bytes, _) in datagrams {
            self.slices.push(libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            });
        }
        self.lead_to_slices();
        for (message, (_, to)) in self.messages.iter_mut().zip(datagrams) {
            if let Some(to) = to {
                message.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
                message.msg_hdr.msg_namelen = to.len();
            }
        }

        let messages = &mut self.messages;
        connection.transfer(Interest::Write, || {
            // SAFETY: as many headers as there are; they lead to addresses and buffers that are
            // borrowed.
            let sent = unsafe {
                libc::sendmmsg(
                    connection.source.raw(),
                    messages.as_mut_ptr(),
                    messages.len() as libc::c_uint,
                    FLAGS,
                )
            };
            counted(sent as isize)
        })
    }

    fn begin(&mut self, count: usize) {
        self.addresses.resize_with(count, SockAddrStorage::zeroed);
        self.slices.clear();
        self.messages.clear();
        // SAFETY: all zeroes is a valid header.
        let empty = || unsafe { MaybeUninit::<libc::mmsghdr>::zeroed().assume_init() };
        self.messages.resize_with(count, empty);
    }

    fn lead_to_slices(&mut self) {
        for (message, slice) in self.messages.iter_mut().zip(&mut self.slices) {
            message.msg_hdr.msg_iov = ptr::from_mut(slice);
            message.msg_hdr.msg_iovlen = 1;
        }
    }

    /// Returns what came of a datagram that was received.
    pub(super) fn received(&self, at: usize) -> Raw {
        let message = &self.messages[at];
        // SAFETY: written by the kernel, with that length; plain bytes.
        let storage = unsafe { ptr::read(&raw const self.addresses[at]) };
        Raw {
            len: message.msg_len as usize,
            // SAFETY: as above.
            from: unsafe { SockAddr::new(storage, message.msg_hdr.msg_namelen) },
            is_truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            segment: None,
        }
    }
}

fn counted(result: isize) -> rustix::io::Result<usize> {
    usize::try_from(result).map_err(|_| {
        let errno = io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(errno.unwrap_or(libc::EIO))
    })
}
