//! How busy each worker is.

use std::fs;

use serde_json::{Value, json};

use crate::architecture::Runtimes;

/// Returns the workers of all runtimes: for each its name and, since it started, the seconds that
/// it had a processor and those that it waited for one; the page makes shares of them. The kernel
/// counts both for each thread (`schedstat` in proc(5)); without it, as in some sandboxes, they are
/// `null`. The scheduler counts the rest.
pub(super) fn workers(runtimes: &Runtimes) -> Vec<Value> {
    let mut workers = Vec::new();
    for (name, runtime) in runtimes.named() {
        let regular = runtime.workers();
        let counts = runtime.metrics().workers;
        for (number, thread) in runtime.worker_threads() {
            let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"))
                .unwrap_or_default();
            let times = times(&text);
            let counts = counts.iter().find(|counts| counts.worker == number);
            let name = [name.as_str(), &number.to_string()].join(" ");
            workers.push(json!({
                "name": name.trim_start(),
                "spare": number >= regular,
                "busy": times.map(|(busy, _)| busy),
                "waiting": times.map(|(_, waiting)| waiting),
                "switches": counts.map(|counts| counts.switches),
                "stolen": counts.map(|counts| counts.policy.stolen),
            }));
        }
    }
    workers
}

/// Returns the first two numbers, nanoseconds, in seconds.
fn times(schedstat: &str) -> Option<(f64, f64)> {
    let mut numbers = schedstat
        .split_ascii_whitespace()
        .map(|word| word.parse::<u64>().ok());
    let busy = numbers.next()??;
    let waiting = numbers.next()??;
    Some((busy as f64 / 1e9, waiting as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_times() {
        assert_eq!(times("1500000000 500000000 7\n"), Some((1.5, 0.5)));
        assert_eq!([times(""), times("1"), times("x 1 1")], [None; 3]);
    }
}
