//! Why a request has no answer of the application's.

use std::io;

use plainweave_http::StatusCode;

use super::address::UpstreamAddress;

/// Why a request has no answer of the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamFailure {
    /// No connection came about.
    Connect,
    /// The server closed the connection before its answer.
    Closed,
    /// The same, of a connection that was kept.
    ClosedIdle,
    /// What came is no answer, or one that can be read in two ways.
    Malformed,
    /// The time for the answer, or for the request, is over.
    Timeout,
    /// The client's request has not come to its end.
    Client,
    /// No server is up, or all have as many requests as they may.
    Unavailable,
}

impl UpstreamFailure {
    pub(super) const ALL: [Self; 7] = [
        Self::Connect,
        Self::Closed,
        Self::ClosedIdle,
        Self::Malformed,
        Self::Timeout,
        Self::Client,
        Self::Unavailable,
    ];

    /// As in the metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::ClosedIdle => "closed-idle",
            Self::Malformed => "malformed",
            Self::Timeout => "timeout",
            Self::Client => "client",
            Self::Unavailable => "unavailable",
        }
    }

    /// Returns whether it tells that the server is not well.
    pub(super) fn is_the_servers(self) -> bool {
        !matches!(self, Self::Client | Self::ClosedIdle | Self::Unavailable)
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Connect | Self::Closed | Self::ClosedIdle | Self::Malformed => {
                StatusCode::BAD_GATEWAY
            }
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            // The connection says it better, if it knows.
            Self::Client => StatusCode::BAD_REQUEST,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A failure, and what the operator should know of it.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: UpstreamFailure,
    pub(super) why: String,
}

impl Failed {
    pub(super) fn new(failure: UpstreamFailure, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { failure, why }
    }

    /// What an error of I/O is: silence, or the end.
    pub(super) fn of(error: &io::Error, at: &UpstreamAddress) -> Self {
        let failure = match error.kind() {
            io::ErrorKind::TimedOut => UpstreamFailure::Timeout,
            _ => UpstreamFailure::Closed,
        };
        Self::new(failure, format!("{at}: {error}"))
    }
}
