//! What came of the requests: counts, a histogram of latencies, failures by kind.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};

use hdrhistogram::Histogram;
use http::StatusCode;
use rustix::io::Errno;

use super::clock::Nanos;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// Nobody listens there.
    Refused,
    /// No way there.
    Unreachable,
    /// The peer reset the connection.
    Reset,
    /// The peer closed the connection before it had answered.
    Closed,
    /// The peer closed the connection within its answer.
    Short,
    /// No whole answer in time, or the request's turn did not come in time.
    TimedOut,
    /// HTTP: a status that does not count as a success.
    Status(u16),
    /// A cache's reply says that it did not do as asked.
    ErrorReply,
    /// The answer breaks the protocol.
    Garbage,
    /// The answer has more header fields than are read.
    TooManyFields,
    /// A well-formed answer of another length than expected.
    WrongLength,
    /// This machine is out of descriptors.
    Descriptors,
    /// This machine is out of local ports.
    Ports,
    /// TLS: an authority that is not trusted has signed the server's certificate.
    CertificateUntrusted,
    /// TLS: the server's certificate has expired, or is not valid yet.
    CertificateExpired,
    /// TLS: the server's certificate is for another name.
    CertificateName,
    /// TLS: anything else is wrong with the server's certificate.
    Certificate,
    /// TLS: the server has sent an alert.
    TlsRefused,
    /// TLS: client and server have no version or cipher in common.
    TlsIncompatible,
    /// What came is no TLS.
    NoTls,
    /// The server closed the connection in the handshake.
    TlsCut,
    /// Anything else that breaks TLS.
    TlsBroken,
    /// TLS: the server does not speak the protocol that was asked for.
    NoAlpn,
    /// HTTP/2: the server has reset the request's stream, with this error code.
    StreamReset(ErrorCode),
    /// HTTP/2: the server has ended the connection by a GOAWAY, with this error code.
    GoneAway(ErrorCode),
    /// What came breaks HTTP/2, or is none.
    Http2Broken,
    /// Any other error of the system.
    Other,
}

/// An error code of HTTP/2 (RFC 9113, 7): its place in [`ERROR_CODES`].
pub(super) type ErrorCode = u8;

const ERROR_CODES: [&str; 15] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
    "unknown code",
];
const NO_ERROR: ErrorCode = 0;
const REFUSED_STREAM: ErrorCode = 7;

/// More than any status.
const STATUSES: u64 = 1000;

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Failure {
    /// All kinds but those with a number of their own.
    pub(super) const ALL: [Failure; 24] = [
        Failure::Refused,
        Failure::Unreachable,
        Failure::Reset,
        Failure::Closed,
        Failure::Short,
        Failure::TimedOut,
        Failure::ErrorReply,
        Failure::Garbage,
        Failure::TooManyFields,
        Failure::WrongLength,
        Failure::Descriptors,
        Failure::Ports,
        Failure::CertificateUntrusted,
        Failure::CertificateExpired,
        Failure::CertificateName,
        Failure::Certificate,
        Failure::TlsRefused,
        Failure::TlsIncompatible,
        Failure::NoTls,
        Failure::TlsCut,
        Failure::TlsBroken,
        Failure::NoAlpn,
        Failure::Http2Broken,
        Failure::Other,
    ];

    /// Makes one of the code with which a stream was reset.
    #[cfg(feature = "http2")]
    pub(super) fn stream_reset(code: u32) -> Self {
        Failure::StreamReset(known(code))
    }

    /// Makes one of the code of a GOAWAY.
    #[cfg(feature = "http2")]
    pub(super) fn gone_away(code: u32) -> Self {
        Failure::GoneAway(known(code))
    }

    /// Returns whether the server has said that it did not begin with the request.
    pub(super) fn is_unprocessed(self) -> bool {
        matches!(
            self,
            Failure::StreamReset(REFUSED_STREAM) | Failure::GoneAway(NO_ERROR)
        )
    }

    /// Returns a number that stands for it between an agent and its coordinator: its place among
    /// [`Self::ALL`], and beyond these statuses and error codes.
    pub(super) fn code(self) -> u64 {
        let all = Self::ALL.len() as u64;
        let codes = ERROR_CODES.len() as u64;
        match self {
            Failure::Status(status) => all + u64::from(status),
            Failure::StreamReset(code) => all + STATUSES + u64::from(code),
            Failure::GoneAway(code) => all + STATUSES + codes + u64::from(code),
            _ => Self::ALL
                .iter()
                .position(|failure| *failure == self)
                .unwrap_or_default() as u64,
        }
    }

    /// Returns what a number stands for.
    pub(super) fn of_code(code: u64) -> Option<Self> {
        let codes = ERROR_CODES.len() as u64;
        let Some(status) = code.checked_sub(Self::ALL.len() as u64) else {
            return Some(Self::ALL[code as usize]);
        };
        let Some(error) = status.checked_sub(STATUSES) else {
            return Some(Failure::Status(status as u16));
        };
        match error.checked_sub(codes) {
            None => Some(Failure::StreamReset(error as ErrorCode)),
            Some(error) => (error < codes).then_some(Failure::GoneAway(error as ErrorCode)),
        }
    }

    /// Returns its name in tables and files.
    pub(super) fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Failure::Status(status) => return format!("status {status}").into(),
            Failure::StreamReset(code) => {
                return format!("HTTP/2: stream reset ({})", ERROR_CODES[usize::from(code)]).into();
            }
            Failure::GoneAway(code) => {
                return format!("HTTP/2: GOAWAY ({})", ERROR_CODES[usize::from(code)]).into();
            }
            Failure::Refused => "connection refused",
            Failure::Unreachable => "unreachable",
            Failure::Reset => "reset",
            Failure::Closed => "closed without an answer",
            Failure::Short => "closed within an answer",
            Failure::TimedOut => "timeout",
            Failure::ErrorReply => "error reply",
            Failure::Garbage => "garbage",
            Failure::TooManyFields => "more than 256 header fields",
            Failure::WrongLength => "wrong length",
            Failure::Descriptors => "out of descriptors",
            Failure::Ports => "out of local ports",
            Failure::CertificateUntrusted => "TLS: certificate not trusted",
            Failure::CertificateExpired => "TLS: certificate expired or not yet valid",
            Failure::CertificateName => "TLS: certificate of another name",
            Failure::Certificate => "TLS: bad certificate",
            Failure::TlsRefused => "TLS: refused by the server",
            Failure::TlsIncompatible => "TLS: no common version or cipher",
            Failure::NoTls => "TLS: not spoken by the server",
            Failure::TlsCut => "TLS: closed in the handshake",
            Failure::TlsBroken => "TLS: protocol broken",
            Failure::NoAlpn => "TLS: no common protocol (ALPN)",
            Failure::Http2Broken => "HTTP/2: protocol broken",
            Failure::Other => "other",
        })
    }
}

#[cfg(feature = "http2")]
fn known(code: u32) -> ErrorCode {
    code.min(ERROR_CODES.len() as u32 - 1) as ErrorCode
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if let Some(failure) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Failure>())
        {
            return *failure;
        }
        match error.kind() {
            // Of TLS without its end.
            ErrorKind::UnexpectedEof => Failure::Closed,
            ErrorKind::ConnectionRefused => Failure::Refused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Failure::Unreachable,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                Failure::Reset
            }
            ErrorKind::TimedOut => Failure::TimedOut,
            ErrorKind::AddrNotAvailable => Failure::Ports,
            _ => match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE) => Failure::Descriptors,
                _ => Failure::Other,
            },
        }
    }
}

/// How long the parts of a connection's opening took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) connect: Nanos,
    pub(super) handshake: Option<Handshake>,
}

/// A handshake over TLS that has succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    pub(super) took: Nanos,
    /// It took up an earlier session.
    pub(super) resumed: bool,
}

/// Counts by kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(BTreeMap<Failure, u64>);

impl Failures {
    pub(super) fn add(&mut self, failure: Failure, count: u64) {
        if count > 0 {
            *self.0.entry(failure).or_default() += count;
        }
    }

    /// Returns the kinds that occurred.
    pub(super) fn by_kind(&self) -> impl Iterator<Item = (Failure, u64)> {
        self.0.iter().map(|(failure, count)| (*failure, *count))
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.total() == 0 {
            return f.write_str("none");
        }
        for (n, (failure, count)) in self.by_kind().enumerate() {
            write!(
                f,
                "{}{} {count}",
                if n > 0 { ", " } else { "" },
                failure.name()
            )?;
        }
        Ok(())
    }
}

/// Counts by HTTP status.
#[derive(Clone, Debug, Default)]
pub(super) struct Statuses(Vec<(u16, u64)>);

impl Statuses {
    /// Adds to a status's count. There are few, and one is by far the most frequent.
    #[inline]
    pub(super) fn add(&mut self, status: u16, count: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == status) {
            Some((_, total)) => *total += count,
            None => self.0.push((status, count)),
        }
    }

    /// Returns the statuses that occurred, in ascending order.
    pub(super) fn by_status(&self) -> impl Iterator<Item = (u16, u64)> {
        let mut all = self.0.clone();
        all.sort_unstable();
        all.into_iter()
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (status, count)) in self.by_status().enumerate() {
            let reason = StatusCode::from_u16(status)
                .ok()
                .and_then(|status| status.canonical_reason());
            let reason = reason
                .map(|reason| format!(" {reason}"))
                .unwrap_or_default();
            write!(
                f,
                "{}{status}{reason}: {count}",
                if n > 0 { ", " } else { "" }
            )?;
        }
        Ok(())
    }
}

/// The figures of one worker, or of all. Times are nanoseconds since the start of load.
#[derive(Debug)]
pub(super) struct Tally {
    /// From the intended start to the whole answer, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// Open loop: how late this program itself sent a request for which a connection was free.
    pub(super) lateness: Histogram<u64>,
    /// From the attempt to connect to the connection, whenever it was made; in nanoseconds.
    pub(super) connect: Histogram<u64>,
    /// The handshake over TLS, which follows.
    pub(super) handshake: Histogram<u64>,
    /// Handshakes that took up an earlier session.
    pub(super) resumed: u64,
    pub(super) ok: u64,
    /// Of `ok`, those answered before the end of the time in which requests start.
    pub(super) ok_in_time: u64,
    /// Open loop: answers of any kind that came before the last request was due.
    pub(super) answers_in_time: u64,
    /// HTTP: answers by status, whether they count as successes or not.
    pub(super) statuses: Statuses,
    /// Answers during the warm-up, which count nowhere else.
    pub(super) warming: u64,
    /// Requests that the end of a run that was interrupted left without an answer.
    pub(super) unanswered: u64,
    /// A cache's "not there", which is among `ok`.
    pub(super) misses: u64,
    /// Bytes of successful answers.
    pub(super) bytes: u64,
    pub(super) failures: Failures,
    /// Connections made after the first ones.
    pub(super) reconnects: u64,
    /// Attempts at that which failed.
    pub(super) failed_connects: u64,
    /// The last answer.
    pub(super) last: Nanos,
}

impl Tally {
    pub(super) fn new() -> Self {
        // Three significant digits; grows with the largest value. The bounds of `new` are always
        // valid.
        let histogram =
            || Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"));
        Self {
            latency: histogram(),
            lateness: histogram(),
            connect: histogram(),
            handshake: histogram(),
            resumed: 0,
            ok: 0,
            ok_in_time: 0,
            answers_in_time: 0,
            statuses: Statuses::default(),
            warming: 0,
            unanswered: 0,
            misses: 0,
            bytes: 0,
            failures: Failures::default(),
            reconnects: 0,
            failed_connects: 0,
            last: 0,
        }
    }

    /// Counts a success and its latency.
    #[inline]
    pub(super) fn answered(&mut self, latency: Nanos) {
        // Grows as needed, so every value finds its place.
        let _ = self.latency.record(latency);
        self.ok += 1;
    }

    /// Notes by how much a request was sent late.
    pub(super) fn late(&mut self, by: Nanos) {
        let _ = self.lateness.record(by);
    }

    /// Notes how a connection was opened.
    pub(super) fn opened(&mut self, opening: &Opening) {
        let _ = self.connect.record(opening.connect);
        if let Some(Handshake { took, resumed }) = opening.handshake {
            let _ = self.handshake.record(took);
            self.resumed += u64::from(resumed);
        }
    }

    /// Takes in another worker's.
    pub(super) fn add(&mut self, other: &Tally) {
        let both = "histograms that grow take any value";
        self.latency.add(&other.latency).expect(both);
        self.lateness.add(&other.lateness).expect(both);
        self.connect.add(&other.connect).expect(both);
        self.handshake.add(&other.handshake).expect(both);
        self.resumed += other.resumed;
        self.ok += other.ok;
        self.ok_in_time += other.ok_in_time;
        self.answers_in_time += other.answers_in_time;
        other
            .statuses
            .by_status()
            .for_each(|(status, count)| self.statuses.add(status, count));
        self.warming += other.warming;
        self.unanswered += other.unanswered;
        self.misses += other.misses;
        self.bytes += other.bytes;
        other
            .failures
            .by_kind()
            .for_each(|(failure, count)| self.failures.add(failure, count));
        self.reconnects += other.reconnects;
        self.failed_connects += other.failed_connects;
        self.last = self.last.max(other.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_a_number() {
        let kinds: Vec<_> = (0..).map_while(Failure::of_code).collect();
        assert_eq!(
            kinds.len(),
            Failure::ALL.len() + 1000 + 2 * ERROR_CODES.len()
        );
        assert!(
            kinds
                .iter()
                .enumerate()
                .all(|(code, kind)| kind.code() == code as u64)
        );
        assert_eq!(Failure::of_code(u64::MAX), None);
        let names =
            [Failure::StreamReset(REFUSED_STREAM), Failure::GoneAway(14)].map(Failure::name);

        assert_eq!(
            names,
            [
                "HTTP/2: stream reset (REFUSED_STREAM)",
                "HTTP/2: GOAWAY (unknown code)"
            ]
        );
    }

    #[test]
    fn failures_are_counted_by_kind_and_status() {
        let mut failures = Failures::default();
        assert_eq!(failures.to_string(), "none");
        for status in [503, 404, 503] {
            failures.add(Failure::Status(status), 2);
        }
        failures.add(Failure::TimedOut, 1);
        failures.add(Failure::Reset, 0);

        assert_eq!(
            (failures.total(), failures.to_string().as_str()),
            (7, "timeout 1, status 404 2, status 503 4")
        );
    }
}
