//! Programs of their own beside this one, which operators need not have: a subcommand hands its
//! arguments to one.
//!
//! In the sources it is built first if one of them is newer, so that what runs is what is there.
//! Cargo is not asked whether that is so: it waits while another build runs, and builds again what
//! embeds the commit whenever there is a new one.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, anyhow, ensure};

/// Becomes the program of a package: the one beside this program, else the one in PATH.
pub(crate) fn become_program(package: &'static str, args: &[OsString]) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = own.with_file_name(package);
    if let Some(build) = Build::around(&own, package)
        && build.is_due(&beside)
    {
        build.run()?;
    }
    let program = if beside.exists() {
        beside
    } else {
        package.into()
    };

    let error = Command::new(&program).args(args).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{package} is neither beside this program nor in PATH; install it from the sources with \
             cargo install --profile dist --path crates/{package}"
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
    /// Returns the build whose result a program is, unless it has been installed or its sources are
    /// gone.
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

    /// Whether the program is not there, or older than one of the workspace's sources.
    fn is_due(&self, program: &Path) -> bool {
        let Ok(built) = fs::metadata(program).and_then(|found| found.modified()) else {
            return true;
        };
        let workspace = self.manifest.with_file_name("");
        ["Cargo.toml", "Cargo.lock", "crates"]
            .iter()
            .any(|name| is_newer(&workspace.join(name), built))
    }

    fn run(&self) -> anyhow::Result<()> {
        // Nothing can be done if standard error is gone.
        let _ = writeln!(
            std::io::stderr(),
            "plainweave: builds {} first, with the profile {}, since it is not there or older than \
             its sources; that takes minutes",
            self.package,
            self.profile
        );
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

/// Whether a file, or one in a folder, was changed after that time. Tests and hidden files are no
/// part of a program, and what cannot be read does not keep anybody from running what is there.
fn is_newer(path: &Path, built: SystemTime) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else {
        return false;
    };
    if !found.is_dir() {
        return found.modified().is_ok_and(|changed| changed > built);
    }

    let is_part = |name: &str| !name.starts_with('.') && !["tests", "target"].contains(&name);
    fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| {
            entry.file_name().to_str().is_some_and(is_part) && is_newer(&entry.path(), built)
        })
}
