//! Connecting to the one of several addresses that answers first ("happy eyeballs", RFC 8305).
//!
//! Attempts begin one after the other, in the order of the addresses but with the families in turn:
//! the next when one has failed, or when none has answered for a while. All that are under way are
//! waited for at once, by one fiber. The first that succeeds is taken; the others are closed.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::io::op::{Interest, RawResult, connect_outcome};
use crate::sched::io_call::Descriptor;
use crate::sched::poll_any::{Poll, poll_any};
use crate::sched::wait;

/// How long an attempt is alone (RFC 8305, 5).
const ALONE: Duration = Duration::from_millis(250);

/// A connection that is being made.
struct Attempt {
    source: Descriptor,
    polled: Cell<Option<RawResult>>,
}

/// Connects to the first of the addresses that answers.
///
/// # Errors
/// The last address's; the caller was cancelled or ran into its deadline.
///
/// Context: a fiber that may suspend.
pub(super) fn race(addrs: &[SocketAddr]) -> io::Result<Descriptor> {
    let mut waiting = in_turn(addrs).into_iter();
    let mut under_way: Vec<Attempt> = Vec::new();
    let mut failed = io::Error::new(
        io::ErrorKind::InvalidInput,
        "the name has no addresses to connect to",
    );

    let mut begins = true;
    loop {
        if let Some(interrupt) = wait::interrupted() {
            return Err(wait::failed_at_once(interrupt.into()));
        }
        if begins && let Some(addr) = waiting.next() {
            match begin(addr) {
                Ok((source, true)) => return Ok(source),
                Ok((source, false)) => under_way.push(Attempt {
                    source,
                    polled: Cell::new(None),
                }),
                Err(error) => {
                    failed = error;
                    continue;
                }
            }
        }
        if under_way.is_empty() {
            return Err(wait::failed_at_once(failed));
        }

        let polls: Vec<_> = under_way.iter().map(Attempt::poll).collect();
        let limit = (waiting.len() > 0).then_some(ALONE);
        // Whether the caller was interrupted, or only the time alone is over, shows above.
        begins = poll_any(&polls, None, limit, || None).is_err();

        for at in (0..under_way.len()).rev() {
            if under_way[at].polled.take().is_none() {
                continue;
            }
            match connect_outcome(under_way[at].source.raw()) {
                0 => return Ok(under_way.swap_remove(at).source),
                outcome if outcome == -libc::EAGAIN => {}
                outcome => {
                    failed = io::Error::from_raw_os_error(-outcome);
                    begins = true;
                    under_way.remove(at);
                }
            }
        }
    }
}

impl Attempt {
    fn poll(&self) -> Poll<'_> {
        Poll {
            source: &self.source,
            interest: Interest::Write,
            result: &self.polled,
        }
    }
}

/// Begins to connect; says whether that is done already.
fn begin(addr: SocketAddr) -> io::Result<(Descriptor, bool)> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))?;
    let done = match socket.connect(&addr.into()) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => false,
        Err(error) => return Err(error),
    };
    Ok((Descriptor::new(socket.into()), done))
}

/// Orders addresses such that the families take turns, beginning with that of the first.
fn in_turn(addrs: &[SocketAddr]) -> Vec<SocketAddr> {
    let first = addrs.first().is_some_and(SocketAddr::is_ipv6);
    let (mut ours, mut others): (Vec<_>, Vec<_>) =
        addrs.iter().partition(|addr| addr.is_ipv6() == first);
    let turns = ours.len().max(others.len());
    let mut ours = ours.drain(..);
    let mut others = others.drain(..);
    (0..turns)
        .flat_map(|_| [ours.next(), others.next()])
        .flatten()
        .collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let addr = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let [a, b, c] = ["[::1]:1", "[::2]:1", "[::3]:1"].map(addr);
        let [x, y] = ["1.1.1.1:1", "2.2.2.2:1"].map(addr);
        assert_eq!(in_turn(&[a, b, c, x, y]), [a, x, b, y, c]);
        assert_eq!(in_turn(&[x, y, a]), [x, a, y]);
        assert_eq!(in_turn(&[]), []);
    }
}
