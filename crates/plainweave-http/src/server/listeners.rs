//! The listeners that a server accepts from, so that a stop can close them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;

use crate::transport::listener::{Address, Listener};

/// All of them.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<State>);

#[derive(Default)]
struct State {
    entries: Slab<Entry>,
    stopping: bool,
}

struct Entry {
    address: Option<Address>,
    close: Box<dyn Fn() + Send>,
}

impl Listeners {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a listener until the guard is dropped. After [`Self::close`] it is closed at once.
    pub(crate) fn add<L: Listener>(self: &Arc<Self>, listener: Arc<L>) -> Added {
        let address = listener.address();
        let mut state = self.lock();
        if state.stopping {
            listener.close();
        }
        let key = state.entries.insert(Entry {
            address,
            close: Box::new(move || listener.close()),
        });

        Added {
            list: self.clone(),
            key,
        }
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.lock()
            .entries
            .iter()
            .filter_map(|(_, entry)| entry.address.clone())
            .collect()
    }

    /// Closes all, now and from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.stopping = true;
        state.entries.iter().for_each(|(_, entry)| (entry.close)());
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").finish_non_exhaustive()
    }
}

/// A listener on the list, until it is dropped.
pub(crate) struct Added {
    list: Arc<Listeners>,
    key: usize,
}

impl Drop for Added {
    fn drop(&mut self) {
        drop(self.list.lock().entries.try_remove(self.key));
    }
}
