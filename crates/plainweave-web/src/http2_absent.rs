//! What stands in for `http2` in a build without that feature: no flag, and HTTP/1 alone.

use clap::Args;
use plainweave_http::Limits;

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
}
