//! What the runtime learns about the machine to size itself: CPUs, shared cores, caches and
//! sockets.

use std::fs;
use std::path::Path;

use super::MAX_WORKERS;
use crate::policy::Topology;

/// Returns the topology for `workers` workers, and spare ones if `spares`: how many processors
/// share the first one's core, last-level cache and socket, as far as the kernel reports it.
pub(super) fn topology(workers: usize, spares: bool) -> Topology {
    read(Path::new("/sys/devices/system/cpu/cpu0"), workers, spares)
}

/// Returns the topology that the files of one processor's folder describe. What is missing or makes
/// no sense, as in a container that hides it, counts as one core per worker, and one cache and one
/// socket for all.
fn read(cpu: &Path, workers: usize, spares: bool) -> Topology {
    let count = |files: &[&str]| {
        files
            .iter()
            .find_map(|file| list(&fs::read_to_string(cpu.join(file)).ok()?))
    };

    let flat = Topology {
        spares,
        ..Topology::flat(workers)
    };

    // The levels must fit into each other; virtual machines report sockets that are smaller than
    // their caches.
    let level = |found: Option<usize>, below: usize, other: usize| {
        let size = found.unwrap_or(other).clamp(1, workers.max(1));
        size.div_ceil(below) * below
    };

    let core = level(
        count(&["topology/core_cpus_list", "topology/thread_siblings_list"]),
        1,
        flat.core,
    );
    let group = level(count(&["cache/index3/shared_cpu_list"]), core, flat.group);
    let socket = level(
        count(&["topology/package_cpus_list", "topology/core_siblings_list"]),
        group,
        flat.socket,
    );
    Topology {
        core,
        group,
        socket,
        ..flat
    }
}

/// Returns the number of processors in a list like `0-3,8`; `None` if it is not one.
fn list(text: &str) -> Option<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = first.parse::<usize>().ok()?;
        let last = last.parse::<usize>().ok()?;
        Some(last.checked_sub(first)? + 1)
    };
    text.trim().split(',').map(part).sum()
}

/// Returns the number of CPUs by affinity mask and cgroup quota.
pub(super) fn available_cpus() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_WORKERS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::Distance;

    /// A processor's folder, which goes with it.
    struct Cpu(std::path::PathBuf);

    impl Cpu {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let dir =
                std::env::temp_dir().join(format!("plainweave-cpu-{name}-{}", std::process::id()));
            for (file, text) in files {
                let path = dir.join(file);
                fs::create_dir_all(path.parent().expect("in the folder"))
                    .expect("a folder for the test");
                fs::write(path, text).expect("a file for the test");
            }
            Self(dir)
        }
    }

    impl Drop for Cpu {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn levels_are_read_and_fit_into_each_other() {
        let cpu = Cpu::new(
            "levels",
            &[
                ("topology/thread_siblings_list", "0,64\n"),
                ("cache/index3/shared_cpu_list", "0-3,64-67\n"),
                ("topology/package_cpus_list", "0-31,64-95\n"),
            ],
        );
        let whole = read(&cpu.0, 128, false);
        assert_eq!((whole.core, whole.group, whole.socket), (2, 8, 64));
        let far = |a, b| whole.distance(a, b);
        assert_eq!(
            [far(5, 5), far(0, 1), far(1, 2)],
            [Distance::Same, Distance::Core, Distance::Group]
        );
        assert_eq!(
            [far(7, 8), far(63, 64)],
            [Distance::Socket, Distance::Machine]
        );

        // Few workers do not fill a cache.
        let few = read(&cpu.0, 3, false);
        assert_eq!((few.core, few.group, few.socket), (2, 4, 4));
        assert!(few.group_of(0) == (0..3) && few.distance(0, 2) == Distance::Group);
    }

    #[test]
    fn what_is_missing_or_senseless_counts_as_one_cache_for_all() {
        for text in ["", "0-", "7-3", "every second one"] {
            let cpu = Cpu::new("senseless", &[("cache/index3/shared_cpu_list", text)]);
            let topology = read(&cpu.0, 6, true);
            assert_eq!(
                (
                    topology.core,
                    topology.group,
                    topology.socket,
                    topology.spares
                ),
                (1, 6, 6, true)
            );
        }
    }
}
