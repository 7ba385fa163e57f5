//! The workloads in other languages, each a program of its own with the same flags.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};

use super::cfa::Cfa;
use super::child;
use super::repetition::{Figure, Size};
use crate::harness::program::Program;

const GO: [(&str, &str); 4] = [
    ("go.mod", include_str!("../../../peers/go/go.mod")),
    ("main.go", include_str!("../../../peers/go/main.go")),
    (
        "semaphore.go",
        include_str!("../../../peers/go/semaphore.go"),
    ),
    ("semaphore.s", include_str!("../../../peers/go/semaphore.s")),
];

/// Programs of another system.
pub(super) enum Peer {
    /// One of ours in its language, and with which flag it is run.
    Ours {
        program: Rc<Program>,
        flag: Option<&'static str>,
    },
    /// Those of its own authors.
    Cfa(Cfa),
}

impl Peer {
    /// Go's scheduler, and the same program with the semaphore of Go's own locks, which a thread
    /// that released it can take again at once.
    ///
    /// # Errors
    /// `go` is not installed, or does not build the program.
    pub(super) fn go() -> anyhow::Result<[Self; 2]> {
        let program = Rc::new(Program::go(&GO)?);
        Ok([None, Some("-barging")].map(|flag| Self::Ours {
            program: Rc::clone(&program),
            flag,
        }))
    }

    /// libfibre, from the folder of its sources, where its archive is built.
    ///
    /// # Errors
    /// There is no `libfibre.a`, or `c++` does not build the program with it.
    pub(super) fn libfibre(folder: &Path) -> anyhow::Result<Self> {
        let folder = folder
            .canonicalize()
            .with_context(|| format!("--libfibre {}", folder.display()))?;
        let archive = folder.join("libfibre.a");
        ensure!(
            archive.exists(),
            "{} is not there: run `make -C src libfibre.a` in its checkout",
            archive.display()
        );
        let folder = folder.display();
        let headers = [
            format!("-I{folder}"),
            format!("-I{folder}/libfibre"),
            "-D__LIBFIBRE__".to_owned(),
        ];
        let flags = headers.into_iter().chain([archive.display().to_string()]);
        let program = Program::cpp(include_str!("../../../peers/libfibre/main.cc"), flags)?;

        Ok(Self::Ours {
            program: Rc::new(program),
            flag: None,
        })
    }

    /// Returns whether it has a case, and its row would differ from that without the flag.
    pub(super) fn has(&self, case: &str) -> bool {
        match self {
            Self::Ours { flag, .. } => flag.is_none() || matches!(case, "churn" | "churn-2"),
            Self::Cfa(_) => Cfa::has(case),
        }
    }

    /// Runs one repetition.
    pub(super) fn run(&self, case: &str, size: &Size) -> anyhow::Result<Vec<Figure>> {
        let (program, flag) = match self {
            Self::Ours { program, flag } => (program, flag),
            Self::Cfa(programs) => return programs.run(case, size),
        };
        let name = match case {
            "yield" | "yield-1" => "yield",
            "cycle" | "cycle-1" => "cycle",
            "churn" | "churn-2" => "churn",
            "locality" | "locality-share" => "locality",
            "transfer-yield" | "transfer-park" => "transfer",
            "spawn-join" | "spawn-join-1" | "ping-pong" | "mutex" | "rwlock" | "broadcast" => case,
            "select" | "select-1" => case,
            other => bail!("there is no case '{other}'"),
        };

        let mut command = program.command();
        command
            .arg(format!("-case={name}"))
            .arg(format!("-workers={}", size.workers))
            .args(*flag);
        command.arg(format!("-seconds={}", size.seconds));
        command.args((case == "transfer-park").then_some("-parking=true"));
        command.args(size.clocked.then_some("-migrations=true"));
        command.args(size.shape.flags().iter().map(|flag| format!("-{flag}")));

        child::figures(command, size)
    }
}
