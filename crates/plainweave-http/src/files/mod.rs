//! The static handler: files beneath a directory.
//!
//! GET and HEAD, index files, redirects of directories to their trailing slash, media types, validators, conditional
//! requests and ranges. Paths are decoded once and opened beneath the root only (see `open`); dotfiles are hidden,
//! except `/.well-known`. What is asked for often is answered from memory (see [`Caching`]); what has to come from a
//! disk comes by a [`Blocking`] pool.

mod cache;
mod condition;
mod fields;
mod look;
mod open;
mod partial;
mod path;
mod pieces;
mod range;

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};

use crate::{Body, Handler, Request, RequestHead, Response, Target};
use cache::Cache;
use condition::Verdict;
use fields::{Fields, single};
use look::{Found, FoundFile};
use open::Root;
use path::{FilePath, Refusal};

pub use cache::Caching;
pub use pieces::{Blocking, Inline};

const INDEX: &[u8] = b"index.html";
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// Serves the regular files beneath a directory.
#[derive(Debug)]
pub struct StaticFiles<B = Inline> {
    root: Arc<Root>,
    blocking: B,
    cache: Arc<Cache>,
}

impl StaticFiles {
    /// Files beneath `root`, read on the calling threads.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        Self::with_blocking(root, Inline)
    }
}

impl<B: Blocking> StaticFiles<B> {
    /// Files beneath `root`, read on a pool for blocking work. Fails when `root` is not a directory.
    pub fn with_blocking(root: impl AsRef<Path>, blocking: B) -> io::Result<Self> {
        let root = Arc::new(Root::open(root.as_ref())?);
        Ok(Self { root, blocking, cache: Cache::new(Caching::default()) })
    }

    /// Keeps other amounts in memory, or for another time.
    pub fn with_caching(self, caching: Caching) -> Self {
        Self { cache: Cache::new(caching), ..self }
    }

    /// Does without `openat2`, as where a container forbids it: then links are not followed.
    pub fn without_links(self) -> Self {
        let open = Arc::try_unwrap(self.root).map(|root| Arc::new(root.walking()));
        Self { root: open.unwrap_or_else(|shared| shared), ..self }
    }

    fn get(&self, head: &RequestHead<'_>) -> Response {
        let path = match FilePath::decode(head.path()) {
            Ok(path) => path,
            Err(Refusal::Malformed) => return Response::plain(StatusCode::BAD_REQUEST),
            Err(Refusal::Hidden) => return Response::plain(StatusCode::NOT_FOUND),
        };
        let Ok(entry) = self.cache.find(&path, &self.root, &self.blocking) else {
            return Response::plain(StatusCode::SERVICE_UNAVAILABLE); // Cancelled.
        };
        match &entry.found {
            Found::File(file) => self.file(file, head),
            Found::Directory if !path.is_directory() => redirect(&path, head.query()),
            Found::Directory => Response::plain(StatusCode::NOT_FOUND),
            Found::Nothing(status) => Response::plain(*status),
        }
    }

    fn file(&self, file: &FoundFile, head: &RequestHead<'_>) -> Response {
        let fields = Fields::of(head);
        if fields.has(Fields::CONDITIONAL) {
            match condition::judge(head, fields, &file.validators()) {
                Verdict::Whole => {}
                Verdict::NotModified => {
                    return Response::new(StatusCode::NOT_MODIFIED).with_lines(file.validator_lines());
                }
                Verdict::Failed => return Response::plain(StatusCode::PRECONDITION_FAILED),
                Verdict::Ranges => {
                    let value = single(head, "range").unwrap_or_default();
                    if let Some(response) = partial::respond(file, value, &self.blocking) {
                        return response;
                    }
                }
            }
        }
        let size = file.version().size;
        let body = match *head.method() {
            Method::HEAD => Body::Omitted(size),
            _ => partial::content(file, 0..size, &self.blocking),
        };
        Response::ok(body).with_lines(file.lines())
    }
}

impl<B: Blocking> Handler for StaticFiles<B> {
    fn handle(&self, request: &mut Request<'_>) -> Response {
        match *request.method() {
            Method::GET | Method::HEAD if !matches!(request.target(), Target::Asterisk) => self.get(request.head()),
            Method::OPTIONS => Response::new(StatusCode::NO_CONTENT).with_header(header::ALLOW, ALLOW),
            Method::POST | Method::PUT | Method::DELETE | Method::PATCH | Method::TRACE | Method::CONNECT => {
                Response::plain(StatusCode::METHOD_NOT_ALLOWED).with_header(header::ALLOW, ALLOW)
            }
            _ => Response::plain(StatusCode::NOT_IMPLEMENTED),
        }
    }
}

/// To the same path with a slash behind it; relative to this host, so that it holds behind any proxy.
fn redirect(path: &FilePath<'_>, query: Option<&str>) -> Response {
    let mut location = path.as_directory();
    if let Some(query) = query {
        location.push('?');
        location.push_str(query);
    }
    let Ok(location) = HeaderValue::from_maybe_shared(crate::Bytes::from(location)) else {
        return Response::plain(StatusCode::BAD_REQUEST);
    };
    Response::plain(StatusCode::MOVED_PERMANENTLY).with_header(header::LOCATION, location)
}

/// By the extension alone; text is taken for UTF-8, as everything that is written today.
fn content_type(extension: Option<&str>) -> (&'static str, &'static str) {
    let guess = extension.and_then(|extension| mime_guess::from_ext(extension).first_raw());
    let essence = guess.unwrap_or("application/octet-stream");
    (essence, if essence.starts_with("text/") { "; charset=utf-8" } else { "" })
}
