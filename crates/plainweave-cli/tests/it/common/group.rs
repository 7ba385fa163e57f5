//! A control group with a memory limit, for a server that is to be killed if it takes more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Removed when the value is dropped, after the processes in it have ended: declare it before them.
pub(crate) struct Group(PathBuf);

impl Group {
    /// Makes a group with this limit, or says why that cannot be done here.
    pub(crate) fn new(name: &str, bytes: usize) -> Result<Self, String> {
        let (above, file) =
            parent().ok_or("no memory controller is mounted, or not for this process")?;
        let group = above.join(format!("plainweave-{name}-{}", std::process::id()));
        let made = fs::create_dir(&group).map(|()| Self(group));
        let limited =
            made.and_then(|group| fs::write(group.0.join(file), bytes.to_string()).map(|()| group));
        limited.map_err(|error| format!("no group can be made in {}: {error}", above.display()))
    }

    /// Returns where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the command, to be run in the group from its first instruction on.
    pub(crate) fn around(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        let enter = format!(
            "echo 0 >'{}/cgroup.procs' && exec \"$0\" \"$@\"",
            self.0.display()
        );
        shell
            .arg("-c")
            .arg(enter)
            .arg(command.get_program())
            .args(command.get_args());
        for (key, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            shell.env_remove(key);
        }

        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was killed leaves it a little later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The group that ours goes into, and the file for its limit: this process's own in version 1, the
/// topmost in version 2, where a group with processes has no children with limits.
fn parent() -> Option<(PathBuf, &'static str)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let one = groups
        .lines()
        .find_map(|line| line.split_once(":memory:"))
        .map(|(_, path)| path.trim_start_matches('/'));
    mounts.lines().find_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let at = Path::new(words.get(1)?);
        let kind = *words.get(2)?;
        let options = words.get(3)?;
        let children = || fs::read_to_string(at.join("cgroup.subtree_control")).unwrap_or_default();

        match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                Some((at.join(one?), "memory.limit_in_bytes"))
            }
            "cgroup2" if children().split_whitespace().any(|name| name == "memory") => {
                Some((at.to_owned(), "memory.max"))
            }
            _ => None,
        }
    })
}

/// Lets this process have at least as many descriptors, if it may.
pub(crate) fn raise_descriptors(wanted: u64) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|now| now >= wanted) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|most| most < wanted) {
        return Err(format!(
            "{wanted} descriptors are more than this process may have"
        ));
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            ..limit
        },
    )
    .map_err(|error| error.to_string())
}
