//! What can go wrong with TLS, asked by `is_*()`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// Why certificates cannot be used, or a connection has failed. The text says what to do where the
/// operator can.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    file: Option<PathBuf>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file that cannot be read.
    File,
    Certificate,
    Key,
    Mismatch,
    Validity,
    Authority,
    Config,
    Handshake,
    Protocol,
    Timeout,
    Truncated,
    Closed,
    Io,
}

impl Error {
    pub(super) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            file: None,
            source: None,
        }
    }

    pub(super) fn of_file(kind: Kind, file: &Path, what: &str) -> Self {
        Self {
            file: Some(file.to_owned()),
            ..Self::new(kind, format!("{}: {what}", file.display()))
        }
    }

    pub(super) fn because(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self {
            source: Some(Arc::new(source)),
            ..self
        }
    }

    /// Classifies an error of the stream below.
    pub(super) fn io(source: io::Error, what: &str) -> Self {
        use io::ErrorKind as E;
        let kind = match source.kind() {
            E::TimedOut | E::WouldBlock => Kind::Timeout,
            E::ConnectionReset
            | E::ConnectionAborted
            | E::BrokenPipe
            | E::NotConnected
            | E::UnexpectedEof => Kind::Closed,
            _ => Kind::Io,
        };
        Self::new(kind, what).because(source)
    }

    /// Returns the file that is at fault, if it is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns whether a file cannot be read, or is not what it should be: a certificate, a key, an
    /// authority.
    pub fn is_file(&self) -> bool {
        matches!(
            self.kind,
            Kind::File | Kind::Certificate | Kind::Key | Kind::Authority
        )
    }

    /// Returns whether a certificate and the key given with it do not belong together.
    pub fn is_mismatch(&self) -> bool {
        self.kind == Kind::Mismatch
    }

    /// Returns whether a certificate has expired, or is not valid yet.
    pub fn is_expired(&self) -> bool {
        self.kind == Kind::Validity
    }

    /// Returns whether the settings cannot be satisfied, without a file at fault: no certificate
    /// was given.
    pub fn is_config(&self) -> bool {
        self.kind == Kind::Config
    }

    /// Returns whether client and server have found no way to agree, or the client has refused our
    /// certificate, or has no good one itself.
    pub fn is_handshake(&self) -> bool {
        self.kind == Kind::Handshake
    }

    /// Returns whether the peer has broken the protocol after the handshake, or its records were
    /// tampered with.
    pub fn is_protocol(&self) -> bool {
        self.kind == Kind::Protocol
    }

    /// Returns whether the handshake took longer than it may.
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::Timeout
    }

    /// Returns whether the peer's data ended without its saying so: somebody else may have cut it
    /// short.
    pub fn is_truncated(&self) -> bool {
        self.kind == Kind::Truncated
    }

    /// Returns whether the peer went away in the middle of the handshake.
    pub fn is_closed(&self) -> bool {
        self.kind == Kind::Closed
    }

    /// Returns whether the stream below has failed in another way; cancellation by the runtime is
    /// found through `source()`.
    pub fn is_io(&self) -> bool {
        self.kind == Kind::Io
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// For callers that see a stream: [`io::Error::get_ref`] gives the error back.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            Kind::Timeout => io::ErrorKind::TimedOut,
            Kind::Truncated | Kind::Closed => io::ErrorKind::UnexpectedEof,
            Kind::Handshake | Kind::Protocol => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
