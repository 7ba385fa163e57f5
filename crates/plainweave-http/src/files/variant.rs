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

use http::{Method, StatusCode, header};

use super::coding::{Accepted, Coding};
use super::condition::if_range_tag;
use super::entry::Entry;
use super::fields::Fields;
use super::look::{Found, FoundFile};
use super::path::FilePath;
use super::static_files::VARY_CODING;
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
            let streams = self.streams(file, coding);
            // What stands beside the file goes before what would be made.
            let stands = !streams || self.has_precompressed();
            let twin = stands.then(|| self.twin(path, coding)).flatten();
            if let Some(twin) = twin.as_ref().and_then(|entry| entry.found.file()) {
                return self.representation(twin, head, fields);
            }

            let streamed = streams.then(|| self.streamed(file, coding, head, fields));
            if let Some(response) = streamed.flatten() {
                return response;
            }
            // It has gone since the file was looked at, or too much is compressed now.
            available.remove(coding);
        }

        Response::plain(StatusCode::NOT_ACCEPTABLE).with_header(header::VARY, VARY_CODING)
    }

    /// Returns the twin of an error page that suits best, if one does.
    pub(super) fn page_twin(
        &self,
        path: &FilePath<'_>,
        page: &FoundFile,
        head: &RequestHead<'_>,
    ) -> Option<(Coding, Arc<Entry>)> {
        let coding = Accepted::of(head).best(page.twins).flatten()?;
        let made_later = self.streams(page, coding) && !self.has_precompressed();
        let twin = (!made_later).then(|| self.twin(path, coding)).flatten()?;
        Some((coding, twin))
    }

    /// Returns whether a file would be compressed for each request.
    fn streams(&self, file: &FoundFile, coding: Coding) -> bool {
        self.making().is_some_and(|making| {
            let size = file.size();
            !making.keeps(size) && making.of(file.content_type(), size).contains(coding)
        })
    }

    fn twin(&self, path: &FilePath<'_>, coding: Coding) -> Option<Arc<Entry>> {
        self.find(path, Some(coding))
            .ok()
            .filter(|entry| matches!(entry.found, Found::File(_)))
    }
}
