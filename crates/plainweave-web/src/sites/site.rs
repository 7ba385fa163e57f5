//! One site: its files and its rules.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plainweave_daemon::architecture::Handling;
use plainweave_http::files::{
    Caching, Coding, Passed, ServedRoot, StaticFiles, decoded, push_encoded,
};
use plainweave_http::{
    Framing, HeaderValue, Method, Request, RequestHead, RequestLimits, Response, StatusCode, header,
};
use plainweave_serve::accept::InProgress;

use super::rule::Rule;
use super::rules::Rules;
use super::wait::wait;
use crate::content::Content;
use crate::https::Https;
use crate::pool::Pool;
use crate::site_logs::SiteLog;

/// The files of a site.
pub(crate) type Files = StaticFiles<Pool>;

/// Files, and what is made of requests for them.
pub(crate) struct Site {
    /// Without a directory there are none.
    files: Option<Arc<Files>>,
    origin: Origin,
    rules: Rules,
    log: Option<Arc<SiteLog>>,
    /// Its requests in progress, if they are limited.
    in_progress: Option<Arc<InProgress>>,
}

/// What a site has beside its files.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    pub(crate) rules: Vec<Arc<Rule>>,
    pub(crate) log: Option<Arc<SiteLog>>,
    pub(crate) in_progress: Option<Arc<InProgress>>,
}

/// What a site's files were made of. Those of the same need not be made again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) root: Option<PathBuf>,
    pub(crate) content: Content,
    pub(crate) caching: Caching,
}

impl Site {
    /// Makes a site of files; its rules are in this order.
    pub(crate) fn new(
        files: Option<Arc<Files>>,
        origin: Origin,
        extras: Extras,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            files,
            origin,
            rules: Rules::new(extras.rules)?,
            log: extras.log,
            in_progress: extras.in_progress,
        })
    }

    /// Returns the path beneath which its files are, decoded; empty: the root.
    pub(super) fn prefix(&self) -> &[u8] {
        self.origin.content.prefix.decoded()
    }

    /// Returns whether a decoded path is one of this site's.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.origin.content.prefix.inside(path).is_some()
    }

    pub(super) fn log(&self) -> Option<&Arc<SiteLog>> {
        self.log.as_ref()
    }

    pub(crate) fn in_progress(&self) -> Option<&Arc<InProgress>> {
        self.in_progress.as_ref()
    }

    pub(crate) fn files(&self) -> Option<&Arc<Files>> {
        self.files.as_ref()
    }

    /// Returns the longest body of a request by the site's rules, if they say.
    pub(super) fn max_body(&self, head: &RequestHead<'_>) -> Option<u64> {
        let path = decoded(head.path()).ok();
        let others = |path: &[u8]| self.others(path);
        self.rules.treatment(path.as_deref(), others).max_body
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn root(&self) -> Option<&Arc<ServedRoot>> {
        self.files.as_ref().map(|files| files.root())
    }

    /// Answers a request.
    pub(crate) fn answer(
        &self,
        request: &mut Request<'_>,
        handling: &Handling,
        https: &Https,
    ) -> Response {
        let Some(in_progress) = &self.in_progress else {
            return self.answer_now(request, handling, https, false);
        };

        let place = in_progress.begin_owned();
        if place.is_none() {
            in_progress.count_shed();
        }
        let response = self.answer_now(request, handling, https, place.is_none());
        match place {
            Some(place) => response.keeping(place),
            None => response,
        }
    }

    /// `is_full`: as many requests are in progress as there may be.
    fn answer_now(
        &self,
        request: &mut Request<'_>,
        handling: &Handling,
        https: &Https,
        is_full: bool,
    ) -> Response {
        let head = request.head();
        let busy = is_full.then(|| wait(StatusCode::SERVICE_UNAVAILABLE, BUSY));
        if self.rules.is_empty() && self.prefix().is_empty() {
            let response = available(handling.call(|| match busy {
                Some(busy) => self.with_page(busy, head),
                None => self.of_files(head, Passed::default()),
            }));
            return https.marked(request, response);
        }

        // One that does not decode gets the files' own refusal, and what rules for all paths say.
        let path = decoded(head.path()).ok();
        let path = path.as_deref();
        let others = |path: &[u8]| self.others(path);
        let treatment = self.rules.treatment(path, others);
        let mut passed = Passed {
            inside: false,
            untransformed: treatment.untransformed,
        };

        // Of a body in chunks its length is found out when it is read.
        if let (Some(max), Framing::Chunked) = (treatment.max_body, head.framing()) {
            let limits = request.limits();
            request.set_limits(RequestLimits {
                body_bytes: max,
                ..limits
            });
        }

        let refusal = busy.or_else(|| treatment.instead(request, path));
        let place = match (&treatment.rewrite, path) {
            (Some(rewrite), Some(path)) => Some(rewrite.place(path, head.query())),
            _ => None,
        };
        // Of a path that does not decode the rules know nothing, so no application sees it.
        let upstream = treatment.upstream.as_ref();
        let passing = upstream.zip(path).filter(|_| refusal.is_none());
        let is_passed = passing.is_some();

        let response = match (refusal, passing) {
            (Some(response), _) if has_page(response.status()) => {
                available(handling.call(|| self.with_page(response, head)))
            }
            (Some(response), _) => response,
            (None, Some((upstream, path))) => {
                let asked = place.as_deref().map(|place| head.at(place));
                let asked = asked.as_ref().map(|asked| decoded(asked.path()));
                // What a rewrite has made of the path may be one that nobody may ask for.
                match asked.unwrap_or(Ok(path.into())) {
                    Err(status) => Response::plain(status),
                    Ok(path) => upstream
                        .pass(request, &place_of(&path, head.query()))
                        .unwrap_or_else(|own| self.with_page(*own, head)),
                }
            }
            (None, None) => match place {
                Some(place) => {
                    passed.inside = true;
                    available(handling.call(|| self.of_files(&head.at(&place), passed)))
                }
                None => available(handling.call(|| self.of_files(head, passed))),
            },
        };

        let response = https.marked(request, response);
        treatment.finish(response, head, path.unwrap_or_default(), is_passed)
    }

    /// Returns a response with the site's own page, if it has one.
    fn with_page(&self, response: Response, head: &RequestHead<'_>) -> Response {
        match &self.files {
            Some(files) => files.with_page(response, head),
            None => response,
        }
    }

    /// Returns the files' answer, which are beneath the prefix.
    fn of_files(&self, head: &RequestHead<'_>, passed: Passed) -> Response {
        let Some(files) = &self.files else {
            let status = decoded(head.path()).err();
            return Response::plain(status.unwrap_or(StatusCode::NOT_FOUND));
        };
        let prefix = &self.origin.content.prefix;
        if prefix.decoded().is_empty() {
            return files.respond_passed(head, passed);
        }
        let Ok(path) = decoded(head.path()) else {
            return files.respond_passed(head, passed);
        };

        let query = head.query().map(|query| format!("?{query}"));
        let query = query.unwrap_or_default();
        match prefix.inside(&path) {
            None => files.with_page(Response::plain(StatusCode::NOT_FOUND), head),
            Some(b"") if !passed.inside && is_read(head.method()) => {
                moved(&format!("{}/{query}", prefix.encoded()))
            }
            Some(inside) => {
                let mut place = String::from(if inside.is_empty() { "/" } else { "" });
                push_encoded(&mut place, inside);
                place.push_str(&query);
                let response = files.respond_passed(&head.at(&place), passed);
                prefix.put_before_location(response)
            }
        }
    }

    /// Returns the paths by which the same file could be asked for, too: the index file of a
    /// directory, the page of a clean URL, the file of a compressed twin.
    fn others(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let content = &self.origin.content;
        let mut others = Vec::new();
        if path.ends_with(b"/") {
            others.push([path, content.index.as_bytes()].concat());
        } else if content.clean_urls {
            others.push([path, b".html"].concat());
        }

        if content.precompressed {
            let suffixes = Coding::ALL.iter().map(|coding| coding.suffix());
            let mut files = suffixes.filter_map(|suffix| path.strip_suffix(suffix.as_bytes()));
            others.extend(files.next().map(<[u8]>::to_vec));
        }

        others
    }
}

/// How long a client should wait that was one too many.
const BUSY: Duration = Duration::from_secs(1);

/// Returns whether a refusal by rules may have a page of the site's own.
fn has_page(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// Returns a decoded path and a query as an application is asked for them, which is the path that
/// the rules know: both mean the same one.
fn place_of(path: &[u8], query: Option<&str>) -> String {
    let mut place = String::new();
    push_encoded(&mut place, path);
    if let Some(query) = query {
        place.push('?');
        place.push_str(query);
    }
    place
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn moved(location: &str) -> Response {
    match HeaderValue::from_str(location) {
        Ok(location) => {
            Response::plain(StatusCode::MOVED_PERMANENTLY).with_header(header::LOCATION, location)
        }
        Err(_) => Response::plain(StatusCode::BAD_REQUEST),
    }
}

/// What there is no worker for is not available.
fn available(response: io::Result<Response>) -> Response {
    response.unwrap_or_else(|_| Response::plain(StatusCode::SERVICE_UNAVAILABLE))
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
