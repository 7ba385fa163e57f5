//! The sites that are served: which one answers for a host, and what its rules make of the answer
//! of its files.
//!
//! All sites are one value, which a reload replaces ([`Live`]): a request that has begun goes on
//! with those that it began with, and no connection notices.

mod cors; // Which other sites' scripts may read answers.
mod hash; // Names of files that have a hash of their content in them.
mod networks; // Which addresses a rule lets in.
mod passwords; // Who may ask, by name and password.
mod rate; // How often one address may ask.
mod rule; // One rule: for which paths, and what.
mod rules; // The rules of a site: which of them are for a path.
mod site; // One site: its files and its rules.
mod template; // Where a redirect or a rewrite leads.
mod treatment; // What matching rules say together, and what that makes of an answer.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use plainweave_http::files::ServedRoot;
use plainweave_http::{Request, Response, StatusCode};
use plainweave_serve::PerCpu;

use super::config::Mistake;
use super::https::without_port;
pub(super) use rule::Rule;
pub(super) use site::{Files, Origin, Site};

/// The sites, and who answers for what.
#[derive(Debug)]
pub(super) struct Sites {
    all: Vec<Arc<Site>>,
    by_name: HashMap<Box<str>, usize, RandomState>,
    /// By what stands behind `*`, as in `.example.org`; the longest first.
    by_suffix: Vec<(Box<str>, usize)>,
    /// Who answers for all other names.
    other: Option<usize>,
}

impl Sites {
    /// Makes what serves these sites, each under its names, and perhaps another one under all names
    /// that none of them has.
    pub(super) fn new(
        named: impl IntoIterator<Item = (Arc<Site>, Vec<toml::Spanned<String>>)>,
        other: Option<Arc<Site>>,
    ) -> Result<Self, Mistake> {
        let mut sites = Self {
            all: Vec::new(),
            by_name: HashMap::default(),
            by_suffix: Vec::new(),
            other: None,
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
            sites.other.get_or_insert(sites.all.len());
            sites.all.push(other);
        }

        sites
            .by_suffix
            .sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        Ok(sites)
    }

    fn take_name(&mut self, name: &str, site: usize) -> Result<(), String> {
        let taken = || format!("{name} is the name of another site, too");
        if name == "*" {
            return match self.other.replace(site) {
                None => Ok(()),
                Some(_) => Err(taken()),
            };
        }

        let (is_suffix, rest) = match name.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, name),
        };

        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        let is_address = !is_suffix && canonical(rest).is_some_and(|address| address == rest);
        let is_name = !rest.starts_with('.') && !rest.ends_with('.') && rest.bytes().all(plain);
        if rest.is_empty() || !(is_address || is_name) {
            let what = "write a host in lower case, without a port or a dot at its end, and \
                        beyond ASCII as xn--..., as in example.org, *.example.org, [::1], or *";
            return Err(what.to_owned());
        }

        if is_suffix {
            let suffix: Box<str> = name[1..].into();
            if self.by_suffix.iter().any(|(known, _)| *known == suffix) {
                return Err(taken());
            }
            self.by_suffix.push((suffix, site));
            return Ok(());
        }

        match self.by_name.insert(name.into(), site) {
            None => Ok(()),
            Some(_) => Err(taken()),
        }
    }

    /// Returns the site that answers for a host, which may have a port.
    fn of(&self, host: &str) -> Option<usize> {
        if self.by_name.is_empty() && self.by_suffix.is_empty() {
            return self.other;
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

        let exact = self.by_name.get(name).copied();
        let below = || {
            let suffixes = self.by_suffix.iter();
            let below = |suffix: &str| name.len() > suffix.len() && name.ends_with(suffix);
            suffixes
                .filter(|(suffix, _)| below(suffix))
                .map(|(_, site)| *site)
                .next()
        };

        exact.or_else(below).or(self.other)
    }

    /// Returns the site that a request is for. `None`: there is none, or the client has asked for
    /// another one by TLS (RFC 9110, 7.4).
    pub(super) fn for_request(&self, request: &Request<'_>) -> Option<&Arc<Site>> {
        let site = self.of(request.host().unwrap_or_default());
        let named = request.tls().and_then(|tls| tls.server_name.as_deref());
        if let Some(named) = named
            && self.of(named) != site
        {
            return None;
        }

        site.map(|site| &self.all[site])
    }

    /// Returns the directories that are served.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Arc<ServedRoot>> {
        self.all.iter().map(|site| site.root())
    }

    /// Returns the directory, if one is served under all names.
    pub(super) fn only(&self) -> Option<&Arc<ServedRoot>> {
        match self.all.as_slice() {
            [site] if self.by_name.is_empty() && self.by_suffix.is_empty() => Some(site.root()),
            _ => None,
        }
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
pub(super) struct Live(Arc<PerCpu<RwLock<Arc<Current>>>>);

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
        let sites = Arc::new(sites);
        let place = || RwLock::new(Arc::new(Current(sites.clone())));
        Self(Arc::new(PerCpu::new(place)))
    }

    pub(super) fn now(&self) -> Arc<Current> {
        let place = self.0.own();
        Arc::clone(&place.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn replace(&self, sites: Sites) {
        let sites = Arc::new(sites);
        for place in self.0.iter() {
            let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
            *place = Arc::new(Current(sites.clone()));
        }
    }
}

/// Returns the answer to a request for a host that is not served here.
pub(super) fn misdirected() -> Response {
    Response::plain(StatusCode::MISDIRECTED_REQUEST)
}

/// Returns the one spelling of an IPv6 address in brackets (RFC 5952).
fn canonical(host: &str) -> Option<String> {
    let inside = host.strip_prefix('[')?.strip_suffix(']')?;
    let address: Ipv6Addr = inside.parse().ok()?;
    Some(format!("[{address}]"))
}
