//! When measured fibers move, and whose thread-local storage they see: every result states it.
//!
//! Two modes are `unsafe` to choose. They are what other systems' published figures are measured
//! in, so they are measured here too, and this is the one file of the benches with that word.

#![expect(
    unsafe_code,
    reason = "promises the contracts of shared storage and free movement for the benches"
)]

use anyhow::{Context, Result};
use plainweave::{Movement, Runtime, RuntimeBuilder};

/// A mode of `docs/soundness.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// Movement, a slash, storage.
    pub(crate) name: &'static str,
    movement: Movement,
    own: bool,
}

const fn mode(name: &'static str, movement: Movement, own: bool) -> Mode {
    Mode {
        name,
        movement,
        own,
    }
}

impl Mode {
    /// What has the cheapest switch, and what the cache chooses.
    pub(crate) const SHARED: Mode = mode("before-start/shared", Movement::BeforeStart, false);

    /// What the library chooses, and the web server.
    pub(crate) const DEFAULT: Mode = mode("anytime/own", Movement::Anytime, true);

    const ALL: [Mode; 6] = [
        Self::SHARED,
        mode("never/shared", Movement::Never, false),
        mode("anytime/shared", Movement::Anytime, false),
        mode("before-start/own", Movement::BeforeStart, true),
        mode("never/own", Movement::Never, true),
        Self::DEFAULT,
    ];

    /// # Errors
    /// No mode has that name; the message lists those there are.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        let known = || Self::ALL.map(|mode| mode.name).join(", ");
        let found = Self::ALL.into_iter().find(|mode| mode.name == name);
        found.with_context(|| format!("no mode is called '{name}'; there are: {}", known()))
    }

    /// Returns a runtime's settings in this mode.
    pub(crate) fn builder(self) -> RuntimeBuilder {
        let builder = Runtime::builder().report_stalls(false);
        match (self.movement, self.own) {
            (movement, true) => builder.own_storage().movement(movement),
            // SAFETY: no fiber of the benches holds a guard of scoped thread-local storage; they
            // use no thread-locals. What they hold across a suspension is `Send`: the workloads'
            // futures are required to be.
            (Movement::Anytime, false) => unsafe { builder.shared_storage().movement_anytime() },
            // SAFETY: as above.
            (movement, false) => unsafe { builder.shared_storage() }.movement(movement),
        }
    }
}
