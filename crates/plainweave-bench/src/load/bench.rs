//! What the cases share: how much they measure, and what they have found.

use std::time::Duration;

use crate::findings::Findings;
use crate::servers::site::Site;

/// What the cases share.
pub(super) struct Bench {
    pub(super) connections: usize,
    pub(super) runs: usize,
    pub(super) turn: Duration,
    pub(super) site: Site,
    pub(super) findings: Findings,
}
