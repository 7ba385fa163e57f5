//! How often one address may ask: the generic cell rate algorithm (ITU-T I.371, annex A), which
//! keeps one time for each address.
//!
//! That time is when the address will have used up what it has asked for so far, if it goes on at
//! the allowed rate. Where it lies in the past, nothing needs to be kept. So what is kept is
//! bounded by what the allowed rate lets pile up, and by a number of addresses in any case: when a
//! part of the table is full of addresses that are all still counted, they begin anew.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Parts of the table, each with a lock.
const PARTS: usize = 16;
/// Addresses in all of them, 48 bytes each.
const MOST: usize = 1 << 16;

/// Until a burst is allowed again: such times are added to the clock's.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A rate, and how much of it each address has used.
#[derive(Debug)]
pub struct Rate {
    interval: Duration,
    /// How far ahead of the rate an address may be.
    ahead: Duration,
    parts: Box<[Mutex<HashMap<IpAddr, Instant>>]>,
    hasher: RandomState,
}

impl Rate {
    /// Allows `requests` in each `per`, and `burst` of them at once; neither is 0. `None`: that is
    /// faster or slower than times can say.
    #[must_use]
    pub fn new(requests: u32, per: Duration, burst: u32) -> Option<Self> {
        let interval = per / requests;
        let ahead = interval.checked_mul(burst - 1)?;
        let can_be = !interval.is_zero() && interval < LONGEST && ahead < LONGEST;
        can_be.then(|| Self {
            interval,
            ahead,
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        })
    }

    /// Counts one, unless the client is ahead of the rate: then says for how long it has to wait.
    ///
    /// # Errors
    /// It has to wait.
    pub fn take(&self, client: Option<SocketAddr>, now: Instant) -> Result<(), Duration> {
        self.change(client, now, |used| {
            self.allowed(used, now)?;
            Ok(Some(used + self.interval))
        })
    }

    /// Says for how long a client has to wait, and counts nothing.
    ///
    /// # Errors
    /// It has to wait.
    pub fn look(&self, client: Option<SocketAddr>, now: Instant) -> Result<(), Duration> {
        self.change(client, now, |used| self.allowed(used, now).map(|()| None))
    }

    /// Says for how long one has to wait who has used up what is allowed until `used`.
    fn allowed(&self, used: Instant, now: Instant) -> Result<(), Duration> {
        match used.duration_since(now).checked_sub(self.ahead) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }

    /// `change` gets the client's time and returns its new one.
    fn change(
        &self,
        client: Option<SocketAddr>,
        now: Instant,
        change: impl FnOnce(Instant) -> Result<Option<Instant>, Duration>,
    ) -> Result<(), Duration> {
        let Some(address) = client.map(|client| counted(client.ip())) else {
            return Ok(());
        };

        let part = self.hasher.hash_one(address) as usize % PARTS;
        let mut part = self.parts[part]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let used = part.get(&address).map_or(now, |used| now.max(*used));
        if let Some(used) = change(used)? {
            if part.len() >= MOST / PARTS && !part.contains_key(&address) {
                part.retain(|_, used| *used > now);
                if part.len() >= MOST / PARTS {
                    part.clear();
                }
            }
            part.insert(address, used);
        }

        Ok(())
    }
}

/// Returns what is counted as one address: of IPv6 a network of 64 bits, which one client has to
/// itself.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(bits).into()
        }

        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().unwrap(), 1))
    }

    #[test]
    fn an_address_has_its_burst_and_then_its_rate() {
        let rate = Rate::new(2, Duration::from_secs(1), 3).expect("a rate");
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for _ in 0..3 {
            assert!(rate.take(client("192.0.2.1"), at(0)).is_ok());
        }

        assert_eq!(
            rate.take(client("192.0.2.1"), at(0)),
            Err(Duration::from_millis(500))
        );

        assert!(rate.look(client("192.0.2.1"), at(499)).is_err());
        assert!(rate.take(client("192.0.2.2"), at(0)).is_ok());
        assert!(rate.take(client("192.0.2.1"), at(500)).is_ok());
        assert!(rate.take(client("192.0.2.1"), at(600)).is_err());
        assert!(rate.take(client("::ffff:192.0.2.1"), at(600)).is_err());
        for _ in 0..3 {
            assert!(rate.take(client("192.0.2.1"), at(9000)).is_ok());
        }

        assert!(rate.take(client("192.0.2.1"), at(9000)).is_err());
        assert!(rate.take(None, at(9000)).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let rate = Rate::new(1, Duration::from_secs(1), 1).expect("a rate");
        let now = Instant::now();
        assert!(rate.take(client("2001:db8::1"), now).is_ok());
        assert!(rate.take(client("2001:db8::2"), now).is_err());
        assert!(rate.take(client("2001:db8:0:1::1"), now).is_ok());
    }

    #[test]
    fn rates_that_no_clock_tells_are_refused() {
        let hours = Duration::from_secs(3600 * u64::from(u32::MAX));
        assert!(Rate::new(1, hours, u32::MAX).is_none());
        assert!(Rate::new(1, hours, 1).is_none());
        assert!(Rate::new(u32::MAX, Duration::from_millis(1), 1).is_none());
    }

    #[test]
    fn the_table_is_bounded() {
        let rate = Rate::new(1, Duration::from_secs(3600), 1).expect("a rate");
        let now = Instant::now();
        for n in 0..2 * MOST as u32 {
            let address = SocketAddr::new(IpAddr::from(n.to_be_bytes()), 1);
            assert!(rate.take(Some(address), now).is_ok());
        }

        let kept: usize = rate
            .parts
            .iter()
            .map(|part| part.lock().unwrap().len())
            .sum();
        assert!(kept <= MOST, "{kept}");
    }
}
