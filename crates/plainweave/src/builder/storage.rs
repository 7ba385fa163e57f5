//! The two axes of `docs/soundness.md`: when fibers change workers, and whose thread-local storage
//! they see.

#![expect(unsafe_code, reason = "the `unsafe` settings of the builder")]

use std::io;

use super::{RuntimeBuilder, invalid};
use crate::context;
use crate::fiber::Movement;
use crate::fiber_local::Storage;

impl RuntimeBuilder {
    /// Sets when fibers migrate between workers. Default: [`Movement::Anytime`], so that ordinary
    /// code, which may block its thread, holds up no other fiber; on shared storage
    /// [`Movement::BeforeStart`], where `build` rejects `Anytime`, and only
    /// [`Self::movement_anytime`] enables it.
    pub fn movement(mut self, movement: Movement) -> Self {
        self.movement = Some(movement);
        self.movement_promised = false;
        self
    }

    /// Gives each fiber thread-local storage of its own (the default): to the language it is a
    /// thread, and [`Movement::Anytime`] is safe. `docs/fiber-local-storage.md` describes the cost,
    /// and what to know about C libraries and tools. Requires x86-64, Linux 5.9 and a shared glibc;
    /// elsewhere `build` returns an error that says why, and [`Self::shared_storage`] is the
    /// alternative.
    pub fn own_storage(mut self) -> Self {
        self.storage = Storage::Own;
        self
    }

    /// Lets started fibers migrate to other workers too, also on shared storage
    /// ([`Self::shared_storage`]). On fibers' own storage, `movement(Movement::Anytime)` does the
    /// same and is safe.
    ///
    /// # Safety
    /// On shared storage (`docs/soundness.md`): on this runtime no reference into a thread-local
    /// may live across a suspension, and no function may use a thread-local both before and after
    /// one: the compiler keeps the address of a thread-local across calls. Nothing that is not
    /// `Send` may live across a suspension either: the fiber resumes on another thread, and the
    /// compiler does not see that.
    pub unsafe fn movement_anytime(mut self) -> Self {
        self.movement = Some(Movement::Anytime);
        self.movement_promised = true;
        self
    }

    /// Lets fibers share their worker's thread-local storage. This saves two register writes per
    /// switch and 5 KiB per fiber; on some platforms it is the only possibility.
    ///
    /// # Safety
    /// No fiber of this runtime holds a guard of scoped thread-local storage (such as `scoped-tls`'
    /// `set` or an entered `tracing` span) across a suspension, unless the guards on each worker
    /// end in the reverse order of their creation.
    pub unsafe fn shared_storage(mut self) -> Self {
        self.storage = Storage::Shared;
        self
    }

    /// Returns when fibers migrate: as the caller has chosen, or as suits the storage.
    pub(super) fn chosen_movement(&self) -> Movement {
        self.movement.unwrap_or(match self.storage {
            Storage::Own => Movement::Anytime,
            Storage::Shared => Movement::BeforeStart,
        })
    }

    /// Checks that movement and storage go together, and that the platform supports that storage.
    pub(super) fn check_storage(&self) -> io::Result<()> {
        context::available()?;
        match (self.storage, self.chosen_movement()) {
            (Storage::Own, _) => Storage::Own.supported().map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!(
                        "own_storage: {error}; choose shared storage, `unsafe RuntimeBuilder::shared_storage`"
                    ),
                )
            }),
            (Storage::Shared, Movement::Anytime) if !self.movement_promised => Err(invalid(
                "movement: Movement::Anytime is not safe on shared thread-local storage; give fibers their own \
                 (own_storage), or promise the contract of the unsafe movement_anytime"
                    .to_owned(),
            )),
            (Storage::Shared, _) => Ok(()),
        }
    }
}
