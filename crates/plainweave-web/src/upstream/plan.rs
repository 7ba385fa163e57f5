//! What an upstream is made of, from its table.

use std::path::Path;
use std::time::Duration;

use plainweave_daemon::flag::time;
use toml::Spanned;

use super::address::UpstreamAddress;
use crate::config::{Mistake, Text, UpstreamTable};

/// What an upstream is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamPlan {
    pub(super) name: String,
    pub(super) servers: Vec<UpstreamAddress>,
    pub(super) balance: Balance,
    pub(super) limits: UpstreamLimits,
}

/// How a server is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Balance {
    /// The one with the fewest requests in progress.
    Least,
    /// The better one of two that are drawn (M. Mitzenmacher, 2001).
    TwoChoices,
    /// By the client's address: the same one as long as it is up (rendezvous hashing, D. G. Thaler
    /// and C. V. Ravishankar, 1998).
    Hash,
}

/// Bounds on what a server may delay and use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamLimits {
    pub(super) connect_timeout: Duration,
    /// From the request to the answer's head, and of silence within the answer.
    pub(super) answer_timeout: Duration,
    /// In which a server takes some bytes of a request.
    pub(super) send_timeout: Duration,
    /// Connections of a server that are kept while they are idle.
    pub(super) keep_alive: usize,
    /// Requests in progress at a server.
    pub(super) max_connections: usize,
    /// After as many failures in a row a server is down.
    pub(super) max_fails: u32,
    /// For how long.
    pub(super) fail_time: Duration,
    /// Silence after which an upgraded connection ends.
    pub(super) tunnel_timeout: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            keep_alive: 64,
            max_connections: 1024,
            max_fails: 3,
            fail_time: Duration::from_secs(2),
            tunnel_timeout: Duration::from_secs(3600),
        }
    }
}

impl UpstreamPlan {
    /// Reads a table of this file, from whose folder paths are meant.
    pub(super) fn of(table: &Spanned<UpstreamTable>, file: &Path) -> Result<Self, Mistake> {
        let span = table.span();
        let table = table.get_ref();
        if table.servers.is_empty() {
            let what = "an upstream needs servers, as in [\"127.0.0.1:3000\"]";
            return Err(Mistake::new(span, what));
        }

        let folder = file.parent().unwrap_or(Path::new(""));
        let mut servers = Vec::new();
        for text in &table.servers {
            let parsed = UpstreamAddress::parse(text.get_ref(), folder);
            let address = parsed.map_err(|what| Mistake::new(text.span(), what))?;
            if servers.contains(&address) {
                return Err(Mistake::new(text.span(), "it stands there twice"));
            }
            servers.push(address);
        }

        Ok(Self {
            name: table.name.get_ref().clone(),
            servers,
            balance: balance(table)?,
            limits: limits(table)?,
        })
    }
}

fn balance(table: &UpstreamTable) -> Result<Balance, Mistake> {
    let Some(text) = &table.balance else {
        return Ok(Balance::Least);
    };
    match text.get_ref().as_str() {
        "least" => Ok(Balance::Least),
        "two-choices" => Ok(Balance::TwoChoices),
        "hash" => Ok(Balance::Hash),
        _ => Err(Mistake::new(
            text.span(),
            "write least, two-choices or hash",
        )),
    }
}

fn limits(table: &UpstreamTable) -> Result<UpstreamLimits, Mistake> {
    let usual = UpstreamLimits::default();
    let or = |text: &Option<Text>, usual: Duration| match text {
        None => Ok(usual),
        Some(text) => time(text.get_ref()).map_err(|what| Mistake::new(text.span(), what)),
    };
    Ok(UpstreamLimits {
        connect_timeout: or(&table.connect_timeout, usual.connect_timeout)?,
        answer_timeout: or(&table.answer_timeout, usual.answer_timeout)?,
        send_timeout: or(&table.send_timeout, usual.send_timeout)?,
        tunnel_timeout: or(&table.tunnel_timeout, usual.tunnel_timeout)?,
        fail_time: or(&table.fail_time, usual.fail_time)?,
        keep_alive: table.keep_alive.unwrap_or(usual.keep_alive),
        max_connections: table
            .max_connections
            .map_or(usual.max_connections, |most| most.get() as usize),
        max_fails: table.max_fails.map_or(usual.max_fails, |most| most.get()),
    })
}
