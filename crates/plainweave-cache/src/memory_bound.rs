//! What the cache takes on beside the store, within the process's memory limit: how many
//! connections, how many of them with a turn in progress, and how much the
//! [budget](super::memory_budget) for values and lines may be.
//!
//! The store takes `-m` when it is full, whatever there is. What is left after the program is
//! divided here by what each thing can come to: 900 clients that asked for 8 MB and did not read
//! took 24 KB each, and could have taken five times that with other commands.

use super::memory_budget::MemoryBudget;
use super::store::Config;
use plainweave_daemon::memory_limit::{KIB, MIB, MemoryLimit, count};

/// The program, and what the heap keeps beside what is in use.
const PROGRAM: u64 = 4 * MIB;
/// Left over: a sixteenth of the limit, and at most this much.
const SPARE: u64 = 64 * MIB;
/// An idle connection takes 2 KiB of the kernel's memory and up to 2 KiB of an unfinished line; a
/// fresh fiber touches two pages before it has scratch.
const CONNECTION: u64 = 12 * KIB;
/// A turn in progress: 12 KiB of stack, 16 received, 68 of replies, 8 of counters, and what growing
/// has left behind.
const TURN: u64 = 112 * KIB;
/// TLS takes 5 KiB of a connection, 23 when a part of a record has come, and in a handshake, whose
/// messages may be long, up to 50 beside its fiber's stack; and a turn...
const TLS_CONNECTION: u64 = 60 * KIB;
/// ...what is gathered for a record, and four of them to be sent.
const TLS_TURN: u64 = 96 * KIB;
/// Where sockets count, each of a connection's buffers in the kernel...
const SOCKET: u64 = 128 * KIB;
/// ...by `SO_SNDBUF` and `SO_RCVBUF`, which the kernel doubles.
const SOCKET_BUFFER: usize = 64 << 10;
/// What is taken on even if the limit has no room for it: connections, and turns.
const LEAST: (u64, u64) = (64, 4);

/// The bounds that follow from a memory limit.
#[derive(Clone, Debug)]
pub(super) struct MemoryBound {
    limit: Option<MemoryLimit>,
    pub(super) connections: usize,
    pub(super) turns: usize,
    /// Bytes of the memory budget.
    pub(super) budget: usize,
    /// `SO_SNDBUF` and `SO_RCVBUF` of the listeners.
    pub(super) socket_buffers: Option<usize>,
    /// Even the least does not fit.
    short: bool,
}

impl MemoryBound {
    pub(super) fn new(limit: Option<MemoryLimit>, store: &Config, secure: bool) -> Self {
        let bytes = limit.as_ref().map_or(u64::MAX, |limit| limit.bytes);
        let counts_sockets = limit.as_ref().is_some_and(MemoryLimit::counts_sockets);
        let spare = SPARE.min(bytes / 16);
        let rest = bytes
            .saturating_sub(store.memory as u64)
            .saturating_sub(PROGRAM)
            .saturating_sub(spare);
        let budget = MemoryBudget::wanted(store.memory, store.item_max).min(count(rest / 2));
        let rest = rest.saturating_sub(held(budget));
        let connection = CONNECTION + if secure { TLS_CONNECTION } else { 0 };
        let turn = TURN + if secure { TLS_TURN } else { 0 };
        let turn = turn + if counts_sockets { 2 * SOCKET } else { 0 };
        let connections = rest / 4 / connection;
        let turns = rest / 4 * 3 / turn;

        Self {
            connections: count(connections.max(LEAST.0)),
            turns: count(turns.max(LEAST.1)),
            budget,
            socket_buffers: counts_sockets.then_some(SOCKET_BUFFER),
            short: connections < LEAST.0 || turns < LEAST.1,
            limit,
        }
    }

    /// Returns the part of the start-up line; `connections` is what was made of all bounds on them.
    pub(super) fn description(&self, connections: usize) -> String {
        match &self.limit {
            Some(limit) => {
                let turns = self.turns.min(connections);
                format!("up to {connections} connections, {turns} served at a time in {limit}")
            }
            None => format!("up to {connections} connections, memory not bounded"),
        }
    }

    /// Returns what to say if the server may be killed all the same.
    pub(super) fn warning(&self, store: &Config) -> Option<String> {
        let limit = self.limit.as_ref().filter(|_| self.short)?;
        let memory = store.memory >> 20;
        Some(format!(
            "{limit} of memory is not enough for -m {memory} and {} connections: the server may be killed (a higher \
             limit, or a lower -m)",
            self.connections
        ))
    }
}

/// What a budget of this many bytes can come to: of the quarter that may come from `malloc`, it
/// keeps some.
fn held(budget: usize) -> u64 {
    budget as u64 / 2 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(limit: u64, memory: usize, item_max: usize) -> (MemoryBound, Config) {
        bound_with(limit, memory, item_max, false)
    }

    fn bound_with(
        limit: u64,
        memory: usize,
        item_max: usize,
        secure: bool,
    ) -> (MemoryBound, Config) {
        let store = Config {
            memory: memory << 20,
            item_max: item_max << 20,
            evict: true,
            shards: 1,
            ..Config::default()
        };

        (
            MemoryBound::new(MemoryLimit::choose(Some(limit * MIB)), &store, secure),
            store,
        )
    }

    #[test]
    fn what_is_taken_on_fits_beside_the_store() {
        for (limit, memory, item_max) in [
            (48, 24, 1),
            (48, 24, 16),
            (100, 64, 1),
            (512, 400, 1),
            (16 << 10, 14 << 10, 1),
        ] {
            for (secure, connection, turn) in [
                (false, CONNECTION, TURN),
                (true, CONNECTION + TLS_CONNECTION, TURN + TLS_TURN),
            ] {
                let (bound, store) = bound_with(limit, memory, item_max, secure);
                let taken = store.memory as u64
                    + PROGRAM
                    + held(bound.budget)
                    + bound.connections as u64 * connection
                    + bound.turns as u64 * turn;
                // The least of connections over TLS takes more than is left there.
                let is_short = secure && limit <= 100;
                let warning = bound.warning(&store);
                assert_eq!(warning.is_some(), is_short, "{limit} MiB, -m {memory}");
                let fits = taken <= limit * MIB;
                assert!(fits || is_short, "{taken} of {limit} MiB: {bound:?}");
            }
        }
    }

    #[test]
    fn with_enough_memory_the_budget_is_what_it_would_be() {
        assert_eq!(bound(1 << 10, 64, 1).0.budget, 16 << 20);
        assert!(bound(48, 24, 16).0.budget < 24 << 20);
    }

    #[test]
    fn too_much_of_the_store_is_told_and_without_a_limit_nothing_is_bounded() {
        let (short, store) = bound(64, 64, 1);
        let warning = short.warning(&store).unwrap();
        assert!(
            warning.starts_with("64 MiB (--max-memory) of memory is not enough for -m 64 and 64"),
            "{warning}"
        );
        assert_eq!((short.connections, short.turns), (64, 4));
        assert!(
            short
                .description(64)
                .contains(" 4 served at a time in 64 MiB"),
            "{}",
            short.description(64)
        );
        assert!(
            short
                .description(3)
                .contains(" 3 served at a time in 64 MiB"),
            "no more than there are"
        );
        let bound = MemoryBound::new(None, &store, false);

        assert!(
            bound.connections > 1 << 40 && bound.turns > 1 << 40 && bound.warning(&store).is_none()
        );
        assert_eq!(
            bound.description(1024),
            "up to 1024 connections, memory not bounded"
        );
    }
}
