//! Answers to be asked for again later.

use std::time::Duration;

use plainweave_http::{HeaderValue, Response, StatusCode, header};

/// Returns an answer to be asked for again after this time, in seconds.
pub(super) fn wait(status: StatusCode, time: Duration) -> Response {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    Response::plain(status).with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
}
