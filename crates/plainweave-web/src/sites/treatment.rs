//! What the rules that match a request say together, and what that makes of its answer.

use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use plainweave_http::{
    Framing, HeaderLines, HeaderName, HeaderValue, Request, RequestHead, Response, StatusCode,
    header,
};

use super::cors::Cors;
use super::hash::has_hash;
use super::networks::admits;
use super::passwords::Passwords;
use super::rule::{Change, Redirect, Rewrite, Rule};
use super::wait::wait;
use crate::upstream::Upstream;
use plainweave_daemon::rate::Rate;

/// For a year, which is as long as caches keep anything (RFC 8246).
const IMMUTABLE: &str = "max-age=31536000, immutable";

/// A rule that is for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Matching {
    /// Its number.
    pub(super) rule: u32,
    /// It matches another path than the one that was asked for.
    pub(super) is_other: bool,
}

/// What rules say together: of each setting what the first says that has it.
#[derive(Debug)]
pub(super) struct Treatment {
    allowed: Option<Arc<[IpNet]>>,
    denied: Option<Arc<[IpNet]>>,
    rate: Option<Arc<Rate>>,
    cors: Option<Arc<Cors>>,
    passwords: Option<Arc<Passwords>>,
    /// In bytes.
    pub(super) max_body: Option<u64>,
    pub(super) upstream: Option<Arc<Upstream>>,
    redirect: Option<Arc<Redirect>>,
    pub(super) rewrite: Option<Arc<Rewrite>>,
    content_type: Option<HeaderValue>,
    immutable_hashes: bool,
    /// `Cache-Control` has `no-transform` (RFC 9111, 5.2.2.6).
    pub(super) untransformed: bool,
    /// Fields that the answer's own are not sent of: those that files have, and all, which an
    /// application may have.
    replaced: Vec<HeaderName>,
    all_replaced: Vec<HeaderName>,
    /// Fields of each answer.
    lines: HeaderLines,
    /// The same and `Cache-Control`, for answers of files.
    cached_lines: HeaderLines,
    /// The same for files that will not change.
    immutable_lines: HeaderLines,
}

/// The fields of answers that are not a rule's. What no answer has need not be looked for.
const OWN: [HeaderName; 14] = [
    header::ACCEPT_RANGES,
    header::ALLOW,
    header::CACHE_CONTROL,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LOCATION,
    header::RETRY_AFTER,
    header::SERVER,
    header::STRICT_TRANSPORT_SECURITY,
    header::VARY,
    header::WWW_AUTHENTICATE,
    header::X_CONTENT_TYPE_OPTIONS,
];

/// What an application may say for itself, instead of which a rule's CORS is said.
const CORS_FIELDS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
];

impl Treatment {
    /// Combines what the matching ones of these rules say.
    pub(super) fn of(rules: &[Arc<Rule>], matching: &[Matching]) -> Self {
        let of = |matching: &Matching| &*rules[matching.rule as usize];
        let all = || matching.iter().map(of);
        // Where they lead is about the path that was asked for.
        let asked = || {
            matching
                .iter()
                .filter(|matching| !matching.is_other)
                .map(of)
        };

        let changes = changes(all());
        let allowed = all().find_map(|rule| rule.allowed.clone());
        let passwords = all().find_map(|rule| rule.passwords.clone());

        let lines = lines(&changes);
        let mut immutable_lines = lines.clone();
        let mut cached_lines = lines.clone();
        // A rule that sets the field like any other says all of it.
        if !changes
            .iter()
            .any(|change| change.name == header::CACHE_CONTROL)
        {
            let is_private = passwords.is_some() || allowed.is_some();
            let scope = if is_private { "private" } else { "public" };
            // Name and value are known to be right.
            let _ = immutable_lines.push("Cache-Control", format!("{scope}, {IMMUTABLE}"));
            if let Some(line) = all().find_map(|rule| rule.cache_control.as_ref()) {
                cached_lines.append(line);
            }
        }

        let replaced = changes.iter().filter(|change| change.replaces);
        let replaced = replaced.map(|change| change.name.clone());
        let all_replaced: Vec<_> = replaced.collect();
        let replaced = all_replaced.iter().filter(|name| OWN.contains(name));
        let immutable_hashes = all().find_map(|rule| rule.immutable_hashes);
        Self {
            allowed,
            denied: all().find_map(|rule| rule.denied.clone()),
            rate: all().find_map(|rule| rule.rate.clone()),
            cors: all().find_map(|rule| rule.cors.clone()),
            passwords,
            max_body: all().find_map(|rule| rule.max_body),
            upstream: asked().find_map(|rule| rule.upstream.clone()),
            redirect: asked().find_map(|rule| rule.redirect.clone()),
            rewrite: asked().find_map(|rule| rule.rewrite.clone()),
            content_type: all().find_map(|rule| rule.content_type.clone()),
            immutable_hashes: immutable_hashes.unwrap_or(false),
            untransformed: says_no_transform(&cached_lines),
            replaced: replaced.cloned().collect(),
            all_replaced,
            lines: lines.shared(),
            cached_lines: cached_lines.shared(),
            immutable_lines: immutable_lines.shared(),
        }
    }

    /// Returns the answer to a request that no file is looked up for. `path`: decoded, if a file
    /// could have it.
    pub(super) fn instead(&self, request: &Request<'_>, path: Option<&[u8]>) -> Option<Response> {
        let head = request.head();
        let client = request.peer();
        if !admits(self.allowed.as_deref(), self.denied.as_deref(), client) {
            return Some(Response::plain(StatusCode::FORBIDDEN));
        }

        if let Some(rate) = &self.rate
            && let Err(time) = rate.take(client, Instant::now())
        {
            return Some(wait(StatusCode::TOO_MANY_REQUESTS, time));
        }

        if let (Some(max), Framing::Length(bytes)) = (self.max_body, head.framing())
            && bytes > max
        {
            return Some(Response::plain(StatusCode::PAYLOAD_TOO_LARGE));
        }

        // Browsers send a preflight without a password.
        if let Some(response) = self.cors.as_ref().and_then(|cors| cors.preflight(head)) {
            return Some(response);
        }

        if let Some(passwords) = &self.passwords
            && let Some(response) = passwords.refusal(request)
        {
            return Some(response);
        }

        let redirect = self.redirect.as_ref()?;
        let location = redirect.location(path?, head.query());
        Some(match HeaderValue::from_str(&location) {
            Ok(location) => {
                Response::plain(redirect.status).with_header(header::LOCATION, location)
            }
            Err(_) => Response::plain(StatusCode::BAD_REQUEST),
        })
    }

    /// Gives an answer the fields that the rules say. `is_passed`: it is an application's.
    pub(super) fn finish(
        &self,
        mut response: Response,
        head: &RequestHead<'_>,
        path: &[u8],
        is_passed: bool,
    ) -> Response {
        let fields = response.headers();
        let is_good = matches!(
            response.status(),
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED
        );

        // What says these by itself is a listing, or a fallback: no file of that path.
        let is_made =
            fields.contains_key(header::CACHE_CONTROL) || fields.contains_key(header::VARY);
        let is_file = is_good && !is_made && !is_passed;
        let has_parts = fields
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"multipart/"));

        let replaced = match is_passed {
            true => &self.all_replaced,
            false => &self.replaced,
        };
        for name in replaced {
            response.remove_field(name);
        }

        if let Some(content_type) = &self.content_type
            && is_file
            && !has_parts
        {
            response.remove_field(&header::CONTENT_TYPE);
            response = response.with_header(header::CONTENT_TYPE, content_type.clone());
        }

        let lines = match is_file {
            true if self.immutable_hashes && has_hash(path) => &self.immutable_lines,
            true => &self.cached_lines,
            false => &self.lines,
        };

        let mut lines = lines.clone();
        if self.cors.is_some() && is_passed {
            CORS_FIELDS
                .iter()
                .for_each(|name| response.remove_field(name));
        }
        if let Some(cors) = &self.cors {
            // A preflight has its own already.
            match response.added_lines().is_empty() {
                true => drop(cors.mark(head, &mut lines)),
                false => lines.append(response.added_lines()),
            }
        }

        response.with_added_lines(lines)
    }
}

/// Returns the changes of header fields: of each name those of the first rule that has any.
fn changes<'r>(rules: impl Iterator<Item = &'r Rule>) -> Vec<&'r Change> {
    let mut changes: Vec<&Change> = Vec::new();
    for rule in rules {
        let before = changes.len();
        for change in &rule.headers {
            let mut earlier = changes[..before].iter();
            if !earlier.any(|earlier| earlier.name == change.name) {
                changes.push(change);
            }
        }
    }

    changes
}

fn lines(changes: &[&Change]) -> HeaderLines {
    let mut lines = HeaderLines::default();
    for line in changes.iter().filter_map(|change| change.line.as_ref()) {
        lines.append(line);
    }

    lines
}

fn says_no_transform(lines: &HeaderLines) -> bool {
    let text = String::from_utf8_lossy(lines.as_bytes()).to_lowercase();
    let mut lines = text.lines();
    lines.any(|line| line.starts_with("cache-control:") && line.contains("no-transform"))
}
