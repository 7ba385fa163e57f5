//! The static handler: files beneath a directory.
//!
//! GET and HEAD, index files, redirects of directories to their trailing slash, media types, validators and simple
//! conditional requests. Paths are decoded once and opened beneath the root only (see `open`); dotfiles are hidden,
//! except `/.well-known`. File operations run on a [`Blocking`] pool, one trip for a small file.

mod condition;
mod open;
mod path;
mod pieces;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use crate::{Body, Handler, HeaderLines, Request, RequestHead, Response, Target};
use condition::{Conditions, Version};
use open::Root;
use path::{FilePath, Refusal};
use pieces::{PIECE, Pieces};

pub use pieces::{Blocking, Inline};

const INDEX: &[u8] = b"index.html";
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// Serves the regular files beneath a directory.
#[derive(Debug)]
pub struct StaticFiles<B = Inline> {
    root: Arc<Root>,
    blocking: B,
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
        Ok(Self { root: Arc::new(Root::open(root.as_ref())?), blocking })
    }

    /// Does without `openat2`, as where a container forbids it: then links are not followed.
    pub fn without_links(self) -> Self {
        let open = Arc::try_unwrap(self.root).map(|root| Arc::new(root.walking()));
        Self { root: open.unwrap_or_else(|shared| shared), ..self }
    }

    fn get(&self, head: &RequestHead<'_>) -> Response {
        let mut path = match FilePath::decode(head.path()) {
            Ok(path) => path,
            Err(Refusal::Malformed) => return Response::plain(StatusCode::BAD_REQUEST),
            Err(Refusal::Hidden) => return Response::plain(StatusCode::NOT_FOUND),
        };
        if path.directory {
            path.name.extend_from_slice(if path.name.is_empty() { b"" } else { b"/" });
            path.name.extend_from_slice(INDEX);
        }
        let lookup = Lookup {
            root: Arc::clone(&self.root),
            name: path.name.clone(),
            conditions: Conditions::of(head),
            head_only: *head.method() == Method::HEAD,
        };
        match self.blocking.run(move || lookup.run()) {
            Ok(Ok(Found::Directory)) if !path.directory => redirect(&path, head.query()),
            Ok(Ok(Found::Directory)) => Response::plain(StatusCode::NOT_FOUND),
            Ok(Ok(Found::Same(version))) => Response::new(StatusCode::NOT_MODIFIED).with_lines(fields(&version, None)),
            Ok(Ok(Found::File(version, content))) => {
                let lines = fields(&version, Some(content_type(path.extension())));
                Response::ok(self.body(version.size, content)).with_lines(lines)
            }
            Ok(Err(error)) => Response::plain(status(error)),
            Err(_cancelled) => Response::plain(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    fn body(&self, size: u64, content: Content) -> Body {
        match content {
            Content::Omitted => Body::Omitted(size),
            Content::Whole(bytes) => bytes.into(),
            Content::Begun(file, piece) => {
                Body::Stream(Box::new(Pieces::new(self.blocking.clone(), file, piece)), Some(size))
            }
        }
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

/// The work on the pool: all system calls that a small file takes.
struct Lookup {
    root: Arc<Root>,
    name: Vec<u8>,
    conditions: Conditions,
    head_only: bool,
}

enum Found {
    Directory,
    /// The client has it.
    Same(Version),
    File(Version, Content),
}

enum Content {
    Omitted,
    Whole(Vec<u8>),
    /// The first piece, and the file for the rest.
    Begun(File, Vec<u8>),
}

impl Lookup {
    fn run(&self) -> Result<Found, Errno> {
        let mut file = self.root.read(&self.name)?;
        let stat = fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Found::Directory),
            _ => return Err(Errno::NOENT),
        }
        let version = Version::of(&stat);
        if self.conditions.not_modified(&version) {
            return Ok(Found::Same(version));
        }
        if self.head_only {
            return Ok(Found::File(version, Content::Omitted));
        }
        let first = version.size.min(PIECE as u64);
        let mut piece = Vec::with_capacity(first as usize);
        let read = (&mut file).take(first).read_to_end(&mut piece);
        read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if (piece.len() as u64) < first {
            return Err(Errno::IO); // It shrank: this is no state that its validators name.
        }
        let content = if version.size == first { Content::Whole(piece) } else { Content::Begun(file, piece) };
        Ok(Found::File(version, content))
    }
}

fn status(error: Errno) -> StatusCode {
    match error {
        // XDEV: a link led out of the root. LOOP: too many links, or one where none is followed.
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::XDEV | Errno::LOOP | Errno::NXIO => {
            StatusCode::NOT_FOUND
        }
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// To the same path with a slash behind it; relative to this host, so that it holds behind any proxy.
fn redirect(path: &FilePath, query: Option<&str>) -> Response {
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

fn fields(version: &Version, content_type: Option<(&str, &str)>) -> HeaderLines {
    let mut lines = HeaderLines::with_capacity(192);
    // Only names and values that are known to be valid: nothing here is the client's.
    if let Some((essence, charset)) = content_type {
        lines.push_known("Content-Type", &[essence, charset]);
    }
    lines.push_known("Last-Modified", &[&version.last_modified()]);
    lines.push_known("ETag", &[&version.etag()]);
    lines
}

/// By the extension alone; text is taken for UTF-8, as everything that is written today.
fn content_type(extension: Option<&str>) -> (&'static str, &'static str) {
    let guess = extension.and_then(|extension| mime_guess::from_ext(extension).first_raw());
    let essence = guess.unwrap_or("application/octet-stream");
    (essence, if essence.starts_with("text/") { "; charset=utf-8" } else { "" })
}
