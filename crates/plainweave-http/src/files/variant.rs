//! Which representation of a file a request gets: the file itself, or a compressed twin of it.
//!
//! `app.js` may have `app.js.br`, `app.js.zst` and `app.js.gz` beside it, and whoever puts them
//! there keeps them in step; or they are made (`compress`). Each has an entity tag of its own, so
//! that no cache and no client takes a part of one for a part of another.
//!
//! A range counts the bytes of a representation, and clients that ask for one nearly always mean
//! those of the file itself, whatever their library says in Accept-Encoding (browsers say
//! `identity` then, as the Fetch standard has it). So a range is a range of the file; only an
//! If-Range with the tag of a twin continues that twin.

use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};

use super::coding::{Accepted, Coding};
use super::condition::if_range_tag;
use super::entry::Entry;
use super::fields::Fields;
use super::look::{Found, FoundFile};
use super::path::FilePath;
use super::{Blocking, StaticFiles};
use crate::message::head::RequestHead;
use crate::message::response::Response;

impl<B: Blocking> StaticFiles<B> {
    /// Answers with the representation of `file` that suits best. The file has twins.
    pub(super) fn negotiated(
        &self,
        path: &FilePath<'_>,
        file: &FoundFile,
        head: &RequestHead<'_>,
        fields: Fields,
    ) -> Response {
        let accepted = match fields.has(Fields::ACCEPT_ENCODING) {
            true => Accepted::of(head),
            false => Accepted::IDENTITY,
        };

        if fields.has(Fields::RANGE) && *head.method() == Method::GET && accepted.accepts_identity()
        {
            let continued = if_range_tag(head)
                .and_then(Coding::of_tag)
                .filter(|coding| accepted.accepts(*coding));
            let twin = continued.and_then(|coding| self.twin(path, coding));
            return match twin.as_ref().and_then(|entry| entry.found.file()) {
                Some(twin)
                    if if_range_tag(head).is_some_and(|tag| twin.validators().is_strongly(tag)) =>
                {
                    self.representation(twin, head, fields)
                }
                _ => self.representation(file, head, fields),
            };
        }

        let mut available = file.twins;
        while let Some(choice) = accepted.best(available) {
            let Some(coding) = choice else {
                return self.representation(file, head, fields);
            };
            match self
                .twin(path, coding)
                .as_ref()
                .and_then(|entry| entry.found.file())
            {
                Some(twin) => return self.representation(twin, head, fields),
                None => available.remove(coding), // It has gone since the file was looked at.
            }
        }

        let vary = HeaderValue::from_static("Accept-Encoding");
        Response::plain(StatusCode::NOT_ACCEPTABLE).with_header(header::VARY, vary)
    }

    fn twin(&self, path: &FilePath<'_>, coding: Coding) -> Option<Arc<Entry>> {
        self.find(path, Some(coding))
            .ok()
            .filter(|entry| matches!(entry.found, Found::File(_)))
    }
}
