//! Go programs, built from the sources beside this crate where `go` is installed.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};

/// A built program; its folder goes with it.
pub(crate) struct Program {
    dir: PathBuf,
}

impl Program {
    /// From files by their names and texts.
    ///
    /// # Errors
    /// `go` is not installed, or does not build the program.
    pub(crate) fn build(sources: &[(&str, &str)]) -> anyhow::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("plainweave-bench-go-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let program = Self { dir };
        for (name, text) in sources {
            std::fs::write(program.dir.join(name), text)?;
        }
        let usual = "/usr/local/go/bin/go";
        let go = if std::path::Path::new(usual).exists() { usual } else { "go" };
        let built = Command::new(go).args(["build", "-o", "peer", "."]).current_dir(&program.dir).output();
        let built = built.context("go is not installed")?;
        let errors = String::from_utf8_lossy(&built.stderr);
        ensure!(built.status.success(), "go build failed: {}", errors.trim());
        Ok(program)
    }

    /// A command that runs it.
    pub(crate) fn command(&self) -> Command {
        Command::new(self.dir.join("peer"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
