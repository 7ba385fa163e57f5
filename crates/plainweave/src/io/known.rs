//! What a driver that hears of changes knows of one direction of a socket: whether a call may find
//! something.

use std::os::fd::BorrowedFd;

use rustix::net::{ipproto, sockopt};

use super::op::{Op, RawResult};

/// Consecutive edges of one source, without a waiter here (or, with epoll, a call), that end its
/// registration. With 8, stolen requests cost 2 % more CPU for all (`docs/limit.md`).
pub(super) const MOST_IGNORED: u8 = 2;

/// See the essay of the epoll driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Unsure,
    Drained,
}

impl Known {
    /// Returns what an attempt has shown of its direction. `short_drains`: a short receive means
    /// that nothing is left.
    pub(super) fn after(op: &Op, result: RawResult, short_drains: bool) -> Self {
        match (op, result) {
            (_, r) if r == -libc::EAGAIN => Self::Drained,
            (Op::Recv { len, .. }, r) if r > 0 && (r as usize) < *len && short_drains => {
                Self::Drained
            }
            _ => Self::Unsure,
        }
    }
}

/// Returns whether the descriptor is a TCP socket.
pub(super) fn is_tcp(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_protocol(fd) == Ok(Some(ipproto::TCP))
}
