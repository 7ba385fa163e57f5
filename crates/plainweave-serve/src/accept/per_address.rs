//! How many of something each address has: connections, and requests in progress that many can come
//! by one connection.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts by address, with a bound for each of them.
#[derive(Debug)]
pub(crate) struct PerAddress {
    /// 0: any number, and nothing is counted.
    most: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// One that is counted, until it is dropped.
#[derive(Debug)]
pub struct Counted {
    /// Where it is counted, if there is a bound.
    by: Option<(Arc<PerAddress>, IpAddr)>,
}

impl PerAddress {
    /// Allows each address `most`; 0: any number.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            counts: Mutex::default(),
        })
    }

    /// Counts one more for the peer's address; `None`: it has its share. A peer without an address
    /// has no bound.
    pub(crate) fn begin(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<Counted> {
        let Some(peer) = peer.filter(|_| self.most > 0) else {
            return Some(Counted { by: None });
        };
        let address = peer.ip().to_canonical();
        let mut counts = self.lock();
        let count = counts.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        drop(counts);

        Some(Counted {
            by: Some((self.clone(), address)),
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some((counter, address)) = &self.by else {
            return;
        };
        let mut counts = counter.lock();
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}
