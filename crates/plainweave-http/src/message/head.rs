//! A request head as a view of the receive buffer: nothing is copied.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use memchr::memchr;

/// The head of one request, borrowed from the buffer it was parsed in.
#[derive(Debug)]
pub struct RequestHead<'b> {
    pub(crate) method: Method,
    pub(crate) target: Target<'b>,
    pub(crate) target_text: &'b str,
    pub(crate) version: Version,
    pub(crate) headers: &'b [httparse::Header<'b>],
    /// ASCII; text only when it is asked for.
    pub(crate) host: Option<&'b [u8]>,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
}

/// The request-target in the four forms of RFC 9112, 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// `/path?query`
    Origin(&'b str),
    /// `http://authority/path?query`, as sent to proxies; `rest` begins with `/`, `?` or is empty.
    Absolute {
        /// Host and port.
        authority: &'b str,
        /// What follows the authority.
        rest: &'b str,
    },
    /// `host:port`, for CONNECT.
    Authority(&'b str),
    /// `*`, for OPTIONS.
    Asterisk,
}

/// How a request's body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes; none when neither length nor coding was given.
    Length(u64),
    /// Up to its end, which its framing tells: `Transfer-Encoding: chunked`, or HTTP/2 without
    /// `Content-Length`.
    Chunked,
}

impl<'b> RequestHead<'b> {
    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns HTTP/1.0, HTTP/1.1 or HTTP/2.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the request-target as sent.
    pub fn target_text(&self) -> &'b str {
        self.target_text
    }

    /// Returns the request-target by its form.
    pub fn target(&self) -> Target<'b> {
        self.target
    }

    /// Returns the path, still percent-encoded, without the query: begins with `/`, or is empty for
    /// `*` and `host:port`.
    pub fn path(&self) -> &'b str {
        let (path, _) = self.path_and_query();
        // RFC 9110, 4.2.3: an empty path is the same as "/".
        if path.is_empty() && matches!(self.target, Target::Absolute { .. }) {
            "/"
        } else {
            path
        }
    }

    /// Returns what follows the first `?`.
    pub fn query(&self) -> Option<&'b str> {
        self.path_and_query().1
    }

    fn path_and_query(&self) -> (&'b str, Option<&'b str>) {
        let full = match self.target {
            Target::Origin(full) | Target::Absolute { rest: full, .. } => full,
            Target::Authority(_) | Target::Asterisk => "",
        };

        match memchr(b'?', full.as_bytes()) {
            Some(mark) => (&full[..mark], Some(&full[mark + 1..])),
            None => (full, None),
        }
    }

    /// Returns host and port: the target's own in absolute form (RFC 9112, 3.2.2), otherwise those
    /// of `Host`.
    pub fn host(&self) -> Option<&'b str> {
        match self.target {
            Target::Absolute { authority, .. } | Target::Authority(authority) => Some(authority),
            Target::Origin(_) | Target::Asterisk => {
                self.host.and_then(|host| str::from_utf8(host).ok())
            }
        }
    }

    /// Returns this head as if another path and query had been asked for on the same host, for a
    /// handler that passes it on. `place` begins with `/`.
    pub fn at<'c>(&self, place: &'c str) -> RequestHead<'c>
    where
        'b: 'c,
    {
        RequestHead {
            method: self.method.clone(),
            target: Target::Origin(place),
            target_text: place,
            host: self.host().map(str::as_bytes),
            ..*self
        }
    }

    /// Returns how the body is delimited.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns whether the peer would use the connection for another request (RFC 9112, 9.3).
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Returns whether the peer waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Returns the fields as sent, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'b> {
        self.headers
            .iter()
            .map(|header| (header.name, header.value))
    }

    /// Returns the first value of the field with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.header_all(name).next()
    }

    /// Returns all values of the fields with this name, in any case.
    pub fn header_all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        let same = move |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|header| header.value)
    }

    /// Returns the fields copied into a map, for code that wants the `http` crate's types;
    /// allocates.
    pub fn to_header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in self.headers() {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                map.append(name, value);
            }
        }
        map
    }
}
