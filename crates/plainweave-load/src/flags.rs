//! The flags of `plainweave load`, as data.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::connect_to::ConnectTo;
use super::distribution::Distribution;
use super::exit::exit_codes;
use super::objective::{Condition, Conditions};
use super::popularity::{exponent, number_in};
use super::rates::{Rate, Rates};
use super::sessions::SessionFlags;
use super::tls::TlsFlags;
use plainweave_daemon::flag::{address, time};
use plainweave_daemon::runtime_flags::RuntimeFlags;

const EXAMPLES: &str = concat!(
    "\
Examples:
  plainweave load http http://127.0.0.1:8080/                        closed loop: 64 connections for 10 s
  plainweave load http --rate 5000 --arrivals poisson http://host/   open loop: 5,000 requests a second
  plainweave load http --urls list.txt --zipf 0.9 --connections 5000
  plainweave load http --no-keep-alive --requests 100000 --json=out.json http://host/
  plainweave load http --data orders.csv --rate 200 http://host/     a request a line
  plainweave load http --method PUT --body-file item.json --header 'Content-Type: application/json' http://host/items
  plainweave load sessions logs --paths paths.txt && plainweave load http --sessions logs --rate 500 http://host/
  plainweave load http --agents 10.0.0.2:7411,10.0.0.3:7411 --agent-secret-file secret --rate 200k http://host/
  plainweave load http --rates 10k..70k/13 --duration 5m --pause 20s --csv=sweep.csv http://host/
  plainweave load http --http2 --streams 32 --connections 4 --ca ca.pem https://host/
  plainweave load http --no-keep-alive --no-resumption --ca ca.pem https://host/     a full handshake for each request
  plainweave load http --search 'p99<=5ms,errors<=0.1%' http://host/
  plainweave load http --rate 2000 --fail-if 'p99>20ms' --fail-if 'errors>0.1%' http://host/

In the open loop requests start by a clock that does not wait for answers, and latency counts from the time at which a
request was meant to start. In the closed loop each connection asks again when it has its answer.
A first SIGINT ends the run with a report, a second one ends the program.

",
    exit_codes!()
);

const CACHE_EXAMPLES: &str = concat!(
    "\
Examples:
  plainweave load cache 127.0.0.1:11211                                   10,000 keys of 30 bytes, values of 200
  plainweave load cache host:11211 --rate 50000 --arrivals poisson --set-ratio 0.03 --connections 1000
  plainweave load cache host --keys 100000 --key-size fb_key --value-size fb_value --arrivals fb_ia --rate 20000
  plainweave load cache --tls --ca ca.pem host:11211                      over TLS

A distribution is written as mutilate does: fixed:N (or N), uniform:MAX, normal:MEAN,SD, exponential:RATE,
pareto:LOC,SCALE,SHAPE, gev:LOC,SCALE,SHAPE, weibull:SCALE,SHAPE, or one of the fits fb_key, fb_value and fb_ia.

",
    exit_codes!()
);

/// Put load on a server and measure its answers.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(subcommand)]
    pub(super) what: What,
}

/// What stands behind `plainweave load`: agents get it from their coordinator.
#[derive(Debug, Parser)]
#[command(name = "plainweave load", no_binary_name = true)]
pub(super) struct Line {
    #[command(flatten)]
    pub(super) flags: Flags,
}

/// A protocol.
#[derive(Debug, Subcommand)]
pub(super) enum What {
    Http(Box<HttpFlags>),
    Cache(Box<CacheFlags>),
    Sessions(Box<SessionFlags>),
    Agent(AgentFlags),
}

/// Ask HTTP servers for URLs, over HTTP/1.1 or HTTP/2.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct HttpFlags {
    /// What to ask for, in turn; connections go in turn to the servers that are named
    #[arg(
        value_name = "URL",
        required_unless_present_any = ["list", "data"],
        help_heading = "What to ask for"
    )]
    pub(super) urls: Vec<String>,

    /// File with a URL a line, after those given; lines that begin with # are left out
    #[arg(long = "urls", value_name = "FILE", help_heading = "What to ask for")]
    pub(super) list: Option<PathBuf>,

    /// File with a request a line, asked for in turn: JSON objects with url, method, body and
    /// headers, or CSV (FILE.csv) whose head names url, method, body and header fields. A url may
    /// be a path on the server that URL names
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["list", "sessions"],
        help_heading = "What to ask for"
    )]
    pub(super) data: Option<PathBuf>,

    /// Replay session logs, of a file or of a folder's *.log; may be repeated. `load sessions`
    /// writes some
    #[arg(long, value_name = "PATH", help_heading = "What to ask for")]
    pub(super) sessions: Vec<PathBuf>,

    /// Choose URLs by a Zipf distribution of this exponent, the first most often; 0: all alike
    /// [default: in turn]
    #[arg(long, value_name = "S", value_parser = exponent, help_heading = "What to ask for")]
    pub(super) zipf: Option<f64>,

    /// Header field of each request; may be repeated
    #[arg(
        long = "header",
        value_name = "NAME: VALUE",
        help_heading = "What to ask for"
    )]
    pub(super) headers: Vec<String>,

    /// File with a header field a line; may be repeated
    #[arg(
        long = "header-file",
        value_name = "FILE",
        help_heading = "What to ask for"
    )]
    pub(super) header_files: Vec<PathBuf>,

    /// Method [default: GET, with a body POST]
    #[arg(long, value_name = "METHOD", help_heading = "What to ask for")]
    pub(super) method: Option<String>,

    /// Body of each request
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "body_file",
        help_heading = "What to ask for"
    )]
    pub(super) body: Option<String>,

    /// File with the body of each request
    #[arg(long, value_name = "FILE", help_heading = "What to ask for")]
    pub(super) body_file: Option<PathBuf>,

    /// For a URL's HOST:PORT connect to TO:PORT, as curl does; an empty part is any, or the same.
    /// Host and the name in certificates stay; may be repeated
    #[arg(
        long,
        value_name = "HOST:PORT:TO:PORT",
        value_parser = ConnectTo::parse,
        help_heading = "What to ask for"
    )]
    pub(super) connect_to: Vec<ConnectTo>,

    /// Connect by this Unix socket, whatever hosts the URLs name
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with = "connect_to",
        help_heading = "What to ask for"
    )]
    pub(super) unix_socket: Option<PathBuf>,

    /// A connection for each request
    #[arg(long, help_heading = "What to ask for")]
    pub(super) no_keep_alive: bool,

    /// Speak HTTP/2: over TLS where the URL says https://, else in clear text from the first byte
    #[arg(long, help_heading = "What to ask for")]
    pub(super) http2: bool,

    /// HTTP/2: requests in progress on a connection, at most [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000), requires = "http2")]
    #[arg(help_heading = "What to ask for")]
    pub(super) streams: Option<u16>,

    /// Follow redirects on the same server, at most N for a request, and count them towards its
    /// latency; one that is not followed is an error
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with_all = ["http2", "no_keep_alive"],
        help_heading = "What to ask for"
    )]
    pub(super) redirects: u8,

    /// Status that is a success; may be repeated [default: 200 to 399]
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(200..=999))]
    #[arg(help_heading = "What to expect")]
    pub(super) status: Vec<u16>,

    /// Bytes that a successful answer's body must have [default: what its head says]
    #[arg(long, value_name = "BYTES", help_heading = "What to expect")]
    pub(super) body_length: Option<u64>,

    #[command(flatten)]
    pub(super) tls: TlsFlags,

    #[command(flatten)]
    pub(super) common: Common,
}

/// Get and set keys of a cache that speaks memcached's text protocol.
#[derive(Args, Debug)]
#[command(after_help = CACHE_EXAMPLES)]
pub(super) struct CacheFlags {
    /// Servers, HOST[:PORT] or the path of a Unix socket; connections go to them in turn, and each
    /// holds all keys [port: 11211]
    #[arg(
        value_name = "HOST:PORT",
        required = true,
        help_heading = "What to ask for"
    )]
    pub(super) servers: Vec<String>,

    /// Number of keys
    #[arg(
        long,
        value_name = "N",
        default_value = "10000",
        help_heading = "What to ask for"
    )]
    pub(super) keys: NonZeroU32,

    /// Keys from a file instead, one a line, with the bytes of its value if a number follows; a key
    /// that stands in it twice is asked for twice as often. With --no-load values of any size are
    /// right
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["keys", "key_size"],
        help_heading = "What to ask for"
    )]
    pub(super) keys_from: Option<PathBuf>,

    /// Bytes of a key, a distribution; 250 at most
    #[arg(long, value_name = "DIST", default_value = "30", value_parser = Distribution::parse)]
    #[arg(help_heading = "What to ask for")]
    pub(super) key_size: Distribution,

    /// Bytes of a value, a distribution; 1000000 at most
    #[arg(long, value_name = "DIST", default_value = "200", value_parser = Distribution::parse)]
    #[arg(help_heading = "What to ask for")]
    pub(super) value_size: Distribution,

    /// Share of requests that store, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share, help_heading = "What to ask for")]
    pub(super) set_ratio: f64,

    /// Share of requests that delete, 0 to 1; those that neither store nor delete get
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share, help_heading = "What to ask for")]
    pub(super) delete_ratio: f64,

    /// Keys of a get
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=100))]
    #[arg(help_heading = "What to ask for")]
    pub(super) multi_get: u16,

    /// Commands: classic (get, set, delete) or meta (mg, ms, md)
    #[arg(
        long,
        value_name = "COMMANDS",
        default_value = "classic",
        help_heading = "What to ask for"
    )]
    pub(super) protocol: Dialect,

    /// Choose keys by a Zipf distribution of this exponent [default: all alike]
    #[arg(long, value_name = "S", value_parser = exponent, help_heading = "What to ask for")]
    pub(super) zipf: Option<f64>,

    /// Requests sent together on a connection; in the open loop, of those that are due
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        help_heading = "What to ask for"
    )]
    pub(super) depth: NonZeroUsize,

    /// Leave out the load phase, which stores all keys before the load
    #[arg(long, help_heading = "What to ask for")]
    pub(super) no_load: bool,

    /// Speak TLS; servers' certificates are checked
    #[arg(long, help_heading = "TLS")]
    pub(super) tls: bool,

    #[command(flatten)]
    pub(super) trust: TlsFlags,

    #[command(flatten)]
    pub(super) common: Common,
}

/// What all load generators share.
#[derive(Args, Debug)]
pub(super) struct Common {
    /// Connections
    #[arg(
        long,
        short,
        value_name = "N",
        default_value = "64",
        help_heading = "How much"
    )]
    pub(super) connections: NonZeroUsize,

    /// How many connections go to each server, in proportion, as in 3,1 [default: as many to each]
    #[arg(long, value_name = "N,N,...", value_parser = Weights::parse, help_heading = "How much")]
    pub(super) weights: Option<Weights>,

    /// Open loop: requests a second over all connections, as in 500 or 10k; 1k..10k grows steadily
    /// [default: closed loop]
    #[arg(long, value_name = "R", value_parser = Rate::parse, help_heading = "How much")]
    pub(super) rate: Option<Rate>,

    /// Open loop: constant, poisson, or a distribution of the gaps, stretched to the rate
    #[arg(long, value_name = "DIST", default_value = "constant", value_parser = arrivals, help_heading = "How much")]
    pub(super) arrivals: Arrivals,

    /// Open loop: before the warm-up, let the rate grow from 0 for this time
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "How much")]
    pub(super) ramp: Option<Duration>,

    /// Open loop: a run at each of these rates, as in 10k..70k/13 (13 of them, evenly spaced) or
    /// 1k,2k,5k
    #[arg(long, value_name = "RATES", value_parser = Rates::parse, conflicts_with = "rate", help_heading = "Steps")]
    pub(super) rates: Option<Rates>,

    /// Open loop: find the highest rate at which all of these hold, as in 'p99<=5ms,errors<=0.1%';
    /// --rate is the first that is tried, 1000 by default
    #[arg(long, value_name = "CONDITIONS", value_parser = Condition::parse_all, conflicts_with = "rates")]
    #[arg(help_heading = "Steps")]
    pub(super) search: Option<Conditions>,

    /// End a search when what is left to find is below this share of the rate
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = precision, requires = "search")]
    #[arg(help_heading = "Steps")]
    pub(super) precision: f64,

    /// Pause between two steps
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time, help_heading = "Steps")]
    pub(super) pause: Duration,

    /// How long requests are started, the warm-up not included [default: 10s, without --requests]
    #[arg(long, short, value_name = "TIME", value_parser = time, help_heading = "How much")]
    pub(super) duration: Option<Duration>,

    /// Requests to start, the warm-up's included
    #[arg(long, short = 'n', value_name = "N", help_heading = "How much")]
    pub(super) requests: Option<NonZeroU64>,

    /// Time before the measurement, under the same load
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "How much")]
    pub(super) warm_up: Option<Duration>,

    /// An answer that takes longer is an error
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time, help_heading = "How much")]
    pub(super) timeout: Duration,

    /// Exit with 1 if more than this share of the requests failed; always if all did
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = share, help_heading = "What to expect")]
    pub(super) max_errors: f64,

    /// Exit with 1 if less than this share of the rate asked for was answered in time; 0: never
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = share, help_heading = "What to expect")]
    pub(super) min_rate: f64,

    /// Exit with 1 if this holds, as in 'p99>20ms'; may be repeated. Of p50 or another percentile,
    /// mean, max and lateness in us, ms or s; errors, misses, or a status as 503 or 5xx, a number
    /// or a share as in 0.1%; rate, as in 10k, or 95% of --rate
    #[arg(long, value_name = "CONDITION", value_parser = Condition::parse, help_heading = "What to expect")]
    pub(super) fail_if: Vec<Condition>,

    /// A run is invalid if this program itself sent later than this share of the latency, p99 of
    /// both
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = share, help_heading = "What to expect")]
    pub(super) max_lateness: f64,

    /// Seed of everything that is drawn
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "How much")]
    pub(super) seed: u64,

    #[command(flatten)]
    pub(super) runtime: RuntimeFlags,

    /// Make the load by these agents together, in equal parts; see `load agent`
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        value_delimiter = ',',
        help_heading = "Agents"
    )]
    pub(super) agents: Vec<String>,

    /// File with the secret that the agents know
    #[arg(
        long,
        value_name = "FILE",
        requires = "agents",
        help_heading = "Agents"
    )]
    pub(super) agent_secret_file: Option<PathBuf>,

    /// An agent that sends nothing for this time is lost, and the load ends; 2s at least [default:
    /// 30s]
    #[arg(long, value_name = "TIME", value_parser = silence, requires = "agents", help_heading = "Agents")]
    pub(super) agent_timeout: Option<Duration>,

    /// Address and port, or a port on 127.0.0.1, that serves the figures so far while the load
    /// runs: /metrics (Prometheus)
    #[arg(long, value_name = "ADDR", value_parser = address, help_heading = "Output")]
    pub(super) admin: Option<SocketAddr>,

    /// Show nothing while the load runs
    #[arg(long, help_heading = "Output")]
    pub(super) quiet: bool,

    /// Write the result as a page with plots, which needs nothing beside it
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,

    /// Write a histogram for each second, as an interval log that HdrHistogram's tools read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) hdr_log: Option<PathBuf>,

    /// Write the result as CSV too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) csv: Option<PathBuf>,

    /// Write the result as JSON: into a file (--json=FILE), or in place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    #[arg(help_heading = "Output")]
    pub(super) json: Option<PathBuf>,
}

/// Wait for a coordinator (--agents), and carry out the part of a load that it sends.
#[derive(Args, Debug)]
#[command(after_help = AGENT_WARNING)]
pub(super) struct AgentFlags {
    /// Address to listen on; beyond this host's own a secret is needed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7411")]
    pub(super) listen: SocketAddr,

    /// File with the secret that coordinators must know, 16 bytes at least
    #[arg(long, value_name = "FILE")]
    pub(super) secret_file: Option<PathBuf>,
}

const AGENT_WARNING: &str = "\
An agent carries out whatever load it is asked for, against any address that it can reach. It reads no files of its own
for that, and writes none. The secret proves who asks; it does not encrypt: use an agent on networks that you trust.";

/// The commands that a cache is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Dialect {
    /// get, set, delete
    Classic,
    /// mg, ms, md
    Meta,
}

/// A whole number for each server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weights(pub(super) Vec<u32>);

impl Weights {
    fn parse(text: &str) -> Result<Self, String> {
        let weight = |text: &str| {
            text.trim()
                .parse()
                .ok()
                .filter(|weight| (1..=1000).contains(weight))
        };
        let weights: Option<Vec<u32>> = text.split(',').map(weight).collect();
        weights.map(Self).ok_or_else(|| {
            "write a whole number from 1 to 1000 for each server, as in 3,1".to_owned()
        })
    }
}

/// How requests of an open loop follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrivals {
    /// Evenly spaced
    Constant,
    /// Independent of each other: exponential gaps
    Poisson,
    /// Gaps that follow a distribution, stretched to the rate.
    Distribution(Distribution),
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text {
        "constant" => Ok(Arrivals::Constant),
        "poisson" => Ok(Arrivals::Poisson),
        _ => Distribution::parse(text)
            .map(Arrivals::Distribution)
            .map_err(|error| format!("write constant or poisson, or a distribution: {error}")),
    }
}

/// Parses for how long an agent may be silent: it says each second that it is there.
fn silence(text: &str) -> Result<Duration, String> {
    let silence = time(text)?;
    if silence >= Duration::from_secs(2) {
        Ok(silence)
    } else {
        Err("write 2s or more: agents speak each second".to_owned())
    }
}

/// Parses how exactly a rate is to be found.
fn precision(text: &str) -> Result<f64, String> {
    number_in(text, "a share", 0.001..=1.0, 0.05)
}

/// Parses a share of 1.
fn share(text: &str) -> Result<f64, String> {
    number_in(text, "a share", 0.0..=1.0, 0.03)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert!(
            ["", "0", "-1s", "1.5s", "1d"]
                .iter()
                .all(|text| time(text).is_err())
        );
        assert_eq!(precision("0.01"), Ok(0.01));

        assert!(
            ["", "0", "-1", "nan", "2"]
                .iter()
                .all(|text| precision(text).is_err())
        );
    }
}
