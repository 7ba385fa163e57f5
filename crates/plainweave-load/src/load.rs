//! A load in a program, or a test, of one's own.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use super::conduct::Conductor;
use super::engine;
use super::files::Files;
use super::flags::{Common, Line, What};
use super::interrupt::Interrupt;
use super::objective::Condition;
use super::own::{Own, Protocol};
use super::plan::Plan;
use super::report::Report;
use super::results::Results;
use super::summary::{Outcome, Summary};
use super::sweep::Runs;
use super::target::{self, Target};
use super::verdict::{Objectives, Verdict};
use super::watchers::Watchers;
use super::{cache, http, http2};

/// A load: what is asked of which server, how often, and what its answers are held to.
///
/// Whatever `plainweave load` takes can be set by [`Load::with`], by the names of its flags; what
/// is not set is as there.
///
/// ```
/// use std::time::Duration;
///
/// use plainweave_http::{Request, Response, Server};
/// use plainweave_load::Load;
///
/// # let runtime = plainweave::Runtime::new()?;
/// # let server = std::sync::Arc::new(Server::new(|_: &mut Request<'_>| Response::ok("hello")));
/// # let address = runtime.run(|| {
/// #     server.start(plainweave::net::TcpListener::bind("127.0.0.1:0")?)
/// # })?;
/// let measured = Load::http(format!("http://{address}/"))
///     .connections(8)
///     .duration(Duration::from_millis(300))
///     .require("p99<=2s,errors<=0")
///     .run()?;
/// measured.check()?;
/// assert!(measured.answers() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The first objectives are always there, as in the program: no more than 1 % of the requests fail,
/// and at least 95 % of a rate is kept.
#[derive(Clone, Debug)]
#[must_use = "a load does nothing until it runs"]
pub struct Load<P = Spoken> {
    arguments: Vec<String>,
    require: Vec<String>,
    protocol: P,
}

/// A protocol that the program speaks: HTTP, or memcached's.
#[derive(Clone, Copy, Debug)]
pub struct Spoken(());

/// What a load over a protocol of one's own takes.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct OwnLine {
    #[command(flatten)]
    common: Common,

    servers: Vec<String>,
}

/// What a load came to.
#[derive(Debug)]
pub struct Measured {
    name: String,
    addresses: Vec<String>,
    plan: Plan,
    outcome: Outcome,
    verdict: Verdict,
}

/// Why a load could not be carried out, or what it has missed.
#[derive(Debug)]
pub struct Error(Kind);

#[derive(Debug)]
enum Kind {
    /// A flag is unknown, or its value is none.
    Wrong(String),
    /// No server there, or too few descriptors or ports.
    Failed(anyhow::Error),
    Missed(Vec<String>),
}

impl Load {
    /// Asks a server for a URL, over HTTP/1.1; `with("http2", "")` for HTTP/2.
    pub fn http(url: impl Into<String>) -> Self {
        Self::of("http", url.into())
    }

    /// Asks a cache that speaks memcached's protocol, `HOST:PORT` or the path of a Unix socket.
    pub fn cache(server: impl Into<String>) -> Self {
        Self::of("cache", server.into())
    }

    fn of(protocol: &str, server: String) -> Self {
        Self {
            arguments: vec![protocol.to_owned(), server, "--quiet".to_owned()],
            require: Vec::new(),
            protocol: Spoken(()),
        }
    }

    /// Asks a server, `HOST:PORT` or the path of a Unix socket, in a protocol of one's own.
    pub fn speaking<P: Protocol>(protocol: P, server: impl Into<String>) -> Load<P> {
        Load {
            arguments: vec![server.into(), "--quiet".to_owned()],
            require: Vec::new(),
            protocol,
        }
    }
}

impl<P> Load<P> {
    /// Starts this many requests a second, however long the answers take. Without a rate each
    /// connection asks again when it has its answer.
    pub fn rate(self, per_second: u32) -> Self {
        self.with("rate", per_second)
    }

    /// Uses this many connections.
    pub fn connections(self, connections: usize) -> Self {
        self.with("connections", connections)
    }

    /// Starts requests for so long.
    pub fn duration(self, duration: Duration) -> Self {
        self.with("duration", format!("{}ms", duration.as_millis()))
    }

    /// Sets a flag of `plainweave load`, by its name without the dashes; an empty value for one
    /// that takes none.
    pub fn with(mut self, flag: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        self.arguments.push(if value.is_empty() {
            format!("--{flag}")
        } else {
            format!("--{flag}={value}")
        });
        self
    }

    /// Requires all of these conditions, such as `p99<=5ms,errors<=0.1%`.
    pub fn require(mut self, conditions: impl Into<String>) -> Self {
        self.require.push(conditions.into());
        self
    }

    fn required(&self) -> Result<Vec<Condition>, Error> {
        let require = self
            .require
            .iter()
            .map(|conditions| Condition::parse_all(conditions))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|why| Error(Kind::Wrong(why)))?;
        Ok(require
            .into_iter()
            .flat_map(|conditions| conditions.0)
            .collect())
    }
}

impl<P: Protocol> Load<P> {
    /// Carries the load out, as that of a protocol which the program speaks; on threads too.
    ///
    /// # Errors
    /// As there.
    pub fn run(self) -> Result<Measured, Error> {
        let line = OwnLine::try_parse_from(&self.arguments)
            .map_err(|error| Error(Kind::Wrong(error.to_string())))?;
        let require = self.required()?;
        let targets = line
            .servers
            .iter()
            .map(|server| Target::named(server, None))
            .collect::<anyhow::Result<Vec<_>>>();
        let prepared = targets.map(|targets| (targets, Own(self.protocol)));
        measure(&line.common, prepared, require)
    }
}

impl Load {
    /// Carries the load out. Raises the process's limit on descriptors if it has to.
    ///
    /// Context: a thread, which it blocks; on a fiber by `plainweave::blocking`. The load has
    /// threads of its own.
    ///
    /// # Errors
    /// A flag or a condition is wrong ([`Error::is_wrong`]); no server is there; there are too few
    /// descriptors or ports. What was asked for and not kept is no error of this call:
    /// [`Measured::check`] says it.
    pub fn run(self) -> Result<Measured, Error> {
        let line = Line::try_parse_from(&self.arguments)
            .map_err(|error| Error(Kind::Wrong(error.to_string())))?;
        let require = self.required()?;

        let files = Files::own();
        match &line.flags.what {
            What::Http(own) if own.http2 => {
                measure(&own.common, http2::Http2::prepare(own, &files), require)
            }
            What::Http(own) => measure(&own.common, http::Http::prepare(own, &files), require),
            What::Cache(own) => measure(&own.common, cache::Cache::prepare(own, &files), require),
            What::Sessions(_) | What::Agent(_) => Err(wrong("this is no load")),
        }
    }
}

fn wrong(why: impl fmt::Display) -> Error {
    Error(Kind::Wrong(why.to_string()))
}

/// Makes one run.
fn measure<P: engine::Protocol>(
    common: &Common,
    prepared: anyhow::Result<(Vec<Target>, P)>,
    require: Vec<Condition>,
) -> Result<Measured, Error> {
    if !common.agents.is_empty() || common.rates.is_some() || common.search.is_some() {
        return Err(wrong(
            "agents, rates and search make several runs or none here: run the load again with another rate",
        ));
    }
    if common.csv.is_some() || common.json.is_some() || common.html.is_some() {
        return Err(wrong(
            "json, csv and html are the program's: ask what was measured",
        ));
    }

    let describe = |error: anyhow::Error| wrong(format!("{error:#}"));
    let (targets, protocol) = prepared.map_err(describe)?;
    let plan = Plan::new(common, protocol.depth(), protocol.each(), targets.len());
    let plan = plan.map_err(describe)?.with_streams(protocol.streams());
    let name = targets
        .iter()
        .map(|target| target.name.as_str())
        .collect::<Vec<_>>()
        .join(", ");

    let failed = |error| Error(Kind::Failed(error));
    target::allow_descriptors(plan.connections, plan.workers).map_err(failed)?;
    let addresses = targets
        .iter()
        .map(|target| target.probe(plan.timeout))
        .collect::<anyhow::Result<Vec<_>>>()
        .map_err(failed)?;
    target::enough_ports(plan.connections, &addresses).map_err(failed)?;

    let texts = addresses.iter().map(ToString::to_string).collect();
    let mut conductor = Conductor {
        protocol: Arc::new(protocol),
        addresses,
        interrupt: Interrupt::none(),
        watchers: Watchers::new(common).map_err(failed)?,
    };
    let outcome = conductor.run(&plan).map_err(failed)?;
    // Only a signal ends it without one, and none is caught.
    let outcome = outcome.ok_or_else(|| failed(anyhow::anyhow!("the load was interrupted")))?;
    Box::new(conductor).finish().map_err(failed)?;

    let mut objectives = Objectives::new(common);
    objectives.require.extend(require);
    let verdict = objectives.judge(&name, &Summary::new(&plan, &outcome));
    Ok(Measured {
        name,
        addresses: texts,
        plan,
        outcome,
        verdict,
    })
}

impl Measured {
    fn summary(&self) -> Summary<'_> {
        Summary::new(&self.plan, &self.outcome)
    }

    /// Returns whether every objective was met.
    ///
    /// # Errors
    /// One was missed, or a latency could not be judged since this process itself was too late
    /// ([`Error::missed`]).
    pub fn check(&self) -> Result<(), Error> {
        let notes = self.verdict.notes();
        if notes.is_empty() {
            Ok(())
        } else {
            Err(Error(Kind::Missed(notes)))
        }
    }

    /// Returns all that was measured.
    #[must_use]
    pub fn results(&self) -> Results {
        Report {
            name: &self.name,
            addresses: &self.addresses,
            summary: self.summary(),
            verdict: &self.verdict,
        }
        .results()
    }

    /// Returns how many requests were answered with success.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.outcome.tally.ok
    }

    /// Returns how many requests failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.outcome.tally.failures.total()
    }

    /// Returns the answers a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.summary().rate()
    }

    /// Returns a percentile of the latency, from when a request was due to the last byte of its
    /// answer: `latency(99.0)`. `None` if nothing was answered.
    #[must_use]
    pub fn latency(&self, percentile: f64) -> Option<Duration> {
        let microseconds = self.summary().latency(percentile)?;
        Some(Duration::from_secs_f64(microseconds / 1e6))
    }

    /// Returns why the latencies are partly this process's own, if they are.
    #[must_use]
    pub fn invalid(&self) -> Option<&str> {
        self.verdict.invalid.as_deref()
    }
}

impl Error {
    /// Returns whether a flag or a condition is wrong.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        matches!(self.0, Kind::Wrong(_))
    }

    /// Returns what was missed, a sentence each.
    #[must_use]
    pub fn missed(&self) -> &[String] {
        match &self.0 {
            Kind::Missed(notes) => notes,
            _ => &[],
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Wrong(why) => f.write_str(why.trim_end()),
            Kind::Failed(error) => write!(f, "{error:#}"),
            Kind::Missed(notes) => f.write_str(&notes.join("; ")),
        }
    }
}

impl StdError for Error {}
