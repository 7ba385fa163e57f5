//! The sites that are served: which one answers for a host, and what its rules make of the answer
//! of its files.
//!
//! All sites are one value, which a reload replaces ([`Live`]): a request that has begun goes on
//! with those that it began with, and no connection notices.

mod cors; // Which other sites' scripts may read answers.
mod hash; // Names of files that have a hash of their content in them.
mod networks; // Which addresses a rule lets in.
mod passwords; // Who may ask, by name and password.
mod rule; // One rule: for which paths, and what.
mod rules; // The rules of a site: which of them are for a path.
mod site; // One site: its files and its rules.
mod template; // Where a redirect or a rewrite leads.
mod treatment; // What matching rules say together, and what that makes of an answer.
mod wait; // Answers to be asked for again later.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use plainweave_http::files::{ServedRoot, decoded};
use plainweave_http::{Framing, Request, RequestHead, RequestLimits};
use plainweave_serve::PerCpu;

use super::config::Mistake;
use super::https::without_port;
use super::site_logs::SiteLog;
use super::upstream::Upstreams;
pub(super) use rule::Rule;
pub(super) use site::{Extras, Files, Origin, Site};
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use {rule::Paths, rules::Rules};

/// The sites, and who answers for what.
#[derive(Debug)]
pub(super) struct Sites {
    all: Vec<Arc<Site>>,
    by_name: HashMap<Box<str>, Namesakes, RandomState>,
    /// By what stands behind `*`, as in `.example.org`; the longest first.
    by_suffix: Vec<(Box<str>, Namesakes)>,
    /// Those that answer for all other names.
    others: Namesakes,
    upstreams: Upstreams,
}

/// The numbers of the sites of one name, those with the longest prefix first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Namesakes(Vec<usize>);

/// Who answers a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chosen<'s> {
    Site(&'s Arc<Site>),
    /// The host is served here, but nothing at this path.
    Nothing,
    /// No host of that name is served, or the client has asked for another one by TLS (RFC 9110,
    /// 7.4).
    Misdirected,
}

impl Namesakes {
    /// Adds a site. False: there is one with its prefix.
    fn add(&mut self, all: &[Arc<Site>], number: usize) -> bool {
        let prefix = all[number].prefix();
        if self.0.iter().any(|known| all[*known].prefix() == prefix) {
            return false;
        }

        let behind = |known: &usize| all[*known].prefix().len() > prefix.len();
        let place = self.0.partition_point(behind);
        self.0.insert(place, number);
        true
    }

    fn find<'s>(&self, all: &'s [Arc<Site>], head: &RequestHead<'_>) -> Option<&'s Arc<Site>> {
        let mut sites = self.0.iter().map(|number| &all[*number]);
        if let [number] = self.0.as_slice()
            && all[*number].prefix().is_empty()
        {
            return sites.next();
        }

        match decoded(head.path()) {
            Ok(path) => sites.find(|site| site.has(&path)),
            // Whoever is the least particular refuses it.
            Err(_) => sites.next_back(),
        }
    }
}

impl Sites {
    /// Makes what serves these sites, each under its names, and perhaps another one under all names
    /// that none of them has.
    pub(super) fn new(
        named: impl IntoIterator<Item = (Arc<Site>, Vec<toml::Spanned<String>>)>,
        other: Option<Arc<Site>>,
        upstreams: Upstreams,
    ) -> Result<Self, Mistake> {
        let mut sites = Self {
            upstreams,
            all: Vec::new(),
            by_name: HashMap::default(),
            by_suffix: Vec::new(),
            others: Namesakes::default(),
        };

        for (site, names) in named {
            let number = sites.all.len();
            sites.all.push(site);
            for name in names {
                sites
                    .take_name(name.get_ref(), number)
                    .map_err(|what| Mistake::new(name.span(), what))?;
            }
        }

        if let Some(other) = other {
            sites.all.push(other);
            // One that is named for all goes before it.
            let _ = sites.others.add(&sites.all, sites.all.len() - 1);
        }

        sites
            .by_suffix
            .sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        Ok(sites)
    }

    fn take_name(&mut self, name: &str, site: usize) -> Result<(), String> {
        let sites = match name.strip_prefix("*.") {
            _ if name == "*" => &mut self.others,
            Some(rest) if is_name(rest) => {
                let suffix = &name[1..];
                let mut known = self.by_suffix.iter();
                let known = known.position(|(known, _)| **known == *suffix);
                let place = known.unwrap_or_else(|| {
                    self.by_suffix.push((suffix.into(), Namesakes::default()));
                    self.by_suffix.len() - 1
                });
                &mut self.by_suffix[place].1
            }
            None if is_name(name) || canonical(name).is_some_and(|address| address == name) => {
                self.by_name.entry(name.into()).or_default()
            }
            _ => {
                let what = "write a host in lower case, without a port or a dot at its end, and \
                            beyond ASCII as xn--..., as in example.org, *.example.org, [::1], or *";
                return Err(what.to_owned());
            }
        };

        match (sites.add(&self.all, site), self.all[site].prefix()) {
            (true, _) => Ok(()),
            (false, b"") => Err(format!("{name} is the name of another site, too")),
            (false, prefix) => {
                let prefix = String::from_utf8_lossy(prefix);
                let what = format!("{name} is the name of another site with prefix {prefix}, too");
                Err(what)
            }
        }
    }

    /// Returns the sites that answer for a host, which may have a port.
    fn of(&self, host: &str) -> &Namesakes {
        if self.by_name.is_empty() && self.by_suffix.is_empty() {
            return &self.others;
        }

        let name = without_port(host);
        let name = name.strip_suffix('.').unwrap_or(name);
        let other_spelling = match name.starts_with('[') {
            true => canonical(name),
            false if name.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Some(name.to_ascii_lowercase())
            }
            false => None,
        };

        let name = other_spelling.as_deref().unwrap_or(name);

        let below = || {
            let suffixes = self.by_suffix.iter();
            let below = |suffix: &str| name.len() > suffix.len() && name.ends_with(suffix);
            suffixes
                .filter(|(suffix, _)| below(suffix))
                .map(|(_, sites)| sites)
                .next()
        };

        let exact = self.by_name.get(name);
        exact.or_else(below).unwrap_or(&self.others)
    }

    /// Returns who answers a request.
    pub(super) fn for_request(&self, request: &Request<'_>) -> Chosen<'_> {
        let sites = self.of(request.host().unwrap_or_default());
        let named = request.tls().and_then(|tls| tls.server_name.as_deref());
        if sites.0.is_empty() || named.is_some_and(|named| self.of(named) != sites) {
            return Chosen::Misdirected;
        }

        match sites.find(&self.all, request.head()) {
            Some(site) => Chosen::Site(site),
            None => Chosen::Nothing,
        }
    }

    /// Returns the log of the site that a request was for, if it has one of its own.
    pub(super) fn log_of(&self, head: &RequestHead<'_>) -> Option<&Arc<SiteLog>> {
        let sites = self.of(head.host().unwrap_or_default());
        sites.find(&self.all, head)?.log()
    }

    /// Returns whether any site has a log of its own.
    fn have_logs(&self) -> bool {
        self.all.iter().any(|site| site.log().is_some())
    }

    /// Returns the directories that are served.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Arc<ServedRoot>> {
        self.all.iter().filter_map(|site| site.root())
    }

    /// Returns the directory, if one is served under all names.
    pub(super) fn only(&self) -> Option<&Arc<ServedRoot>> {
        match self.all.as_slice() {
            [site] if self.by_name.is_empty() && self.by_suffix.is_empty() => site.root(),
            _ => None,
        }
    }

    /// Returns whether any site has a name.
    pub(super) fn are_named(&self) -> bool {
        !self.by_name.is_empty() || !self.by_suffix.is_empty()
    }

    /// Returns the applications that requests are passed on to.
    pub(super) fn upstreams(&self) -> &Upstreams {
        &self.upstreams
    }

    /// Returns the longest body of a request by the rules of its site, if they say.
    fn max_body(&self, head: &RequestHead<'_>) -> Option<u64> {
        let sites = self.of(head.host().unwrap_or_default());
        sites.find(&self.all, head)?.max_body(head)
    }

    /// Returns how many sites there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns a site of these that was made of the same.
    pub(super) fn same(&self, origin: &Origin) -> Option<&Arc<Site>> {
        self.all.iter().find(|site| site.origin() == origin)
    }
}

/// The sites of now, for those that serve them and those that replace them.
#[derive(Clone, Debug)]
pub(super) struct Live {
    places: Arc<PerCpu<RwLock<Arc<Current>>>>,
    /// Some site has a log of its own.
    has_logs: Arc<AtomicBool>,
}

/// The sites, by a count of those who serve them that is one processor's own.
#[derive(Debug)]
pub(super) struct Current(Arc<Sites>);

impl Deref for Current {
    type Target = Sites;

    fn deref(&self) -> &Sites {
        &self.0
    }
}

impl Live {
    pub(super) fn new(sites: Sites) -> Self {
        let has_logs = Arc::new(AtomicBool::new(sites.have_logs()));
        let sites = Arc::new(sites);
        let place = || RwLock::new(Arc::new(Current(sites.clone())));
        Self {
            places: Arc::new(PerCpu::new(place)),
            has_logs,
        }
    }

    pub(super) fn now(&self) -> Arc<Current> {
        let place = self.places.own();
        Arc::clone(&place.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn replace(&self, sites: Sites) {
        // Before or after the sites: a request meanwhile may be in either log.
        self.has_logs.store(sites.have_logs(), Ordering::Relaxed);
        let sites = Arc::new(sites);
        for place in self.places.iter() {
            let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
            *place = Arc::new(Current(sites.clone()));
        }
    }

    /// Lets a request have a longer body where its site's rules say so. (What they say of shorter
    /// ones the site answers, with all that belongs to its answers.)
    pub(super) fn bound_body(&self, head: &RequestHead<'_>, limits: &mut RequestLimits) {
        if head.framing() != Framing::Length(0)
            && let Some(max) = self.now().max_body(head)
        {
            limits.body_bytes = limits.body_bytes.max(max);
        }
    }

    /// Returns the log of the site that a request was for, if it has one of its own.
    pub(super) fn log_of(&self, head: Option<&RequestHead<'_>>) -> Option<Arc<SiteLog>> {
        match self.has_logs.load(Ordering::Relaxed) {
            true => self.now().log_of(head?).cloned(),
            false => None,
        }
    }
}

/// Returns whether a name is written as hosts are looked up here.
fn is_name(name: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let has_dot_outside = name.starts_with('.') || name.ends_with('.');
    !name.is_empty() && !has_dot_outside && name.bytes().all(plain)
}

/// Returns the one spelling of an IPv6 address in brackets (RFC 5952).
fn canonical(host: &str) -> Option<String> {
    let inside = host.strip_prefix('[')?.strip_suffix(']')?;
    let address: Ipv6Addr = inside.parse().ok()?;
    Some(format!("[{address}]"))
}
