//! `--doctor`: what this machine allows a server with these flags, and what to change.
//!
//! A finding is good, worth a note (the server does without), or bad (it would not start, or not do
//! what its flags ask for). Nothing is changed and no connection taken.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::thread::available_parallelism;

use anyhow::bail;
use clap::Args;
use plainweave::{Runtime, Storage};
use rustix::process::{Resource, geteuid, getrlimit};
use socket2::{Domain, Socket, Type};

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

/// What a server is asked to do.
#[derive(Debug)]
pub struct ServerPlan {
    /// Connections at a time, if a flag says how many.
    pub connections: Option<usize>,
    /// Descriptors beside theirs.
    pub others: usize,
    /// Connections that are to wait in the kernel, if a flag says how many.
    pub backlog: Option<u32>,
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Whether another server on these addresses is one to take over from.
    pub replaces: bool,
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
    let mut findings = machine(&read, available_parallelism().map_or(1, usize::from));
    findings.push(driver(plan.io));
    findings.push(storage(plan.mode));
    findings.push(memory(plan));
    let limit = getrlimit(Resource::Nofile);
    // Root may go beyond its limit, and not beyond that of the kernel.
    let most = read("/proc/sys/fs/nr_open").and_then(|text| text.trim().parse().ok());
    let raised = match geteuid().is_root() {
        true => most.or(limit.maximum),
        false => limit.maximum,
    };
    findings.push(descriptors(plan, limit.current, raised));
    findings.push(backlog(plan, &read));
    findings.extend(plan.addresses.iter().map(|address| {
        let bound = bind(*address);
        listening(*address, plan.replaces, bound.err(), &read)
    }));
    findings.push(user(plan, geteuid().is_root()));

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
    findings.push(match workers < cpus {
        true => Diagnosis::good(
            "processors",
            format!("{workers} of {cpus}, by the affinity mask or the control group's quota"),
        ),
        false => Diagnosis::good("processors", workers.to_string()),
    });

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
        return Diagnosis::good(what, "epoll (--io)");
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
        _ => Diagnosis::good(what, "the workers' (--mode)"),
    }
}

fn memory(plan: &ServerPlan) -> Diagnosis {
    let what = "memory";
    match (&plan.shortage, &plan.memory) {
        (Some(shortage), _) => Diagnosis::bad(what, shortage.clone()),
        (None, Some(limit)) if limit.is_hard() => Diagnosis::good(what, limit.to_string()),
        (None, Some(limit)) => {
            Diagnosis::good(what, format!("{limit}, no limit of a control group"))
        }
        (None, None) => Diagnosis::note(
            what,
            "not bounded: under load the kernel may end the server",
        ),
    }
}

/// `raised`: what the server may raise the limit to.
fn descriptors(plan: &ServerPlan, now: Option<u64>, raised: Option<u64>) -> Diagnosis {
    let what = "descriptors";
    let most = raised.unwrap_or(u64::MAX);
    let text = |limit: u64| match limit {
        u64::MAX => "any number".to_owned(),
        limit => limit.to_string(),
    };
    let allowed = match now {
        Some(now) if now < most => format!("{now}, raised to {}", text(most)),
        _ => text(most),
    };
    let remedy = "ulimit -n, LimitNOFILE= of systemd, or fewer connections";
    let Some(connections) = plan.connections else {
        return match most {
            0..4096 => Diagnosis::note(
                what,
                format!("{allowed}: room for few connections ({remedy})"),
            ),
            _ => Diagnosis::good(what, allowed),
        };
    };

    let needed = (connections + plan.others) as u64;
    if needed > most {
        let fit = most.saturating_sub(plan.others as u64).max(1);
        let text =
            format!("{allowed}: {connections} connections need {needed}, and {fit} fit ({remedy})");
        return Diagnosis::bad(what, text);
    }
    Diagnosis::good(
        what,
        format!("{allowed}, and {connections} connections need {needed}"),
    )
}

fn backlog(plan: &ServerPlan, read: &dyn Fn(&str) -> Option<String>) -> Diagnosis {
    let what = "backlog";
    let file = "/proc/sys/net/core/somaxconn";
    let most = read(file).and_then(|text| text.trim().parse::<u32>().ok());
    let Some(most) = most else {
        return Diagnosis::note(what, format!("{file} cannot be read"));
    };
    match plan.backlog.filter(|asked| *asked > most) {
        Some(asked) => Diagnosis::bad(
            what,
            format!(
                "{most} connections may wait, not {asked} (sysctl -w net.core.somaxconn={asked})"
            ),
        ),
        None if most < 512 => Diagnosis::note(
            what,
            format!(
                "{most} connections may wait: few where many come at once (sysctl -w \
                 net.core.somaxconn=4096)"
            ),
        ),
        None => Diagnosis::good(what, format!("{most} connections may wait")),
    }
}

/// Binds and does not listen.
fn bind(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}

fn listening(
    address: SocketAddr,
    replaces: bool,
    error: Option<io::Error>,
    read: &dyn Fn(&str) -> Option<String>,
) -> Diagnosis {
    let what = "address";
    let Some(error) = error else {
        return Diagnosis::good(what, format!("{address} is free"));
    };
    match error.kind() {
        ErrorKind::AddrInUse if replaces => Diagnosis::good(
            what,
            format!("{address} is in use, to be taken over by --replace"),
        ),
        ErrorKind::AddrInUse => Diagnosis::bad(
            what,
            format!(
                "another server is on {address} (`ss -ltnp` says which; stop it, or choose \
                 another port)"
            ),
        ),
        ErrorKind::AddrNotAvailable => Diagnosis::bad(
            what,
            format!("this machine has no {} (see `ip address`)", address.ip()),
        ),
        ErrorKind::PermissionDenied => {
            let file = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
            let first = read(file).unwrap_or_else(|| "1024".to_owned());
            let text = format!(
                "{address}: ports below {} need root or CAP_NET_BIND_SERVICE \
                 (AmbientCapabilities= of systemd)",
                first.trim()
            );

            Diagnosis::bad(what, text)
        }
        _ => Diagnosis::bad(what, format!("{address} cannot be listened on: {error}")),
    }
}

fn user(plan: &ServerPlan, is_root: bool) -> Diagnosis {
    let what = "user";
    match &plan.user {
        Some(name) if is_root => Diagnosis::good(what, format!("root becomes {name}")),
        Some(name) => Diagnosis::note(what, format!("not root, so it does not become {name}")),
        None if is_root => Diagnosis::note(
            what,
            "root, and stays so (--user NAME has it become another)",
        ),
        None => Diagnosis::good(what, "not root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ServerPlan {
        ServerPlan {
            connections: Some(1000),
            others: 50,
            backlog: Some(1024),
            addresses: Vec::new(),
            replaces: false,
            io: None,
            mode: Mode::usual(),
            memory: None,
            shortage: None,
            user: None,
        }
    }

    fn severitys(findings: &[Diagnosis]) -> Vec<(&str, Severity)> {
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

        assert_eq!(severitys(&good)[..4], expected);
        assert_eq!(good[1].found.split(',').next(), Some("1 of 2"));
        let older = of("6.1.0-18-amd64", "hpet");
        assert_eq!(older[0].severity, Severity::Note);
        assert!(older[0].found.contains("about 32765"), "{}", older[0].found);
        assert_eq!(older[2].severity, Severity::Note);
        assert!(of("4.19.0", "tsc")[0].found.contains("before 5.9"));
    }

    #[test]
    fn descriptors_are_counted_by_what_they_may_be_raised_to() {
        let of = |connections, now, raised| {
            let plan = ServerPlan {
                connections,
                ..plan()
            };

            descriptors(&plan, now, raised)
        };

        assert_eq!(
            of(Some(1000), Some(256), Some(4096)).severity,
            Severity::Good
        );
        assert_eq!(of(Some(1000), Some(256), None).severity, Severity::Good);
        let short = of(Some(1000), Some(256), Some(500));
        assert_eq!(short.severity, Severity::Bad);
        assert!(
            short.found.contains("need 1050, and 450 fit"),
            "{}",
            short.found
        );

        assert_eq!(of(None, Some(256), Some(500)).severity, Severity::Note);
        assert_eq!(of(None, Some(1024), Some(1 << 20)).severity, Severity::Good);
    }

    #[test]
    fn what_the_kernel_would_cut_is_bad() {
        let read = |most: &'static str| move |_: &str| Some(most.to_owned());
        assert_eq!(backlog(&plan(), &read("4096\n")).severity, Severity::Good);
        let cut = backlog(&plan(), &read("128\n"));
        assert_eq!(cut.severity, Severity::Bad);
        assert!(
            cut.found.contains("net.core.somaxconn=1024"),
            "{}",
            cut.found
        );

        assert_eq!(backlog(&plan(), &|_| None).severity, Severity::Note);
    }

    #[test]
    fn addresses_are_tried() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let found = |replaces| listening(address, replaces, bind(address).err(), &|_| None);
        assert_eq!(found(false).severity, Severity::Bad);
        assert!(found(false).found.contains("another server"));
        assert_eq!(found(true).severity, Severity::Good);
        drop(taken);
        assert_eq!(found(false).severity, Severity::Good);
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        let found = listening(elsewhere, false, bind(elsewhere).err(), &|_| None);
        assert_eq!(found.severity, Severity::Bad);
        let low = "127.0.0.1:80".parse().unwrap();
        let denied = Some(ErrorKind::PermissionDenied.into());
        let found = listening(low, false, denied, &|_| Some("1024\n".to_owned()));
        assert!(found.found.contains("below 1024"), "{}", found.found);
    }

    #[test]
    fn a_shortage_of_memory_is_bad_and_no_bound_is_noted() {
        assert_eq!(memory(&plan()).severity, Severity::Note);
        let shortage = Some("too little".to_owned());
        let short = ServerPlan { shortage, ..plan() };
        assert_eq!(memory(&short).severity, Severity::Bad);
        let user_of = |name: Option<&str>, is_root| {
            let plan = ServerPlan {
                user: name.map(str::to_owned),
                ..plan()
            };

            user(&plan, is_root).severity
        };

        assert_eq!(user_of(None, true), Severity::Note);
        assert_eq!(user_of(Some("www"), true), Severity::Good);
    }
}
