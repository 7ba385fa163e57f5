//! The connections of a server as the kernel lists them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// For the last connections to end.
const DRAIN: Duration = Duration::from_secs(20);

/// States of a connection, as `/proc/net/tcp` writes them.
const ESTABLISHED: &str = "01";
/// The client has closed, the server has not.
pub(crate) const CLOSE_WAIT: &str = "08";

/// Returns the server's connections in one of these states, accepted or not.
pub(crate) fn standing(address: SocketAddr, states: &[&str]) -> usize {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{:04X}", address.port());
    let of = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(&port));
        local && words.nth(1).is_some_and(|state| states.contains(&state))
    };

    text.lines().filter(of).count()
}

/// Waits until none is left, or for a while: what is left of a load would be the next one's.
pub(crate) fn drain(address: SocketAddr) {
    let start = Instant::now();
    while standing(address, &[ESTABLISHED, CLOSE_WAIT]) > 0 && start.elapsed() < DRAIN {
        std::thread::sleep(Duration::from_millis(50));
    }
}
