//! The two axes of `docs/soundness.md`: when fibers change workers, and whose thread-local storage they see.

use std::io;

use super::{RuntimeBuilder, invalid};
use crate::fiber::Movement;
use crate::fiber_local::{self, Storage};

impl RuntimeBuilder {
    /// When fibers change workers. Default: [`Movement::BeforeStart`]. [`Movement::Anytime`] goes with
    /// [`Self::own_storage`]; on shared storage it is an error of `build`, as only [`Self::movement_anytime`] gives it.
    pub fn movement(mut self, movement: Movement) -> Self {
        self.movement = movement;
        self.movement_promised = false;
        self
    }

    /// Gives each fiber thread-local storage of its own, the default: to the language it is a thread, and
    /// [`Movement::Anytime`] is safe. `docs/fiber-local-storage.md` has what it costs, and what of C libraries and
    /// tools to know. Where the platform cannot do it (it takes x86-64, Linux 5.9 and a shared glibc), `build` returns
    /// an error that says why; there is [`Self::shared_storage`] then.
    pub fn own_storage(mut self) -> Self {
        self.storage = Storage::Own;
        self
    }

    /// Lets started fibers move to other workers too, on shared storage as well ([`Self::shared_storage`]). With
    /// storage of their own, `movement(Movement::Anytime)` does the same and is safe.
    ///
    /// # Safety
    /// On shared storage (`docs/soundness.md`): on this runtime no reference into a thread-local may live across a
    /// suspension, and no function may use a thread-local both before and after one: the compiler keeps the address of
    /// a thread-local across calls. Nothing that is not `Send` may live across a suspension either: the fiber goes on
    /// on another thread, and the compiler does not see that.
    pub unsafe fn movement_anytime(mut self) -> Self {
        self.movement = Movement::Anytime;
        self.movement_promised = true;
        self
    }

    /// Lets fibers share their worker's thread-local storage, for a switch that is faster by the writes of a register
    /// and fibers that are smaller by 5 KiB; on some platforms it is all there is.
    ///
    /// # Safety
    /// No fiber of this runtime holds a guard of scoped thread-local storage (as `scoped-tls`' `set` or an entered
    /// `tracing` span) across a suspension, unless guards of one worker end in the reverse order of their beginnings.
    pub unsafe fn shared_storage(mut self) -> Self {
        self.storage = Storage::Shared;
        self
    }

    /// Whether movement and storage go together, and the platform has that storage.
    pub(super) fn check_storage(&self) -> io::Result<()> {
        match (self.storage, self.movement) {
            (Storage::Own, _) => fiber_local::available(),
            (Storage::Shared, Movement::Anytime) if !self.movement_promised => Err(invalid(
                "movement: Movement::Anytime is not safe on shared thread-local storage; give fibers their own \
                 (own_storage), or promise the contract of the unsafe movement_anytime"
                    .to_owned(),
            )),
            (Storage::Shared, _) => Ok(()),
        }
    }
}
