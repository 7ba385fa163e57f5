//! What TLS is made from, by memcached's options, and which listener has how much of it.

use std::net::SocketAddr;
use std::path::PathBuf;

/// What a listener asks of those who connect: memcached's prefixes of an address, by `-l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    /// No TLS.
    Plain,
    /// TLS, and what `ssl_verify_mode` says.
    Usual,
    /// TLS, and no certificate.
    Basic,
    /// TLS, and a certificate.
    Mutual,
}

impl Security {
    /// Splits memcached's prefix from an address, as in `notls:127.0.0.1:11212`.
    pub(super) fn split(text: &str) -> (Option<Self>, &str) {
        let named = [
            ("notls:", Self::Plain),
            ("btls:", Self::Basic),
            ("mtls:", Self::Mutual),
        ];

        let found = named
            .into_iter()
            .find_map(|(name, security)| Some((Some(security), text.strip_prefix(name)?)));
        found.unwrap_or((None, text))
    }
}

/// Returns whether a connection to this address comes to a listener without TLS: to the one with
/// that address, or else to one that has all of its family.
pub(super) fn is_plain(listeners: &[(SocketAddr, Security)], local: SocketAddr) -> bool {
    let ip = local.ip().to_canonical();
    let here = listeners
        .iter()
        .filter(|(address, _)| address.port() == local.port());
    let exact = here.clone().find(|(address, _)| address.ip() == ip);
    let found = exact.or_else(|| {
        let mut here = here;
        here.find(|(address, _)| address.ip().is_unspecified() && address.is_ipv4() == ip.is_ipv4())
    });
    found.is_some_and(|(_, security)| *security == Security::Plain)
}

/// The files, and what else the options say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Certificates {
    pub(super) chain: Option<PathBuf>,
    /// The key; none: it is in the file of the chain.
    pub(super) key: Option<PathBuf>,
    pub(super) authorities: Option<PathBuf>,
    pub(super) mode: Option<u32>,
    /// The oldest version, as OpenSSL's wrapper in memcached counts them.
    pub(super) oldest: Option<u32>,
}

impl Certificates {
    /// Returns whether TLS 1.2 is refused.
    pub(crate) fn only_tls13(&self) -> bool {
        self.oldest == Some(3)
    }

    /// Takes an option of `-o`, if it is about TLS. An error says what is wrong with its value.
    pub(super) fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let file = || match value {
            "" => Err(format!("{name} needs a file")),
            value => Ok(Some(PathBuf::from(value))),
        };

        let number = |known: &[u32], wanted: &str| {
            let number = value.parse().ok().filter(|number| known.contains(number));
            number.ok_or_else(|| format!("{name} needs {wanted}"))
        };

        match name {
            "ssl_chain_cert" => self.chain = file()?,
            "ssl_key" => self.key = file()?,
            "ssl_ca_cert" => self.authorities = file()?,
            "ssl_verify_mode" => {
                let wanted =
                    "0 (nothing), 1 or 3 (a certificate if there is one) or 2 (a certificate)";
                self.mode = Some(number(&[0, 1, 2, 3], wanted)?);
            }
            "ssl_min_version" => {
                let wanted = "0, 1 or 2 (TLS 1.2, there is nothing older) or 3 (TLS 1.3)";
                self.oldest = Some(number(&[0, 1, 2, 3], wanted)?);
            }

            // OpenSSL's number of PEM.
            "ssl_keyformat" => drop(number(&[1], "1 (PEM)")?),
            // Sessions are resumed in any case, unless clients show certificates.
            "ssl_session_cache" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies what a later list changes.
    pub(super) fn and(self, later: &Self) -> Self {
        Self {
            chain: later.chain.clone().or(self.chain),
            key: later.key.clone().or(self.key),
            authorities: later.authorities.clone().or(self.authorities),
            mode: later.mode.or(self.mode),
            oldest: later.oldest.or(self.oldest),
        }
    }

    /// Returns whether anything was said of TLS.
    pub(super) fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_one_of_the_listener_with_its_address() {
        let listeners = |all: &[(&str, Security)]| {
            let all = all.iter();
            all.map(|(address, security)| (address.parse().unwrap(), *security))
                .collect::<Vec<_>>()
        };
        let is_plain_at =
            |all: &[_], local: &str| is_plain(&listeners(all), local.parse().unwrap());
        let split = [
            ("0.0.0.0:1", Security::Plain),
            ("[::]:1", Security::Mutual),
            ("127.0.0.1:1", Security::Usual),
            ("[::1]:2", Security::Plain),
        ];
        for (local, expected) in [
            ("10.0.0.1:1", true),
            ("127.0.0.1:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("[::1]:1", false),
            ("[::1]:2", true),
            ("127.0.0.1:2", false),
            ("10.0.0.1:3", false),
        ] {
            assert_eq!(is_plain_at(&split, local), expected, "{local}");
        }
    }
}
