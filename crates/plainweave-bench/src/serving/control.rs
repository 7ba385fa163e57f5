//! Servers that are known to fail when memory is short, by name: what they are started with.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use clap::ValueEnum;

/// A way to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Method {
    Blocking,
    Spinning,
    Splicing,
}

impl Method {
    pub(crate) fn system(self) -> &'static str {
        match self {
            Self::Blocking => "control: blocking sendfile",
            Self::Spinning => "control: spinning sendfile",
            Self::Splicing => "control: uncapped splices",
        }
    }

    /// Returns a command that serves the files below `root`, and says where.
    pub(crate) fn command(self, root: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let name = self
            .to_possible_value()
            .context("a method without a name")?;
        command.args(["web-control", name.get_name()]).arg(root);
        Ok(command)
    }
}
