//! How much memory the process may take: the least limit of its control group and of the groups
//! above it, or else the machine's memory. A process beyond the first is killed, so the servers
//! derive from it how much they take on.
//!
//! `/proc/self/cgroup` names the group in each hierarchy, `/proc/self/mountinfo` says where a
//! hierarchy is mounted. A container may see a part of it only: then the mount's root is the
//! container's group, and limits above it are out of sight. Both versions are read, for a machine
//! may mount both; the memory controller is in one of them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes in a kibibyte.
pub const KIB: u64 = 1 << 10;
/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;

/// Returns a number of things as the machine counts them; more than it can count is the most that
/// it can.
pub fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Version 1 says "no limit" by a number near `i64::MAX`, rounded to pages.
const UNLIMITED: u64 = 1 << 62;

/// A bound on the process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The most that the process may take.
    pub bytes: u64,
    source: Source,
    /// Whether the group's version counts sockets, whoever has set the limit.
    counts_sockets: bool,
}

/// Where a limit was found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Flag,
    /// This file of a control group.
    Group(PathBuf, Version),
    Machine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The file of a group that holds its limit.
    fn file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }
}

impl MemoryLimit {
    /// Returns the limit that a flag gives, or else the one that is found. `None`: the flag is 0,
    /// or there is no telling.
    pub fn choose(flag: Option<u64>) -> Option<Self> {
        // Something may be mounted at a path that is not UTF-8.
        let text = |path: &Path| {
            fs::read(path)
                .ok()
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };

        let read = |path: &str| text(Path::new(path)).unwrap_or_default();
        let found = find(
            &read("/proc/self/cgroup"),
            &read("/proc/self/mountinfo"),
            &read("/proc/meminfo"),
            text,
        );
        match flag {
            Some(0) => None,
            Some(bytes) => Some(Self {
                bytes,
                source: Source::Flag,
                counts_sockets: found.is_some_and(|found| found.counts_sockets),
            }),
            None => found,
        }
    }

    /// Returns whether going beyond it gets the process killed, as far as is known.
    pub fn is_hard(&self) -> bool {
        self.source != Source::Machine
    }

    /// Returns whether the kernel's buffers of sockets count against it. Version 1 counts them by
    /// themselves (`memory.kmem.tcp.usage_in_bytes`), and kills nobody for them.
    pub fn counts_sockets(&self) -> bool {
        self.counts_sockets
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            bytes if bytes >= 10 << 30 => write!(f, "{} GiB", bytes >> 30)?,
            bytes => write!(f, "{} MiB", bytes >> 20)?,
        }

        match &self.source {
            Source::Flag => f.write_str(" (--max-memory)"),
            Source::Group(file, _) => write!(f, " ({})", file.display()),
            Source::Machine => f.write_str(" (the machine's memory)"),
        }
    }
}

/// Finds the limit in these files' texts; `read` returns the text of a group's file, if it is
/// there.
fn find(
    cgroup: &str,
    mountinfo: &str,
    meminfo: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<MemoryLimit> {
    let machine = total_memory(meminfo).map(|bytes| MemoryLimit {
        bytes,
        source: Source::Machine,
        counts_sockets: false,
    });

    let limits = mountinfo
        .lines()
        .filter_map(Mount::parse)
        .flat_map(|mount| mount.files(cgroup))
        .filter_map(|(file, version)| {
            // "max" is no number.
            let bytes = read(&file)?
                .trim()
                .parse()
                .ok()
                .filter(|bytes| *bytes < UNLIMITED)?;
            let counts_sockets = version == Version::Two;
            Some(MemoryLimit {
                bytes,
                source: Source::Group(file, version),
                counts_sockets,
            })
        });

    // Of equal ones the first: the group's own before those above it, the machine's only if there
    // is no other.
    limits.chain(machine).min_by_key(|limit| limit.bytes)
}

/// A hierarchy that may have the memory controller, or a part of one, as it is mounted.
struct Mount {
    version: Version,
    /// The group that is at the mount point.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Reads a line of mountinfo: `id parent device root point options [tags] - type source
    /// options`.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let before = before.split(' ').collect::<Vec<_>>();
        let mut after = after.split(' ');
        let kind = after.next()?;
        let options = after.nth(1)?;
        let version = match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
            "cgroup2" => Version::Two,
            _ => return None,
        };

        let path = |n: usize| before.get(n).map(|text| PathBuf::from(unescaped(text)));
        Some(Self {
            version,
            root: path(3)?,
            point: path(4)?,
        })
    }

    /// Returns the files with the limits of the process's group and of those above it, up to the
    /// mount point.
    fn files(self, cgroup: &str) -> Vec<(PathBuf, Version)> {
        let group = cgroup.lines().find_map(|line| {
            let (id, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let ours = match self.version {
                Version::One => controllers
                    .split(',')
                    .any(|controller| controller == "memory"),
                Version::Two => id == "0" && controllers.is_empty(),
            };

            ours.then_some(path)
        });

        let Some(group) = group else {
            return Vec::new();
        };
        // What is not beneath the root is outside this view: what can be seen is the mount point.
        let inside = Path::new(group).strip_prefix(&self.root).ok();
        let inside = inside
            .filter(|path| !path.starts_with(".."))
            .unwrap_or(Path::new(""));
        inside
            .ancestors()
            .map(|part| {
                (
                    self.point.join(part).join(self.version.file()),
                    self.version,
                )
            })
            .collect()
    }
}

/// Decodes `\040` and the like, as mountinfo writes blanks.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code.into());
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }

    plain
}

/// Returns the `MemTotal` of meminfo, in bytes.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       24683776 kB\nMemFree:        22711000 kB\n";
    const TOTAL: u64 = 24_683_776 << 10;
    /// A machine with systemd and version 2 only.
    const V2: &str = "\
23 30 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
";
    /// Both versions at once; the memory controller is with the first.
    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const HYBRID_GROUPS: &str = "9:name=systemd:/\n4:memory:/jobs/one\n2:cpuacct:/\n0::/\n";

    /// The limit where these files are.
    fn found(cgroup: &str, mountinfo: &str, files: &[(&str, &str)]) -> (u64, String) {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| format!("{text}\n"))
        };

        let limit = find(cgroup, mountinfo, MEMINFO, read).unwrap();
        let source = match &limit.source {
            Source::Group(file, _) => file.display().to_string(),
            other => format!("{other:?}"),
        };

        (limit.bytes, source)
    }

    #[test]
    fn version_2_has_the_least_limit_of_all_groups_above() {
        let groups = "0::/system.slice/web.service\n";
        let own = "/sys/fs/cgroup/system.slice/web.service/memory.max";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";

        for (texts, bytes, source) in [
            ([(own, "41943040"), (slice, "max")], 41_943_040, own),
            ([(own, "41943040"), (slice, "20971520")], 20_971_520, slice),
            ([(own, "max"), (slice, "20971520")], 20_971_520, slice),
            ([(own, "41943040"), (slice, "41943040")], 41_943_040, own),
            ([(own, "max"), (slice, "max")], TOTAL, "Machine"),
        ] {
            assert_eq!(
                found(groups, V2, &texts),
                (bytes, source.to_owned()),
                "{texts:?}"
            );
        }

        // The root has no such file, and a machine without the controller has none at all.
        assert_eq!(found(groups, V2, &[]).0, TOTAL);
    }

    #[test]
    fn a_container_of_version_2_sees_its_group_as_the_root() {
        let file = "/sys/fs/cgroup/memory.max";
        assert_eq!(
            found("0::/\n", V2, &[(file, "536870912")]),
            (512 << 20, file.to_owned())
        );
        // Without a namespace of its own: the mount is of the container's group, the path leads
        // from the real root.
        let bound = V2.replace("0:30 / /sys", "0:30 /docker/0a1b /sys");
        assert_eq!(
            found("0::/docker/0a1b\n", &bound, &[(file, "536870912")]),
            (512 << 20, file.to_owned())
        );
        let child = "/sys/fs/cgroup/child/memory.max";

        assert_eq!(
            found(
                "0::/docker/0a1b/child\n",
                &bound,
                &[(child, "9"), (file, "10")]
            ),
            (9, child.to_owned())
        );

        // Entered from outside, or in a group that this mount does not show.
        for groups in ["0::/../other\n", "0::/docker/else\n"] {
            assert_eq!(
                found(groups, &bound, &[(file, "536870912")]),
                (512 << 20, file.to_owned()),
                "{groups}"
            );
        }
    }

    #[test]
    fn version_1_is_found_beside_version_2() {
        let own = "/sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes";
        let jobs = "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes";
        let root = "9223372036854771712";
        let top = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", root);
        let limit = |one, two| found(HYBRID_GROUPS, HYBRID, &[(own, one), (jobs, two), top]);
        assert_eq!(limit("41943040", root), (40 << 20, own.to_owned()));
        assert_eq!(limit("41943040", "1048576"), (1 << 20, jobs.to_owned()));
        assert_eq!(limit(root, root), (TOTAL, "Machine".to_owned()));

        // More than there is.
        assert_eq!(limit("1099511627776", root), (TOTAL, "Machine".to_owned()));
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        let no = |_: &Path| None;
        assert_eq!(find("", "", "", no), None);
        assert_eq!(
            find(
                "nonsense\n4:memory\n",
                "1 2 - cgroup2\n - \nx - cgroup cgroup rw,memory\n",
                "",
                no
            ),
            None
        );
        assert_eq!(find("", "", MEMINFO, no).unwrap().bytes, TOTAL);

        for text in ["", "-1", "40M", "max"] {
            assert_eq!(
                found("0::/\n", V2, &[("/sys/fs/cgroup/memory.max", text)]).0,
                TOTAL,
                "{text}"
            );
        }
    }

    #[test]
    fn names_with_blanks_are_decoded() {
        assert_eq!(unescaped(r"/mnt/a\040b\134c\09"), r"/mnt/a b\c\09");
        let mounts = r"35 24 0:30 / /mnt/my\040groups rw - cgroup2 none rw";
        let file = "/mnt/my groups/a b/memory.max";
        assert_eq!(
            found("0::/a b\n", mounts, &[(file, "4096")]),
            (4096, file.to_owned())
        );
    }

    #[test]
    fn a_flag_comes_first_and_0_is_none() {
        assert_eq!(MemoryLimit::choose(Some(0)), None);
        let given = MemoryLimit::choose(Some(40 << 20)).unwrap();
        assert_eq!(
            (given.to_string(), given.is_hard()),
            ("40 MiB (--max-memory)".to_owned(), true)
        );

        // This machine says something.
        assert!(MemoryLimit::choose(None).is_some_and(|limit| limit.bytes > 0));
    }

    #[test]
    fn sockets_count_in_version_2_alone() {
        let limit = |mountinfo, groups| {
            find(groups, mountinfo, MEMINFO, |_| Some("4096".to_owned())).unwrap()
        };
        assert!(
            limit(V2, "0::/\n").counts_sockets() && !limit(HYBRID, HYBRID_GROUPS).counts_sockets()
        );
        let machine = find("", "", MEMINFO, |_| None).unwrap();
        assert!(!machine.counts_sockets() && !machine.is_hard());
        assert_eq!(machine.to_string(), "23 GiB (the machine's memory)");
    }
}
