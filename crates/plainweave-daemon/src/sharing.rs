//! Which listening sockets are not this process's alone: it may not shut them down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plainweave_serve::Address;

/// What all of a server's listeners look at.
#[derive(Clone, Debug, Default)]
pub struct Sharing(Arc<Who>);

#[derive(Debug, Default)]
struct Who {
    /// A service manager has these too, under their names.
    managed: Vec<(String, Address)>,
    /// Another process has all of them, or is being given them.
    handed_over: AtomicBool,
}

impl Sharing {
    /// For a server that has these sockets of a service manager.
    pub(crate) fn new(managed: Vec<(String, Address)>) -> Self {
        Self(Arc::new(Who {
            managed,
            handed_over: AtomicBool::new(false),
        }))
    }

    /// Returns whether the service manager has the socket that listens here.
    pub(crate) fn is_managed(&self, address: &Address) -> bool {
        self.managed_name(address).is_some()
    }

    /// Returns what the service manager calls the socket that listens here, if it has it.
    pub(crate) fn managed_name(&self, address: &Address) -> Option<&str> {
        let mut managed = self.0.managed.iter();
        let found = managed.find(|(_, managed)| managed == address);
        found.map(|(name, _)| &**name)
    }

    /// Returns whether another process has the sockets, and their files.
    pub fn is_handed_over(&self) -> bool {
        self.0.handed_over.load(Ordering::SeqCst)
    }

    /// Notes whether it has, before it does and after it no longer does.
    pub(crate) fn set_handed_over(&self, so: bool) {
        self.0.handed_over.store(so, Ordering::SeqCst);
    }
}
