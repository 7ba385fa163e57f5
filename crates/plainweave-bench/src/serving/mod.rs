//! Web and cache servers, ours and their peers, as processes, and the clients that load them: what
//! the experiments on servers share. Which cases there are is theirs (`web`, `cache`, `http`, ...).

use std::time::Duration;

// What the cases of an experiment share, and how they run.
pub(crate) mod bench;
pub(crate) mod cache; // Ours and memcached, each a process of its own on CPU 0.
pub(crate) mod cache_client; // The closed-loop client.
// Which files a load asks for, how large they are, and in which order it asks.
pub(crate) mod catalog;
pub(crate) mod client; // `plainweave load http` as a client: its command and its figures.
pub(crate) mod closed; // What a closed loop asks for.
pub(crate) mod connections; // The connections of a server as the kernel lists them.
// Servers that fail when memory is short, by name.
pub(crate) mod control;
pub(crate) mod driver; // What asks the kernel for I/O: epoll or io_uring.
pub(crate) mod hooked; // Our servers with what only benchmarks ask for.
// The systems `limit`: raw loops that send a fixed answer.
pub(crate) mod limit;
pub(crate) mod load; // A turn of `plainweave load`, and what the server spent meanwhile.
pub(crate) mod nginx; // nginx, in two ways. *Tuned*, as an expert would.
pub(crate) mod process; // A server in processes of its own: where it listens, and what it costs.
pub(crate) mod rounds; // Closed loops on several servers at once, in slices, round after round.
pub(crate) mod server; // The servers of both kinds, behind one type.
pub(crate) mod site; // The files that all servers serve, and the requests for them.
// Clients that take turns of 50 ms, so that what the machine does meanwhile meets all their servers
// alike.
mod slices;
pub(crate) mod tails; // Latency when CPU is short.
pub(crate) mod web; // A server in its own processes: nginx, or `plainweave web` on a driver.
// wrk, the closed loop: all paths in turn, one or several sets of header fields.
pub(crate) mod wrk;

pub(crate) use driver::Driver;
pub(crate) use load::{Counted, Figures, Load, What};
pub(crate) use server::{Kind, PEER, Server, Whose, one_cpu};

/// Reads a positive number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (0.05..=3600.0).contains(number));
    number
        .map(Duration::from_secs_f64)
        .ok_or("0.05 to 3600".to_owned())
}

/// Returns `count` places from the first to the last, evenly spaced; at least two.
pub(crate) fn evenly((first, last): (f64, f64), count: u8) -> Vec<f64> {
    let step = (last - first) / f64::from(count - 1);
    (0..count).map(|n| first + step * f64::from(n)).collect()
}
