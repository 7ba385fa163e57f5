//! Programs of their own beside this one, which operators need not have: a subcommand hands its
//! arguments to one.
//!
//! In the sources it is built first, so that what runs is what is there. Cargo does nothing if it
//! is up to date.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow, ensure};

/// Becomes the program of a package: the one beside this program, else the one in PATH.
pub(crate) fn become_program(package: &'static str, args: &[OsString]) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    if let Some(build) = Build::around(&own, package) {
        build.run()?;
    }
    let beside = own.with_file_name(package);
    let program = if beside.exists() {
        beside
    } else {
        package.into()
    };
    let error = Command::new(&program).args(args).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{package} is neither beside this program nor in PATH; install it from the sources with \
             cargo install --path crates/{package}"
        ),
        _ => anyhow::Error::new(error).context(format!("cannot run {}", program.display())),
    })
}

/// A build of the sources that this program comes from.
struct Build {
    package: &'static str,
    manifest: PathBuf,
    target: PathBuf,
    profile: String,
}

impl Build {
    /// Returns the build whose result a program is; `None`: it has been installed, or its sources
    /// are gone.
    fn around(program: &Path, package: &'static str) -> Option<Self> {
        let folder = program.parent()?;
        let target = folder
            .parent()
            .filter(|target| target.join("CACHEDIR.TAG").exists())?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
        sources
            .join("crates")
            .join(package)
            .join("Cargo.toml")
            .exists()
            .then(|| {
                let profile = match folder.file_name().and_then(|name| name.to_str()) {
                    None | Some("debug") => "dev",
                    Some(name) => name,
                };
                Self {
                    package,
                    manifest: sources.join("Cargo.toml"),
                    target: target.to_owned(),
                    profile: profile.to_owned(),
                }
            })
    }

    fn run(&self) -> anyhow::Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&cargo);
        command.args([
            "build",
            "--package",
            self.package,
            "--profile",
            &self.profile,
        ]);
        command
            .arg("--manifest-path")
            .arg(&self.manifest)
            .arg("--target-dir")
            .arg(&self.target);
        match command.status() {
            Ok(status) => ensure!(
                status.success(),
                "{} could not be built: see above",
                self.package
            ),
            // A machine to measure on need not have it: there is what was copied there.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(
                    anyhow::Error::new(error).context(format!("cannot run {}", cargo.display()))
                );
            }
        }
        Ok(())
    }
}
