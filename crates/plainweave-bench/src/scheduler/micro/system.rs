//! A system to measure, and how its process is started.

use std::process::Command;

use super::cases::Case;
use super::child;
use super::peer::Peer;
use super::repetition::{Figure, Size};

/// A system to measure, as rows name it, and how its process is started.
pub(super) struct System {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// A program in another language.
    pub(super) peer: Option<Peer>,
}

impl System {
    pub(super) fn new(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&text| text.to_owned()).collect();
        Self {
            name: name.to_owned(),
            arguments,
            peer: None,
        }
    }

    pub(super) fn repetition(&self, case: &Case, size: &Size) -> anyhow::Result<Vec<Figure>> {
        if let Some(peer) = &self.peer {
            return peer.run(case.name, size);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["micro-child", case.name])
            .args(&self.arguments);
        command
            .arg(format!("--workers={}", size.workers))
            .arg(format!("--seconds={}", size.seconds));
        command
            .arg(format!("--fibers={}", size.fibers))
            .args(size.clocked.then_some("--clocked"));
        command.args(size.shape.flags().iter().map(|flag| format!("--{flag}")));

        child::figures(command, size)
    }

    /// Returns the line of the head on a version that is not this program's.
    pub(super) fn version(&self) -> Option<(&'static str, String)> {
        match &self.peer {
            Some(Peer::Cfa(programs)) => Some(("cfa", programs.version())),
            _ => None,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.name.starts_with("plainweave")
    }

    /// Returns whether it has the case, in this size.
    pub(super) fn has(&self, case: &Case, workers: usize) -> bool {
        // The programs in other languages have no such case; may's does not come to an end.
        let parks = case.name != "parked-fibers" || (self.peer.is_none() && self.name != "may");
        let differs = self.peer.as_ref().is_none_or(|peer| peer.has(case.name));
        (self.is_ours() || !case.own) && workers >= case.least_workers && parks && differs
    }
}
