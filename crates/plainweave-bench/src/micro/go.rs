//! Go as a program of its own, built from the source beside this crate where `go` is installed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::child;
use super::{Figure, Size};

const SOURCES: [(&str, &str); 4] = [
    ("go.mod", include_str!("../../peers/go/go.mod")),
    ("main.go", include_str!("../../peers/go/main.go")),
    ("semaphore.go", include_str!("../../peers/go/semaphore.go")),
    ("semaphore.s", include_str!("../../peers/go/semaphore.s")),
];

/// The built program; its folder goes with it.
pub(super) struct Go {
    dir: PathBuf,
}

impl Go {
    /// # Errors
    /// `go` is not installed, or does not build the program.
    pub(super) fn build() -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("plainweave-bench-go-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let go = Self { dir };
        for (name, text) in SOURCES {
            std::fs::write(go.dir.join(name), text)?;
        }
        let usual = "/usr/local/go/bin/go";
        let program = if std::path::Path::new(usual).exists() { usual } else { "go" };
        let built = Command::new(program).args(["build", "-o", "peer", "."]).current_dir(&go.dir).output();
        let built = built.context("go is not installed")?;
        let errors = String::from_utf8_lossy(&built.stderr);
        ensure!(built.status.success(), "go build failed: {}", errors.trim());
        Ok(go)
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
        let mut command = Command::new(self.dir.join("peer"));
        command.arg(format!("-case={name}")).arg(format!("-workers={workers}"));
        command.arg(format!("-seconds={}", size.seconds));
        command.args(more.iter().map(|(flag, value)| format!("-{flag}={value}")));
        child::figures(command, size)
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
