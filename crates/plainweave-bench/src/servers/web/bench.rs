//! What the cases share: how much there is of what, and how their servers start.

use crate::serving::process::Conditions;
use crate::serving::web::{Kind, Server};

/// How many of what the cases have.
pub(super) struct Sizes {
    pub(super) idle: usize,
    pub(super) many: usize,
    pub(super) mix_scale: usize,
    pub(super) large: usize,
}

pub(super) type Bench = crate::serving::bench::Bench<Sizes>;

impl Bench {
    /// Starts the servers that there are, ours with these flags.
    pub(super) fn servers(
        &mut self,
        kinds: &[Kind],
        extra: &[&str],
    ) -> anyhow::Result<Vec<Server>> {
        let mut servers = Vec::new();
        for kind in kinds {
            if let Some(why) = kind.absence() {
                self.findings.missing(kind.name(), why);
                continue;
            }

            let under = Conditions {
                arguments: extra,
                ..Conditions::default()
            };

            servers.push(Server::start(*kind, &self.site, under)?);
        }
        Ok(servers)
    }
}
