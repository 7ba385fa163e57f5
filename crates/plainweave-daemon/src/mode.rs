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

const MODES: [Mode; 4] = [
    mode(Movement::Never, Storage::Shared),
    Mode::DEFAULT,
    mode(Movement::BeforeStart, Storage::Own),
    mode(Movement::Anytime, Storage::Own),
];

const fn mode(movement: Movement, storage: Storage) -> Mode {
    Mode { movement, storage }
}

impl Mode {
    /// What has the cheapest switch.
    pub const DEFAULT: Mode = mode(Movement::BeforeStart, Storage::Shared);

    /// The most that spare workers take in any mode: by the runtime's default of `max_workers`,
    /// each a driver, its wake-up and what the watchdog waits on.
    pub const MOST_SPARE_DESCRIPTORS: usize = 64 * 3;

    /// The mode of a runtime.
    pub fn of(runtime: &Runtime) -> Self {
        mode(runtime.movement(), runtime.storage())
    }

    /// Returns how many descriptors spare workers may take, which come where fibers move at any
    /// time.
    pub fn spare_descriptors(self) -> usize {
        if self.movement == Movement::Anytime {
            Self::MOST_SPARE_DESCRIPTORS
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
            "never/shared",
            "before-start/shared",
            "before-start/own",
            "anytime/own",
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
                .ends_with("before-start/own, anytime/own")
        );
        assert_eq!(Mode::DEFAULT.to_string(), "before-start/shared");
    }
}
