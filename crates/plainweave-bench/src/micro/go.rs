//! The workloads in Go, a program of its own.

use anyhow::bail;

use super::child;
use super::{Figure, Size};
use crate::go::Program;

const SOURCES: [(&str, &str); 4] = [
    ("go.mod", include_str!("../../peers/go/go.mod")),
    ("main.go", include_str!("../../peers/go/main.go")),
    ("semaphore.go", include_str!("../../peers/go/semaphore.go")),
    ("semaphore.s", include_str!("../../peers/go/semaphore.s")),
];

/// The built program.
pub(super) struct Go(Program);

impl Go {
    /// # Errors
    /// `go` is not installed, or does not build the program.
    pub(super) fn build() -> anyhow::Result<Self> {
        Program::build(&SOURCES).map(Self)
    }

    /// One repetition.
    pub(super) fn run(&self, case: &str, size: &Size) -> anyhow::Result<Vec<Figure>> {
        let workers = size.workers;
        let (name, more) = match case {
            "yield" | "mutex" => (case, vec![("threads", 100 * workers)]),
            "yield-1" => ("yield", vec![("threads", workers)]),
            "cycle" => (case, vec![("threads", 100 * workers)]),
            "cycle-1" => ("cycle", vec![("threads", workers)]),
            "churn" | "locality" => (case, vec![("threads", 100 * workers), ("spots", 50 * workers)]),
            "churn-2" => ("churn", vec![("threads", 100 * workers), ("spots", 2)]),
            "locality-share" => ("locality", vec![("threads", 100 * workers), ("spots", 50 * workers), ("share", 1)]),
            "transfer-yield" => ("transfer", vec![]),
            "transfer-park" => ("transfer", vec![("parking", 1)]),
            "spawn-join" | "spawn-join-1" | "ping-pong" => (case, vec![]),
            other => bail!("Go has no case '{other}'"),
        };
        let mut command = self.0.command();
        command.arg(format!("-case={name}")).arg(format!("-workers={workers}"));
        command.arg(format!("-seconds={}", size.seconds));
        command.args(more.iter().map(|(flag, value)| format!("-{flag}={value}")));
        child::figures(command, size)
    }
}
