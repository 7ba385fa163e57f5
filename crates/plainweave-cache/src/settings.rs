//! The settings of a running cache, for commands to look up and for `stats settings` to show.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::flags::Flags;
use super::memory_bound::MemoryBound;
use super::proto::Protocol;
use super::store::Config;

/// The default of `-c`, unless the memory limit has room for fewer.
const CONNECTIONS: usize = 1024;

/// See the flags of the same names.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) port: i32,
    pub(crate) listen: String,
    pub(crate) unix_socket: String,
    pub(crate) unix_mask: u32,
    pub(crate) backlog: i32,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    /// Turns of connections in progress at a time.
    pub(crate) turns: usize,
    /// Bytes of the memory budget at most.
    pub(crate) budget: usize,
    /// Commands of one connection in a row.
    pub(crate) commands: usize,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) write_timeout: Duration,
    pub(crate) maxconns_fast: bool,
    pub(crate) shutdown: bool,
    pub(crate) flush: bool,
    pub(crate) dump: bool,
    pub(crate) watch: bool,
    pub(crate) verbosity: u32,
    /// What clients have to speak; none: either, by their first byte.
    pub(crate) protocol: Option<Protocol>,
    /// Driver, policy and mode, as labels of a metric.
    pub(crate) runtime: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 11211,
            listen: "NULL".to_owned(),
            unix_socket: "NULL".to_owned(),
            unix_mask: 0o700,
            backlog: 1024,
            connections: CONNECTIONS,
            threads: 1,
            turns: usize::MAX,
            budget: usize::MAX,
            commands: 20,
            idle_timeout: None,
            write_timeout: Duration::from_secs(30),
            maxconns_fast: false,
            shutdown: false,
            flush: true,
            dump: true,
            watch: true,
            verbosity: 0,
            protocol: None,
            runtime: String::new(),
        }
    }
}

impl Settings {
    pub(super) fn of(flags: &Flags, threads: usize, memory: &MemoryBound) -> Self {
        let listen = &flags.listen;
        let limits = &flags.limits;
        let allowed = &flags.allowed;
        let or_null = |text: String| {
            if text.is_empty() {
                "NULL".to_owned()
            } else {
                text
            }
        };

        let socket = listen
            .unix_socket
            .as_ref()
            .map(|path| path.display().to_string());
        Self {
            port: listen.port(),
            listen: or_null(listen.listen.join(",")),
            unix_socket: or_null(socket.unwrap_or_default()),
            unix_mask: listen.unix_mask,
            backlog: listen.listen_backlog,
            connections: limits
                .conn_limit
                .map_or(CONNECTIONS.min(memory.connections), NonZeroUsize::get),
            threads,
            turns: memory.turns,
            budget: memory.budget,
            commands: limits.max_reqs_per_event.get(),
            idle_timeout: limits.extended().idle_timeout,
            write_timeout: limits.write_timeout,
            maxconns_fast: limits.extended().maxconns_fast(),
            shutdown: allowed.enable_shutdown,
            flush: !allowed.disable_flush_all,
            dump: !allowed.disable_dumping,
            watch: !allowed.disable_watch,
            verbosity: u32::from(flags.verbose).min(2),
            protocol: flags.access.protocol(),
            runtime: String::new(),
        }
    }

    /// For the message at the start.
    pub(crate) fn summary(&self, store: &Config) -> String {
        let Self {
            threads,
            connections,
            ..
        } = self;
        let memory = store.memory >> 20;
        let item = store.item_max;
        format!(
            "-m {memory} -I {item} -t {threads} -c {connections} -R {}",
            self.commands
        )
    }
}
