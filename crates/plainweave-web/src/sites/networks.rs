//! Which addresses a rule lets in.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::config::Mistake;
use toml::Spanned;

/// Returns whether a client is let in: `allowed`, if given, has its address, and `denied` has not.
/// One without an address has come by a Unix socket, and the socket's file says who may: only a
/// list of those who are allowed keeps it out.
pub(super) fn admits(
    allowed: Option<&[IpNet]>,
    denied: Option<&[IpNet]>,
    client: Option<SocketAddr>,
) -> bool {
    let Some(client) = client.map(|client| client.ip().to_canonical()) else {
        return allowed.is_none();
    };

    let is_in = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&client));
    allowed.is_none_or(is_in) && !denied.is_some_and(is_in)
}

/// Reads networks.
pub(super) fn parse_all(texts: &[Spanned<String>]) -> Result<Arc<[IpNet]>, Mistake> {
    texts.iter().map(parse).collect()
}

fn parse(text: &Spanned<String>) -> Result<IpNet, Mistake> {
    let address = || text.get_ref().parse::<IpAddr>().ok().map(IpNet::from);
    let network = text.get_ref().parse().ok().or_else(address);
    network.ok_or_else(|| {
        Mistake::new(
            text.span(),
            "write a network or an address, as in 10.0.0.0/8, fd00::/8 or 192.0.2.1",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<Spanned<String>> {
        let spanned = |text: &&str| Spanned::new(0..0, (*text).to_owned());
        texts.iter().map(spanned).collect()
    }

    #[test]
    fn whom_networks_admit() {
        let client = |address: &str| Some(SocketAddr::new(address.parse().unwrap(), 1));
        for (allow, deny, admitted, refused) in [
            (
                Some(vec!["10.0.0.0/8", "::1"]),
                None,
                vec!["10.1.2.3", "::1", "::ffff:10.0.0.1"],
                vec!["11.0.0.1", "::2"],
            ),
            (
                None,
                Some(vec!["192.0.2.7"]),
                vec!["192.0.2.8", "::1"],
                vec!["192.0.2.7", "::ffff:192.0.2.7"],
            ),
            (
                Some(vec!["10.0.0.0/8"]),
                Some(vec!["10.9.0.0/16"]),
                vec!["10.1.0.1"],
                vec!["10.9.0.1", "1.1.1.1"],
            ),
            (Some(vec![]), None, vec![], vec!["127.0.0.1"]),
        ] {
            let parsed = |names: Vec<&str>| parse_all(&texts(&names)).unwrap();
            let allowed = allow.map(parsed);
            let denied = deny.map(parsed);
            let admit = |client| admits(allowed.as_deref(), denied.as_deref(), client);
            for address in admitted {
                assert!(admit(client(address)), "{address}");
            }
            for address in refused {
                assert!(!admit(client(address)), "{address}");
            }
            assert_eq!(admit(None), allowed.is_none());
        }

        for wrong in ["", "10.0.0.0/33", "example.org", "10.0.0"] {
            assert!(parse_all(&texts(&[wrong])).is_err());
        }
    }
}
