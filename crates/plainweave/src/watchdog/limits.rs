//! How many more threads the system lets the runtime start. A spare worker without a driver takes
//! no descriptor, but a thread and some mappings of memory; the program and others need some too,
//! so half of what is left stays theirs.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// The part of the limit on mappings that spare workers may take together, and how many mappings
/// one takes: its stack, the stack of its signal handlers, and a guard each.
const MAPPINGS_SHARE: u64 = 4;
const MAPPINGS: u64 = 4;

/// How many more threads may start, and what says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) threads: usize,
    pub(super) limit: &'static str,
}

impl Room {
    /// Returns the room that the kernel's settings leave now. A limit that cannot be read counts as
    /// none.
    pub(super) fn now() -> Self {
        let users = getrlimit(Resource::Nproc).current;
        let limits = [
            (
                users.map(|most| most / 2),
                "the limit on the user's threads (RLIMIT_NPROC, ulimit -u)",
            ),
            (
                left_by_cgroups(Path::new("/sys/fs/cgroup")),
                "the control group's pids.max",
            ),
            (
                number(Path::new("/proc/sys/kernel/threads-max")).map(|most| most / 2),
                "kernel.threads-max",
            ),
            (
                number(Path::new("/proc/sys/vm/max_map_count"))
                    .map(|most| most / MAPPINGS_SHARE / MAPPINGS),
                "vm.max_map_count",
            ),
        ];
        let known = limits
            .into_iter()
            .filter_map(|(most, limit)| Some((most?, limit)));
        let (threads, limit) = known.min().unwrap_or((u64::MAX, "no limit"));

        Self {
            threads: usize::try_from(threads).unwrap_or(usize::MAX),
            limit,
        }
    }
}

/// Returns half of what the process's control groups, and those above them, leave.
fn left_by_cgroups(root: &Path) -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    own.lines()
        .filter_map(|line| folder(root, line))
        .filter_map(|(top, own)| left_below(&top, &own))
        .min()
}

/// Returns where the hierarchy of this line of cgroup(7)'s file is mounted, and the process's own
/// folder in it; `None` if it does not limit threads.
fn folder(root: &Path, line: &str) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next()?;
    let path = fields.next()?;
    let top = match controllers {
        "" => root.to_owned(),
        "pids" => root.join("pids"),
        _ => return None,
    };

    let own = top.join(path.trim_start_matches('/'));
    Some((top, own))
}

fn left_below(top: &Path, own: &Path) -> Option<u64> {
    let groups = own.ancestors().take_while(|group| group.starts_with(top));
    let left = groups.filter_map(|group| {
        let most = number(&group.join("pids.max"))?;
        Some(most.saturating_sub(number(&group.join("pids.current")).unwrap_or(0)) / 2)
    });
    left.min()
}

/// Returns the number in a file; `None` if there is none, or the word for no limit.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_limits() {
        let room = Room::now();
        assert!(room.threads > 0 && room.limit != "no limit", "{room:?}");
    }

    #[test]
    fn every_group_above_counts() {
        let root = std::env::temp_dir().join(format!("plainweave-pids-{}", std::process::id()));
        let own = root.join("pids/outer/inner");
        fs::create_dir_all(&own).expect("a folder");
        let write = |group: &Path, most: &str, now: &str| {
            fs::write(group.join("pids.max"), most).expect("a file");
            fs::write(group.join("pids.current"), now).expect("a file");
        };

        write(&own, "max\n", "3\n");
        write(&root.join("pids/outer"), "100\n", "40\n");
        let found = folder(&root, "8:pids:/outer/inner");
        assert_eq!(found, Some((root.join("pids"), own.clone())));
        let (top, own) = found.expect("as above");
        assert_eq!(left_below(&top, &own), Some(30));
        write(&own, "50\n", "60\n");
        assert_eq!(left_below(&top, &own), Some(0));
        assert_eq!(
            folder(&root, "0::/x").map(|(_, own)| own),
            Some(root.join("x"))
        );
        assert_eq!(folder(&root, "4:memory:/x"), None);
        fs::remove_dir_all(&root).expect("removed");
    }
}
