//! Whose thread-local storage measured fibers see, and when they move: every result states it.

use plainweave::{Movement, Runtime, RuntimeBuilder};

/// A mode of `docs/soundness.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The worker's storage; a fiber moves until it starts.
    Shared,
    /// Its own; it moves until it starts.
    Own,
    /// Its own; it moves at any time.
    OwnAnytime,
    /// The worker's storage; it moves at any time. For comparison only.
    SharedAnytime,
}

impl Mode {
    pub(crate) const ALL: [Mode; 4] = [Mode::Shared, Mode::Own, Mode::OwnAnytime, Mode::SharedAnytime];

    /// The system's name in reports.
    pub(crate) fn system(self) -> &'static str {
        match self {
            Mode::Shared => "plainweave",
            Mode::Own => "plainweave-own",
            Mode::OwnAnytime => "plainweave-own-anytime",
            Mode::SharedAnytime => "plainweave-shared-anytime",
        }
    }

    /// Of the system that has this name.
    pub(crate) fn of_system(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.system() == name)
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Mode::Shared => "movement before start; thread-local storage shared with the worker",
            Mode::Own => "movement before start; thread-local storage of its own",
            Mode::OwnAnytime => "movement at any time; thread-local storage of its own",
            Mode::SharedAnytime => "movement at any time; thread-local storage shared with the worker",
        }
    }

    /// A runtime's settings in this mode.
    pub(crate) fn builder(self) -> RuntimeBuilder {
        let builder = Runtime::builder();
        match self {
            // SAFETY: no fiber of the benches holds a guard of scoped thread-local storage; they use no thread-locals.
            Mode::Shared => unsafe { builder.shared_tls() },
            Mode::Own => builder.own_tls(),
            Mode::OwnAnytime => builder.own_tls().movement(Movement::Anytime),
            // SAFETY: as above; what they hold across a suspension is `Send`, and `std`'s thread-locals are used within
            // calls that do not suspend.
            Mode::SharedAnytime => unsafe { builder.shared_tls().movement_anytime() },
        }
    }
}
