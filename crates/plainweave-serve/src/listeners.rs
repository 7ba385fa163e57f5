//! The listeners that a server accepts from, so that a stop can close them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;

use crate::listener::{Address, Listener};

/// All of them.
#[derive(Default)]
pub struct Listeners(Mutex<State>);

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
    pub fn add<L: Listener>(self: &Arc<Self>, listener: Arc<L>) -> Listed {
        self.add_loop(listener, || ())
    }

    /// Does the same for a loop that is waited for, until `release` is called: a socket that others
    /// share does not end it.
    pub(crate) fn add_loop<L: Listener>(
        self: &Arc<Self>,
        listener: Arc<L>,
        release: impl Fn() + Send + 'static,
    ) -> Listed {
        let address = listener.address();
        let close = move || match listener.is_shared() {
            true => release(),
            false => listener.close(),
        };
        let mut state = self.lock();
        if state.stopping {
            close();
        }
        let key = state.entries.insert(Entry {
            address,
            close: Box::new(close),
        });

        Listed {
            list: self.clone(),
            key,
        }
    }

    /// Returns where they listen.
    pub fn addresses(&self) -> Vec<Address> {
        self.lock()
            .entries
            .iter()
            .filter_map(|(_, entry)| entry.address.clone())
            .collect()
    }

    /// Closes all, now and from now on.
    pub fn close(&self) {
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
#[derive(Debug)]
pub struct Listed {
    list: Arc<Listeners>,
    key: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        drop(self.list.lock().entries.try_remove(self.key));
    }
}
