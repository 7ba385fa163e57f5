//! What the runtime learns about the machine to size itself: CPUs and shared caches.

use super::MAX_WORKERS;
use crate::policy::Topology;

/// Returns the topology for `workers` workers, and spare ones if `spares`: how many processors share the first one's
/// last-level cache, if the kernel reports it.
pub(super) fn topology(workers: usize, spares: bool) -> Topology {
    let shared = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_map").ok();
    let bits = shared.map(|map| map.chars().filter_map(|c| c.to_digit(16)).map(u32::count_ones).sum::<u32>());
    Topology { workers, group: bits.map_or(workers, |bits| (bits as usize).clamp(1, workers)), spares }
}

/// Returns the number of CPUs by affinity mask and cgroup quota.
pub(super) fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS)
}
