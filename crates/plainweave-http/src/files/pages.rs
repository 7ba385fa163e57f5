//! What is sent instead of a plain 404: the page of a single-page application, or pages of the
//! site's own.

use std::io::{self, ErrorKind};

use http::StatusCode;

use super::open::Root;
use super::path::FilePath;

/// The error statuses that can have a page: those that [`StaticFiles`](super::StaticFiles) answers
/// with. Others are the connection's; so are a 400 for a malformed request (a malformed path is
/// not), a 500 for a panic and a 501 for a transfer coding.
pub const PAGED: [StatusCode; 10] = [
    StatusCode::BAD_REQUEST,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::NOT_ACCEPTABLE,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::RANGE_NOT_SATISFIABLE,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::NOT_IMPLEMENTED,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// Pages for what is not there, or went wrong.
#[derive(Debug, Default)]
pub(super) struct Pages {
    fallback: Option<FilePath<'static>>,
    errors: Vec<(StatusCode, FilePath<'static>)>,
}

impl Pages {
    pub(super) fn set_fallback(&mut self, root: &Root, path: &str) -> io::Result<()> {
        self.fallback = Some(existing(root, path)?);
        Ok(())
    }

    pub(super) fn set_error(
        &mut self,
        root: &Root,
        status: StatusCode,
        path: &str,
    ) -> io::Result<()> {
        if !PAGED.contains(&status) {
            let why = format!("files are never answered {}, see PAGED", status.as_str());
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }

        let path = existing(root, path)?;
        self.errors.retain(|(other, _)| *other != status);
        self.errors.push((status, path));
        Ok(())
    }

    /// Returns the page instead of a plain 404.
    pub(super) fn fallback(&self) -> Option<&FilePath<'static>> {
        self.fallback.as_ref()
    }

    /// Returns the page for a status, if it has one.
    pub(super) fn of(&self, status: StatusCode) -> Option<&FilePath<'static>> {
        self.errors
            .iter()
            .find(|(other, _)| *other == status)
            .map(|(_, path)| path)
    }
}

/// Returns the path of a page, which must be there: a slip in a name should not wait for the first
/// error to show.
fn existing(root: &Root, path: &str) -> io::Result<FilePath<'static>> {
    let wrong = |what: &str| io::Error::new(ErrorKind::InvalidInput, format!("{path}: {what}"));
    let decoded = FilePath::decode(path)
        .ok()
        .filter(|decoded| path.starts_with('/') && !decoded.is_directory());
    let decoded = decoded
        .ok_or_else(|| wrong("write the path of a file beneath the root, as in /404.html"))?;
    let file = root
        .read(decoded.name())
        .map_err(|error| wrong(&io::Error::from(error).to_string()))?;

    match file.metadata()?.is_file() {
        true => Ok(decoded.into_owned()),
        false => Err(wrong("not a regular file")),
    }
}
