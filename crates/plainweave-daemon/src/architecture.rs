//! `--architecture`: what serves a connection, and where.
//!
//! Two servers and five architectures, so that they can be compared under the same traffic (`bench
//! shapes`). In each the code that serves a request is the same; they differ in which fiber runs
//! it, and on which runtime.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "a flag's doc comment is the text of --help, where `[:N]` is no link"
)]

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use plainweave::pools::{Pool, PoolSpec, Pools};
use plainweave::time::saturating_add;
use plainweave::trace::Tracer;
use plainweave::{Builder, Metrics, Runtime};

use crate::engine::{Described, Setup, TwoPools, labels};
use crate::hooks::Hooks;

/// Requests that may wait for the second stage of a pipeline, for each of its workers.
const QUEUE: usize = 8;
const ACCEPTORS: usize = 1024;
const STAGE_WORKERS: usize = 16;
/// The name of a pipeline's second stage.
const STAGE: &str = "stage";

/// The flags of both servers.
#[derive(Args, Clone, Copy, Debug)]
pub struct ArchitectureFlags {
    /// What serves a connection: driver (no fiber while it is idle, a new one when data arrives),
    /// fibers (one each), acceptors[:N] (N fibers, 1024 by default, each of which accepts a
    /// connection, serves it to its end and accepts the next), event-loops (a listener deals
    /// connections to workers that share nothing) or pipeline[:N] (N further threads, 16 by
    /// default, handle requests and may block)
    #[arg(long, value_name = "NAME", value_parser = Architecture::parse, default_value_t = Architecture::Driver)]
    pub architecture: Architecture,
}

/// What serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// A connection is a few bytes in the driver while it is idle; what it sends starts a fresh
    /// fiber.
    Driver,
    /// A connection has a fiber for life.
    Fibers,
    /// A number of fibers for each listener, made at the start. Each accepts a connection, serves
    /// it to its end and accepts the next one; so it is the most connections too. The web server of
    /// Cforall's thesis is made like this.
    Acceptors(NonZeroUsize),
    /// A runtime of one worker accepts, and deals connections in turn to as many runtimes of one
    /// worker as there are workers, where they stay as in `Driver`. memcached is made like this.
    EventLoops,
    /// As `Driver`, but each request is handled in a pool beside the runtime, of this many workers.
    /// A handler that blocks holds up one of these, and the connections go on.
    Pipeline(NonZeroUsize),
}

impl Architecture {
    /// Finds one by its name; the message says what is valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, number) = text
            .split_once(':')
            .map_or((text, None), |(name, number)| (name, Some(number)));
        let number = match number.map(str::parse::<NonZeroUsize>) {
            None => None,
            Some(Ok(number)) if number.get() <= 1 << 20 => Some(number),
            Some(_) => return Err("the number after the colon is from 1 to 1048576".to_owned()),
        };
        let or = |default| {
            number
                .or(NonZeroUsize::new(default))
                .unwrap_or(NonZeroUsize::MIN)
        };
        match (name, number) {
            ("driver", None) => Ok(Self::Driver),
            ("fibers", None) => Ok(Self::Fibers),
            ("acceptors", _) => Ok(Self::Acceptors(or(ACCEPTORS))),
            ("event-loops", None) => Ok(Self::EventLoops),
            ("pipeline", _) if or(1).get() > 1024 => {
                Err("a pipeline has at most 1024 threads".to_owned())
            }
            ("pipeline", _) => Ok(Self::Pipeline(or(STAGE_WORKERS))),
            ("driver" | "fibers" | "event-loops", Some(_)) => {
                Err(format!("{name} takes no number"))
            }
            _ => Err(
                "choose among driver, fibers, acceptors[:N], event-loops, pipeline[:N]".to_owned(),
            ),
        }
    }

    /// Returns whether a connection has a stack while it is idle.
    pub fn has_fiber_each(self) -> bool {
        matches!(self, Self::Fibers | Self::Acceptors(_))
    }

    /// Returns how many connections a listener can have at most.
    pub fn most_connections(self) -> usize {
        if let Self::Acceptors(number) = self {
            number.get()
        } else {
            usize::MAX
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver => f.write_str("driver"),
            Self::Fibers => f.write_str("fibers"),
            Self::Acceptors(number) => write!(f, "acceptors:{number}"),
            Self::EventLoops => f.write_str("event-loops"),
            Self::Pipeline(workers) => write!(f, "pipeline:{workers}"),
        }
    }
}

/// The runtimes of a server.
#[derive(Debug)]
pub struct Runtimes {
    /// What they serve by.
    pub architecture: Architecture,
    /// Accepts, and serves unless there are loops.
    pub main: Runtime,
    /// Apart, for the fibers that accept keep them, and must not keep the runtime on which they
    /// run.
    pub loops: Arc<Loops>,
    /// Where requests are handled, if not on these.
    stage: Option<Pools>,
    /// Whether `--pools` says what they are.
    from_pools: bool,
}

impl Runtimes {
    /// Starts them; `pools` takes the place of the architecture and of what `setup` says of
    /// workers, policy and mode.
    pub fn start(
        setup: Setup<'_>,
        architecture: Architecture,
        pools: Option<&TwoPools>,
    ) -> anyhow::Result<Self> {
        let one = Setup {
            workers: Some(NonZeroUsize::MIN),
            ..setup
        };

        let mut loops = Vec::new();
        let mut stage = None;
        let mut architecture = architecture;
        let main = match (architecture, pools) {
            (_, Some(TwoPools { connections, files })) => {
                let files = setup.start_pool(files.clone(), QUEUE * STAGE_WORKERS)?;
                let workers = stage_of(&files).map_or(0, Runtime::workers);
                architecture =
                    Architecture::Pipeline(NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN));
                stage = Some(files);
                setup.start_with(
                    connections
                        .builder()
                        .clone()
                        .thread_name(connections.name()),
                )?
            }
            (Architecture::EventLoops, _) => {
                loops = (0..setup.count())
                    .map(|_| one.start())
                    .collect::<Result<_, _>>()?;
                one.start()?
            }
            (Architecture::Pipeline(workers), _) => {
                let spec = PoolSpec::new(STAGE).runtime(
                    Setup {
                        workers: Some(workers),
                        ..setup
                    }
                    .builder(),
                );
                stage = Some(setup.start_pool(spec, QUEUE * workers.get())?);
                setup.start()?
            }
            _ => setup.start()?,
        };

        let loops = Arc::new(Loops {
            runtimes: loops,
            next: AtomicUsize::new(0),
        });

        Ok(Self {
            architecture,
            main,
            loops,
            stage,
            from_pools: pools.is_some(),
        })
    }

    fn all(&self) -> impl Iterator<Item = &Runtime> {
        let stage = self.stage.iter().filter_map(stage_of);
        std::iter::once(&self.main)
            .chain(&self.loops.runtimes)
            .chain(stage)
    }

    /// Returns each of them with what it does beside the others; an only one has no name.
    pub fn named(&self) -> impl Iterator<Item = (String, &Runtime)> {
        let main = if self.loops.runtimes.is_empty() {
            ""
        } else {
            "accepting"
        };

        let loops = self
            .loops
            .runtimes
            .iter()
            .enumerate()
            .map(|(n, runtime)| (format!("loop {n}:"), runtime));
        let stage = self
            .stage
            .iter()
            .filter_map(stage_of)
            .map(|stage| ("stage".to_owned(), stage));
        std::iter::once((main.to_owned(), &self.main))
            .chain(loops)
            .chain(stage)
    }

    /// Returns the metrics of each of them.
    pub fn metrics(&self) -> Vec<Metrics> {
        self.all().map(Runtime::metrics).collect()
    }

    /// Returns what they record, of each that is traced.
    pub fn tracers(&self) -> Vec<Tracer> {
        self.all().filter_map(Runtime::tracer).collect()
    }

    /// Returns the number of workers that serve connections.
    pub fn workers(&self) -> usize {
        let loops = self.loops.runtimes.iter().map(Runtime::workers).sum();
        if loops > 0 {
            loops
        } else {
            self.main.workers()
        }
    }

    /// Returns where requests are to be handled.
    pub fn handling(&self, hooks: &Hooks) -> Handling {
        let stage = self.stage.as_ref().and_then(|pools| pools.iter().next());
        Handling {
            stage: stage.cloned(),
            hooks: hooks.clone(),
        }
    }

    /// Returns what they were started with as labels of a metric.
    pub fn labels(&self) -> String {
        format!(
            "{},architecture=\"{}\"",
            labels(&self.main),
            self.architecture
        )
    }

    /// See [`Runtime::close_idle_connections`].
    pub fn close_idle_connections(&self) {
        self.all().for_each(Runtime::close_idle_connections);
    }

    /// Waits until nothing is left to run; false: `limit` was not enough.
    pub fn wait_idle(&self, limit: Duration) -> bool {
        let end = saturating_add(Instant::now(), limit);
        self.all()
            .all(|runtime| runtime.wait_idle(end.saturating_duration_since(Instant::now())))
    }

    /// Cancels what is left, and ends them.
    pub fn shutdown(self, limit: Duration) {
        let Self {
            main, loops, stage, ..
        } = self;
        main.shutdown(limit);
        stage.map(|pools| pools.shutdown(limit));

        // What is left of these, if anything is, holds them.
        let loops = Arc::into_inner(loops)
            .into_iter()
            .flat_map(|loops| loops.runtimes);
        loops.for_each(|runtime| _ = runtime.shutdown(limit));
    }
}

impl fmt::Display for Runtimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Described(&self.main).fmt(f)?;
        match self.architecture {
            Architecture::Driver => Ok(()),
            Architecture::EventLoops => write!(
                f,
                ", architecture event-loops:{}",
                self.loops.runtimes.len()
            ),
            other => write!(f, ", architecture {other}"),
        }?;
        match self.stage.as_ref().filter(|_| self.from_pools) {
            Some(pools) => pools
                .iter()
                .zip(stage_of(pools))
                .try_for_each(|(pool, runtime)| {
                    write!(f, ", pool {}: {}", pool.name(), Described(runtime))
                }),
            None => Ok(()),
        }
    }
}

/// Returns the runtime of the only pool.
fn stage_of(pools: &Pools) -> Option<&Runtime> {
    pools.runtime(pools.iter().next()?.name())
}

/// Runtimes of one worker each.
#[derive(Debug)]
pub struct Loops {
    runtimes: Vec<Runtime>,
    next: AtomicUsize,
}

impl Loops {
    /// There are none: connections stay where they are accepted.
    pub fn none() -> Self {
        Self {
            runtimes: Vec::new(),
            next: AtomicUsize::new(0),
        }
    }

    /// Serves a new connection by a fresh fiber: on the next of these runtimes, or if there are
    /// none, on the next worker of the calling fiber's runtime.
    pub fn deal(&self, serve: impl FnOnce() + Send + 'static) {
        match self
            .next
            .fetch_add(1, Relaxed)
            .checked_rem(self.runtimes.len())
        {
            Some(next) => drop(self.runtimes[next].spawn(serve)),
            // It fails only for settings that are out of range, or outside a runtime.
            None => drop(Builder::new().in_turn().spawn(serve)),
        }
    }
}

/// Where requests are handled: where they are read, or on the second stage of a pipeline, which
/// takes a bounded number.
#[derive(Debug, Default)]
pub struct Handling {
    stage: Option<Pool>,
    hooks: Hooks,
}

impl Handling {
    /// Handles a request by `work`, and waits for its value.
    ///
    /// # Errors
    /// The caller was cancelled or late before the second stage had room, or that has ended.
    pub fn call<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let work = || {
            if let Some(on_request) = &self.hooks.on_request {
                on_request();
            }
            work()
        };

        match &self.stage {
            Some(stage) => stage.call(work),
            None => Ok(work()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in [
            "driver",
            "fibers",
            "acceptors:7",
            "event-loops",
            "pipeline:2",
        ] {
            assert_eq!(
                Architecture::parse(name).map(|found| found.to_string()),
                Ok(name.to_owned())
            );
        }

        assert_eq!(
            Architecture::parse("acceptors").unwrap().to_string(),
            "acceptors:1024"
        );
        assert_eq!(
            Architecture::parse("pipeline").unwrap().to_string(),
            "pipeline:16"
        );
        let refused = [
            "",
            "fiber",
            "fibers:2",
            "acceptors:0",
            "acceptors:x",
            "pipeline:1025",
            "acceptors:1048577",
        ];
        for name in refused {
            assert!(Architecture::parse(name).is_err(), "{name}");
        }
    }
}
