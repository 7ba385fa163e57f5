//! A control group of version 1 around a process: its CPU time with that of kernel threads on its
//! behalf, and a quota.
//!
//! Where no such group is available (no rights, version 2), callers fall back to the process's own
//! figures.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why there is no group under a quota.
pub(crate) const NO_QUOTA: &str = "no cgroup of version 1 with a CPU quota is available here";

/// Reads a part of a CPU, for a quota.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.01..=1.0).contains(part));
    part.ok_or("0.01 to 1".to_owned())
}

/// A directory in each of some controllers' hierarchies; removed at the end, when its processes
/// have ended.
#[derive(Debug)]
pub(crate) struct Group {
    dirs: Vec<(&'static str, PathBuf)>,
}

impl Group {
    /// Makes a fresh group under this process's own.
    pub(crate) fn new(name: &str, controllers: &[&'static str]) -> io::Result<Self> {
        let mut group = Self { dirs: Vec::new() };
        for controller in controllers {
            let dir = own(controller)?.join(format!("plainweave-{}-{name}", std::process::id()));
            fs::create_dir(&dir)?;
            group.dirs.push((controller, dir));
        }
        Ok(group)
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
            .dirs
            .iter()
            .map(|(_, dir)| format!("echo 0 >{}/cgroup.procs && ", dir.display()));
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
        self.get("cpuacct", "cpuacct.usage")
    }

    /// At most this share of one CPU, in periods of 100 ms.
    pub(crate) fn limit(&self, share: f64) -> io::Result<()> {
        let quota = (share * 100_000.0) as u64;
        self.set("cpu", "cpu.cfs_quota_us", &quota.to_string())
    }

    /// The same in shorter periods, so that whoever has used up its quota waits less for the next:
    /// of 10 ms, or longer where the quota would be less than the kernel's least, a millisecond.
    pub(crate) fn limit_finely(&self, share: f64) -> io::Result<()> {
        let period = (1000.0 / share).max(10_000.0);
        self.set("cpu", "cpu.cfs_period_us", &(period as u64).to_string())?;
        self.set(
            "cpu",
            "cpu.cfs_quota_us",
            &((share * period).ceil() as u64).to_string(),
        )
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
        self.set("memory", "memory.limit_in_bytes", &bytes.to_string())
    }

    /// At most this many bytes a second from the disk that `at` lies on.
    pub(crate) fn throttle(&self, at: &Path, bytes: u64) -> io::Result<()> {
        let device = fs::metadata(at)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        self.set(
            "blkio",
            "blkio.throttle.read_bps_device",
            &format!("{major}:{minor} {bytes}"),
        )
    }

    /// Bytes that it has read from disks.
    pub(crate) fn disk_bytes(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.dir("blkio").join("blkio.throttle.io_service_bytes"))?;
        // A line a disk and a kind of operation: 254:0 Read 4096.
        let read = |line: &str| line.split_once(" Read ")?.1.trim().parse::<u64>().ok();
        Ok(text.lines().filter_map(read).sum())
    }

    /// Writes one of a controller's files.
    pub(crate) fn set(&self, controller: &str, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.dir(controller).join(file), value)
    }

    /// Reads one that holds a number.
    pub(crate) fn get(&self, controller: &str, file: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.dir(controller).join(file))?;
        text.trim()
            .parse()
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn dir(&self, controller: &str) -> &Path {
        self.dirs
            .iter()
            .find(|(name, _)| *name == controller)
            .map_or(Path::new(""), |(_, dir)| dir)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, dir) in &self.dirs {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// This process's group in a controller's hierarchy.
fn own(controller: &str) -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, at, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        (kind == "cgroup" && options.split(',').any(|option| option == controller)).then_some(at)
    });
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers
            .split(',')
            .any(|c| c == controller)
            .then_some(path)
    });
    match (mounted, path) {
        (Some(at), Some(path)) => Ok(Path::new(at).join(path.trim_start_matches('/'))),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}
