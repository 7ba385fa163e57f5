//! What the flags of all experiments have in common.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{machine, names};

/// Whether to measure at all, and where to.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Print the cases and systems that there are, and measure nothing
    #[arg(long)]
    pub(crate) list: bool,

    /// Where the CSV and the report go [default: results/<date>-<host>; below target if
    /// this program was built with changes]
    #[arg(long, value_name = "DIR", value_parser = machine::out)]
    out: Option<PathBuf>,
}

impl Common {
    /// Returns the folder that was asked for.
    pub(crate) fn out(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// Returns the folder to write to.
    pub(crate) fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(machine::results_dir)
    }
}

/// Which cases of an experiment.
#[derive(Args, Debug)]
pub(crate) struct Cases {
    /// Run only these cases
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    cases: Vec<String>,
}

impl Cases {
    /// # Errors
    /// A case is not among the known ones; the message lists those.
    pub(crate) fn check<'a>(
        &self,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> anyhow::Result<()> {
        names::check("case", &self.cases, known)
    }

    /// Returns whether this one runs: all do if none was named.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|case| case == name)
    }
}
