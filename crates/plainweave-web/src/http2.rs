//! HTTP/2: its flag, and what that means for the library.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};
use plainweave_http::{Http2Limits, Limits};

/// What a client may send ahead of a request's body, which is dropped unread: no more than the
/// protocol begins with.
const WINDOW: u32 = 65_535;
/// One connection may have a quarter of the requests that there is memory for.
const SHARE: usize = 4;

/// Whether it is spoken.
#[derive(Args, Debug)]
pub(super) struct Http2Flags {
    /// HTTP/2, over TLS for clients that ask for it, and without TLS for those that begin with it
    #[arg(
        long,
        value_name = "on|off",
        default_value = "on",
        hide_possible_values = true
    )]
    #[arg(help_heading = "Where to listen")]
    http2: Switch,

    /// Maximum requests in progress on one HTTP/2 connection: a client learns the number and keeps
    /// to it, unless --max-per-address allows fewer [default: 100, or a quarter of the requests
    /// that the memory limit allows]
    #[arg(long, value_name = "N", help_heading = "Timeouts and limits")]
    http2_streams: Option<NonZeroU32>,
}

/// The value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Http2Flags {
    pub(super) fn is_on(&self) -> bool {
        self.http2 == Switch::On
    }

    /// `idle`: connections that are kept without a request; `requests`: as many may be in progress
    /// at a time, over all connections.
    pub(super) fn apply(&self, limits: Limits, idle: usize, requests: usize) -> Limits {
        let windows = Http2Limits {
            stream_window: WINDOW,
            connection_window: WINDOW,
            ..Http2Limits::default()
        };

        let share = u32::try_from(requests / SHARE).unwrap_or(u32::MAX).max(1);
        let streams = self
            .http2_streams
            .map_or(windows.streams.min(share), NonZeroU32::get);
        let own = Http2Limits {
            idle,
            streams,
            ..windows
        };

        Limits {
            http2: self.is_on().then_some(own),
            ..limits
        }
    }
}
