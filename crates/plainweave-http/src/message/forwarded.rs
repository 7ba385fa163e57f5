//! Whose request a proxy passes on, by the fields `Forwarded` (RFC 7239) and `X-Forwarded-For`.
//!
//! Each proxy on the way adds the address of who has asked it, at the end. Anybody may have written
//! what stands before that, so the list is read from its end: as long as an address is a trusted
//! proxy's, the one before it is believed. Which of the two fields the proxies maintain must be
//! known: the other one comes from the client as it is.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::error::Error;
use super::head::RequestHead;

/// The field that proxies add to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `Forwarded: for=192.0.2.60, for="[2001:db8::1]:4711"`
    Forwarded,
    /// `X-Forwarded-For: 192.0.2.60, 2001:db8::1`
    XForwardedFor,
}

/// Proxies that are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies {
    field: Field,
    networks: Vec<IpNet>,
}

impl TrustedProxies {
    /// Makes one of networks and addresses with commas between: `127.0.0.1, 10.0.0.0/8`.
    ///
    /// # Errors
    /// One of them is malformed.
    pub fn new(field: Field, networks: &str) -> Result<Self, Error> {
        let network = |text: &str| {
            let parsed = text.parse().or_else(|_| text.parse().map(IpAddr::into));
            parsed.map_err(|_| Error::bad("a network is written as 10.0.0.0/8, or an address"))
        };
        let networks = networks.split(',').map(|text| network(text.trim()));
        Ok(Self {
            field,
            networks: networks.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the same proxies, which maintain another field.
    pub fn by(self, field: Field) -> Self {
        Self { field, ..self }
    }

    /// Returns whether a connection from there is a trusted proxy's. One without an address, over
    /// a Unix socket, is: who may connect there is the matter of the file's mode.
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
        peer.is_none_or(|peer| {
            let peer = peer.to_canonical();
            self.networks.iter().any(|network| network.contains(&peer))
        })
    }

    /// Returns the client's address: the last one that is no trusted proxy's, or the first of all.
    /// What a proxy hides (`_name`, `unknown`) ends the search at that proxy. The port is 0 where
    /// the field has none.
    pub fn client(&self, head: &RequestHead<'_>, peer: Option<SocketAddr>) -> Option<SocketAddr> {
        let name = match self.field {
            Field::Forwarded => "forwarded",
            Field::XForwardedFor => "x-forwarded-for",
        };

        // Several fields are one list.
        let lists: Vec<_> = head.header_all(name).collect();
        let elements = lists.iter().flat_map(|list| elements(list));
        let mut client = peer;

        for element in elements.collect::<Vec<_>>().into_iter().rev() {
            if !self.trusts(client.map(|client| client.ip())) {
                break;
            }
            let said = match self.field {
                Field::Forwarded => parameter_for(element),
                Field::XForwardedFor => Some(element),
            };

            match said.and_then(address) {
                Some(address) => client = Some(address),
                None => break,
            }
        }

        client
    }
}

/// Splits a list at its commas, those within quotes left out.
fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(list, b',').map(<[u8]>::trim_ascii)
}

fn split(text: &[u8], at: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |&byte| {
        if std::mem::take(&mut escaped) {
            return false;
        }
        escaped = quoted && byte == b'\\';
        quoted ^= byte == b'"';
        !quoted && byte == at
    })
}

/// Returns the value of the parameter `for`, without quotes.
fn parameter_for(element: &[u8]) -> Option<&[u8]> {
    let pairs = split(element, b';').map(<[u8]>::trim_ascii);
    let value = |pair: &[u8]| pair[..4.min(pair.len())].eq_ignore_ascii_case(b"for=");
    let value = pairs
        .filter(|pair| value(pair))
        .map(|pair| &pair[4..])
        .next()?;
    let unquoted = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));

    Some(unquoted.unwrap_or(value))
}

/// Reads an address, with or without a port; one of IPv6 with a port stands in brackets.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address: IpAddr = bare.unwrap_or(text).parse().ok()?;
    Some(SocketAddr::new(address.to_canonical(), 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::parse::{header_slots, parse_head};

    /// The client by these fields, of a connection from `peer`.
    fn client(field: Field, lines: &str, peer: &str) -> Option<String> {
        let proxies = TrustedProxies::new(field, "127.0.0.0/8, ::1,10.0.0.7").expect("networks");
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let mut slots = header_slots();
        let head = parse_head(text.as_bytes(), &mut slots).expect("a head");
        let peer = (!peer.is_empty()).then(|| peer.parse().expect("an address"));
        proxies.client(&head, peer).map(|client| client.to_string())
    }

    #[test]
    fn the_last_address_that_is_no_proxy_s_is_the_client_s() {
        let from = |lines: &str, peer: &str| client(Field::XForwardedFor, lines, peer);
        let local = "127.0.0.1:5";
        for (lines, peer, expected) in [
            ("", local, local),
            ("X-Forwarded-For: 192.0.2.1\r\n", local, "192.0.2.1:0"),
            // What the client itself has written stands before.
            (
                "X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\n",
                local,
                "192.0.2.1:0",
            ),
            (
                "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.1\r\n",
                local,
                "192.0.2.1:0",
            ),
            (
                "X-Forwarded-For: 192.0.2.1, 10.0.0.7\r\n",
                local,
                "192.0.2.1:0",
            ),
            ("X-Forwarded-For: 10.0.0.7\r\n", local, "10.0.0.7:0"),
            (
                "X-Forwarded-For: 192.0.2.1:99,::1\r\n",
                local,
                "192.0.2.1:99",
            ),
            (
                "X-Forwarded-For: 2001:db8::1\r\n",
                "[::1]:5",
                "[2001:db8::1]:0",
            ),
            (
                "X-Forwarded-For: ::ffff:192.0.2.1\r\n",
                "[::ffff:127.0.0.1]:5",
                "192.0.2.1:0",
            ),
            // Who is no proxy is not believed.
            (
                "X-Forwarded-For: 192.0.2.1\r\n",
                "198.51.100.1:5",
                "198.51.100.1:5",
            ),
            ("X-Forwarded-For: 192.0.2.1, unknown\r\n", local, local),
            ("X-Forwarded-For: 192.0.2.1, \r\n", local, local),
            ("Forwarded: for=192.0.2.1\r\n", local, local),
            ("X-Forwarded-For: 192.0.2.1\r\n", "", "192.0.2.1:0"),
        ] {
            assert_eq!(
                from(lines, peer).as_deref(),
                Some(expected),
                "{lines:?} {peer}"
            );
        }

        assert_eq!(from("", ""), None, "a Unix socket");
    }

    #[test]
    fn the_field_of_rfc_7239_is_read() {
        for (line, expected) in [
            ("for=192.0.2.1", "192.0.2.1:0"),
            (
                "For=\"[2001:db8:cafe::17]:4711\"",
                "[2001:db8:cafe::17]:4711",
            ),
            (
                "for=192.0.2.43, for=\"[2001:db8:cafe::17]\"",
                "[2001:db8:cafe::17]:0",
            ),
            ("by=203.0.113.43;for=192.0.2.60;proto=http", "192.0.2.60:0"),
            (
                "proto=http;FOR=192.0.2.60;by=\"a,for=6.6.6.6;\\\"\"",
                "192.0.2.60:0",
            ),
            (
                "for=192.0.2.60, for=10.0.0.7, for=\"127.0.0.9:1\"",
                "192.0.2.60:0",
            ),
            ("for=192.0.2.60, for=_hidden", "127.0.0.1:5"),
            ("for=192.0.2.60, proto=https", "127.0.0.1:5"),
            ("for=unknown", "127.0.0.1:5"),
        ] {
            let both = format!("Forwarded: {line}\r\nX-Forwarded-For: 6.6.6.6\r\n");
            let found = client(Field::Forwarded, &both, "127.0.0.1:5");
            assert_eq!(found.as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn networks_are_checked() {
        for networks in [
            "",
            "10.0.0.0/33",
            "localhost",
            "10.0.0.0/8,",
            "10.0.0.0/8;::1",
        ] {
            assert!(
                TrustedProxies::new(Field::Forwarded, networks).is_err(),
                "{networks}"
            );
        }
    }

    proptest! {
        /// Whatever stands there, it is the address that the proxy has added; or the proxy's own,
        /// where a quote that the client has left open swallows that.
        #[test]
        fn nobody_is_who_the_client_says(written in "[ -~]{0,40}") {
            let line = format!("Forwarded: {written}, for=192.0.2.1\r\n");
            let found = client(Field::Forwarded, &line, "127.0.0.1:5");
            let is_open = written.contains('"');
            let expected = ["192.0.2.1:0", "127.0.0.1:5"];
            prop_assert!(expected[..1 + usize::from(is_open)].contains(&&*found.unwrap()));

            let line = format!("X-Forwarded-For: {written}\r\nX-Forwarded-For: 192.0.2.1\r\n");
            let found = client(Field::XForwardedFor, &line, "127.0.0.1:5");
            prop_assert_eq!(found.as_deref(), Some("192.0.2.1:0"));
        }
    }
}
