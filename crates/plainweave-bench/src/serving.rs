//! Web and cache servers, ours and their peers, under `plainweave load`: what experiments share
//! that treat both alike.

use std::time::Duration;

pub(crate) mod connections;
pub(crate) mod load;
pub(crate) mod nginx;
pub(crate) mod process;
pub(crate) mod rounds;
pub(crate) mod server;
mod slices;
pub(crate) mod tails;

pub(crate) use load::{Counted, Figures, Load, What};
pub(crate) use server::{Driver, Kind, PEER, Server, Whose, one_cpu};

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
