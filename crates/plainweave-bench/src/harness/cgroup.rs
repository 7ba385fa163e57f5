//! A control group around a process: its CPU time with that of kernel threads on its behalf, a
//! quota, a limit of memory, and one of reads from a disk.
//!
//! Of version 1, with a directory in each controller's hierarchy, or, where a controller is not
//! mounted so, of version 2, with one directory: below this process's own group or the nearest
//! above it that hands the controllers down (a group with processes may not, so that is seldom its
//! own). Controllers go by their names in version 1.
//!
//! Where no such group is available (no rights), callers fall back to the process's own figures.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why there is no group under a quota.
pub(crate) const NO_QUOTA: &str = "no control group with a CPU quota is available here";

/// Reads a part of a CPU, for a quota.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.01..=1.0).contains(part));
    part.ok_or("0.01 to 1".to_owned())
}

/// The directories of a group; removed at the end, when its processes have ended.
#[derive(Debug)]
pub(crate) enum Group {
    /// One in each of some controllers' hierarchies.
    V1(Vec<(&'static str, PathBuf)>),
    V2(PathBuf),
}

/// What the kernel says of hierarchies, and of the groups that this process is in.
struct Hierarchies {
    /// As proc(5) has it in `mounts`.
    mounts: String,
    /// As proc(5) has it in `cgroup`.
    groups: String,
}

impl Hierarchies {
    fn read() -> io::Result<Self> {
        Ok(Self {
            mounts: fs::read_to_string("/proc/self/mounts")?,
            groups: fs::read_to_string("/proc/self/cgroup")?,
        })
    }

    /// Returns this process's group in a controller's hierarchy of version 1.
    fn own_v1(&self, controller: &str) -> Option<PathBuf> {
        let mounted = self.mounted(|kind, options| {
            kind == "cgroup" && options.split(',').any(|option| option == controller)
        })?;
        self.own(mounted, |controllers| {
            controllers.split(',').any(|own| own == controller)
        })
    }

    /// Returns this process's group of version 2, and where that hierarchy is mounted.
    fn own_v2(&self) -> Option<(PathBuf, &Path)> {
        let mounted = self.mounted(|kind, _| kind == "cgroup2")?;
        Some((self.own(mounted, str::is_empty)?, mounted))
    }

    fn mounted(&self, is_it: impl Fn(&str, &str) -> bool) -> Option<&Path> {
        self.mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let at = words.next()?;
            let kind = words.next()?;
            let options = words.next()?;
            is_it(kind, options).then(|| Path::new(at))
        })
    }

    fn own(&self, mounted: &Path, is_it: impl Fn(&str) -> bool) -> Option<PathBuf> {
        let path = self.groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_it(controllers).then_some(path)
        })?;
        Some(mounted.join(path.trim_start_matches('/')))
    }
}

/// Returns a controller's name in version 2.
fn in_v2(controller: &str) -> &str {
    match controller {
        "cpuacct" => "cpu",
        "blkio" => "io",
        same => same,
    }
}

/// Has a group of version 2 hand these controllers down to the groups in it.
fn hands_down(dir: &Path, controllers: &[&str]) -> bool {
    let file = dir.join("cgroup.subtree_control");
    let handed = fs::read_to_string(&file).unwrap_or_default();
    controllers.iter().map(|name| in_v2(name)).all(|name| {
        handed.split_whitespace().any(|own| own == name)
            || fs::write(&file, format!("+{name}")).is_ok()
    })
}

impl Group {
    /// Makes a fresh group under this process's own.
    pub(crate) fn new(name: &str, controllers: &[&'static str]) -> io::Result<Self> {
        Self::within(&Hierarchies::read()?, name, controllers)
    }

    fn within(
        hierarchies: &Hierarchies,
        name: &str,
        controllers: &[&'static str],
    ) -> io::Result<Self> {
        let name = format!("plainweave-{}-{name}", std::process::id());
        let own: Option<Vec<_>> = controllers
            .iter()
            .map(|controller| Some((*controller, hierarchies.own_v1(controller)?)))
            .collect();
        if let Some(own) = own {
            let mut dirs = Vec::new();
            for (controller, own) in own {
                let dir = own.join(&name);
                if let Err(error) = fs::create_dir(&dir) {
                    drop(Self::V1(dirs));
                    return Err(error);
                }
                dirs.push((controller, dir));
            }
            return Ok(Self::V1(dirs));
        }

        let (own, top) = hierarchies.own_v2().ok_or(io::ErrorKind::NotFound)?;
        let mut above = own.ancestors().take_while(|dir| dir.starts_with(top));
        let parent = above.find(|dir| hands_down(dir, controllers));
        let dir = parent.ok_or(io::ErrorKind::NotFound)?.join(name);
        fs::create_dir(&dir)?;

        Ok(Self::V2(dir))
    }

    /// Makes a fresh group for a system, under a quota that `limit` sets. `None`: [`NO_QUOTA`].
    pub(crate) fn under_quota(
        purpose: &str,
        system: &str,
        limit: impl FnOnce(&Self) -> io::Result<()>,
    ) -> Option<Self> {
        let group = Self::new(
            &format!("{purpose}-{}", system.replace(' ', "-")),
            &["cpu", "cpuacct"],
        )
        .ok()?;
        limit(&group).ok()?;
        Some(group)
    }

    /// Returns the command, to be run in the group from its first instruction on.
    pub(crate) fn around(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        let enter = self
            .dirs()
            .map(|dir| format!("echo 0 >{}/cgroup.procs && ", dir.display()));
        shell
            .arg("-c")
            .arg(enter.collect::<String>() + "exec \"$0\" \"$@\"");
        shell.arg(command.get_program()).args(command.get_args());

        for (key, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }

        shell
    }

    /// CPU time of all that ever ran in it, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> io::Result<u64> {
        match self {
            Self::V1(_) => number(&self.get("cpuacct", "cpuacct.usage")?),
            Self::V2(_) => {
                let text = self.get("cpu", "cpu.stat")?;
                let used = text
                    .lines()
                    .find_map(|line| line.strip_prefix("usage_usec "));
                Ok(number(used.unwrap_or_default())? * 1000)
            }
        }
    }

    /// At most this share of one CPU, in periods of 100 ms.
    pub(crate) fn limit(&self, share: f64) -> io::Result<()> {
        self.limit_in(share, 100_000)
    }

    /// The same in shorter periods, so that whoever has used up its quota waits less for the next:
    /// of 10 ms, or longer where the quota would be less than the kernel's least, a millisecond.
    pub(crate) fn limit_finely(&self, share: f64) -> io::Result<()> {
        self.limit_in(share, (1000.0 / share).max(10_000.0) as u64)
    }

    /// At most this share of one CPU, in periods of that many microseconds.
    fn limit_in(&self, share: f64, period: u64) -> io::Result<()> {
        let quota = (share * period as f64).ceil() as u64;
        match self {
            Self::V1(_) => {
                self.set("cpu", "cpu.cfs_period_us", &period.to_string())?;
                self.set("cpu", "cpu.cfs_quota_us", &quota.to_string())
            }
            Self::V2(_) => self.set("cpu", "cpu.max", &format!("{quota} {period}")),
        }
    }

    /// Makes a fresh group with this many bytes of memory, and this many bytes a second to read
    /// from the disk that `at` lies on. `None`: not available here.
    pub(crate) fn confined(name: &str, at: &Path, memory: usize, disk: u64) -> Option<Self> {
        let group = Self::new(name, &["cpuacct", "memory", "blkio"]).ok()?;
        group.limit_memory(memory).ok()?;
        group.throttle(at, disk).ok()?;
        Some(group)
    }

    /// At most this many bytes of memory, the pages of files among them that its processes touched
    /// first.
    pub(crate) fn limit_memory(&self, bytes: usize) -> io::Result<()> {
        let file = match self {
            Self::V1(_) => "memory.limit_in_bytes",
            Self::V2(_) => "memory.max",
        };
        self.set("memory", file, &bytes.to_string())
    }

    /// At most this many bytes a second from the disk that `at` lies on.
    pub(crate) fn throttle(&self, at: &Path, bytes: u64) -> io::Result<()> {
        let device = fs::metadata(at)?.dev();
        let major = rustix::fs::major(device);
        let minor = rustix::fs::minor(device);

        match self {
            Self::V1(_) => self.set(
                "blkio",
                "blkio.throttle.read_bps_device",
                &format!("{major}:{minor} {bytes}"),
            ),
            Self::V2(_) => self.set("blkio", "io.max", &format!("{major}:{minor} rbps={bytes}")),
        }
    }

    /// Bytes that it has read from disks.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        // A line a disk and a kind of operation, 254:0 Read 4096; or a disk: 254:0 rbytes=4096 ...
        let (text, read) = match self {
            Self::V1(_) => (
                self.get("blkio", "blkio.throttle.io_service_bytes")?,
                " Read ",
            ),
            Self::V2(_) => (self.get("blkio", "io.stat")?, " rbytes="),
        };

        let bytes = |line: &str| {
            let rest = line.split_once(read)?.1;
            rest.split(' ').next()?.trim().parse::<u64>().ok()
        };

        Ok(text.lines().filter_map(bytes).sum())
    }

    /// Writes one of a controller's files.
    fn set(&self, controller: &str, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.dir(controller).join(file), value)
    }

    /// Reads one.
    fn get(&self, controller: &str, file: &str) -> io::Result<String> {
        fs::read_to_string(self.dir(controller).join(file))
    }

    fn dir(&self, controller: &str) -> &Path {
        match self {
            Self::V1(dirs) => dirs
                .iter()
                .find(|(name, _)| *name == controller)
                .map_or(Path::new(""), |(_, dir)| dir),
            Self::V2(dir) => dir,
        }
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        let (several, one) = match self {
            Self::V1(dirs) => (&dirs[..], None),
            Self::V2(dir) => (&[][..], Some(dir.as_path())),
        };
        several.iter().map(|(_, dir)| dir.as_path()).chain(one)
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.trim()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in self.dirs() {
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that stands for a hierarchy, and goes away with the test.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir();
            let root = root.join(format!("plainweave-cgroup-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("user/session")).unwrap();
            Self(root)
        }

        fn hierarchies(&self) -> Hierarchies {
            Hierarchies {
                mounts: format!(
                    "proc /proc proc rw 0 0\ncgroup2 {} cgroup2 rw,nsdelegate 0 0\n",
                    self.0.display()
                ),
                groups: "0::/user/session\n".to_owned(),
            }
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_group_of_version_2_lies_where_its_controllers_are_handed_down() {
        let root = Root::new("v2");
        let control = |dir: &str| root.0.join(dir).join("cgroup.subtree_control");
        // Its own group has processes, so that the kernel refuses this; a directory does too.
        fs::create_dir(control("user/session")).unwrap();
        fs::write(control("user"), "cpu io memory pids\n").unwrap();
        let controllers = ["cpuacct", "memory", "blkio"];
        let group = Group::within(&root.hierarchies(), "x", &controllers).unwrap();
        let dir = group.dir("cpu").to_owned();

        assert_eq!(dir.parent(), Some(root.0.join("user").as_path()));

        // The kernel makes these.
        fs::write(dir.join("cpu.stat"), "usage_usec 1234\nuser_usec 1000\n").unwrap();
        fs::write(
            dir.join("io.stat"),
            "254:0 rbytes=4096 wbytes=1 rios=1\n8:0 rbytes=10 wbytes=0\n",
        )
        .unwrap();
        assert_eq!(group.cpu_ns().unwrap(), 1_234_000);
        assert_eq!(group.disk_bytes().unwrap(), 4106);
        group.limit(0.25).unwrap();
        group.limit_memory(1 << 20).unwrap();
        group.throttle(&dir, 500).unwrap();
        let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap();

        assert_eq!(read("cpu.max"), "25000 100000");
        assert_eq!(read("memory.max"), "1048576");
        assert!(read("io.max").ends_with(" rbps=500"));
        group.limit_finely(0.01).unwrap();
        assert_eq!(read("cpu.max"), "1000 100000");

        let command = group.around(&Command::new("true"));
        let script = command.get_args().nth(1).unwrap().to_str().unwrap();
        assert_eq!(script.matches("cgroup.procs").count(), 1, "{script}");
    }

    #[test]
    fn without_the_controllers_there_is_no_group() {
        let root = Root::new("none");
        for dir in ["", "user", "user/session"] {
            fs::create_dir(root.0.join(dir).join("cgroup.subtree_control")).unwrap();
        }
        let group = Group::within(&root.hierarchies(), "x", &["cpu"]);
        assert_eq!(group.unwrap_err().kind(), io::ErrorKind::NotFound);
        let nowhere = Hierarchies {
            mounts: String::new(),
            ..root.hierarchies()
        };

        assert!(Group::within(&nowhere, "x", &["cpu"]).is_err());
    }
}
