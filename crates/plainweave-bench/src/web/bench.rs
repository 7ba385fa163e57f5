//! What the cases share: the flags' numbers, the site, and the rows.

use std::time::Duration;

use crate::findings::Findings;
use crate::servers::site::Site;
use crate::servers::web::{Kind, Server};

/// What the cases share.
pub(super) struct Bench {
    pub(super) runs: usize,
    pub(super) turn: Duration,
    pub(super) idle: usize,
    pub(super) many: usize,
    pub(super) mix_scale: usize,
    pub(super) large: usize,
    pub(super) site: Site,
    pub(super) findings: Findings,
}

impl Bench {
    /// Starts the servers that there are, ours with these flags.
    pub(super) fn servers(
        &mut self,
        kinds: &[Kind],
        extra: &[&str],
    ) -> anyhow::Result<Vec<Server>> {
        let mut servers = Vec::new();
        for kind in kinds {
            match kind.absence() {
                Some(why) => self.findings.missing(kind.name(), why),
                None => servers.push(Server::start_with(*kind, &self.site, None, extra)?),
            }
        }
        Ok(servers)
    }
}
