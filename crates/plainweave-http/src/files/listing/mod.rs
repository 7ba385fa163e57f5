//! Listings of directories: read, sorted and written on the pool for blocking work, in HTML or
//! JSON.
//!
//! A listing shows what this server would serve, and nothing else: no dotfiles, no links out of the
//! root, no devices. It is bounded three times: entries ([`entries::MAX_ENTRIES`]; the listing says
//! when there are more), listings at a time ([`AT_ONCE`]; then 503), and the pool. It is not kept:
//! a directory tells of its changes in too many ways.

mod entries; // A directory as it is listed: its entries read, filtered and sorted.
mod html; // Listings for people.
mod json; // Listings for programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use rustix::io::Errno;

use super::accept::weight_of;
use super::coding::Accepted;
use super::compress::Making;
use super::fields::Fields;
use super::open::Root;
use super::path::FilePath;
use super::pieces::Blocking;
use crate::message::head::RequestHead;
use crate::message::response::{Body, Response};
use entries::{Listing, Order};

/// Listings in the making at a time.
const AT_ONCE: usize = 8;

/// Pages are drawn from nothing but what they bring along.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
);

/// Counts the listings in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Listings(Arc<AtomicUsize>);

/// One of the [`AT_ONCE`] permits; returned when the listing ends, even if its request was
/// cancelled.
struct Turn(Arc<AtomicUsize>);

impl Listings {
    fn turn(&self) -> Option<Turn> {
        let turn = Turn(Arc::clone(&self.0));
        (turn.0.fetch_add(1, Ordering::Relaxed) < AT_ONCE).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Html,
    Json,
}

impl Format {
    /// `?format=` decides; otherwise clients that accept JSON by name and prefer it to HTML get
    /// JSON.
    fn of(head: &RequestHead<'_>, fields: Fields) -> Self {
        let wanted = head.query().and_then(|query| {
            query
                .split('&')
                .find_map(|part| part.strip_prefix("format="))
        });

        match wanted {
            Some("json") => Self::Json,
            Some("html") => Self::Html,
            _ if !fields.has(Fields::ACCEPT) => Self::Html,
            _ if weight_of(head, "application/json") > weight_of(head, "text/html") => Self::Json,
            _ => Self::Html,
        }
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
        })
    }
}

impl Listings {
    /// Returns the listing of a directory without an index file, or the status that says why there
    /// is none.
    pub(super) fn respond<B: Blocking>(
        &self,
        root: &Arc<Root>,
        blocking: &B,
        path: &FilePath<'_>,
        head: &RequestHead<'_>,
        fields: Fields,
        making: Option<&Arc<Making>>,
    ) -> Result<Response, StatusCode> {
        let turn = self.turn().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let root = Arc::clone(root);
        let name = path.name().to_vec();
        let order = Order::of(head.query());
        let format = Format::of(head, fields);
        let takes_codings = fields.has(Fields::ACCEPT_ENCODING);
        let accepted = takes_codings.then(|| Accepted::of(head));
        let compressed = making.cloned().zip(accepted);
        let work = move || {
            let _turn = turn;
            let listing = Listing::read(&root, name, order)?;
            let text = match format {
                Format::Html => html::write(&listing),
                Format::Json => json::write(&listing),
            };
            let made = compressed.and_then(|(making, accepted)| {
                let available = making.of("text/html", text.len() as u64);
                let coding = accepted.best(available).flatten()?;
                Some((coding, making.compress_once(coding, &text)?))
            });
            Ok(match made {
                Some((coding, made)) => (Some(coding), made),
                None => (None, text),
            })
        };
        let (coding, text) = blocking
            .run(work)
            .map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?
            .map_err(status)?;
        let body = match *head.method() {
            Method::HEAD => Body::Omitted(text.len() as u64),
            _ => Body::from(text),
        };
        let response = Response::ok(body).with_header(header::CONTENT_TYPE, format.content_type());
        let vary = match making {
            Some(_) => "Accept, Accept-Encoding",
            None => "Accept",
        };
        let mut response = response.with_header(header::VARY, HeaderValue::from_static(vary));
        if let Some(coding) = coding {
            let coding = HeaderValue::from_static(coding.name());
            response = response.with_header(header::CONTENT_ENCODING, coding);
        }
        let response =
            response.with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let nosniff = (
            HeaderName::from_static("x-content-type-options"),
            HeaderValue::from_static("nosniff"),
        );
        let response = response.with_header(nosniff.0, nosniff.1);
        Ok(match format {
            Format::Html => response.with_header(header::CONTENT_SECURITY_POLICY, POLICY),
            Format::Json => response,
        })
    }
}

fn status(error: Errno) -> StatusCode {
    match error {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Errno::IO => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::NOT_FOUND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once() {
        let listings = Listings::default();
        let mut turns: Vec<_> = (0..AT_ONCE).map(|_| listings.turn().unwrap()).collect();
        assert!(listings.turn().is_none() && listings.turn().is_none());
        turns.pop();
        assert!(listings.turn().is_some());
    }
}
