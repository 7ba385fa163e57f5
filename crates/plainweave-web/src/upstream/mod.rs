//! Applications behind the server: requests are passed on to them, over connections that are kept.
//!
//! # What goes out is written anew
//! A request that two readers understand differently is two requests (request smuggling). So
//! nothing is passed on as it came: the head is parsed by the same strict parser as for files, and
//! written again from what that has found; the body is framed again by its length or in chunks
//! (`request`). Of the answer the same is true (`answer`), and a connection is used again only
//! where its answer has ended exactly where the bytes do (`exchange`).
//!
//! # What is tried again
//! A request that could not be sent, since no connection came about, goes to another server. One
//! that was sent over a kept connection that turns out to be closed goes out again once, if it is
//! idempotent and has no body: the application may have closed it just then. Nothing else is sent
//! twice.
//!
//! # Which server
//! By the policy of [`Balance`] one that is up. A server is down for a while after failures in a
//! row (`server`); then one request at a time is let through, and its answer decides. Where none is
//! up the client is answered 503 at once.

mod address; // Where a server listens.
mod answer; // The heads of answers.
mod body; // The bodies of answers.
mod connection; // A connection to a server, and what has come over it.
mod exchange; // One request and its answer.
mod failure; // Why a request has no answer.
mod plan; // What an upstream is made of, from its table.
mod request; // The heads and bodies of requests.
mod server; // One server: its connections, and whether it is up.
mod tunnel; // What a client and an application say to each other after an upgrade.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use plainweave_http::{HeaderValue, Method, Request, Response, StatusCode, header};
use toml::Spanned;

use super::config::{Mistake, Text, UpstreamTable, nearest};
use super::faults::Faults;
use address::UpstreamAddress;
use failure::UpstreamFailure;
use plan::{Balance, UpstreamPlan};
use server::UpstreamServer;

/// In seconds, for a client that finds no server.
const SOON: HeaderValue = HeaderValue::from_static("1");

/// Servers of one application.
pub(crate) struct Upstream {
    plan: UpstreamPlan,
    servers: Vec<Arc<UpstreamServer>>,
    /// Where the search for the least begins: equals get their turns.
    turn: AtomicUsize,
    /// With fixed keys: clients stay where they are when the server starts again.
    hasher: BuildHasherDefault<DefaultHasher>,
    faults: Arc<Faults>,
    counts: Outcomes,
}

/// What has become of requests.
#[derive(Debug, Default)]
struct Outcomes {
    passed: AtomicU64,
    failed: [AtomicU64; UpstreamFailure::ALL.len()],
    /// Sent again, or to another server.
    retried: AtomicU64,
}

impl Upstream {
    fn new(plan: UpstreamPlan, faults: Arc<Faults>) -> Self {
        let servers = plan.servers.iter();
        let servers = servers
            .map(|address| Arc::new(UpstreamServer::new(address.clone(), plan.limits.clone())));
        Self {
            servers: servers.collect(),
            plan,
            turn: AtomicUsize::new(0),
            hasher: BuildHasherDefault::default(),
            faults,
            counts: Outcomes::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.plan.name
    }

    /// Passes a request on, as one for this path and query, and returns the answer.
    ///
    /// # Errors
    /// The application has not answered; the answer is this server's.
    pub(crate) fn pass(
        &self,
        request: &mut Request<'_>,
        place: &str,
    ) -> Result<Response, Box<Response>> {
        // A tunnel to anywhere, and an answer with what only proxies were to see.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(Response::plain(StatusCode::METHOD_NOT_ALLOWED).into());
        }

        match self.exchange(request, place) {
            Ok(response) => {
                self.counts.passed.fetch_add(1, Relaxed);
                Ok(response)
            }
            Err(failed) => {
                self.counts.failed[failed.failure as usize].fetch_add(1, Relaxed);
                if failed.failure != UpstreamFailure::Client {
                    self.faults.upstream(&self.plan.name, &failed.why);
                }
                let response = Response::plain(failed.failure.status());
                Err(Box::new(match failed.failure {
                    UpstreamFailure::Unavailable => response.with_header(header::RETRY_AFTER, SOON),
                    _ => response,
                }))
            }
        }
    }

    /// Returns servers in the order in which they are to be tried.
    fn candidates(&self, client: Option<IpAddr>) -> Vec<&Arc<UpstreamServer>> {
        let count = self.servers.len();
        let turn = match count {
            1 => 0,
            _ => self.turn.fetch_add(1, Relaxed),
        };
        let (behind, from) = self.servers.split_at(turn % count);
        let mut order: Vec<_> = from.iter().chain(behind).collect();
        match (self.plan.balance, client) {
            _ if count == 1 => {}
            (Balance::Hash, Some(client)) => {
                order.sort_by_cached_key(|server| self.hasher.hash_one((client, server.address())));
            }
            (Balance::TwoChoices, _) => {
                let drawn = self.hasher.hash_one(turn) as usize;
                order.rotate_left(drawn % count);
                if count > 2 {
                    order.swap(1, 1 + drawn / count % (count - 1));
                }
                if order[1].in_progress() < order[0].in_progress() {
                    order.swap(0, 1);
                }
            }
            // Loads change meanwhile: each is looked at once.
            _ => order.sort_by_cached_key(|server| server.in_progress()),
        }

        order
    }

    /// Calls `each` with what has become of requests, by the names of outcomes.
    pub(crate) fn outcomes(&self, mut each: impl FnMut(&'static str, u64)) {
        each("passed", self.counts.passed.load(Relaxed));
        for (failure, count) in UpstreamFailure::ALL.iter().zip(&self.counts.failed) {
            each(failure.name(), count.load(Relaxed));
        }
        each("retried", self.counts.retried.load(Relaxed));
    }

    /// Calls `each` with the state of each server.
    pub(crate) fn states(&self, each: impl FnMut(UpstreamState<'_>)) {
        let servers = self.servers.iter();
        let states = servers.map(|server| UpstreamState {
            address: server.address(),
            is_up: server.is_up(),
            in_progress: server.in_progress(),
            idle: server.idle(),
        });
        states.for_each(each);
    }
}

/// How a server is doing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamState<'s> {
    pub(crate) address: &'s UpstreamAddress,
    pub(crate) is_up: bool,
    /// Requests.
    pub(crate) in_progress: usize,
    /// Connections.
    pub(crate) idle: usize,
}

/// All upstreams, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstreams(Vec<Arc<Upstream>>);

impl Upstreams {
    /// Makes those of the tables, and goes on with those of `before` that are the same: their
    /// connections, and what is known of their servers.
    pub(crate) fn of(
        tables: &[Spanned<UpstreamTable>],
        file: &Path,
        before: Option<&Self>,
        faults: &Arc<Faults>,
    ) -> Result<Self, Mistake> {
        let mut all: Vec<Arc<Upstream>> = Vec::new();
        for table in tables {
            let plan = UpstreamPlan::of(table, file)?;
            let name = &table.get_ref().name;
            if all.iter().any(|known| known.plan.name == plan.name) {
                let what = format!("{} is the name of another upstream, too", plan.name);
                return Err(Mistake::new(name.span(), what));
            }
            let mut known = before.iter().flat_map(|before| &before.0);
            let same = known.find(|known| known.plan == plan).cloned();
            all.push(same.unwrap_or_else(|| Arc::new(Upstream::new(plan, faults.clone()))));
        }

        Ok(Self(all))
    }

    /// Returns the upstream of this name.
    pub(crate) fn named(&self, name: &Text) -> Result<Arc<Upstream>, Mistake> {
        let mut all = self.0.iter();
        let found = all.find(|upstream| upstream.plan.name == *name.get_ref());
        found.cloned().ok_or_else(|| {
            let names = self.0.iter().map(|upstream| upstream.plan.name.as_str());
            let what = match nearest(name.get_ref(), names) {
                Some(near) => format!("no upstream has this name; is `{near}` meant?"),
                None => "no upstream has this name: write an [[upstream]] with it".to_owned(),
            };
            Mistake::new(name.span(), what)
        })
    }

    /// Closes the idle connections of those that `now` has not any more, and has them keep none.
    pub(crate) fn retire_unless_in(&self, now: &Self) {
        let is_in = |upstream: &Arc<Upstream>| now.0.iter().any(|new| Arc::ptr_eq(new, upstream));
        for upstream in self.0.iter().filter(|upstream| !is_in(upstream)) {
            upstream.servers.iter().for_each(|server| server.retire());
        }
    }

    /// Closes idle connections that have grown old, or that their servers have closed.
    pub(crate) fn sweep(&self) {
        for upstream in &self.0 {
            upstream.servers.iter().for_each(|server| server.sweep());
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Upstream> {
        self.0.iter().map(|upstream| &**upstream)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("plan", &self.plan)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
