//! The handler: what is found behind a path, and which answer that becomes.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};

use super::accept::{takes, weight_of};
use super::cache::{Cache, Caching, Wanted};
use super::coding::Coding;
use super::compress::{Compression, Making};
use super::condition::Verdict;
use super::disk_waits::DiskWaits;
use super::entry::Entry;
use super::fields::{Fields, single};
use super::listing::Listings;
use super::look::{Found, FoundFile};
use super::pages::Pages;
use super::path::FilePath;
use super::pieces::{Blocking, Disk, Inline};
use super::served_root::ServedRoot;
use super::{condition, partial};
use crate::message::head::{RequestHead, Target};
use crate::message::request::{Handler, Request};
use crate::message::response::{Body, Response};

const VARY: HeaderValue = HeaderValue::from_static("Accept");
pub(super) const VARY_CODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// How often a request is answered again because the root was replaced meanwhile.
const ATTEMPTS: usize = 3;

/// How a handler passes a request on to files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The client has asked for another path and does not see this one ([`RequestHead::at`]): no
    /// redirect leads to a directory's own URL, or to a page's.
    pub inside: bool,
    /// The answer says `no-transform`, so it is the file as it is.
    pub untransformed: bool,
}

impl Passed {
    /// Returns which fields of the request count.
    fn fields(self, head: &RequestHead<'_>) -> Fields {
        let mut fields = Fields::of(head);
        if self.untransformed {
            fields.remove(Fields::ACCEPT_ENCODING);
        }
        fields
    }
}

/// Told of a status and a path.
type FaultHook = Box<dyn Fn(StatusCode, &str) + Send + Sync>;

/// Serves the regular files beneath a directory.
///
/// ```
/// use plainweave_http::{Server, files::StaticFiles};
///
/// let server = Server::new(StaticFiles::new(env!("CARGO_MANIFEST_DIR"))?);
/// let answer = plainweave_http::testing::in_memory(&server, "GET /Cargo.toml HTTP/1.1\r\nHost: h\r\n\r\n");
/// assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StaticFiles<B = Inline> {
    root: Arc<ServedRoot>,
    pub(super) disk: Disk<B>,
    cache: Arc<Cache>,
    precompressed: bool,
    index: Box<[u8]>,
    clean_urls: bool,
    listings: Option<Listings>,
    pages: Pages,
    on_fault: Option<FaultHook>,
}

impl StaticFiles {
    /// Makes a handler for the files beneath `root`, read on the calling threads.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        Self::with_blocking(root, Inline)
    }
}

impl<B: Blocking> StaticFiles<B> {
    /// Makes a handler for the files beneath `root`, read on a pool for blocking work. Fails if
    /// `root` is not a directory. If another directory takes its place, by a rename, a link or
    /// being made again, that one is served within [`Caching::staleness`].
    pub fn with_blocking(root: impl AsRef<Path>, blocking: B) -> io::Result<Self> {
        let root = Arc::new(ServedRoot::new(root.as_ref())?);
        let cache = Cache::new(Caching::default(), None);
        Ok(Self {
            root,
            disk: Disk {
                blocking,
                waits: Arc::default(),
            },
            cache,
            precompressed: false,
            index: Box::from(*b"index.html"),
            clean_urls: false,
            listings: None,
            pages: Pages::default(),
            on_fault: None,
        })
    }

    /// Keeps other amounts in memory, or for another time; without compression, which
    /// [`Self::with_compression`] adds to it.
    pub fn with_caching(self, caching: Caching) -> Self {
        Self {
            cache: Cache::new(caching, None),
            ..self
        }
    }

    /// Compresses what is text when it is first asked for in a coding, and keeps that in memory
    /// until the file changes. Files of more than a 37th of [`Caching::bytes`], and listings, are
    /// compressed for each request. Precompressed twins go before it. Ranges are those of the file
    /// as it is.
    pub fn with_compression(self, compression: Compression) -> Self {
        let caching = self.cache.caching();
        Self {
            cache: Cache::new(caching, Some(compression)),
            ..self
        }
    }

    /// Counts the responses that wait for a disk here. With or without it, when they wait for too
    /// long, others that need the disk are answered 503, and what is in memory is served on.
    pub fn with_disk_waits(self, waits: Arc<DiskWaits>) -> Self {
        Self {
            disk: Disk { waits, ..self.disk },
            ..self
        }
    }

    /// Does without `openat2`, as where a container forbids it: then links are not followed.
    pub fn without_links(self) -> Self {
        let root = Arc::try_unwrap(self.root).map(|root| Arc::new(root.walking()));
        Self {
            root: root.unwrap_or_else(|shared| shared),
            ..self
        }
    }

    /// Returns the directory that is served, to have it reopened or to ask whether it is there.
    pub fn root(&self) -> &Arc<ServedRoot> {
        &self.root
    }

    /// Sends `NAME.br`, `NAME.zst` or `NAME.gz` for `NAME` where such a file stands beside it and
    /// the client accepts it. Keeping them in step is up to the tool that compresses them: their
    /// times are not compared.
    pub fn with_precompressed(self) -> Self {
        Self {
            precompressed: true,
            ..self
        }
    }

    /// Has a file of another name than `index.html` stand for its directory. A name with a slash is
    /// that of no file, so directories have none then.
    pub fn with_index(self, name: &str) -> Self {
        Self {
            index: name.as_bytes().into(),
            ..self
        }
    }

    /// Serves `NAME.html` for `NAME` where there is nothing of that name itself, and redirects
    /// requests for `NAME.html`, and for index files by their names, to those without.
    pub fn with_clean_urls(self) -> Self {
        Self {
            clean_urls: true,
            ..self
        }
    }

    /// Lists directories that have no index file, as HTML or (`?format=json`, or by Accept) as
    /// JSON. Dotfiles and what cannot be served are left out. At most 10,000 entries are listed.
    pub fn with_listings(self) -> Self {
        Self {
            listings: Some(Listings::default()),
            ..self
        }
    }

    /// Answers with the file at this path instead of 404: for applications whose pages have paths
    /// but no files. Where the last part of a path has no extension it is for all who do not refuse
    /// `text/html` in `Accept`, else for those who accept it by that name, so that a script that is
    /// missing is missing. Fails when there is no such file.
    pub fn with_fallback(mut self, path: &str) -> io::Result<Self> {
        self.pages.set_fallback(&self.root.current().0, path)?;
        Ok(self)
    }

    /// Sends the file at this path with answers of this status, which stays. Errors that the
    /// connection answers itself, such as a malformed request, stay plain: all but
    /// [`PAGED`](super::PAGED), and of these some 400, 500 and 501. Fails when there is no such
    /// file, or the status is not one of [`PAGED`](super::PAGED).
    pub fn with_error_page(mut self, status: StatusCode, path: &str) -> io::Result<Self> {
        self.pages.set_error(&self.root.current().0, status, path)?;
        Ok(self)
    }

    /// Calls `hook` with the answer's status (500 or 503) and the path when a file cannot be looked
    /// up or read for a reason that lies with this server: the directory is gone, no descriptor is
    /// left, the disk fails. And with 404 when a symbolic link is not followed because it leads out
    /// of the directory.
    pub fn on_fault(self, hook: impl Fn(StatusCode, &str) + Send + Sync + 'static) -> Self {
        Self {
            on_fault: Some(Box::new(hook)),
            ..self
        }
    }

    fn get(&self, head: &RequestHead<'_>, passed: Passed) -> Response {
        let path = match FilePath::decode(head.path()) {
            Ok(path) => path,
            Err(refusal) => return Response::plain(refusal.status()),
        };

        let Ok(entry) = self.find(&path, None) else {
            return Response::plain(StatusCode::SERVICE_UNAVAILABLE); // Cancelled.
        };
        let fields = passed.fields(head);
        let status = match &entry.found {
            Found::File(file) => {
                let cleans = self.clean_urls && !passed.inside;
                let clean = cleans.then(|| self.clean_url(&path)).flatten();
                return match clean {
                    Some(url) => redirect(url, head.query()),
                    None => self.file(&path, file, head, fields),
                };
            }
            Found::Directory if !path.is_directory() && passed.inside => {
                let place = path.as_directory();
                return self.get(&head.at(&place), passed);
            }
            Found::Directory if !path.is_directory() => {
                return redirect(path.as_directory(), head.query());
            }
            Found::Directory | Found::Outside => StatusCode::NOT_FOUND,
            Found::Nothing(status) => *status,
        };

        let is_lost = self.clean_urls && status == StatusCode::NOT_FOUND;
        if is_lost && let Some(response) = self.page(&path, head, fields) {
            return response;
        }

        let is_fault = status.is_server_error() || matches!(entry.found, Found::Outside);
        // What a client got wrong is no fault.
        if let Some(hook) = self.on_fault.as_ref().filter(|_| is_fault) {
            hook(status, head.path());
        }
        match &self.listings {
            Some(listings) if status == StatusCode::NOT_FOUND && path.is_directory() => {
                let (root, _) = self.root.current();
                let listed = listings.respond(
                    &root,
                    &self.disk.blocking,
                    &path,
                    head,
                    fields,
                    self.making(),
                );
                listed.unwrap_or_else(|status| self.absent(status, head, fields))
            }
            _ => self.absent(status, head, fields),
        }
    }

    /// Returns the URL by which a file is to be asked for instead, if there is one.
    fn clean_url(&self, path: &FilePath<'_>) -> Option<String> {
        let url = path.clean(&self.index)?;
        // A folder may have the name that is left.
        let is_taken = |left: &FilePath<'_>| {
            let entry = self.find(left, None);
            !entry.is_ok_and(|entry| matches!(entry.found, Found::Nothing(_)))
        };
        match path.without_page() {
            Some(left) if is_taken(&left) => None,
            _ => Some(url),
        }
    }

    /// Returns the answer where `NAME.html` stands for `NAME`.
    fn page(
        &self,
        path: &FilePath<'_>,
        head: &RequestHead<'_>,
        fields: Fields,
    ) -> Option<Response> {
        let page = path.page();
        let entry = self.find(&page, None).ok()?;
        let file = entry.found.file()?;
        Some(match path.is_directory() {
            // A folder of that name does not exist.
            true => redirect(page.clean(&self.index)?, head.query()),
            false => self.file(&page, file, head, fields),
        })
    }

    /// Returns what stands behind a path, or the compressed twin beside it. Fails if the caller was
    /// cancelled.
    pub(super) fn find(
        &self,
        path: &FilePath<'_>,
        coding: Option<Coding>,
    ) -> io::Result<Arc<Entry>> {
        self.cache.find(
            Wanted {
                path,
                coding,
                with_twins: self.precompressed,
                index: &self.index,
            },
            &self.root,
            &self.disk.blocking,
        )
    }

    fn file(
        &self,
        path: &FilePath<'_>,
        file: &FoundFile,
        head: &RequestHead<'_>,
        fields: Fields,
    ) -> Response {
        match file.twins.is_empty() {
            true => self.representation(file, head, fields),
            false => self.negotiated(path, file, head, fields),
        }
    }

    /// Returns whether twins may stand beside files.
    pub(super) fn has_precompressed(&self) -> bool {
        self.precompressed
    }

    /// Returns by what files are compressed.
    pub(super) fn making(&self) -> Option<&Arc<Making>> {
        self.cache.making()
    }

    pub(super) fn representation(
        &self,
        file: &FoundFile,
        head: &RequestHead<'_>,
        fields: Fields,
    ) -> Response {
        if fields.has(Fields::CONDITIONAL) {
            match condition::judge(head, fields, &file.validators()) {
                Verdict::Whole => {}
                Verdict::NotModified => {
                    return Response::new(StatusCode::NOT_MODIFIED)
                        .with_lines(file.validator_lines());
                }
                Verdict::Failed => return Response::plain(StatusCode::PRECONDITION_FAILED),
                Verdict::Ranges => {
                    let value = single(head, "range").unwrap_or_default();
                    if let Some(response) = partial::respond(file, value, &self.disk) {
                        return response;
                    }
                }
            }
        }

        let size = file.size();
        let body = match *head.method() {
            Method::HEAD => Body::Omitted(size),
            _ => match partial::content(file, 0..size, &self.disk) {
                Some(body) => body,
                None => return partial::busy(),
            },
        };

        Response::ok(body).with_lines(file.lines())
    }

    /// Returns the response where there is nothing to serve.
    fn absent(&self, status: StatusCode, head: &RequestHead<'_>, fields: Fields) -> Response {
        let Some(path) = self
            .pages
            .fallback()
            .filter(|_| status == StatusCode::NOT_FOUND)
        else {
            return Response::plain(status);
        };

        // A script or an image that is missing must not be answered with a page.
        let name = head.path().rsplit('/').next().unwrap_or_default();
        let is_for_page = match name.contains('.') {
            true => fields.has(Fields::ACCEPT) && weight_of(head, "text/html") > 0,
            false => takes(head, "text/html"),
        };

        if is_for_page {
            let entry = self.find(path, None);
            if let Some(file) = entry.as_ref().ok().and_then(|entry| entry.found.file()) {
                return self
                    .file(path, file, head, fields)
                    .with_header(header::VARY, VARY);
            }
        }

        Response::plain(status).with_header(header::VARY, VARY)
    }

    /// Returns the response with the site's own page for its status, or unchanged if there is none
    /// that can be read.
    pub fn with_page(&self, response: Response, head: &RequestHead<'_>) -> Response {
        self.paged(response, head, Fields::of(head))
    }

    fn paged(&self, response: Response, head: &RequestHead<'_>, fields: Fields) -> Response {
        let Some(path) = self.pages.of(response.status()) else {
            return response;
        };
        let Ok(entry) = self.find(path, None) else {
            return response;
        };
        let Found::File(file) = &entry.found else {
            return response;
        };
        let Ok(kind) = HeaderValue::from_str(file.content_type()) else {
            return response;
        };

        let takes_codings = fields.has(Fields::ACCEPT_ENCODING);
        let twin = takes_codings.then(|| self.page_twin(path, file, head));
        let twin = twin.flatten();
        let twin = twin.as_ref().map(|(coding, entry)| (*coding, entry));
        let sent = twin.and_then(|(_, entry)| entry.found.file());
        let sent = sent.unwrap_or(file);
        let size = sent.size();
        let body = match *head.method() {
            // The same length as GET's, and no bytes.
            Method::HEAD => Body::Omitted(size),
            _ => match partial::content(sent, 0..size, &self.disk) {
                Some(body) => body,
                None => return response,
            },
        };

        let mut response = response.with_body(body);
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, kind);
        if !file.twins.is_empty() {
            fields.append(header::VARY, VARY_CODING);
        }
        if let Some((coding, _)) = twin {
            let coding = HeaderValue::from_static(coding.name());
            fields.insert(header::CONTENT_ENCODING, coding);
        }
        response
    }
}

impl<B> fmt::Debug for StaticFiles<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticFiles")
            .field("root", &self.root)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl<B: Blocking> Handler for StaticFiles<B> {
    fn handle(&self, request: &mut Request<'_>) -> Response {
        self.respond(request.head())
    }
}

impl<B: Blocking> StaticFiles<B> {
    /// Answers a request by its head alone: no body means anything here. A handler of its own may
    /// call this on another fiber or thread than the connection's, as a head is `Sync` and a
    /// [`Request`] is not.
    pub fn respond(&self, head: &RequestHead<'_>) -> Response {
        self.respond_passed(head, Passed::default())
    }

    /// Does the same for a handler that has looked at the request before.
    pub fn respond_passed(&self, head: &RequestHead<'_>, passed: Passed) -> Response {
        let mut generation = self.root.generation();
        let mut response = self.respond_once(head, passed);
        for _ in 0..ATTEMPTS {
            let now = self.root.generation();
            if now == generation {
                break;
            }
            // Another directory has taken the root's place meanwhile: no answer is made of both.
            generation = now;
            response = self.respond_once(head, passed);
        }

        response
    }

    fn respond_once(&self, head: &RequestHead<'_>, passed: Passed) -> Response {
        let response = match *head.method() {
            Method::GET | Method::HEAD if !matches!(head.target(), Target::Asterisk) => {
                self.get(head, passed)
            }
            Method::OPTIONS => {
                Response::new(StatusCode::NO_CONTENT).with_header(header::ALLOW, ALLOW)
            }
            Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::PATCH
            | Method::TRACE
            | Method::CONNECT => {
                Response::plain(StatusCode::METHOD_NOT_ALLOWED).with_header(header::ALLOW, ALLOW)
            }
            _ => Response::plain(StatusCode::NOT_IMPLEMENTED),
        };

        match response.status().as_u16() {
            400.. => self.paged(response, head, passed.fields(head)),
            _ => response,
        }
    }
}

/// To another path; relative to this host, so that it holds behind any proxy.
fn redirect(mut location: String, query: Option<&str>) -> Response {
    if let Some(query) = query {
        location.push('?');
        location.push_str(query);
    }

    let Ok(location) = HeaderValue::from_maybe_shared(crate::Bytes::from(location)) else {
        return Response::plain(StatusCode::BAD_REQUEST);
    };
    Response::plain(StatusCode::MOVED_PERMANENTLY).with_header(header::LOCATION, location)
}
