//! One rule: for which paths, and what, compiled from its table.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use globset::{Glob, GlobBuilder};
use ipnet::IpNet;
use plainweave_http::files::decoded;
use plainweave_http::{HeaderLines, HeaderName, HeaderValue, StatusCode, header};
use regex::{Captures, Regex, RegexBuilder};
use toml::Spanned;

use super::cors::Cors;
use super::networks::parse_all;
use super::passwords::Passwords;
use super::template::Template;
use crate::config::{Mistake, RuleTable, Texts};
use crate::upstream::{Upstream, Upstreams};
use plainweave_daemon::flag::{size, time};
use plainweave_daemon::rate::Rate;

/// One `[[rule]]`. What it counts, and what it has computed, is one for all sites that it is of.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(super) paths: Paths,
    pub(super) headers: Vec<Change>,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) cache_control: Option<HeaderLines>,
    pub(super) immutable_hashes: Option<bool>,
    pub(super) cors: Option<Arc<Cors>>,
    pub(super) redirect: Option<Arc<Redirect>>,
    pub(super) rewrite: Option<Arc<Rewrite>>,
    pub(super) passwords: Option<Arc<Passwords>>,
    pub(super) allowed: Option<Arc<[IpNet]>>,
    pub(super) denied: Option<Arc<[IpNet]>>,
    pub(super) rate: Option<Arc<Rate>>,
    /// In bytes.
    pub(super) max_body: Option<u64>,
    pub(super) upstream: Option<Arc<Upstream>>,
}

/// For which paths a rule is.
#[derive(Clone, Debug)]
pub(crate) enum Paths {
    All,
    Patterns(Vec<Glob>),
    Regex(Regex),
}

/// What happens to one header field.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) name: HeaderName,
    /// The line; `None`: it is removed.
    pub(super) line: Option<HeaderLines>,
    pub(super) replaces: bool,
}

/// Where else a client should ask.
#[derive(Debug)]
pub(super) struct Redirect {
    destination: Destination,
    pub(super) status: StatusCode,
}

/// Which path is served instead.
#[derive(Debug)]
pub(super) struct Rewrite {
    destination: Destination,
}

/// A place that a template and the rule's regular expression make of a path.
#[derive(Debug)]
struct Destination {
    template: Template,
    regex: Option<Regex>,
}

/// Without these an answer would be another one.
const FIXED: [HeaderName; 4] = [
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::DATE,
    header::UPGRADE,
];

impl Rule {
    /// Compiles a table. `file`: where it stands, from which its paths are meant.
    pub(crate) fn of(
        table: &Spanned<RuleTable>,
        file: &Path,
        upstreams: &Upstreams,
    ) -> Result<Self, Mistake> {
        let span = table.span();
        let table = table.get_ref();
        let regex = table.regex.as_ref().map(compiled).transpose()?;
        let paths = match (&table.path, &regex) {
            (None, None) => Paths::All,
            (None, Some(regex)) => Paths::Regex(regex.clone()),
            (Some(Texts(paths)), None) if paths.is_empty() => {
                return Err(Mistake::new(
                    span,
                    "path has no patterns, so it is for nothing",
                ));
            }
            (Some(Texts(paths)), None) => {
                let globs: Result<Vec<_>, _> = paths.iter().map(patterns).collect();
                Paths::Patterns(globs?.concat())
            }
            (Some(Texts(paths)), Some(_)) => {
                let span = paths.first().map_or(span, Spanned::span);
                return Err(Mistake::new(span, "a rule has path or regex, not both"));
            }
        };

        Ok(Self {
            paths,
            headers: headers(table)?,
            content_type: content_type(table)?,
            cache_control: cache_control(table)?,
            immutable_hashes: table.immutable_hashes,
            cors: table.cors.as_ref().map(Cors::of).transpose()?.map(Arc::new),
            redirect: redirect(table, &regex)?.map(Arc::new),
            rewrite: rewrite(table, &regex)?.map(Arc::new),
            passwords: passwords(table, file)?.map(Arc::new),
            allowed: table.allow.as_deref().map(parse_all).transpose()?,
            denied: table.deny.as_deref().map(parse_all).transpose()?,
            rate: rate(table)?.map(Arc::new),
            max_body: max_body(table)?,
            upstream: table
                .proxy
                .as_ref()
                .map(|name| upstreams.named(name))
                .transpose()?,
        })
    }

    /// Makes one that passes on all that no other rule says anything of.
    pub(crate) fn passing(upstream: Arc<Upstream>) -> Result<Self, Mistake> {
        let table = Spanned::new(0..0, RuleTable::default());
        Ok(Self {
            upstream: Some(upstream),
            ..Self::of(&table, Path::new(""), &Upstreams::default())?
        })
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Rule {
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Returns where the rule leads a client that asks for a path it matches.
    pub(crate) fn location(&self, path: &[u8]) -> Option<String> {
        let redirect = self.redirect.as_ref()?;
        Some(redirect.location(path, None))
    }
}

impl Destination {
    fn of(text: &Spanned<String>, regex: &Option<Regex>) -> Result<Self, Mistake> {
        let has = |name: &str| match (regex, name.parse::<usize>()) {
            (None, _) => false,
            (Some(regex), Ok(number)) => number < regex.captures_len(),
            (Some(regex), Err(_)) => regex.capture_names().flatten().any(|known| known == name),
        };

        let template = Template::parse(text.get_ref(), has);
        Ok(Self {
            template: template.map_err(|what| Mistake::new(text.span(), what))?,
            regex: regex.clone(),
        })
    }

    fn fill(&self, path: &[u8]) -> String {
        let text = String::from_utf8_lossy(path);
        let captures: Option<Captures<'_>> =
            self.regex.as_ref().and_then(|regex| regex.captures(&text));
        self.template.fill(path, captures.as_ref())
    }
}

impl Redirect {
    /// Returns where the client should ask. What it asked behind `?` goes along, unless the rule
    /// says what stands there.
    pub(super) fn location(&self, path: &[u8], query: Option<&str>) -> String {
        let filled = self.destination.fill(path);
        // Two slashes in front would name a host.
        let filled = match filled.starts_with("//") {
            true => format!("/{}", filled.trim_start_matches('/')),
            false => filled,
        };

        let Some(query) = query.filter(|_| !self.destination.template.contains('?')) else {
            return filled;
        };

        let fragment = filled.find('#').unwrap_or(filled.len());
        let (place, fragment) = filled.split_at(fragment);
        format!("{place}?{query}{fragment}")
    }
}

impl Rewrite {
    /// Returns the path and query that are served.
    pub(super) fn place(&self, path: &[u8], query: Option<&str>) -> String {
        let mut place = self.destination.fill(path);
        if let Some(query) = query {
            place.push('?');
            place.push_str(query);
        }

        place
    }
}

fn compiled(text: &Spanned<String>) -> Result<Regex, Mistake> {
    // A line break is a character of a path like any other: `.*` is everything.
    let regex = RegexBuilder::new(text.get_ref())
        .dot_matches_new_line(true)
        .build();
    regex.map_err(|error| {
        let what = error.to_string();
        let last = what.lines().next_back().unwrap_or_default().trim();
        Mistake::new(text.span(), format!("the regular expression: {last}"))
    })
}

/// Compiles a pattern of paths. `/a/**` is for `/a`, too: a password for all in a folder would be
/// none for what an application sends for the folder itself.
fn patterns(text: &Spanned<String>) -> Result<Vec<Glob>, Mistake> {
    let itself = text.get_ref().strip_suffix("/**");
    let itself = itself.filter(|folder| !folder.is_empty());
    let itself = itself.map(|folder| pattern(text, folder)).transpose()?;
    let mut globs = vec![pattern(text, text.get_ref())?];
    globs.extend(itself);
    Ok(globs)
}

fn pattern(text: &Spanned<String>, path: &str) -> Result<Glob, Mistake> {
    if path.contains('[') && !path.is_ascii() {
        let what = "[...] is one byte, so its path is ASCII; write {ä,ö} for one of these texts";
        return Err(Mistake::new(text.span(), what));
    }

    if !path.starts_with('/') && !path.starts_with("**/") {
        let what = "paths begin with /, as in /assets/** (or with **/ for any folder)";
        return Err(Mistake::new(text.span(), what));
    }

    let mut builder = GlobBuilder::new(path);
    builder.literal_separator(true).backslash_escape(true);
    builder.build().map_err(|error| {
        Mistake::new(
            text.span(),
            format!("the pattern of paths: {}", error.kind()),
        )
    })
}

fn headers(table: &RuleTable) -> Result<Vec<Change>, Mistake> {
    let mut changes: Vec<Change> = Vec::new();
    let written = [(&table.set_headers, true), (&table.add_headers, false)];
    for (fields, replaces) in written {
        for (name, value) in fields {
            let mistake = |what: &str| Mistake::new(value.span(), format!("{name}: {what}"));
            let mut line = HeaderLines::default();
            line.push(name, value.get_ref())
                .map_err(|error| mistake(&error.to_string()))?;
            let Some(named) = parsed(name).filter(|name| !FIXED.contains(name)) else {
                return Err(mistake("the server writes this field itself"));
            };

            if changes.iter().any(|change| change.name == named) {
                return Err(mistake("it stands twice in this rule"));
            }
            if named == header::CONTENT_TYPE {
                continue; // See `content_type`.
            }
            changes.push(Change {
                // Of this one an answer has one.
                replaces: replaces || named == header::SERVER,
                name: named,
                line: Some(line),
            });
        }
    }

    for name in &table.remove_headers {
        let named = parsed(name.get_ref()).filter(|name| !FIXED.contains(name));
        let named = named.ok_or_else(|| {
            let what = format!("{}: no field that can be removed", name.get_ref());
            Mistake::new(name.span(), what)
        })?;

        changes.push(Change {
            name: named,
            line: None,
            replaces: true,
        });
    }

    Ok(changes)
}

/// Returns what a rule sets `Content-Type` to: of files, not of several parts of one.
fn content_type(table: &RuleTable) -> Result<Option<HeaderValue>, Mistake> {
    let mut fields = table.set_headers.iter();
    let field = fields.find(|(name, _)| parsed(name) == Some(header::CONTENT_TYPE));
    let Some((_, value)) = field else {
        return Ok(None);
    };

    let parsed = HeaderValue::from_str(value.get_ref());
    let parsed = parsed.map_err(|error| Mistake::new(value.span(), error.to_string()))?;
    Ok(Some(parsed))
}

fn parsed(name: &str) -> Option<HeaderName> {
    HeaderName::from_bytes(name.as_bytes()).ok()
}

fn cache_control(table: &RuleTable) -> Result<Option<HeaderLines>, Mistake> {
    let Some(value) = &table.cache_control else {
        return Ok(None);
    };

    let mut line = HeaderLines::default();
    match line.push("Cache-Control", value.get_ref()) {
        Ok(()) => Ok(Some(line)),
        Err(error) => Err(Mistake::new(value.span(), error.to_string())),
    }
}

fn redirect(table: &RuleTable, regex: &Option<Regex>) -> Result<Option<Redirect>, Mistake> {
    let status = table.status.as_ref();
    let Some(to) = &table.redirect else {
        return match status {
            None => Ok(None),
            Some(status) => Err(Mistake::new(status.span(), "status goes with redirect")),
        };
    };

    if to
        .get_ref()
        .bytes()
        .any(|byte| byte <= b' ' || byte >= 0x7f)
    {
        let what = "write blanks and characters beyond ASCII percent-encoded, as in %20";
        return Err(Mistake::new(to.span(), what));
    }

    if let Some(what) = misplaced(to.get_ref()) {
        return Err(Mistake::new(to.span(), what));
    }

    Ok(Some(Redirect {
        destination: Destination::of(to, regex)?,
        status: match status {
            None => StatusCode::FOUND,
            Some(status) if matches!(status.get_ref(), 301 | 302 | 303 | 307 | 308) => {
                StatusCode::from_u16(*status.get_ref())
                    .map_err(|error| Mistake::new(status.span(), error.to_string()))?
            }
            Some(status) => {
                let what = "a redirect's status is 301, 302, 303, 307 or 308";
                return Err(Mistake::new(status.span(), what));
            }
        },
    }))
}

/// Says why a text leads nowhere, or to where a client says.
fn misplaced(to: &str) -> Option<&'static str> {
    let schemes = ["https://", "http://"];
    let Some(behind) = schemes.iter().find_map(|scheme| to.strip_prefix(scheme)) else {
        let is_path = to.starts_with('/') || to.starts_with("$path");
        return (!is_path || to.starts_with("//"))
            .then_some("write a path as in /new/$1, or a URL as in https://example.org/$1");
    };

    // A path begins with a slash, so it may stand right behind the host. What else a client asks
    // for would be a part of the host's name.
    let host = behind.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.split("$path").next().unwrap_or_default();
    (host.is_empty() || host.contains('$')).then_some("name the host, and write / behind it")
}

fn rewrite(table: &RuleTable, regex: &Option<Regex>) -> Result<Option<Rewrite>, Mistake> {
    let Some(to) = &table.rewrite else {
        return Ok(None);
    };

    if !to.get_ref().starts_with('/') || to.get_ref().contains(['?', '#']) {
        let what = "write a path of this site, as in /app/$1";
        return Err(Mistake::new(to.span(), what));
    }

    if !to.get_ref().contains('$') && decoded(to.get_ref()).is_err() {
        return Err(Mistake::new(to.span(), "no file can have this path"));
    }

    let destination = Destination::of(to, regex)?;
    Ok(Some(Rewrite { destination }))
}

fn passwords(table: &RuleTable, file: &Path) -> Result<Option<Passwords>, Mistake> {
    let Some(auth) = &table.basic_auth else {
        return Ok(None);
    };

    let auth = auth.get_ref();
    let realm = auth
        .realm
        .as_ref()
        .map_or("restricted", |realm| realm.get_ref());
    let path = crate::config::beside(file, auth.file.get_ref());
    let read = Passwords::read(&path, realm);
    let read = read.map_err(|error| Mistake::new(auth.file.span(), format!("{error:#}")))?;
    Ok(Some(read))
}

fn max_body(table: &RuleTable) -> Result<Option<u64>, Mistake> {
    let Some(text) = &table.max_body else {
        return Ok(None);
    };

    let bytes = size(text.get_ref()).map_err(|what| Mistake::new(text.span(), what))?;
    Ok(Some(bytes))
}

fn rate(table: &RuleTable) -> Result<Option<Rate>, Mistake> {
    let Some(rate) = &table.rate else {
        return Ok(None);
    };

    let span = rate.span();
    let rate = rate.get_ref();
    let per = match &rate.per {
        Some(per) => time(per.get_ref()).map_err(|what| Mistake::new(per.span(), what))?,
        None => Duration::from_secs(1),
    };

    let burst = rate.burst.unwrap_or(rate.requests);
    if rate.requests == 0 || burst == 0 {
        return Err(Mistake::new(span, "requests and burst are at least 1"));
    }

    let made = Rate::new(rate.requests, per, burst);
    let what = "no clock can tell this rate: choose another per, or a smaller burst";
    made.map(Some).ok_or_else(|| Mistake::new(span, what))
}
