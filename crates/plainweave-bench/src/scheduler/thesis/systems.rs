//! The systems: how a repetition on each is started.

use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use plainweave::policy::Choice;

use super::experiment::Experiment;
use super::metrics;
use super::metrics::Figure;
use super::parameters::Plan;
use crate::harness::child;
use crate::harness::mode::Mode;
use crate::harness::program::Program;

/// As `--systems` names them.
pub(super) const SYSTEMS: [&str; 5] = ["plainweave", "tokio", "go", "threads", "may"];

const GO: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../../peers/go-thesis/go.mod")),
    ("main.go", include_str!("../../../peers/go-thesis/main.go")),
    ("work.go", include_str!("../../../peers/go-thesis/work.go")),
];

/// Packets and the like that are under way at once where no bound is set, on systems that cannot
/// have 50,000: each is a thread of the kernel, or has a stack from the beginning, which is two
/// mappings of 65,530.
pub(crate) const BOUNDS: [(&str, &str); 2] = [("threads", "128"), ("may", "10000")];

/// How much of it a repetition does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub(super) iterations: u32,
    pub(super) dropped: u32,
    /// How long it may take.
    pub(super) patience: Duration,
}

/// A system to measure, as rows name it.
#[derive(Clone)]
pub(super) struct System {
    pub(super) name: String,
    /// As `--systems` names it.
    pub(super) kind: &'static str,
    arguments: Vec<String>,
    go: Option<Rc<Program>>,
}

impl System {
    fn new(kind: &'static str) -> Self {
        Self {
            name: kind.to_owned(),
            kind,
            arguments: Vec::new(),
            go: None,
        }
    }

    /// Plainweave under a policy, in a mode.
    ///
    /// # Errors
    /// There is no such policy or mode, or that mode is not available here.
    pub(super) fn ours(policy: &str, mode: &str) -> anyhow::Result<Self> {
        Choice::parse(policy).map_err(anyhow::Error::msg)?;
        drop(Mode::parse(mode)?.builder().workers(1).build()?);
        let name = format!("plainweave {} {mode}", policy.replace(',', ";"));
        let arguments = vec![format!("--policy={policy}"), format!("--mode={mode}")];
        Ok(Self {
            name,
            arguments,
            ..Self::new("plainweave")
        })
    }

    /// Another one.
    ///
    /// # Errors
    /// It is not installed.
    pub(super) fn peer(kind: &'static str) -> anyhow::Result<Self> {
        let go = if kind == "go" {
            Some(Rc::new(Program::go(&GO)?))
        } else {
            None
        };

        Ok(Self {
            go,
            ..Self::new(kind)
        })
    }

    pub(super) fn is_ours(&self) -> bool {
        self.kind == "plainweave"
    }

    /// Runs a repetition and returns the figures of its iterations, one after the other.
    ///
    /// # Errors
    /// It fails, or takes too long.
    pub(super) fn repetition(
        &self,
        experiment: &Experiment,
        plan: &Plan,
        workers: usize,
        length: Length,
        observe: bool,
    ) -> anyhow::Result<Vec<Figure>> {
        let Length {
            iterations,
            dropped,
            patience,
        } = length;
        let mut texts = plan.texts();
        let bound = BOUNDS.iter().find(|(kind, _)| *kind == self.kind);
        let unbound = texts.iter_mut().find(|text| *text == "in-flight=0");
        if let (Some((_, most)), Some(text)) = (bound, unbound) {
            *text = format!("in-flight={most}");
        }
        let common = [
            format!("-workers={workers}"),
            format!("-iterations={iterations}"),
            format!("-dropped={dropped}"),
        ];
        let command = match &self.go {
            Some(go) => {
                let mut command = go.command();
                command
                    .arg(format!("-case={}", experiment.name))
                    .args(common);
                command.args(texts.iter().map(|text| format!("-{text}")));
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .args(["thesis-child", experiment.name, self.kind])
                    .args(&self.arguments);
                command.args(common.iter().map(|flag| format!("-{flag}")));
                command
                    .args(texts.iter().map(|text| format!("--set={text}")))
                    .args(observe.then_some("--observe"));
                command
            }
        };

        let text = child::output(command, patience)?;
        child::values(&text)?
            .into_iter()
            .map(|(name, value)| Ok((metrics::known(name)?.0, value)))
            .collect()
    }
}
