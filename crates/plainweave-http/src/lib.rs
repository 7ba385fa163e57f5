//! HTTP/1 server library for plain blocking handlers.

pub mod body;
pub mod parse;

mod error;
mod head;
mod limits;

pub use error::Error;
pub use head::{Framing, RequestHead, Target};
pub use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
pub use limits::Limits;
