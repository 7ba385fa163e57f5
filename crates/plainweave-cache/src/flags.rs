//! The flags of `plainweave cache`: memcached's letters, and a few long ones of our own.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Args};

use super::access::Access;
use super::extended::Extended;
use super::version::VERSION;
use plainweave_daemon::confinement::ConfinementFlags;
use plainweave_daemon::doctor::DoctorFlags;
use plainweave_daemon::flag::{address, octal, size, time, time_or_none};
use plainweave_daemon::mode::Mode;
use plainweave_daemon::replace::ReplaceFlags;
use plainweave_daemon::runtime_flags::{RuntimeFlags, ServingFlags};

const AFTER_HELP: &str = concat!(
    "\
Examples:
  plainweave cache                              64 MB on port 11211 of all addresses, as memcached does
  plainweave cache -m 1024 -l 127.0.0.1 -t 2    1 GB, this machine only, two workers
  plainweave cache -s /run/cache.sock -a 770    a Unix socket instead of a port
  plainweave cache --admin 127.0.0.1:9180       a page in the browser, /metrics, /health and /hotkeys

Environment:
  MEMCACHED_PORT_FILENAME    a file to write the TCP ports to that are listened on, as memcached does

",
    plainweave_daemon::signals_help!("  HUP         reads the files of -Y and -Z again
  USR1        nothing: the cache has no logs to reopen"),
    "

docs/cache-compat.md of the sources lists every difference from memcached."
);

/// Serve a memcached-compatible cache.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, args_override_self = true, version = VERSION)]
#[command(mut_arg("workers", workers), mut_arg("io", io), mut_arg("mode", mode))]
pub struct Flags {
    #[command(flatten)]
    pub(super) listen: Listen,

    #[command(flatten)]
    pub(super) replace: ReplaceFlags,

    #[command(flatten)]
    pub(super) memory: Memory,

    #[command(flatten)]
    pub(super) limits: Limits,

    #[command(flatten)]
    pub(super) allowed: Allowed,

    #[command(flatten)]
    pub(super) access: Access,

    #[command(flatten)]
    pub(super) engine: EngineFlags,

    /// Log to standard error: -v start and stop, -vv also connections; the command "verbosity"
    /// changes the level
    #[arg(short = 'v', long, action = ArgAction::Count, help_heading = "Messages")]
    pub(super) verbose: u8,

    #[command(flatten)]
    pub(super) confinement: ConfinementFlags,

    #[command(flatten)]
    pub(super) doctor: DoctorFlags,

    #[command(flatten)]
    pub(super) meaningless: Meaningless,

    #[command(flatten)]
    pub(super) absent: Absent,

    /// Print the licence
    #[arg(short = 'i', long, help_heading = "Messages")]
    pub(super) license: bool,
}

/// Where to listen.
#[derive(Args, Debug)]
#[command(next_help_heading = "Where to listen")]
pub(super) struct Listen {
    /// TCP port; 0: none; -1: a free one [default: 11211, but none beside a service manager's]
    #[arg(short = 'p', long, value_name = "NUM", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i32).range(-1..=65535))]
    pub(super) port: Option<i32>,

    /// Address, or address:port; may be repeated, or separated by commas [default: all addresses]
    #[arg(short = 'l', long, value_name = "ADDR", value_delimiter = ',')]
    pub(super) listen: Vec<String>,

    /// Unix socket; no TCP port then
    #[arg(short = 's', long, value_name = "FILE")]
    pub(super) unix_socket: Option<PathBuf>,

    /// Speak TLS on TCP ports, by -o ssl_chain_cert=FILE,ssl_key=FILE; an address of -l may have
    /// "notls:", "btls:" (no client certificates) or "mtls:" (client certificates) before it
    #[arg(short = 'Z', long)]
    pub(super) enable_ssl: bool,

    /// Access mask of the Unix socket, in octal
    #[arg(short = 'a', long, value_name = "MASK", default_value = "700", value_parser = octal)]
    pub(super) unix_mask: u32,

    /// Backlog: connections that the kernel queues before they are accepted
    #[arg(short = 'b', long, value_name = "NUM", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) listen_backlog: i32,

    /// UDP port; only 0 is accepted, because there is no UDP
    #[arg(short = 'U', long, value_name = "NUM", default_value = "0", value_parser = no_udp)]
    pub(super) udp_port: u16,

    /// Serve the status page, /metrics (Prometheus), /health and /hotkeys over HTTP on this address
    /// and port, or on a port of 127.0.0.1
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(super) admin: Option<SocketAddr>,

    /// Show details (hot keys, and where workers stalled) on the admin address even if it is not a
    /// loopback one
    #[arg(long, requires = "admin")]
    pub(super) admin_details: bool,
}

impl Listen {
    /// Returns the TCP port: 0: none; -1: a free one.
    pub(super) fn port(&self) -> i32 {
        self.port.unwrap_or(11211)
    }
}

/// What is stored.
#[derive(Args, Debug)]
#[command(next_help_heading = "Memory")]
pub(super) struct Memory {
    /// Memory for items, in megabytes, or with the suffix m or g
    #[arg(short = 'm', long, value_name = "MB", default_value = "64", value_parser = megabytes)]
    pub(super) memory_limit: NonZeroU32,

    /// Return an error when the memory is full, instead of evicting items
    #[arg(short = 'M', long)]
    pub(super) disable_evictions: bool,

    /// Maximum item size, in bytes or with the suffix k or m (1k to 1024m)
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1m", value_parser = item_size)]
    pub(super) max_item_size: usize,
}

/// Bounds on what clients may use.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits and timeouts")]
pub(super) struct Limits {
    /// Maximum connections; at the limit, accepting pauses [default: 1024, or what the memory limit
    /// has room for]
    #[arg(short = 'c', long, value_name = "NUM")]
    pub(super) conn_limit: Option<NonZeroUsize>,

    /// Memory to stay within, by limiting connections, how many are served at a time, and values
    /// being received; 0: no such limits [default: the limit of the control group, or the machine's
    /// memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) max_memory: Option<u64>,

    /// Maximum commands of one connection in a row, before others are served
    #[arg(short = 'R', long, value_name = "NUM", default_value = "20")]
    pub(super) max_reqs_per_event: NonZeroUsize,

    /// Disconnect a client that accepts no part of an answer for this time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(super) write_timeout: Duration,

    /// Time to wait for commands in progress when stopping
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_or_none)]
    pub(super) grace: Duration,

    /// Extended options, separated by commas: idle_timeout=SECONDS, maxconns_fast (refuse
    /// connections above the limit instead of letting them wait), hot_lru_pct=PERCENT (of -m for
    /// items that nobody has asked for yet; 45 unless given); for -Z (files are PEM)
    /// ssl_chain_cert=FILE, ssl_key=FILE (unless the former has it), ssl_ca_cert=FILE (of clients'
    /// authorities), ssl_verify_mode=0 to 3 (2: clients need a certificate), ssl_min_version=3 (TLS
    /// 1.3 only); memcached's other options are accepted, and reported as having no effect
    #[arg(short = 'o', long, value_name = "LIST")]
    extended: Vec<Extended>,
}

impl Limits {
    /// Returns all that was given; the last word counts.
    pub(super) fn extended(&self) -> Extended {
        self.extended
            .iter()
            .fold(Extended::default(), |all, more| all.and(more))
    }
}

/// Commands that can be switched on and off.
#[derive(Args, Debug)]
#[command(next_help_heading = "Commands")]
pub(super) struct Allowed {
    /// Enable the command "shutdown"
    #[arg(short = 'A', long)]
    pub(super) enable_shutdown: bool,

    /// Disable the command "flush_all"
    #[arg(short = 'F', long)]
    pub(super) disable_flush_all: bool,

    /// Disable "lru_crawler metadump" and "mgdump"
    #[arg(short = 'X', long)]
    pub(super) disable_dumping: bool,

    /// Disable "watch"
    #[arg(short = 'W', long)]
    pub(super) disable_watch: bool,

    /// Delimiter between a key's prefix and the rest, for "stats detail"; also turns that on
    #[arg(short = 'D', value_name = "CHAR")]
    pub(super) prefix_delimiter: Option<char>,
}

/// memcached's name for the number of workers.
fn workers(flag: Arg) -> Arg {
    flag.short('t')
        .long("threads")
        .visible_alias("workers")
        .value_name("NUM")
        .help(
            "Worker threads [default: the CPUs of the affinity mask and the cgroup quota; memcached's \
             is 4]",
        )
}

fn mode(flag: Arg) -> Arg {
    flag.default_value("before-start/shared").help(
        "When fibers move between workers, and whose thread-local storage they see: anytime/own, \
         before-start/own, never/own, before-start/shared or never/shared. (With storage of their \
         own, fibers take memory beside -m that has no bound as close)",
    )
}

fn io(flag: Arg) -> Arg {
    flag.default_value("epoll").help(
        "I/O driver; naming one that is unavailable is an error. (io_uring takes more CPU for \
             requests as short as these)",
    )
}

/// How connections are run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Runtime")]
pub(super) struct EngineFlags {
    #[command(flatten)]
    pub(super) runtime: RuntimeFlags,

    #[command(flatten)]
    pub(super) serving: ServingFlags,

    /// User to switch to before any file or port is opened, if started as root; ignored otherwise
    #[arg(short = 'u', long, value_name = "USER")]
    pub(super) user: Option<String>,

    /// Write the process ID to this file
    #[arg(short = 'P', long, value_name = "FILE")]
    pub(super) pidfile: Option<PathBuf>,
}

impl EngineFlags {
    /// Returns the mode to serve in.
    pub(super) fn mode(&self) -> Mode {
        self.serving.mode
    }
}

/// Flags of memcached's that a start-up script may carry, and that ask for nothing here.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted and reported as meaningless here")]
pub(super) struct Meaningless {
    /// Growth of slab classes: there are none
    #[arg(short = 'f', long, value_name = "FACTOR")]
    slab_growth_factor: Option<f64>,

    /// Least size of a slab class: there are none
    #[arg(short = 'n', long, value_name = "BYTES")]
    slab_min_size: Option<u32>,

    /// Connections by the queue of the network card: they go to whichever worker is free
    #[arg(short = 'N', long, value_name = "NUM")]
    napi_ids: Option<u32>,

    /// Large pages: transparent ones are the kernel's to give
    #[arg(short = 'L', long)]
    enable_largepages: bool,
}

impl Meaningless {
    /// Returns what was given of them.
    pub(super) fn given(&self) -> Vec<&'static str> {
        let all = [
            (
                self.slab_growth_factor.is_some(),
                "-f (there are no slab classes)",
            ),
            (
                self.slab_min_size.is_some(),
                "-n (there are no slab classes)",
            ),
            (
                self.napi_ids.is_some(),
                "-N (connections go to whichever worker is free)",
            ),
            (
                self.enable_largepages,
                "-L (the kernel gives large pages by itself)",
            ),
        ];
        all.into_iter()
            .filter(|(given, _)| *given)
            .map(|(_, name)| name)
            .collect()
    }
}

/// Flags of memcached's that ask for what is not here: refused, each with its remedy.
#[derive(Args, Debug)]
pub(super) struct Absent {
    #[arg(short = 'd', long = "daemon", hide = true)]
    daemon: bool,

    #[arg(short = 'k', long = "lock-memory", hide = true)]
    lock_memory: bool,

    #[arg(short = 'r', long = "enable-coredumps", hide = true)]
    enable_coredumps: bool,

    #[arg(short = 'C', long = "disable-cas", hide = true)]
    disable_cas: bool,

    #[arg(short = 'e', long = "memory-file", hide = true)]
    memory_file: Option<String>,
}

impl Absent {
    /// Returns the first that was given, and what to do instead.
    pub(super) fn given(&self) -> Option<&'static str> {
        let all = [
            (
                self.daemon,
                "-d is not here: start it by the service manager, which also puts it in the background",
            ),
            (
                self.lock_memory,
                "-k is not here: let the service manager lock memory, or switch swapping off",
            ),
            (
                self.enable_coredumps,
                "-r is not here: use `ulimit -c unlimited`, or LimitCORE= of systemd",
            ),
            (
                self.disable_cas,
                "-C is not here: items always have a CAS value",
            ),
            (
                self.memory_file.is_some(),
                "-e is not here: there is no warm restart",
            ),
        ];
        all.into_iter()
            .find(|(given, _)| *given)
            .map(|(_, remedy)| remedy)
    }
}

/// Megabytes, with an `m` behind or not, or gigabytes with a `g`.
fn megabytes(text: &str) -> Result<NonZeroU32, String> {
    let size = scaled(text, [('m', 1), ('g', 1 << 10)])
        .and_then(|size| NonZeroU32::new(size.try_into().ok()?));
    size.ok_or_else(|| "write a number of megabytes from 1 on, as in 64, 64m or 2g".into())
}

fn no_udp(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) => Ok(0),
        Ok(1..=65535) => Err("UDP is not here: leave -U out, or write -U 0, and use TCP".into()),
        _ => Err("write 0, for there is no UDP".into()),
    }
}

/// Bytes, or with `k` or `m` behind.
fn item_size(text: &str) -> Result<usize, String> {
    let size = scaled(text, [('k', 1 << 10), ('m', 1 << 20)])
        .filter(|size| (1 << 10..=1 << 30).contains(size));
    size.ok_or_else(|| "write 1k to 1024m, as in 512k or 4m".into())
}

/// A whole number, times that of the unit that may stand behind it in either case.
fn scaled(text: &str, units: [(char, usize); 2]) -> Option<usize> {
    let with = |(letter, unit): (char, usize)| {
        Some((
            text.strip_suffix([letter, letter.to_ascii_uppercase()])?,
            unit,
        ))
    };

    let (number, unit) = units.into_iter().find_map(with).unwrap_or((text, 1));
    number.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::super::memory_bound::MemoryBound;
    use super::super::proto::Protocol;
    use super::super::settings::Settings;
    use super::super::store::Config;
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    fn parse(line: &str) -> Result<Flags, clap::Error> {
        <Cli as clap::Parser>::try_parse_from(line.split(' ')).map(|cli| cli.flags)
    }

    #[test]
    fn a_line_for_memcached_is_understood() {
        let flags = "cache -m 128 -p 11311 -u memcache -l 127.0.0.1,::1 -c 2048 -t 2 -R 50 -I 2m -b 64 \
                     -vv -U 0 -o modern";
        let flags = parse(flags).unwrap();
        assert_eq!(flags.engine.user.as_deref(), Some("memcache"));
        assert_eq!(
            (flags.memory.memory_limit.get(), flags.listen.port()),
            (128, 11311)
        );
        assert_eq!(flags.listen.listen, ["127.0.0.1", "::1"]);
        assert_eq!((flags.memory.max_item_size, flags.verbose), (2 << 20, 2));
        assert_eq!(flags.limits.conn_limit.map(NonZeroUsize::get), Some(2048));
        assert_eq!(parse("cache -p -1").unwrap().listen.port(), -1);
    }

    /// As `getopt` has it, and with the units that people write.
    #[test]
    fn the_last_word_counts() {
        let flags = parse(
            "cache -m 64 -t 1 -m 2g -t 3 -l ::1 -l 127.0.0.1 -F -F -o modern -o maxconns_fast -N 2",
        )
        .unwrap();
        assert_eq!(
            (
                flags.memory.memory_limit.get(),
                flags.engine.runtime.workers.map(NonZeroUsize::get)
            ),
            (2048, Some(3))
        );
        assert_eq!(flags.listen.listen, ["::1", "127.0.0.1"]);
        assert!(
            flags.limits.extended().maxconns_fast()
                && flags.meaningless.given()[0].starts_with("-N")
        );
        assert_eq!(parse("cache -m 64m").unwrap().memory.memory_limit.get(), 64);

        assert_eq!(
            parse("cache --admin 9180").unwrap().listen.admin,
            Some("127.0.0.1:9180".parse().unwrap())
        );
    }

    #[test]
    fn defaults_are_memcached_s() {
        let flags = parse("cache").unwrap();
        assert_eq!(
            (
                flags.listen.port(),
                flags.memory.memory_limit.get(),
                flags.memory.max_item_size
            ),
            (11211, 64, 1 << 20)
        );
        let settings = Settings::of(
            &flags,
            1,
            &MemoryBound::new(None, &Config::default(), false),
        );
        assert_eq!(
            (settings.connections, flags.limits.max_reqs_per_event.get()),
            (1024, 20)
        );

        assert_eq!(
            (
                flags.listen.unix_mask,
                flags.listen.listen_backlog,
                flags.verbose
            ),
            (0o700, 1024, 0)
        );
    }

    #[test]
    fn what_is_absent_is_refused_with_a_remedy() {
        for (flag, line) in [
            ("-d", "cache -d"),
            ("-k", "cache -m 64 -k"),
            ("-e", "cache -e /dev/shm/items"),
        ] {
            let remedy = parse(line).unwrap().absent.given().unwrap();
            assert!(
                remedy.starts_with(flag) && remedy.contains(": "),
                "{line}: {remedy}"
            );
        }

        assert!(parse("cache -B udp").is_err());
    }

    #[test]
    fn sasl_is_for_the_binary_protocol() {
        for line in [
            "cache -S -B auto",
            "cache -S -B ascii",
            "cache -S -B binary -B ascii",
        ] {
            let said = parse(line).unwrap().access.users().unwrap_err();
            assert!(said.to_string().contains("leave -B out"), "{line}: {said}");
        }
        let said = parse("cache -S").unwrap().access.users().unwrap_err();
        assert!(said.to_string().contains("with -Y"), "{said}");
        let protocol = |line| parse(line).unwrap().access.protocol();
        assert_eq!(protocol("cache"), None);
        assert_eq!(protocol("cache -B auto -Y file"), None);
        assert_eq!(protocol("cache -S"), Some(Protocol::Binary));
        assert_eq!(protocol("cache -B ascii"), Some(Protocol::Text));
    }

    #[test]
    fn wrong_values_are_refused() {
        let said = parse("cache -U 11211").unwrap_err().to_string();
        assert!(
            said.contains("UDP is not here") && said.contains("-U 0"),
            "{said}"
        );
        for line in [
            "cache -m 64k",
            "cache -m 5000000g",
            "cache -I 1",
            "cache -I 2g",
            "cache -m 0",
            "cache -a 999",
            "cache -U 11211",
            "cache -p 70000",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
