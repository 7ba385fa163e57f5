//! Programs in other languages, built from the sources beside this crate where their compilers are.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};

/// A built program; its folder goes with it.
pub(crate) struct Program {
    dir: PathBuf,
}

impl Program {
    /// With Go's compiler, from files by their names and texts.
    ///
    /// # Errors
    /// `go` is not installed, or does not build the program.
    pub(crate) fn go(sources: &[(&str, &str)]) -> anyhow::Result<Self> {
        let usual = "/usr/local/go/bin/go";
        let go = if Path::new(usual).exists() {
            usual
        } else {
            "go"
        };
        Self::build(sources, Command::new(go).args(["build", "-o", "peer", "."]))
    }

    /// With C++'s compiler, from a text and with more of its flags.
    ///
    /// # Errors
    /// `c++` is not installed, or does not build the program.
    pub(crate) fn cpp(
        source: &str,
        flags: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<Self> {
        let usual = ["-std=c++17", "-O3", "-pthread", "-o", "peer", "main.cc"];
        Self::build(
            &[("main.cc", source)],
            Command::new("c++").args(usual).args(flags),
        )
    }

    /// With Haskell's compiler, from a text that uses Warp.
    ///
    /// # Errors
    /// `ghc` is not installed, or does not build the program.
    pub(crate) fn haskell(source: &str) -> anyhow::Result<Self> {
        let usual = [
            "-O2",
            "-threaded",
            "-rtsopts",
            "-with-rtsopts=-N1",
            "-o",
            "peer",
            "Main.hs",
        ];
        Self::build(&[("Main.hs", source)], Command::new("ghc").args(usual))
    }

    fn build(sources: &[(&str, &str)], compiler: &mut Command) -> anyhow::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "plainweave-bench-peer-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let program = Self { dir };

        for (name, text) in sources {
            std::fs::write(program.dir.join(name), text)?;
        }
        let name = compiler.get_program().to_string_lossy().into_owned();
        let built = compiler
            .current_dir(&program.dir)
            .output()
            .with_context(|| format!("{name} is not installed"))?;
        let errors = String::from_utf8_lossy(&built.stderr);

        ensure!(built.status.success(), "{name} failed: {}", errors.trim());
        Ok(program)
    }

    /// Returns a command that runs it.
    pub(crate) fn command(&self) -> Command {
        Command::new(self.dir.join("peer"))
    }
}

/// A program's server, which has said where it listens; ends with this.
pub(crate) struct PeerServer {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl PeerServer {
    /// Starts one that prints its address, and goes on as long as its standard input.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        // From here on it ends with this.
        let mut server = Self { address, child };
        let mut line = String::new();
        let stdout = server.child.stdout.as_mut().context("no pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse();
        server.address = address.context("the program did not start")?;
        Ok(server)
    }

    /// Returns the number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
