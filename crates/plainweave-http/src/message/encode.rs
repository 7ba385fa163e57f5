//! Response heads, sans I/O, appended to a buffer that is used again and again.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};
use rustix::time::ClockId;

use super::header_lines::{HeaderLines, append_field, append_line, is_ours};

/// Encodes into `out`; answers to pipelined requests pile up there until they are sent together.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    pub(crate) out: Vec<u8>,
    date: DateCache,
}

/// How the peer finds the end of the response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delimiter {
    /// There is no body and no length is said: 204, 304, or HEAD of a body of unknown length.
    None,
    Length(u64),
    Chunked,
    /// HTTP/1.0, length not known.
    Close,
}

/// The `Connection` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// The version's default holds: keep it open in HTTP/1.1.
    Default,
    KeepAlive,
    Close,
    /// Another protocol follows, or might.
    Upgrade,
}

impl Encoder {
    /// Appends a head, its empty line included.
    pub(crate) fn head(
        &mut self,
        status: StatusCode,
        fields: ([&HeaderLines; 2], &HeaderMap),
        delimiter: Delimiter,
        connection: Connection,
        server: Option<&str>,
    ) {
        self.status_line(status);
        let (lines, map) = fields;
        if !map.contains_key(header::DATE) {
            self.out.extend_from_slice(self.date.line(now()));
        }
        if let Some(server) = server {
            append_line(&mut self.out, "Server", server.as_bytes());
        }
        for lines in lines {
            self.out.extend_from_slice(lines.as_bytes());
        }
        for (name, value) in map.iter().filter(|(name, _)| !is_ours(name)) {
            append_field(&mut self.out, name, value.as_bytes());
        }

        match delimiter {
            Delimiter::Length(len) => {
                append_line(
                    &mut self.out,
                    "Content-Length",
                    itoa::Buffer::new().format(len).as_bytes(),
                );
            }
            Delimiter::Chunked => self
                .out
                .extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Delimiter::None | Delimiter::Close => {}
        }

        self.out.extend_from_slice(match connection {
            Connection::Default => b"\r\n".as_slice(),
            Connection::KeepAlive => b"Connection: keep-alive\r\n\r\n",
            Connection::Close => b"Connection: close\r\n\r\n",
            Connection::Upgrade => b"Connection: Upgrade\r\n\r\n",
        });
    }

    /// Appends the interim answer to `Expect: 100-continue`.
    pub(crate) fn go_on(&mut self) {
        self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    fn status_line(&mut self, status: StatusCode) {
        if status == StatusCode::OK {
            return self.out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        }
        self.out.extend_from_slice(b"HTTP/1.1 ");
        self.out.extend_from_slice(status.as_str().as_bytes());
        self.out.push(b' ');
        self.out
            .extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }
}

/// The field `Date`, made once a second. It travels with the buffers, so it needs no lock.
#[derive(Debug)]
pub(crate) struct DateCache {
    second: u64,
    line: Vec<u8>,
}

impl Default for DateCache {
    fn default() -> Self {
        Self {
            second: u64::MAX,
            line: Vec::new(),
        }
    }
}

impl DateCache {
    /// Returns the value of the field.
    #[cfg(feature = "http2")]
    pub(crate) fn value(&mut self) -> http::HeaderValue {
        let value = self
            .line(now())
            .trim_ascii_end()
            .strip_prefix(b"Date: ")
            .unwrap_or_default();
        http::HeaderValue::from_bytes(value).unwrap_or_else(|_| http::HeaderValue::from_static(""))
    }

    /// Returns the field as HTTP/1 has it, its line end included.
    fn line(&mut self, second: u64) -> &[u8] {
        if second != self.second {
            self.second = second;
            self.line.clear();
            let date = http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
            append_line(&mut self.line, "Date", date.as_bytes());
        }
        &self.line
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    rustix::time::clock_gettime(ClockId::RealtimeCoarse)
        .tv_sec
        .unsigned_abs()
}

/// IMF-fixdate; times before 1970 or after 9999 are moved to these bounds.
pub(crate) fn http_date(time: SystemTime) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .min(LAST);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_made_once_a_second_and_never_panic() {
        let mut cache = DateCache::default();
        assert_eq!(
            cache.line(784_111_777),
            b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        );
        cache.line.push(b'!');
        assert!(
            cache.line(784_111_777).ends_with(b"\r\n!"),
            "made again within the second"
        );
        assert!(cache.line(784_111_778).ends_with(b":38 GMT\r\n"));
        assert!(
            http_date(SystemTime::UNIX_EPOCH - Duration::from_secs(9))
                .starts_with("Thu, 01 Jan 1970")
        );
        assert!(http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40)).contains("9999"));
    }
}
