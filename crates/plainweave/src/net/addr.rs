//! Resolves names to addresses without blocking a worker.

use std::io;
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as _,
};

use crate::blocking::look_up;

/// Converts to socket addresses, as `std`'s trait of that name does, but a name lookup runs on a
/// thread of a pool that is only for that.
pub trait ToSocketAddrs {
    /// Returns the addresses, looking up a name if necessary.
    ///
    /// # Errors
    /// The text is not an address, the name cannot be resolved, or the caller was cancelled or ran
    /// into its deadline.
    ///
    /// Context: any thread or fiber; may suspend.
    fn resolve(&self) -> io::Result<Vec<SocketAddr>>;
}

macro_rules! at_hand {
    ($($t:ty),+) => {$(
        impl ToSocketAddrs for $t {
            fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
                Ok(self.to_socket_addrs()?.collect())
            }
        }
    )+};
}

at_hand!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
    &[SocketAddr]
);

impl ToSocketAddrs for str {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(addr) = self.parse() {
            return Ok(vec![addr]);
        }
        let name = self.to_owned();
        look_up(move || Ok(name.as_str().to_socket_addrs()?.collect()))
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.0.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.1)]);
        }
        let name = self.0.to_owned();
        let port = self.1;
        look_up(move || Ok((name.as_str(), port).to_socket_addrs()?.collect()))
    }
}

impl ToSocketAddrs for String {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        self.as_str().resolve()
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        (**self).resolve()
    }
}

/// Tries each address in turn; returns the last error if all fail.
pub(super) fn each<T>(
    addrs: &impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for addr in addrs.resolve()? {
        match attempt(addr) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}
