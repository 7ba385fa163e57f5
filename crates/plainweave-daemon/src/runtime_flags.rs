//! The flags that choose a runtime, of the servers and of the load generators.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::architecture::ArchitectureFlags;
use crate::engine::{self, Io};
use crate::mode::Mode;

/// Workers, driver and policy.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Runtime")]
pub struct RuntimeFlags {
    /// Worker threads [default: the CPUs of the affinity mask and the cgroup quota]
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,

    /// I/O driver; naming one that is unavailable is an error [default: io_uring, else epoll]
    #[arg(long, value_name = "DRIVER", env = "PLAINWEAVE_IO")]
    pub io: Option<Io>,

    /// Scheduling policy, optionally with parameters; `plainweave policies` lists them [default:
    /// fifo:capacity=16384]
    #[arg(long, value_name = "NAME[:param=value,...]", value_parser = engine::policy)]
    pub policy: Option<String>,
}

/// What a server may have beside.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Runtime")]
pub struct ServingFlags {
    /// When fibers move between workers, and whose thread-local storage they see: anytime/own,
    /// before-start/own, never/own, before-start/shared or never/shared. Only in the first does a
    /// fiber that holds up its worker hold up no others
    #[arg(long, value_name = "MODE", value_parser = Mode::parse, default_value_t = Mode::usual())]
    pub mode: Mode,

    /// What serves a connection.
    #[command(flatten)]
    pub architecture: ArchitectureFlags,

    /// Log what held up a worker for more than 10 ms to standard error, at most once a second, and
    /// show it on the page of --admin; resolving function names takes some memory (30 MB in a debug
    /// build)
    #[arg(long)]
    pub report_stalls: bool,

    /// Keep the last 65,536 events of each worker in memory, and write them to this file on SIGUSR2
    /// and at exit, in Chrome's trace format; see docs/trace.md in the sources
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}
