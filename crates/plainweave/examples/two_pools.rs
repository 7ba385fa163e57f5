//! Two pools in one process: one answers requests, one computes. A request that computes for long
//! holds up other computations, but no request that needs none; and the computing pool, limited to
//! four fibers, makes callers wait instead of taking on more than it can do.

use std::io::{self, Write};
use std::time::Duration;

use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::time::with_timeout;

/// Builds the pools; both end when what this returns is dropped.
pub(crate) fn pools() -> io::Result<Pools> {
    let web = PoolSpec::new("web").runtime(plainweave::Runtime::builder().workers(1));
    let compute = plainweave::Runtime::builder().workers(1).policy("priority");
    Pools::build([web, PoolSpec::new("compute").runtime(compute).max_fibers(4)])
}

fn primes(below: u64) -> usize {
    (2..below)
        .filter(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0))
        .count()
}

/// Answers a request in the pool that calls this; what computes runs in `compute`.
pub(crate) fn answer(request: &str, compute: &Pool) -> io::Result<String> {
    match request.split_once(' ') {
        Some(("primes", below)) => {
            let below = below.parse().map_err(io::Error::other)?;
            // The call waits here and runs there. It may borrow, and the deadline goes with it.
            let count = with_timeout(Duration::from_secs(10), || compute.call(|| primes(below)))?;
            Ok(format!("{count} primes below {below}"))
        }
        _ => Ok(format!("{request} to you")),
    }
}

/// Answers all requests at once, and returns the answers in order.
pub(crate) fn answer_all(pools: &Pools, requests: &[&str]) -> io::Result<Vec<String>> {
    let (Some(web), Some(compute)) = (pools.get("web"), pools.get("compute")) else {
        return Err(io::Error::other("pools are missing"));
    };
    web.call(|| {
        plainweave::scope(|scope| {
            let fibers: Vec<_> = requests
                .iter()
                .map(|request| scope.spawn(move || answer(request, compute)))
                .collect();
            fibers
                .into_iter()
                .map(|fiber| fiber.join().map_err(io::Error::other)?)
                .collect()
        })
    })?
}

fn main() -> io::Result<()> {
    let answers = answer_all(
        &pools()?,
        &["hello", "primes 1000000", "good morning", "primes 1000"],
    )?;
    answers
        .iter()
        .try_for_each(|answer| writeln!(io::stdout(), "{answer}"))
}
