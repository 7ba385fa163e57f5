//! The flags of `plainweave web`, as data.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use plainweave_http::Limits;
use plainweave_http::files::Caching;

use super::config::ConfigFlags;
use super::content::ContentFlags;
use super::http2::Http2Flags;
use super::line::Format;
use super::memory_bound::MemoryBound;
use super::proxy::ProxyFlags;
use super::rotation::Rotation;
use super::tls::TlsFlags;

use plainweave_daemon::confinement::ConfinementFlags;
use plainweave_daemon::doctor::DoctorFlags;
use plainweave_daemon::engine::TwoPools;
use plainweave_daemon::flag::{address, octal, size, time, time_or_none};
use plainweave_daemon::mode::Mode;
use plainweave_daemon::replace::{Inherited, ReplaceFlags};
use plainweave_daemon::runtime_flags::{RuntimeFlags, ServingFlags};

/// Unless the flags say where.
const LISTEN: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8080);

const AFTER_HELP: &str = concat!(
    "\
Examples:
  plainweave web                                    the current directory on http://127.0.0.1:8080
  plainweave web site --listen 8000                 another directory, another port
  plainweave web --listen 0.0.0.0:8080 --listing    for other machines, and they may list directories
  plainweave web dist --fallback /index.html --precompressed --error-page 500=/500.html
  plainweave web /srv --listen 0.0.0.0:80 --listen '[::]:80'
  plainweave web site --tls-cert chain.pem --tls-key key.pem --listen 0.0.0.0:80 --tls-listen 0.0.0.0:443 \
      --https-redirect --hsts 31536000
  plainweave web --io epoll --workers 1             one worker, without io_uring
  plainweave web --pools web:fifo/1,files:fifo/4    files that are slow to read hold up no connections
  plainweave web --header-timeout 5s --idle-timeout 2m
  plainweave web site --unix-socket /run/web.sock --behind-proxy x-forwarded-for
  plainweave web --config web.toml                  sites, rules and settings of a file
  plainweave web --admin 9080                       a page on http://127.0.0.1:9080 shows how it is doing

",
    plainweave_daemon::signals_help!(
        "  HUP         reopen log files and the directory, load certificates and configuration again
  USR1        reopen log files"
    )
);

/// Serve the files of a directory over HTTP.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Flags {
    /// Directory whose files are served; dotfiles are hidden, except /.well-known
    #[arg(
        value_name = "DIR",
        default_value = ".",
        help_heading = "What to serve"
    )]
    pub(super) root: PathBuf,

    #[command(flatten)]
    pub(super) content: ContentFlags,

    #[command(flatten)]
    pub(super) config: ConfigFlags,

    /// Address and port, or a port on 127.0.0.1; may be repeated; port 0 picks a free one; [::] is
    /// all addresses of IPv6 and none of IPv4 [default: 127.0.0.1:8080, but none if --tls-listen or
    /// --tls-client-ca is given]
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "Where to listen")]
    listen: Vec<SocketAddr>,

    /// Unix socket to listen on; no port then unless a flag asks for one
    #[arg(long, value_name = "FILE", help_heading = "Where to listen")]
    pub(super) unix_socket: Option<PathBuf>,

    /// Access mask of the Unix socket, in octal
    #[arg(
        long,
        value_name = "MASK",
        default_value = "700",
        value_parser = octal,
        requires = "unix_socket",
        help_heading = "Where to listen"
    )]
    pub(super) unix_mask: u32,

    #[command(flatten)]
    pub(super) replace: ReplaceFlags,

    #[command(flatten)]
    pub(super) proxy: ProxyFlags,

    #[command(flatten)]
    pub(super) http2: Http2Flags,

    #[command(flatten)]
    pub(super) tls: TlsFlags,

    #[command(flatten)]
    pub(super) engine: EngineFlags,

    /// User to become once sockets, certificates and logs are open, if started as root; the
    /// directory is read as this user
    #[arg(short, long, value_name = "USER", help_heading = "Runtime")]
    pub(super) user: Option<String>,

    #[command(flatten)]
    pub(super) observation: ObservationFlags,

    #[command(flatten)]
    pub(super) confinement: ConfinementFlags,

    #[command(flatten)]
    pub(super) doctor: DoctorFlags,

    #[command(flatten)]
    pub(super) caching: CachingFlags,

    #[command(flatten)]
    pub(super) limits: LimitFlags,

    /// How long to wait for requests in progress when stopping
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time, help_heading = "Stopping")]
    pub(super) grace: Duration,
}

/// Where the server listens.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) plain: Vec<SocketAddr>,
    pub(super) tls: Vec<SocketAddr>,
    pub(super) unix: Option<PathBuf>,
    pub(super) admin: Option<SocketAddr>,
}

impl Addresses {
    /// Returns how many clients come by.
    pub(super) fn count(&self) -> usize {
        self.plain.len() + self.tls.len() + usize::from(self.unix.is_some())
    }

    /// Returns whether only programs on this machine reach them. A Unix socket's are for a proxy.
    fn are_private(&self) -> bool {
        let mut all = self.plain.iter().chain(&self.tls);
        self.unix.is_none() && all.all(|address| address.ip().to_canonical().is_loopback())
    }
}

impl Flags {
    /// Returns where to listen, what a service manager has opened included.
    pub(super) fn addresses(&self, inherited: &mut Inherited) -> anyhow::Result<Addresses> {
        let admin = self.observation.admin;
        let mut asked = self.listen.clone();
        asked.extend(self.tls.addresses(false).iter().chain(&admin));
        let mut managed = inherited.unasked(&asked, self.unix_socket.as_deref())?;
        let is_unasked = !managed.has_clients();
        let admin = managed.admin_or(admin)?;
        let is_default = is_unasked && self.listen.is_empty() && self.unix_socket.is_none();

        let mut addresses = Addresses {
            plain: match is_default && !self.tls.is_alone() {
                true => vec![LISTEN.into()],
                false => self.listen.clone(),
            },
            tls: self.tls.addresses(is_unasked),
            unix: managed.unix.take().or_else(|| self.unix_socket.clone()),
            admin,
        };
        addresses.plain.append(&mut managed.plain);
        addresses.tls.append(&mut managed.tls);
        ensure!(
            addresses.tls.is_empty() || self.tls.is_on(),
            "the service manager has a socket for TLS: give --tls-cert and --tls-key"
        );
        ensure!(
            !addresses.tls.is_empty() || !self.tls.is_on(),
            "there is no socket for TLS: name one of the service manager's https \
             (FileDescriptorName=), or give --tls-listen"
        );
        Ok(addresses)
    }

    /// Returns whether directories are listed if no flag says so.
    pub(super) fn are_private(&self, addresses: &Addresses) -> bool {
        addresses.are_private() && !self.proxy.is_on()
    }

    /// For the library: what there is memory for, and at most `connections`.
    pub(super) fn limits(&self, memory: &MemoryBound, connections: usize) -> Limits {
        let limits = Limits {
            connections,
            ..self.tls.apply(self.limits.limits())
        };
        self.http2.apply(limits, memory.http2_idle, memory.requests)
    }
}

/// How connections are run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Runtime")]
pub(super) struct EngineFlags {
    #[command(flatten)]
    pub(super) runtime: RuntimeFlags,

    #[command(flatten)]
    pub(super) serving: ServingFlags,

    /// Two pools of workers, each with its own policy, such as web:fifo/1,files:priority/2: the
    /// first serves connections, the second looks up and reads files, for up to 128 requests at
    /// once. A pool is NAME:POLICY/WORKERS[/MODE] [default mode: anytime/own]
    #[arg(long, value_name = "POOLS", value_parser = TwoPools::parse)]
    #[arg(conflicts_with_all = ["workers", "policy", "mode", "architecture"])]
    pub(super) pools: Option<TwoPools>,
}

impl EngineFlags {
    /// Returns the mode to serve in, if there is one runtime.
    pub(super) fn mode(&self) -> Mode {
        self.serving.mode
    }

    /// Returns how many of a number of descriptors are kept for spare workers.
    pub(super) fn spare_descriptors(&self, descriptors: usize) -> usize {
        let pools = if self.pools.is_some() { 2 } else { 1 };
        pools * self.mode().spare_descriptors(descriptors)
    }
}

/// What an operator sees of the server.
#[derive(Args, Debug)]
#[command(next_help_heading = "Logs and metrics")]
pub(super) struct ObservationFlags {
    /// File to log requests to, one line each, or - for standard output; SIGHUP and SIGUSR1 reopen
    /// it
    #[arg(long, value_name = "FILE")]
    pub(super) access_log: Option<PathBuf>,

    /// Rotate that file, and those of sites, before a line that would make it larger than this:
    /// FILE becomes FILE.1, that FILE.2, and so on [default: never]
    #[arg(long, value_name = "SIZE", value_parser = log_size)]
    access_log_size: Option<u64>,

    /// Earlier files that are kept; 0: none
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        requires = "access_log_size"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=999))]
    access_log_keep: u32,

    /// Format of the lines
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "combined",
        requires = "access_log"
    )]
    pub(super) log_format: Format,

    /// Address and port, or a port on 127.0.0.1, for the status page, /metrics (Prometheus) and
    /// /health; do not expose it to the public
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(super) admin: Option<SocketAddr>,

    /// Show details (the slowest paths, and where workers stalled) on the admin address even if it
    /// is not a loopback one
    #[arg(long, requires = "admin")]
    pub(super) admin_details: bool,
}

impl ObservationFlags {
    /// Returns how log files are rotated, if they are.
    pub(super) fn rotation(&self) -> Option<Rotation> {
        let kept = self.access_log_keep;
        let rotation = |most_bytes| Rotation { most_bytes, kept };
        self.access_log_size.map(rotation)
    }
}

/// From 4 KiB on, for a file that has a line or two is no log.
fn log_size(text: &str) -> Result<u64, String> {
    let least = |bytes: &u64| *bytes >= 4 << 10;
    let size = size(text)?;
    Some(size)
        .filter(least)
        .ok_or_else(|| "write 4k or more, as in 100m".to_owned())
}

/// What of the files is kept in memory.
#[derive(Args, Debug)]
#[command(next_help_heading = "Caching")]
pub(super) struct CachingFlags {
    /// Memory for small files and for the metadata of others; 0: none [default: 64m, or an eighth
    /// of the memory limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) cache: Option<u64>,

    /// Files up to this size are kept in memory; larger ones are kept open
    #[arg(long, value_name = "SIZE", default_value = "16k", value_parser = size)]
    cache_file: u64,

    /// Maximum number of files kept open
    #[arg(long, value_name = "N", default_value_t = 1024)]
    open_files: usize,

    /// Maximum age of cached metadata; 0s: look the file up for each request
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_or_none)]
    staleness: Duration,
}

impl CachingFlags {
    /// For the library; `bytes` of memory.
    pub(super) fn caching(&self, bytes: usize) -> Caching {
        Caching {
            bytes,
            file_bytes: self.cache_file,
            open_files: self.open_files,
            staleness: self.staleness,
        }
    }
}

/// Bounds on what one peer may delay and use.
#[derive(Args, Debug)]
#[command(next_help_heading = "Timeouts and limits")]
pub(super) struct LimitFlags {
    /// Time for a request's head to arrive, from its first byte; also for a new connection's first
    /// byte
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    header_timeout: Duration,

    /// Close a connection after this much silence between two requests
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    idle_timeout: Duration,

    /// Maximum silence within a request's body
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    body_timeout: Duration,

    /// Time for a client to accept any byte of an answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    write_timeout: Duration,

    /// Disconnect senders and readers slower than this many bytes a second, once their timeout has
    /// passed; 0: never
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    min_rate: u32,

    /// Memory to stay within, by limiting connections and requests in progress; excess requests are
    /// answered 503; 0: no such limits [default: the limit of the control group, or the machine's
    /// memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) max_memory: Option<u64>,

    /// Maximum connections, whatever the memory; more wait in the kernel's queue [default: what the
    /// memory limit and the descriptor limit allow]
    #[arg(long, value_name = "N")]
    pub(super) max_connections: Option<NonZeroUsize>,

    /// Maximum connections from one address, and of its HTTP/2 requests in progress; more are
    /// closed, or answered 503; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) max_per_address: usize,

    /// Close a connection after this many requests; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_requests: u32,
}

impl LimitFlags {
    /// For the library.
    fn limits(&self) -> Limits {
        Limits {
            header_timeout: self.header_timeout,
            idle_timeout: self.idle_timeout,
            body_timeout: self.body_timeout,
            write_timeout: self.write_timeout,
            min_rate: self.min_rate,
            requests: self.max_requests,
            connections_per_address: self.max_per_address,
            ..Limits::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory_bound::Each;
    use super::*;

    #[test]
    fn no_time_at_all() {
        assert_eq!(time_or_none("0s"), Ok(Duration::ZERO));
        assert_eq!(time_or_none("10s"), Ok(Duration::from_secs(10)));
        assert!(time_or_none("s").is_err());
    }

    fn parse(args: &[&str]) -> Flags {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            flags: Flags,
        }
        <Cli as clap::Parser>::parse_from([&["web"], args].concat()).flags
    }

    #[test]
    #[cfg(feature = "tls")]
    fn clients_with_certificates_are_served_by_tls_alone() {
        let pair = ["--tls-cert", "c", "--tls-key", "k"];
        let addresses = |more: &[&str]| {
            let flags = parse(&[&pair, more].concat());
            let Addresses { plain, tls, .. } = flags.addresses(&mut Inherited::default()).unwrap();
            (plain.len(), tls.len(), flags.tls.check(&plain).is_ok())
        };

        assert_eq!(addresses(&[]), (1, 1, true));
        assert_eq!(addresses(&["--tls-client-ca", "a"]), (0, 1, true));
        assert_eq!(
            addresses(&["--tls-client-ca", "a", "--listen", "80"]),
            (1, 1, false)
        );
        assert_eq!(
            addresses(&["--tls-client-ca", "a", "--listen", "80", "--https-redirect"]),
            (1, 1, true)
        );
    }

    #[test]
    fn defaults_are_the_library_s() {
        let flags = parse(&[]);
        let bound = MemoryBound::new(None, flags.caching.cache, Each::default());
        let own = flags.limits(&bound, 0);
        let limits = Limits {
            // It takes no bodies.
            #[cfg(feature = "http2")]
            http2: own.http2.clone(),
            ..Limits::default()
        };

        assert_eq!(format!("{own:?}"), format!("{limits:?}"));
        assert_eq!(flags.caching.caching(bound.cache), Caching::default());
    }
}
