//! The PROXY protocol, versions 1 and 2, sans I/O: with it a proxy in front tells whose connection
//! it passes on.
//!
//! Published by HAProxy (`doc/proxy-protocol.txt`, 2.2 of 2020). The header stands before the first
//! byte of HTTP, once for each connection. Nothing in it proves that a proxy sent it, so it is read
//! only where every connection must have one: see
//! [`Server::with_proxy_protocol`](crate::Server::with_proxy_protocol).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::error::Error;

/// What begins version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// What begins version 1.
const WORD: &[u8] = b"PROXY ";
/// The longest header of version 1, its line end included.
const LINE: usize = 107;
/// The longest of version 2 that is taken; its addresses need 36 bytes, the rest are options that
/// are not read.
const LONGEST: usize = 4 << 10;

/// What a look at the beginning of a connection found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxied {
    /// No end yet: read more, and look again from the beginning.
    More,
    /// A whole header.
    Header {
        /// Its length in bytes.
        len: usize,
        /// The client's address. `None`: the proxy does not say, or speaks for itself, as for a
        /// health check.
        client: Option<SocketAddr>,
    },
}

/// Looks for a header at the start of `bytes`, all that has arrived of a connection.
///
/// # Errors
/// The connection does not begin with one, or it is malformed or longer than 4 KiB.
pub fn parse(bytes: &[u8]) -> Result<Proxied, Error> {
    if begins(bytes, SIGNATURE) {
        return if bytes.len() < 16 {
            Ok(Proxied::More)
        } else {
            binary(bytes)
        };
    }
    if begins(bytes, WORD) {
        return line(bytes);
    }
    Err(Error::bad(
        "the connection does not begin with a header of the PROXY protocol",
    ))
}

/// Returns whether `bytes` may begin with `start`, as far as they go.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    let len = bytes.len().min(start.len());
    bytes[..len] == start[..len]
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443` and CRLF.
fn line(bytes: &[u8]) -> Result<Proxied, Error> {
    let head = &bytes[..bytes.len().min(LINE)];
    let Some(end) = memchr::memchr(b'\n', head) else {
        return if head.len() < LINE {
            Ok(Proxied::More)
        } else {
            Err(malformed())
        };
    };
    let text = head[..end]
        .strip_suffix(b"\r")
        .and_then(|line| str::from_utf8(line).ok())
        .ok_or_else(malformed)?;
    let len = end + 1;
    let mut words = text.split(' ').skip(1);
    let mut word = || words.next().ok_or_else(malformed);
    let is_v6 = match word()? {
        "TCP4" => false,
        "TCP6" => true,
        "UNKNOWN" => return Ok(Proxied::Header { len, client: None }),
        _ => return Err(malformed()),
    };
    let client = ip(word()?, is_v6)?;
    let server = ip(word()?, is_v6)?;
    let client = SocketAddr::new(client, port(word()?)?);
    let _server = SocketAddr::new(server, port(word()?)?);
    if words.next().is_some() {
        return Err(malformed());
    }
    Ok(Proxied::Header {
        len,
        client: Some(client),
    })
}

fn ip(text: &str, is_v6: bool) -> Result<IpAddr, Error> {
    let address: IpAddr = text.parse().map_err(|_| malformed())?;
    if address.is_ipv6() == is_v6 {
        Ok(address)
    } else {
        Err(malformed())
    }
}

/// Decimal, without a sign or a leading zero.
fn port(text: &str) -> Result<u16, Error> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    if plain {
        text.parse().map_err(|_| malformed())
    } else {
        Err(malformed())
    }
}

/// Version 2, of which the first 16 bytes are there: signature, version and command, family,
/// length.
fn binary(bytes: &[u8]) -> Result<Proxied, Error> {
    let version_command = bytes[12];
    let family = bytes[13];
    let len = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if version_command >> 4 != 2 || version_command & 15 > 1 {
        return Err(malformed());
    }
    if len > LONGEST {
        return Err(Error::bad(
            "a header of the PROXY protocol that is too long",
        ));
    }
    let Some(body) = bytes.get(16..len) else {
        return Ok(Proxied::More);
    };
    let is_local = version_command & 15 == 0;
    let client = match family {
        _ if is_local => None,
        0x11 => Some(addresses::<4>(body)?),
        0x21 => Some(addresses::<16>(body)?),
        // Not known, datagrams, Unix sockets: what is said of them is of no use.
        _ => None,
    };
    Ok(Proxied::Header { len, client })
}

/// Reads the client's address, of `N` bytes: the two addresses come first, then the two ports.
fn addresses<const N: usize>(body: &[u8]) -> Result<SocketAddr, Error> {
    let bytes: &[u8; N] = body.first_chunk().ok_or_else(malformed)?;
    let ports = body.get(2 * N..2 * N + 4).ok_or_else(malformed)?;
    let mut wide = [0; 16];
    wide[..N].copy_from_slice(bytes);
    let ip = match N {
        4 => Ipv4Addr::from([wide[0], wide[1], wide[2], wide[3]]).into(),
        _ => Ipv6Addr::from(wide).into(),
    };
    Ok(SocketAddr::new(
        ip,
        u16::from_be_bytes([ports[0], ports[1]]),
    ))
}

fn malformed() -> Error {
    Error::bad("a malformed header of the PROXY protocol")
}
