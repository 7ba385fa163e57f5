//! Which systems are measured.

use anyhow::ensure;
use clap::Args;
use plainweave::policy::Choice;

use crate::harness::names;
use crate::serving::limit;
use crate::serving::{Driver, Kind, PEER, Whose};

/// Modes by name: what `--mode` of the servers takes, and one that it refuses.
const MODES: [&str; 5] = [
    "never/shared",
    "before-start/shared",
    "before-start/own",
    "anytime/own",
    UNSAFE,
];
const UNSAFE: &str = "anytime/shared";

/// The lists that systems are made of.
#[derive(Args, Debug)]
pub(super) struct Choices {
    /// Policies; the first is the base
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "helping,fifo,lifo-slot,tokio,go,local-deal"
    )]
    pub(super) policies: Vec<String>,

    /// Modes; the first is the base
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "anytime/own,before-start/shared,before-start/own,anytime/shared"
    )]
    pub(super) modes: Vec<String>,

    /// I/O drivers; the first is the base
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "epoll,uring"
    )]
    pub(super) drivers: Vec<Driver>,

    /// Numbers of workers, 1 and 2
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1,2")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(super) workers: Vec<u8>,

    /// All combinations instead of one change at a time
    #[arg(long)]
    pub(super) full: bool,
}

/// Ours in one setting, or another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct System {
    program: Program,
    pub(super) workers: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Program {
    Ours(Setting),
    Peer,
    /// The raw loop.
    Limit,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Setting {
    policy: String,
    mode: String,
    driver: Driver,
}

impl Choices {
    /// Returns the systems for each number of workers: the base, then the others, then the peer,
    /// and the raw loop, which has one worker.
    pub(super) fn systems(&self) -> anyhow::Result<Vec<System>> {
        names::check("mode", &self.modes, MODES.into_iter())?;
        for policy in &self.policies {
            Choice::parse(policy).map_err(anyhow::Error::msg)?;
        }
        let lists = [
            self.policies.len(),
            self.modes.len(),
            self.drivers.len(),
            self.workers.len(),
        ];
        ensure!(
            lists.iter().all(|len| *len > 0),
            "an empty list of policies, modes, drivers or workers"
        );
        let mut systems = Vec::new();

        for &workers in &self.workers {
            for (p, policy) in self.policies.iter().enumerate() {
                for (m, mode) in self.modes.iter().enumerate() {
                    for (d, &driver) in self.drivers.iter().enumerate() {
                        let changes = [p, m, d].into_iter().filter(|place| *place > 0).count();
                        if changes <= 1 || self.full {
                            let setting = Setting {
                                policy: policy.clone(),
                                mode: mode.clone(),
                                driver,
                            };

                            systems.push(System {
                                program: Program::Ours(setting),
                                workers: workers.into(),
                            });
                        }
                    }
                }
            }

            systems.push(System::peer(workers.into()));
            systems.extend((workers == 1).then_some(System::LIMIT));
        }

        Ok(systems)
    }
}

impl System {
    pub(super) const LIMIT: Self = Self {
        program: Program::Limit,
        workers: 1,
    };

    pub(super) fn peer(workers: usize) -> Self {
        Self {
            program: Program::Peer,
            workers,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.setting().is_some()
    }

    pub(super) fn whose(&self) -> Whose {
        match &self.program {
            Program::Ours(setting) => Whose::Ours(setting.driver),
            Program::Peer => Whose::Peer,
            Program::Limit => Whose::Limit,
        }
    }

    fn setting(&self) -> Option<&Setting> {
        if let Program::Ours(setting) = &self.program {
            Some(setting)
        } else {
            None
        }
    }

    /// Returns what is set, in words.
    pub(super) fn name(&self) -> String {
        match &self.program {
            Program::Ours(Setting {
                policy,
                mode,
                driver,
            }) => format!("{policy} {mode} {}", driver.name()),
            Program::Peer => PEER.to_owned(),
            Program::Limit => limit::EPOLL.to_owned(),
        }
    }

    /// As [`Self::name`], with the peer's own name.
    pub(super) fn described(&self, kind: Kind) -> String {
        kind.system(&self.name())
    }

    /// What differs between two systems of ours, in words; all of this one's name if it is more
    /// than one thing.
    pub(super) fn change(&self, base: &Self) -> Option<String> {
        let own = self.setting()?;
        let base = base.setting()?;
        let changed = [
            own.policy != base.policy,
            own.mode != base.mode,
            own.driver != base.driver,
        ];
        Some(match changed {
            [_, false, false] => own.policy.clone(),
            [false, true, false] => own.mode.clone(),
            _ => self
                .name()
                .rsplit(' ')
                .next()
                .filter(|_| changed == [false, false, true])
                .map_or(self.name(), str::to_owned),
        })
    }

    /// Returns the flag that our servers have in this program alone.
    pub(super) fn added(&self) -> Option<&'static str> {
        let is_unsafe = self.setting().is_some_and(|setting| setting.mode == UNSAFE);
        is_unsafe.then_some("--anytime-shared")
    }

    /// Returns the arguments of our servers.
    pub(super) fn arguments(&self) -> Vec<String> {
        let Some(Setting { policy, mode, .. }) = self.setting() else {
            return Vec::new();
        };
        let mut arguments = vec!["--architecture", "fibers", "--policy", policy];
        if mode != UNSAFE {
            arguments.extend(["--mode", mode]);
        }

        arguments.into_iter().map(str::to_owned).collect()
    }
}
