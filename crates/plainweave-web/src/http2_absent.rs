//! What stands in for `http2` in a build without that feature: no flag, and HTTP/1 alone.

use std::sync::Arc;

use clap::Args;
use plainweave_http::{Handler, Limits, Server};

use super::faults::Faults;
use super::in_progress::InProgress;

/// None.
#[derive(Args, Debug)]
pub(super) struct Http2Flags {}

impl Http2Flags {
    pub(super) fn is_on(&self) -> bool {
        false
    }

    pub(super) fn apply(&self, limits: Limits, _idle: usize, _requests: usize) -> Limits {
        limits
    }

    pub(super) fn admit<H: Handler>(
        server: Server<H>,
        _in_progress: &Arc<InProgress>,
        _faults: &Arc<Faults>,
    ) -> Server<H> {
        server
    }
}
