//! What the figures were measured on.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
pub(crate) use plainweave_sim::{commit, profile};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Lines that every report carries.
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    let uname = rustix::system::uname();
    let cpu = first_line_of("/proc/cpuinfo", "model name");
    let memory = first_line_of("/proc/meminfo", "MemTotal");
    vec![
        ("host", uname.nodename().to_string_lossy().into_owned()),
        (
            "kernel",
            format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
        ),
        ("CPU", format!("{} x {cpu}", cpus())),
        ("memory", memory),
        ("date", output("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("commit", commit().to_owned()),
        ("profile", profile().to_owned()),
    ]
}

/// Returns the number of CPUs of the machine, not of those that this process is bound to.
pub(crate) fn cpus() -> usize {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("processor"))
        .count()
        .max(1)
}

/// Ticks of all CPUs since the machine started, and how many of them its host gave to others
/// (`steal` of proc(5)).
pub(crate) fn ticks() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split(' ')
        .filter_map(|n| n.parse().ok())
        .collect();
    [
        all.iter().take(8).sum(),
        all.get(7).copied().unwrap_or_default(),
    ]
}

/// Returns where results go unless a flag says so: `results/<date>-<host>`, or, if this program is
/// not what figures are kept of, the same below `target`.
pub(crate) fn results_dir() -> PathBuf {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let folder = if is_kept(commit(), profile()) {
        "results"
    } else {
        "target/results"
    };
    PathBuf::from(folder).join(format!("{}-{host}", output("date", &["-u", "+%F"])))
}

/// Returns whether figures of such a program can be kept: others must be able to build it, and it
/// must be as fast as it can be.
pub(crate) fn is_kept(commit: &str, profile: &str) -> bool {
    commit != "unknown" && !commit.contains(' ') && profile == "dist"
}

/// Checks a directory that a flag names for results: those that a checkout keeps come from a
/// commit, and from the profile `dist`.
pub(crate) fn out(text: &str) -> Result<PathBuf, String> {
    out_of(commit(), profile(), text)
}

fn out_of(commit: &str, profile: &str, text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let absolute = std::path::absolute(&path).map_err(|error| error.to_string())?;
    let kept = absolute
        .ancestors()
        .any(|at| at.ends_with("results") && at.with_file_name("crates/plainweave").is_dir());
    if !kept || is_kept(commit, profile) {
        return Ok(path);
    }
    Err(format!(
        "kept results come from a clean commit and the profile dist, and this program was built \
         from '{commit}' with the profile {profile}: commit, measure with cargo run --profile dist \
         -- bench, or give a folder elsewhere"
    ))
}

/// Binds the calling thread, and the threads that it starts, to one CPU. False where that is not
/// allowed.
pub(crate) fn pin_to(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Binds the calling thread, and the threads that it starts, to as many CPUs from the first on.
pub(crate) fn pin_to_first(cpus: usize) -> bool {
    let mut set = CpuSet::new();
    (0..cpus).for_each(|cpu| set.set(cpu));
    sched_setaffinity(None, &set).is_ok()
}

/// Has the kernel end this process when the thread that started it is gone, however that came
/// about.
pub(crate) fn end_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// CPU time of all threads that a process has now, to the nanosecond.
pub(crate) fn cpu_ns(pid: u32) -> anyhow::Result<u64> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).context("the server is gone")? {
        let text = match std::fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => text,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound)
                    || error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };

        total += text
            .split(' ')
            .next()
            .and_then(|ns| ns.parse::<u64>().ok())
            .context("no schedstat")?;
    }
    Ok(total)
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns whether a program can be run by its name.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn first_line_of(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with(key))
        .unwrap_or_default();
    line.split_once(':')
        .map_or(String::new(), |(_, value)| value.trim().to_owned())
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or(String::new(), |o| {
        String::from_utf8_lossy(&o.stdout).trim().to_owned()
    })
}

/// Returns a line of `/proc/self/status` in bytes, such as `VmRSS`.
pub(crate) fn status_bytes(key: &str) -> f64 {
    let line = first_line_of("/proc/self/status", key);
    line.split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        * 1024.0
}

/// Mappings of this process.
pub(crate) fn mappings() -> f64 {
    std::fs::read_to_string("/proc/self/maps").map_or(f64::NAN, |maps| maps.lines().count() as f64)
}

/// Resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> f64 {
    let line = first_line_of(&format!("/proc/{pid}/status"), "VmRSS");
    line.split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        * 1024.0
}

#[cfg(test)]
mod tests {
    use super::{is_kept, out_of};

    #[test]
    fn kept_results_come_from_a_clean_commit_in_full_optimisation() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/2026-01-01-lab");
        assert!(out_of("2bb5abd12345", "dist", kept).is_ok());
        for (commit, profile) in [
            ("unknown", "dist"),
            ("2bb5abd12345 with changes", "dist"),
            ("2bb5abd12345", "release"),
        ] {
            assert!(!is_kept(commit, profile));
            let error = out_of(commit, profile, kept).unwrap_err();
            assert!(
                error.contains(commit) && error.contains(profile) && error.contains("clean commit"),
                "{error}"
            );

            // Somebody's own folder.
            for path in ["/tmp/results/mine", "elsewhere"] {
                assert!(out_of(commit, profile, path).is_ok());
            }
        }
    }
}
