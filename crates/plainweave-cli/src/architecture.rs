//! `--architecture`: what serves a connection, and where.
//!
//! Two servers and five architectures, so that they can be compared under the same traffic (`bench shapes`). In each
//! the code that serves a request is the same; they differ in which fiber runs it, and on which runtime.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use plainweave::sync::Semaphore;
use plainweave::{Metrics, Runtime};

use crate::bench_block::{BenchBlock, Blocker};
use crate::engine::{Described, Setup, labels};

/// Requests that may wait for the second stage of a pipeline, for each of its workers.
const QUEUE: usize = 8;
const ACCEPTORS: usize = 1024;
const STAGE_WORKERS: usize = 16;

/// The flags of both servers.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ArchitectureFlags {
    /// What serves a connection: driver (nothing while it is idle, then a fresh fiber), fibers (one each),
    /// acceptors[:N] (N fibers, each of which accepts a connection, serves it to its end and accepts the next; 1024
    /// unless given), event-loops (a listener deals them to workers that share nothing) or pipeline[:N] (requests are
    /// handled on N further threads, which may block; 16 unless given)
    #[arg(long, value_name = "NAME", value_parser = Architecture::parse, default_value_t = Architecture::Driver)]
    pub(crate) architecture: Architecture,
}

/// What serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// A connection is a few bytes in the driver while it is idle; what it sends starts a fresh fiber.
    Driver,
    /// A connection has a fiber for life.
    Fibers,
    /// A number of fibers for each listener, made at the start. Each accepts a connection, serves it to its end and
    /// accepts the next one; so it is the most connections too. The web server of Cforall's thesis is made like this.
    Acceptors(NonZeroUsize),
    /// A runtime of one worker accepts, and deals connections in turn to as many runtimes of one worker as there are
    /// workers, where they stay as in `Driver`. memcached is made like this.
    EventLoops,
    /// As `Driver`, but each request is handled on a second runtime, of this many workers. A handler that blocks holds
    /// up one of these, and the connections go on.
    Pipeline(NonZeroUsize),
}

impl Architecture {
    /// Finds one by its name; the message says what is valid.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let number = match number.map(str::parse::<NonZeroUsize>) {
            None => None,
            Some(Ok(number)) if number.get() <= 1 << 20 => Some(number),
            Some(_) => return Err("the number after the colon is from 1 to 1048576".to_owned()),
        };
        let or = |default| number.or(NonZeroUsize::new(default)).unwrap_or(NonZeroUsize::MIN);
        match (name, number) {
            ("driver", None) => Ok(Self::Driver),
            ("fibers", None) => Ok(Self::Fibers),
            ("acceptors", _) => Ok(Self::Acceptors(or(ACCEPTORS))),
            ("event-loops", None) => Ok(Self::EventLoops),
            ("pipeline", _) if or(1).get() > 1024 => Err("a pipeline has at most 1024 threads".to_owned()),
            ("pipeline", _) => Ok(Self::Pipeline(or(STAGE_WORKERS))),
            ("driver" | "fibers" | "event-loops", Some(_)) => Err(format!("{name} takes no number")),
            _ => Err("choose among driver, fibers, acceptors[:N], event-loops, pipeline[:N]".to_owned()),
        }
    }

    /// Returns whether a connection has a stack while it is idle.
    pub(crate) fn has_fiber_each(self) -> bool {
        matches!(self, Self::Fibers | Self::Acceptors(_))
    }

    /// Returns how many connections a listener can have at most.
    pub(crate) fn most_connections(self) -> usize {
        if let Self::Acceptors(number) = self { number.get() } else { usize::MAX }
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
pub(crate) struct Runtimes {
    pub(crate) architecture: Architecture,
    /// Accepts, and serves unless there are loops.
    pub(crate) main: Runtime,
    /// Apart, for the fibers that accept keep them, and must not keep the runtime on which they run.
    pub(crate) loops: Arc<Loops>,
    stage: Option<Arc<Stage>>,
}

impl Runtimes {
    /// Starts them. `start` starts one.
    pub(crate) fn start<'a>(
        setup: Setup<'a>,
        architecture: Architecture,
        start: impl Fn(Setup<'a>) -> anyhow::Result<Runtime>,
    ) -> anyhow::Result<Self> {
        let several = matches!(architecture, Architecture::EventLoops | Architecture::Pipeline(_));
        ensure!(
            !several || setup.waits.is_none(),
            "--bench-waits observes one runtime, and {architecture} has several"
        );
        let one = Setup { workers: Some(NonZeroUsize::MIN), ..setup };
        let (mut loops, mut stage) = (Vec::new(), None);
        let main = match architecture {
            Architecture::EventLoops => {
                let workers = setup.workers.or(available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
                loops = (0..workers.get()).map(|_| start(one)).collect::<Result<_, _>>()?;
                start(one)?
            }
            Architecture::Pipeline(workers) => {
                let runtime = start(Setup { workers: Some(workers), ..setup })?;
                stage = Some(Arc::new(Stage { runtime, room: Semaphore::new(QUEUE * workers.get()) }));
                start(setup)?
            }
            _ => start(setup)?,
        };
        Ok(Self { architecture, main, loops: Arc::new(Loops { runtimes: loops, next: AtomicUsize::new(0) }), stage })
    }

    fn all(&self) -> impl Iterator<Item = &Runtime> {
        let stage = self.stage.iter().map(|stage| &stage.runtime);
        std::iter::once(&self.main).chain(&self.loops.runtimes).chain(stage)
    }

    /// Returns the metrics of each of them.
    pub(crate) fn metrics(&self) -> Vec<Metrics> {
        self.all().map(Runtime::metrics).collect()
    }

    /// Returns the number of workers that serve connections.
    pub(crate) fn workers(&self) -> usize {
        let loops = self.loops.runtimes.iter().map(Runtime::workers).sum();
        if loops > 0 { loops } else { self.main.workers() }
    }

    /// Returns where requests are to be handled.
    pub(crate) fn handling(&self, block: Option<BenchBlock>) -> Handling {
        Handling { stage: self.stage.clone(), blocker: block.map(Blocker::new) }
    }

    /// Returns what they were started with as labels of a metric.
    pub(crate) fn labels(&self) -> String {
        format!("{},architecture=\"{}\"", labels(&self.main), self.architecture)
    }

    /// See [`Runtime::close_idle_connections`].
    pub(crate) fn close_idle_connections(&self) {
        self.all().for_each(Runtime::close_idle_connections);
    }

    /// Waits until nothing is left to run; false: `limit` was not enough.
    pub(crate) fn wait_idle(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        self.all().all(|runtime| runtime.wait_idle(end.saturating_duration_since(Instant::now())))
    }

    /// Cancels what is left, and ends them.
    pub(crate) fn shutdown(self, limit: Duration) {
        let Self { main, loops, .. } = self;
        main.shutdown(limit);
        // What is left of these, if anything is, holds them.
        let loops = Arc::into_inner(loops).into_iter().flat_map(|loops| loops.runtimes);
        loops.for_each(|runtime| _ = runtime.shutdown(limit));
    }
}

impl fmt::Display for Runtimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Described(&self.main).fmt(f)?;
        match self.architecture {
            Architecture::Driver => Ok(()),
            Architecture::EventLoops => write!(f, ", architecture event-loops:{}", self.loops.runtimes.len()),
            other => write!(f, ", architecture {other}"),
        }
    }
}

/// Runtimes of one worker each.
#[derive(Debug)]
pub(crate) struct Loops {
    runtimes: Vec<Runtime>,
    next: AtomicUsize,
}

impl Loops {
    /// Returns the one that gets the next connection; `None`: the runtime that accepts keeps it.
    pub(crate) fn deal(&self) -> Option<&Runtime> {
        let next = self.next.fetch_add(1, Relaxed);
        self.runtimes.get(next.checked_rem(self.runtimes.len())?)
    }
}

/// Where requests are handled: where they are read, or on the second stage of a pipeline.
#[derive(Debug, Default)]
pub(crate) struct Handling {
    stage: Option<Arc<Stage>>,
    blocker: Option<Blocker>,
}

impl Handling {
    /// Handles a request by `work`, and waits for its value.
    ///
    /// # Errors
    /// The wait for room on the second stage was cancelled.
    pub(crate) fn call<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let work = || {
            self.blocker.as_ref().map(Blocker::pass);
            work()
        };
        match &self.stage {
            Some(stage) => stage.call(work),
            None => Ok(work()),
        }
    }
}

/// The second stage of a pipeline: workers that may block, behind a bounded queue.
#[derive(Debug)]
struct Stage {
    runtime: Runtime,
    /// What the stage takes: a permit for each request that is handled or waits there.
    room: Semaphore,
}

impl Stage {
    /// Runs `work` there, once there is room.
    fn call<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let _permit = self.room.acquire()?;
        Ok(self.runtime.run(work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["driver", "fibers", "acceptors:7", "event-loops", "pipeline:2"] {
            assert_eq!(Architecture::parse(name).map(|found| found.to_string()), Ok(name.to_owned()));
        }
        assert_eq!(Architecture::parse("acceptors").unwrap().to_string(), "acceptors:1024");
        assert_eq!(Architecture::parse("pipeline").unwrap().to_string(), "pipeline:16");
        let refused = ["", "fiber", "fibers:2", "acceptors:0", "acceptors:x", "pipeline:1025", "acceptors:1048577"];
        for name in refused {
            assert!(Architecture::parse(name).is_err(), "{name}");
        }
    }
}
