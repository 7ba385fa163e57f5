//! `--mode`: when fibers may move between workers, and whose thread-local storage they see.

use std::fmt;

use plainweave::{Movement, Runtime, Storage};

/// A mode, by the names of `plainweave bench micro --modes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// When a fiber may move to another worker.
    pub movement: Movement,
    /// Whose thread-local storage a fiber sees.
    pub storage: Storage,
}

const MODES: [Mode; 5] = [
    ANYTIME,
    mode(Movement::BeforeStart, Storage::Own),
    mode(Movement::Never, Storage::Own),
    Mode::SHARED,
    mode(Movement::Never, Storage::Shared),
];
/// The library's default.
const ANYTIME: Mode = mode(Movement::Anytime, Storage::Own);

const fn mode(movement: Movement, storage: Storage) -> Mode {
    Mode { movement, storage }
}

impl Mode {
    /// What has the cheapest switch, and fibers that are bound to their thread.
    pub const SHARED: Mode = mode(Movement::BeforeStart, Storage::Shared);

    /// Returns the library's mode, where fibers can have storage of their own
    /// ([`Storage::supported`]), else [`Self::SHARED`].
    pub fn usual() -> Self {
        match Storage::Own.supported() {
            Ok(()) => ANYTIME,
            Err(_) => Self::SHARED,
        }
    }

    /// The most that spare workers take in any mode: by the runtime's default of `max_workers`,
    /// each a driver, its wake-up and what the watchdog waits on.
    const MOST_SPARE_DESCRIPTORS: usize = 64 * 3;

    /// The mode of a runtime.
    pub fn of(runtime: &Runtime) -> Self {
        mode(runtime.movement(), runtime.storage())
    }

    /// Returns how many of a number of descriptors are kept for spare workers, which come where
    /// fibers move at any time: for the most of them, as far as an eighth is enough. One that finds
    /// none does not start.
    pub fn spare_descriptors(self, descriptors: usize) -> usize {
        if self.movement == Movement::Anytime {
            Self::MOST_SPARE_DESCRIPTORS.min(descriptors / 8)
        } else {
            0
        }
    }

    /// Finds a mode by its name; the message says what is valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = MODES.map(|mode| mode.to_string()).join(", ");
        if text == mode(Movement::Anytime, Storage::Shared).to_string() {
            let why = "a fiber that goes on on another worker would find that worker's thread-locals \
                       (docs/soundness.md of the sources)";
            return Err(format!("it is unsafe: {why}; choose among {known}"));
        }
        MODES
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(|| format!("choose among {known}"))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let movement = match self.movement {
            Movement::Never => "never",
            Movement::BeforeStart => "before-start",
            _ => "anytime",
        };

        write!(
            f,
            "{movement}/{}",
            if self.storage == Storage::Own {
                "own"
            } else {
                "shared"
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in [
            "anytime/own",
            "before-start/own",
            "never/own",
            "before-start/shared",
            "never/shared",
        ] {
            assert_eq!(
                Mode::parse(name).map(|mode| mode.to_string()),
                Ok(name.to_owned())
            );
        }

        assert!(
            Mode::parse("anytime/shared")
                .unwrap_err()
                .starts_with("it is unsafe: ")
        );
        assert!(
            Mode::parse("anytime")
                .unwrap_err()
                .ends_with("before-start/shared, never/shared")
        );
    }
}
