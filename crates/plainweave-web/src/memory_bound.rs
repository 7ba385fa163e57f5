//! What the web server takes on within the process's memory limit: how many connections, how many
//! requests in progress, and how much of answers the kernel may hold.
//!
//! The figures below are what one connection or one request can come to, not what it usually takes:
//! 3,000 clients that asked for one file in the page cache took 13 KB each, 200 that asked for
//! files from the disk 90 KB. What sockets hold counts in both versions of control groups: in
//! version 2 as such; in version 1 their buffers do not, but pages of the page cache that
//! `sendfile` has queued do, and cannot be reclaimed. See `docs/overload.md`.

use plainweave_daemon::memory_limit::{KIB, MIB, MemoryLimit, count};

/// The program: heap, tables, the threads of the blocking pool, the access log's queue.
const PROGRAM: u64 = 8 * MIB;
/// An idle connection takes 2 KiB, half of it the kernel's; a fresh fiber touches two pages before
/// it has a permit, and has 5 KiB of thread-local storage.
const CONNECTION: u64 = 16 * KIB;
/// A request in progress: 12 KiB of stack, 5 of storage, 20 received, 64 of gathered answers, 64
/// read of a file.
const REQUEST: u64 = 165 * KIB;
/// Beside it the kernel's send buffer, by [`SendBuffers`].
const SENDING: u64 = 128 * KIB;
/// Over TLS, an idle connection takes 4 KiB more, and a handshake that is not over some for its
/// messages.
const TLS_CONNECTION: u64 = 8 * KIB;
/// A request over TLS: 17 KiB received and as much decrypted, 65 made to be sent; with a fiber for
/// each connection the handshake's deeper stack.
const TLS_REQUEST: u64 = 128 * KIB;
/// Over HTTP/2, an idle connection keeps the buffers and tables of its engine besides.
const HTTP2_CONNECTION: u64 = 40 * KIB;
/// A step of a handshake, where it is none of a request: a deep stack, up to 36 KiB received, an
/// answer.
const TLS_HANDSHAKE: u64 = 96 * KIB;
/// Where sockets count: what a client sends ahead, by [`RECEIVE_BUFFER`].
const RECEIVING: u64 = 32 * KIB;
/// What the kernel may hold of an answer if nothing else bounds it: `net.ipv4.tcp_wmem`.
const UNBOUNDED: u64 = 4 * MIB;
/// For `SO_RCVBUF`, which the kernel doubles.
const RECEIVE_BUFFER: usize = 16 << 10;
/// The default of `--cache`.
const CACHE: u64 = 64 * MIB;
/// The most connections with unbounded send buffers.
const CROWD: u64 = 256;
/// What is taken on even if the limit has no room for it.
const LEAST: (u64, u64) = (64, 4);

/// The bounds that follow from a memory limit.
#[derive(Clone, Debug)]
pub(super) struct MemoryBound {
    limit: Option<MemoryLimit>,
    /// Bytes of small files in memory.
    pub(super) cache: usize,
    pub(super) connections: usize,
    pub(super) requests: usize,
    /// Connections of HTTP/2 that are kept while they have no request.
    pub(super) http2_idle: usize,
    /// Steps of TLS handshakes; without TLS, and where a request's memory covers them, any number.
    pub(super) handshakes: usize,
    pub(super) send_buffers: SendBuffers,
    /// `SO_RCVBUF` of the listeners.
    pub(super) receive_buffer: Option<usize>,
    /// Even the least does not fit.
    short: bool,
}

/// What a connection takes beside its socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Each {
    /// A stack, also while it is idle.
    pub(super) fiber: bool,
    /// What TLS needs.
    pub(super) tls: bool,
    /// What HTTP/2 needs.
    pub(super) http2: bool,
}

/// How much of their answers the kernel may hold for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendBuffers {
    /// Above this many connections a new one gets less of the kernel's memory.
    pub(super) crowd: usize,
    /// The bound covers what was sent and has not arrived, too.
    pub(super) hard: bool,
}

impl MemoryBound {
    /// `cache`: as given by the flag.
    pub(super) fn new(limit: Option<MemoryLimit>, cache: Option<u64>, each: Each) -> Self {
        let bytes = limit.as_ref().map_or(u64::MAX, |limit| limit.bytes);
        let hard = limit.as_ref().is_some_and(MemoryLimit::is_hard);
        let counts_sockets = limit.as_ref().is_some_and(MemoryLimit::counts_sockets);
        let eighth = bytes / 8;
        let cache = cache.unwrap_or(CACHE.min(eighth));

        // An eighth is left to the page cache, without which every read is one of the disk.
        let rest = bytes
            .saturating_sub(PROGRAM)
            .saturating_sub(eighth)
            .saturating_sub(cache);
        let tls = if each.tls {
            (TLS_CONNECTION, TLS_REQUEST)
        } else {
            (0, 0)
        };

        let request = REQUEST + SENDING + tls.1 + if counts_sockets { RECEIVING } else { 0 };
        let connection = CONNECTION + tls.0;
        let (connections, requests, handshakes, least) = if each.fiber {
            let each = rest / 8 * 7 / (connection + request);
            (each, each, u64::MAX, (LEAST.1, LEAST.1))
        } else {
            // Sixteenths: 4 are for connections, 2 for a crowd's send buffers.
            let sixteenths = 10 - if each.tls { 2 } else { 0 } - if each.http2 { 1 } else { 0 };
            let handshakes = if each.tls {
                rest / 8 / TLS_HANDSHAKE
            } else {
                u64::MAX
            };

            (
                rest / 4 / connection,
                rest / 16 * sixteenths / request,
                handshakes,
                LEAST,
            )
        };

        // Where each connection has a fiber, it has what a request needs too.
        let http2_idle = if each.fiber {
            connections
        } else {
            rest / 16 / HTTP2_CONNECTION
        };

        Self {
            cache: count(cache),
            connections: count(connections.max(least.0)),
            requests: count(requests.max(least.1)),
            http2_idle: count(http2_idle.max(least.1)),
            handshakes: count(handshakes.max(least.1)),
            send_buffers: SendBuffers {
                crowd: count((rest / 8 / UNBOUNDED).min(CROWD)),
                hard,
            },
            receive_buffer: counts_sockets.then_some(RECEIVE_BUFFER),
            short: connections < least.0 || requests < least.1,
            limit,
        }
    }

    /// Returns the part of the start-up line.
    pub(super) fn description(&self, requests: usize) -> String {
        match &self.limit {
            Some(limit) => format!("{requests} requests at a time in {limit}"),
            None => "memory not bounded".to_owned(),
        }
    }

    /// Returns what to say if the server may be killed all the same.
    pub(super) fn warning(&self) -> Option<String> {
        let limit = self
            .limit
            .as_ref()
            .filter(|limit| self.short && limit.is_hard())?;
        let cache = self.cache >> 20;
        Some(format!(
            "{limit} of memory is not enough for {} connections, {} requests and {cache} MiB of --cache: the server \
             may be killed (a higher limit, or less --cache)",
            self.connections, self.requests
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(mebibytes: u64) -> MemoryBound {
        MemoryBound::new(
            MemoryLimit::choose(Some(mebibytes * MIB)),
            None,
            Each::default(),
        )
    }

    #[test]
    fn what_is_taken_on_fits_the_limit() {
        for mebibytes in [24, 40, 64, 100, 512, 1 << 10, 16 << 10] {
            for n in 0..8 {
                let fiber = n & 1 > 0;
                let tls = n & 2 > 0;
                let http2 = n & 4 > 0;
                let limit = MemoryLimit::choose(Some(mebibytes * MIB));
                let bound = MemoryBound::new(limit, None, Each { fiber, tls, http2 });
                let (connection, request) = if tls {
                    (TLS_CONNECTION, TLS_REQUEST)
                } else {
                    (0, 0)
                };

                assert_eq!(bound.handshakes == usize::MAX, fiber || !tls);
                let handshakes = if tls && !fiber {
                    bound.handshakes as u64 * TLS_HANDSHAKE
                } else {
                    0
                };

                let taken = PROGRAM
                    + bound.cache as u64
                    + bound.connections as u64 * (CONNECTION + connection)
                    + bound.requests as u64 * (REQUEST + SENDING + request)
                    + if http2 && !fiber {
                        bound.http2_idle as u64 * HTTP2_CONNECTION
                    } else {
                        0
                    }
                    + handshakes
                    + bound.send_buffers.crowd as u64 * UNBOUNDED;
                assert!(
                    taken <= mebibytes * MIB / 8 * 7,
                    "{taken} of {mebibytes} MiB: {bound:?}"
                );
                assert!(bound.warning().is_none(), "{mebibytes} MiB: {bound:?}");
            }
        }
    }

    #[test]
    fn more_memory_is_more_of_everything() {
        let small = within(40);
        let large = within(1 << 10);
        assert!(small.connections < large.connections && small.requests < large.requests);
        assert!(small.cache < large.cache && small.send_buffers.crowd < large.send_buffers.crowd);
        let huge = within(64 << 10);
        assert_eq!((huge.cache, huge.send_buffers.crowd), (64 << 20, 256));
    }

    #[test]
    fn too_low_a_limit_is_told_and_without_one_nothing_is_bounded() {
        let bound = within(4);
        let warning = bound.warning().unwrap();
        assert!(
            warning.starts_with("4 MiB (--max-memory) of memory is not enough for 64 connections"),
            "{warning}"
        );
        assert_eq!((bound.connections, bound.requests), (64, 4));

        // A flag that takes all of it.
        assert!(
            MemoryBound::new(
                MemoryLimit::choose(Some(40 * MIB)),
                Some(64 * MIB),
                Each::default()
            )
            .warning()
            .is_some()
        );
        let bound = MemoryBound::new(None, None, Each::default());
        assert!(
            bound.warning().is_none() && bound.requests > 1 << 40 && bound.connections > 1 << 40
        );
        assert_eq!(
            bound.send_buffers,
            SendBuffers {
                crowd: 256,
                hard: false
            }
        );
        assert_eq!(bound.description(bound.requests), "memory not bounded");
    }
}
