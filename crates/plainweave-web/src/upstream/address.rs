//! Where a server listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What the path of a Unix socket begins with.
const UNIX: &str = "unix:";

/// Where a server of an application listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UpstreamAddress {
    Tcp(SocketAddr),
    /// Looked up for each connection, with a port.
    Name(String),
    Unix(PathBuf),
}

impl UpstreamAddress {
    /// Reads an address, a name and a port, or `unix:` and a path, which is meant from `folder`.
    pub(crate) fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix(UNIX).filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(folder.join(path)));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Tcp(address));
        }

        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = text.rsplit_once(':').is_some_and(|(host, port)| {
            let has_port = port.parse().is_ok_and(|port: u16| port > 0);
            has_port && !host.is_empty() && host.bytes().all(plain)
        });
        match is_name {
            true => Ok(Self::Name(text.to_owned())),
            false => Err("write 127.0.0.1:3000, app:3000 or unix:/run/app.sock".to_owned()),
        }
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let folder = Path::new("/etc/web");
        let parse = |text| UpstreamAddress::parse(text, folder).map(|found| found.to_string());
        for (text, shown) in [
            ("127.0.0.1:3000", "127.0.0.1:3000"),
            ("[::1]:80", "[::1]:80"),
            ("app.internal:8080", "app.internal:8080"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("unix:a.sock", "unix:/etc/web/a.sock"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(shown), "{text}");
        }

        for text in [
            "",
            "app",
            "app:",
            ":80",
            "app:0",
            "http://app:80",
            "a b:80",
            "unix:",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
