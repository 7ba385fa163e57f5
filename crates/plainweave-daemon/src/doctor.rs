//! `--doctor`: what this machine allows a server with these flags, and what to change.
//!
//! A finding is good, worth a note (the server does without), or bad (it would not start, or not do
//! what its flags ask for). What the flags name is opened as for serving, and closed again.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use plainweave::{Runtime, Storage};
use rustix::process::{Resource, geteuid, getrlimit};

use crate::console::say;
use crate::engine::Io;
use crate::memory_limit::MemoryLimit;
use crate::mode::Mode;

/// The flag.
#[derive(Args, Clone, Copy, Debug)]
pub struct DoctorFlags {
    /// Say what this machine allows a server with these flags, and what to change, instead of
    /// serving; the exit code is 1 if it would not start or not do what is asked for
    #[arg(long, help_heading = "Messages")]
    pub doctor: bool,
}

/// What a server is asked to do, and what came of trying.
#[derive(Debug)]
pub struct ServerPlan {
    /// What the flags and the files that they name say, or what is wrong with them.
    pub flags: anyhow::Result<String>,
    /// Where it listens, or why it cannot.
    pub listening: anyhow::Result<String>,
    /// Where a server is to be taken over from.
    pub replace: Option<PathBuf>,
    /// Connections at a time that there is room for.
    pub connections: usize,
    /// The same, if a flag says how many.
    pub asked_connections: Option<usize>,
    /// Connections that are to wait in the kernel, if the server says how many.
    pub backlog: Option<u32>,
    /// Whether that is nobody's wish.
    pub is_usual_backlog: bool,
    /// Worker threads.
    pub workers: usize,
    /// The driver, if a flag names one.
    pub io: Option<Io>,
    /// When fibers move, and whose storage they see.
    pub mode: Mode,
    /// Memory to stay within.
    pub memory: Option<MemoryLimit>,
    /// What is wrong with that for what it is to hold, with the remedy.
    pub shortage: Option<String>,
    /// The user that root becomes.
    pub user: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Diagnosis {
    severity: Severity,
    what: &'static str,
    found: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Good,
    Note,
    Bad,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Bad => "BAD",
        })
    }
}

impl Diagnosis {
    fn new(severity: Severity, what: &'static str, found: impl Into<String>) -> Self {
        let found = found.into();
        Self {
            severity,
            what,
            found,
        }
    }

    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self::new(Severity::Good, what, found)
    }

    fn note(what: &'static str, found: impl Into<String>) -> Self {
        Self::new(Severity::Note, what, found)
    }

    fn bad(what: &'static str, found: impl Into<String>) -> Self {
        Self::new(Severity::Bad, what, found)
    }
}

/// Examines the machine, and prints a line for each finding.
///
/// # Errors
/// Something is bad; how many findings are.
pub fn examine(plan: &ServerPlan) -> anyhow::Result<()> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let mut findings = machine(&read, plan.workers);
    findings.push(driver(plan.io));
    findings.push(storage(plan.mode));
    findings.push(memory(plan, MemoryLimit::choose(None).as_ref()));
    findings.push(descriptors(plan));
    findings.push(backlog(plan, &read));
    findings.push(user(plan, geteuid().is_root()));
    findings.push(confinement(crate::confinement::is_available()));
    findings.push(tried("flags", &plan.flags));
    let is_answered = plan.replace.as_deref().map(is_answered);
    findings.push(listening(&plan.listening, is_answered));

    let width = findings.iter().map(|one| one.what.len()).max().unwrap_or(0);
    for Diagnosis {
        severity,
        what,
        found,
    } in &findings
    {
        say(
            io::stdout(),
            &format!("{severity:4}  {what:width$}  {found}"),
        );
    }
    let bad = findings.iter().filter(|one| one.severity == Severity::Bad);
    match bad.count() {
        0 => Ok(()),
        1 => bail!("one thing is to be changed (BAD above)"),
        count => bail!("{count} things are to be changed (BAD above)"),
    }
}

/// What does not depend on the flags.
fn machine(read: &dyn Fn(&str) -> Option<String>, workers: usize) -> Vec<Diagnosis> {
    let text = |path: &str| read(path).map(|text| text.trim().to_owned());
    let number = |path: &str| text(path)?.parse::<u64>().ok();
    let release = text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = version(&release);
    let maps = number("/proc/sys/vm/max_map_count").unwrap_or(0);
    let mut findings = vec![match version {
        _ if version >= (6, 13) => Diagnosis::good("kernel", format!("Linux {release}")),
        // Each guard page of a fiber's stack then is two more areas of memory.
        _ if version >= (5, 9) => Diagnosis::note(
            "kernel",
            format!(
                "Linux {release}: before 6.13 vm.max_map_count ({maps}) bounds fibers, to about \
                 {} (sysctl -w \
                 vm.max_map_count=1000000, or a newer kernel)",
                maps / 2
            ),
        ),
        _ => Diagnosis::note(
            "kernel",
            format!(
                "Linux {release}: before 5.9 fibers have no thread-local storage of their own, \
                 and before 5.19 there \
                     is no io_uring for them (use a newer one)"
            ),
        ),
    }];

    let cpus = text("/proc/cpuinfo").map_or(0, |text| text.matches("\nprocessor").count() + 1);
    let s = if workers == 1 { "" } else { "s" };
    findings.push(Diagnosis::good(
        "processors",
        format!("{workers} worker{s} on {cpus}"),
    ));

    let clock = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let clock = clock.unwrap_or_else(|| "unknown".to_owned());
    findings.push(match &*clock {
        "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" => Diagnosis::good("clock", clock),
        _ => Diagnosis::note(
            "clock",
            format!(
                "{clock}: each look at it may be a system call (boot with clocksource=tsc if the \
                 processor's is reliable)"
            ),
        ),
    });

    if text("/proc/sys/vm/overcommit_memory").as_deref() == Some("2") {
        findings.push(Diagnosis::note(
            "overcommit",
            "none (vm.overcommit_memory=2): stacks count in full when they are mapped, not as \
             they are used \
             (sysctl -w vm.overcommit_memory=0)",
        ));
    }
    if let Some(bytes) = getrlimit(Resource::As).current {
        findings.push(Diagnosis::note(
            "address space",
            format!(
                "limited to {} MiB (ulimit -v): less room for stacks, and one arena for all \
                 threads below 1 GiB \
                 (ulimit -v unlimited; bound memory by a control group)",
                bytes >> 20
            ),
        ));
    }
    findings
}

/// Reads the two first numbers of a kernel's release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    (next().unwrap_or(0), next().unwrap_or(0))
}

fn driver(asked: Option<Io>) -> Diagnosis {
    let what = "driver";
    if asked == Some(Io::Epoll) {
        return Diagnosis::good(what, "epoll (--io, or its default)");
    }
    let started = Runtime::builder()
        .workers(1)
        .io(plainweave::Io::Uring)
        .build();
    let remedy =
        "sysctl -w kernel.io_uring_disabled=0; in a container, a seccomp profile that allows it";
    match (started, asked) {
        (Ok(_), _) => Diagnosis::good(what, "io_uring"),
        (Err(why), Some(_)) => Diagnosis::bad(
            what,
            format!("io_uring is asked for and not available: {why} ({remedy}; or leave --io out)"),
        ),
        (Err(why), None) => Diagnosis::note(what, format!("epoll, for {why} ({remedy})")),
    }
}

fn storage(mode: Mode) -> Diagnosis {
    let what = "thread-local storage";
    match (mode.storage, Storage::Own.supported()) {
        (Storage::Own, Ok(())) => Diagnosis::good(what, "each fiber's own"),
        (Storage::Own, Err(why)) => Diagnosis::bad(
            what,
            format!(
                "--mode asks for each fiber's own: {why} (leave --mode out, or say \
                 before-start/shared)"
            ),
        ),
        (_, Err(why)) => Diagnosis::note(
            what,
            format!("the workers', so a fiber that holds up its worker holds up others: {why}"),
        ),
        _ => Diagnosis::good(what, "the workers' (--mode, or its default)"),
    }
}

/// `found`: what there is, whatever a flag says.
fn memory(plan: &ServerPlan, found: Option<&MemoryLimit>) -> Diagnosis {
    let what = "memory";
    match (&plan.shortage, &plan.memory) {
        (Some(shortage), _) => Diagnosis::bad(what, shortage.clone()),
        (None, Some(limit)) => match found.filter(|found| found.bytes < limit.bytes) {
            Some(found) => Diagnosis::bad(
                what,
                format!("{limit} is more than there is, {found} (leave --max-memory out)"),
            ),
            None if limit.is_hard() => Diagnosis::good(what, limit.to_string()),
            None => Diagnosis::good(what, format!("{limit}, no limit of a control group")),
        },
        (None, None) => Diagnosis::note(
            what,
            "not bounded: under load the kernel may end the server",
        ),
    }
}

fn descriptors(plan: &ServerPlan) -> Diagnosis {
    let what = "connections";
    let allowed = getrlimit(Resource::Nofile).current;
    let allowed = allowed.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
    let remedy = "ulimit -n, or LimitNOFILE= of systemd";
    let fit = plan.connections;
    match plan.asked_connections {
        Some(asked) if asked > fit => Diagnosis::bad(
            what,
            format!(
                "{fit} at a time, not {asked}, by {allowed} descriptors ({remedy}; ask for fewer)"
            ),
        ),
        None if fit < 512 => Diagnosis::note(
            what,
            format!("{fit} at a time, by {allowed} descriptors ({remedy}) or by memory"),
        ),
        _ => Diagnosis::good(what, format!("up to {fit} at a time")),
    }
}

fn backlog(plan: &ServerPlan, read: &dyn Fn(&str) -> Option<String>) -> Diagnosis {
    let what = "backlog";
    let file = "/proc/sys/net/core/somaxconn";
    let most = read(file).and_then(|text| text.trim().parse::<u32>().ok());
    let Some(most) = most else {
        return Diagnosis::note(what, format!("{file} cannot be read"));
    };
    let remedy = |asked| format!("sysctl -w net.core.somaxconn={asked}");
    match plan.backlog {
        Some(asked) if asked > most => {
            let text = format!(
                "{most} connections may wait, not {asked} ({})",
                remedy(asked)
            );
            match plan.is_usual_backlog {
                true => Diagnosis::note(what, text),
                false => Diagnosis::bad(what, text),
            }
        }
        None if most < 512 => {
            let few = "few where many come at once";
            let text = format!("{most} connections may wait: {few} ({})", remedy(4096));
            Diagnosis::note(what, text)
        }
        asked => {
            let waiting = asked.unwrap_or(most).min(most);
            Diagnosis::good(what, format!("{waiting} connections may wait"))
        }
    }
}

/// What came of trying something.
fn tried(what: &'static str, outcome: &anyhow::Result<String>) -> Diagnosis {
    match outcome {
        Ok(text) => Diagnosis::good(what, text.clone()),
        Err(error) => Diagnosis::bad(what, format!("{error:#}")),
    }
}

/// `is_answered`: whether there is a server to take over from, if one may be there.
fn listening(outcome: &anyhow::Result<String>, is_answered: Option<bool>) -> Diagnosis {
    let what = "addresses";
    let is_in_use = |error: &anyhow::Error| {
        let mut causes = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes.any(|error| error.kind() == ErrorKind::AddrInUse)
    };
    match outcome {
        Err(error) if is_in_use(error) => match is_answered {
            Some(true) => Diagnosis::note(
                what,
                format!("{error:#}; or it is the server of --replace, to be taken over from"),
            ),
            Some(false) => Diagnosis::bad(
                what,
                format!("{error:#}; no server answers at the file of --replace"),
            ),
            None => tried(what, outcome),
        },
        _ => tried(what, outcome),
    }
}

/// Returns whether a server listens there.
fn is_answered(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

fn confinement(is_available: bool) -> Diagnosis {
    let what = "confinement";
    match is_available {
        true => Diagnosis::good(what, "by Landlock"),
        false => Diagnosis::note(
            what,
            "none: this kernel has no Landlock (Linux 5.13, in the list of lsm=), or a container \
             forbids it",
        ),
    }
}

fn user(plan: &ServerPlan, is_root: bool) -> Diagnosis {
    let what = "user";
    match &plan.user {
        Some(name) if is_root => Diagnosis::good(what, format!("root becomes {name}")),
        Some(name) => Diagnosis::good(what, format!("{name}, or who has started it")),
        None if is_root => Diagnosis::note(
            what,
            "root, and stays so (--user NAME has it become another)",
        ),
        None => Diagnosis::good(what, "not root"),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn plan() -> ServerPlan {
        ServerPlan {
            flags: Ok(String::new()),
            listening: Ok(String::new()),
            replace: None,
            connections: 1000,
            asked_connections: Some(1000),
            backlog: Some(1024),
            is_usual_backlog: false,
            workers: 1,
            io: None,
            mode: Mode::usual(),
            memory: None,
            shortage: None,
            user: None,
        }
    }

    fn severities(findings: &[Diagnosis]) -> Vec<(&str, Severity)> {
        findings
            .iter()
            .map(|one| (one.what, one.severity))
            .collect()
    }

    #[test]
    fn old_kernels_and_slow_clocks_are_noted() {
        let of = |release: &'static str, clock: &'static str| {
            let read = move |path: &str| {
                let text = match path {
                    "/proc/sys/kernel/osrelease" => release,
                    "/proc/sys/vm/max_map_count" => "65530\n",
                    "/proc/sys/vm/overcommit_memory" => "2\n",
                    "/proc/cpuinfo" => "processor: 0\n\nprocessor: 1\n",
                    _ if path.ends_with("current_clocksource") => clock,
                    _ => return None,
                };
                Some(text.to_owned())
            };
            machine(&read, 1)
        };

        let good = of("6.13.0-amd64\n", "tsc\n");
        let expected = [
            ("kernel", Severity::Good),
            ("processors", Severity::Good),
            ("clock", Severity::Good),
            ("overcommit", Severity::Note),
        ];
        assert_eq!(severities(&good)[..4], expected);
        assert!(
            good[1].found.starts_with("1 worker on 2"),
            "{}",
            good[1].found
        );
        let older = of("6.1.0-18-amd64", "hpet");
        assert_eq!(older[0].severity, Severity::Note);
        assert!(older[0].found.contains("about 32765"), "{}", older[0].found);
        assert_eq!(older[2].severity, Severity::Note);
        assert!(of("4.19.0", "tsc")[0].found.contains("before 5.9"));
    }

    #[test]
    fn connections_that_do_not_fit_are_bad() {
        let of = |connections, asked_connections| {
            let plan = ServerPlan {
                connections,
                asked_connections,
                ..plan()
            };
            descriptors(&plan)
        };
        assert_eq!(of(1000, Some(1000)).severity, Severity::Good);
        let short = of(450, Some(1000));
        assert_eq!(short.severity, Severity::Bad);
        assert!(
            short.found.contains("450 at a time, not 1000"),
            "{}",
            short.found
        );
        assert_eq!(of(200, None).severity, Severity::Note);
        assert_eq!(of(20_000, None).severity, Severity::Good);
    }

    #[test]
    fn a_backlog_that_the_kernel_would_cut_is_bad_if_it_was_asked_for() {
        let read = |most: &'static str| move |_: &str| Some(most.to_owned());
        let good = backlog(&plan(), &read("4096\n"));
        assert_eq!(
            (good.severity, &*good.found),
            (Severity::Good, "1024 connections may wait")
        );
        let cut = backlog(&plan(), &read("128\n"));
        assert_eq!(cut.severity, Severity::Bad);
        assert!(
            cut.found.contains("net.core.somaxconn=1024"),
            "{}",
            cut.found
        );
        let is_usual_backlog = true;
        let usual = ServerPlan {
            is_usual_backlog,
            ..plan()
        };
        assert_eq!(backlog(&usual, &read("128\n")).severity, Severity::Note);
        assert_eq!(backlog(&plan(), &|_| None).severity, Severity::Note);
    }

    #[test]
    fn an_address_in_use_is_bad_unless_a_server_hands_it_over() {
        let in_use = || {
            let error = anyhow!(io::Error::from(ErrorKind::AddrInUse));
            Err(error.context("cannot listen"))
        };
        assert_eq!(listening(&in_use(), None).severity, Severity::Bad);
        assert_eq!(listening(&in_use(), Some(false)).severity, Severity::Bad);
        assert_eq!(listening(&in_use(), Some(true)).severity, Severity::Note);
        let other = Err(anyhow!("nothing to listen on"));
        assert_eq!(listening(&other, Some(true)).severity, Severity::Bad);
        assert!(!is_answered(Path::new("/nowhere/replace")));
    }

    #[test]
    fn memory_that_is_not_there_is_bad() {
        assert_eq!(memory(&plan(), None).severity, Severity::Note);
        let of = |bytes, found: Option<u64>| {
            let memory_limit = MemoryLimit::choose(Some(bytes));
            let plan = ServerPlan {
                memory: memory_limit,
                ..plan()
            };
            let found = found.and_then(|bytes| MemoryLimit::choose(Some(bytes)));
            memory(&plan, found.as_ref()).severity
        };
        assert_eq!(of(1 << 30, Some(1 << 31)), Severity::Good);
        assert_eq!(of(1 << 31, Some(1 << 30)), Severity::Bad);
        let shortage = Some("too little".to_owned());
        let short = ServerPlan { shortage, ..plan() };
        assert_eq!(memory(&short, None).severity, Severity::Bad);
    }

    #[test]
    fn root_is_noted() {
        let user_of = |name: Option<&str>, is_root| {
            let plan = ServerPlan {
                user: name.map(str::to_owned),
                ..plan()
            };
            user(&plan, is_root).severity
        };
        assert_eq!(user_of(None, true), Severity::Note);
        assert_eq!(user_of(Some("www"), true), Severity::Good);
        assert_eq!(user_of(None, false), Severity::Good);
    }
}
