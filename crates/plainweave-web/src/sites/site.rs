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
use plainweave_http::{HeaderValue, Method, Request, RequestHead, Response, StatusCode, header};
use plainweave_serve::accept::InProgress;

use super::rate::wait;
use super::rule::Rule;
use super::rules::Rules;
use crate::content::Content;
use crate::https::Https;
use crate::pool::Pool;
use crate::site_logs::SiteLog;

/// The files of a site.
pub(crate) type Files = StaticFiles<Pool>;

/// Files, and what is made of requests for them.
pub(crate) struct Site {
    files: Arc<Files>,
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
    pub(crate) root: PathBuf,
    pub(crate) content: Content,
    pub(crate) caching: Caching,
}

impl Site {
    /// Makes a site of files; its rules are in this order.
    pub(crate) fn new(files: Arc<Files>, origin: Origin, extras: Extras) -> anyhow::Result<Self> {
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

    pub(crate) fn files(&self) -> &Arc<Files> {
        &self.files
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn root(&self) -> &Arc<ServedRoot> {
        self.files.root()
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
                Some(busy) => self.files.with_page(busy, head),
                None => self.files.respond(head),
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

        let refusal = busy.or_else(|| treatment.instead(request, path));
        let response = match refusal {
            Some(response) if has_page(response.status()) => {
                available(handling.call(|| self.files.with_page(response, head)))
            }
            Some(response) => response,
            None => match (&treatment.rewrite, path) {
                (Some(rewrite), Some(path)) => {
                    passed.inside = true;
                    let place = rewrite.place(path, head.query());
                    available(handling.call(|| self.of_files(&head.at(&place), passed)))
                }
                _ => available(handling.call(|| self.of_files(head, passed))),
            },
        };

        let response = https.marked(request, response);
        treatment.finish(response, head, path.unwrap_or_default())
    }

    /// Returns the files' answer, which are beneath the prefix.
    fn of_files(&self, head: &RequestHead<'_>, passed: Passed) -> Response {
        let prefix = &self.origin.content.prefix;
        let path = match decoded(head.path()) {
            Ok(path) if !prefix.decoded().is_empty() => path,
            _ => return self.files.respond_passed(head, passed),
        };

        let query = head.query().map(|query| format!("?{query}"));
        let query = query.unwrap_or_default();
        match prefix.inside(&path) {
            None => self
                .files
                .with_page(Response::plain(StatusCode::NOT_FOUND), head),
            Some(b"") if !passed.inside && is_read(head.method()) => {
                moved(&format!("{}/{query}", prefix.encoded()))
            }
            Some(inside) => {
                let mut place = String::from(if inside.is_empty() { "/" } else { "" });
                push_encoded(&mut place, inside);
                place.push_str(&query);
                let response = self.files.respond_passed(&head.at(&place), passed);
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
