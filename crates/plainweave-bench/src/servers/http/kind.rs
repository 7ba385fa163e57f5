//! Which of this program's own servers runs in a child process.

use std::process::Command;

use clap::ValueEnum;

/// What all of them answer.
pub(super) const BODY: &str = "Hello, World!";

/// What a case says that needs `plainweave load` or `plainweave web`.
pub(super) const NO_PROGRAM: &str = "the program plainweave is not beside plainweave-bench";

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    Epoll,
    Uring,
    EpollShared,
    UringShared,
    Threads,
    Hyper,
    MayMinihttp,
    /// The crate of that name without a server around it, a thread for each connection.
    Tungstenite,
}

/// How an answer says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// By `Content-Length`.
    Length,
    /// In chunks, as an answer whose length is not known beforehand.
    Chunked,
}

impl Coding {
    /// Returns what the programs take for it.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Coding::Length => &[],
            Coding::Chunked => &["--chunked"],
        }
    }
}

impl Kind {
    /// Returns a command that runs this server.
    pub(super) fn command(self, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let name = self
            .to_possible_value()
            .map(|value| value.get_name().to_owned());
        command
            .arg("http-server")
            .args(name)
            .args(arguments)
            .env_remove("PLAINWEAVE_IO");
        Ok(command)
    }
}
