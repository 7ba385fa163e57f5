//! Connecting elsewhere than a URL says, as curl's flag of that name does: to one node behind a
//! balancer, or to a server that its name does not lead to yet.

use std::fmt;

/// `HOST:PORT:TO:PORT`. An empty host or port before fits any; an empty one after is the URL's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectTo {
    text: String,
    host: Option<String>,
    port: Option<u16>,
    to_host: Option<String>,
    to_port: Option<u16>,
}

impl ConnectTo {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let usage = || "write HOST:PORT:TO:PORT, with addresses of IPv6 in brackets".to_owned();
        let parts = parts(text).ok_or_else(usage)?;
        let [host, port, to_host, to_port] = &parts[..] else {
            return Err(usage());
        };
        let given = |part: &&str| (!part.is_empty()).then(|| (*part).to_owned());
        let number = |part: &&str| match *part {
            "" => Ok(None),
            part => part
                .parse()
                .map(Some)
                .map_err(|_| format!("'{part}' is no port")),
        };
        Ok(Self {
            text: text.to_owned(),
            host: given(host),
            port: number(port)?,
            to_host: given(to_host),
            to_port: number(to_port)?,
        })
    }

    /// Returns whether it is about a server of that name and port.
    pub(super) fn fits(&self, host: &str, port: u16) -> bool {
        let own = self.host.as_ref();
        own.is_none_or(|own| own.eq_ignore_ascii_case(host))
            && self.port.is_none_or(|own| own == port)
    }

    /// Returns whom to connect to in place of that one.
    pub(super) fn lead(&self, host: &str, port: u16) -> (String, u16) {
        let to = self.to_host.clone();
        (
            to.unwrap_or_else(|| host.to_owned()),
            self.to_port.unwrap_or(port),
        )
    }
}

impl fmt::Display for ConnectTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns what stands between colons, without brackets; nothing if these do not fit.
fn parts(mut text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    loop {
        let (part, rest) = match text.strip_prefix('[') {
            Some(inner) => inner.split_once(']')?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };

        parts.push(part);
        if rest.is_empty() {
            return Some(parts);
        }
        text = rest.strip_prefix(':')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_ones_are_refused() {
        for text in [
            "",
            "a",
            "a:80:b",
            "a:80:b:81:c",
            "[::1:80:b:81",
            "a:x:b:81",
            "a:80:b:65536",
        ] {
            assert!(ConnectTo::parse(text).is_err(), "{text}");
        }
    }
}
