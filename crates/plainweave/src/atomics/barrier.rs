//! Two barriers of different weight, for two sides of which one comes seldom: the light one only
//! stops the compiler; the heavy one, `membarrier(2)`, makes every running thread of the process
//! pass a full barrier, on the other side's behalf. Where the kernel refuses it from the start,
//! both are fences; and in models.

use crate::shim::atomic::{Ordering, fence};
use crate::shim::compiler_fence;

/// The barrier of the side that comes often. `asymmetric` is what [`register`] has returned.
#[inline(always)]
pub(crate) fn light(asymmetric: bool) {
    if asymmetric {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The barrier of the side that comes seldom. Returns false if there was none: the kernel may lack
/// memory, or a seccomp filter may have been installed since [`register`].
pub(crate) fn heavy(asymmetric: bool) -> bool {
    if asymmetric {
        pass()
    } else {
        fence(Ordering::SeqCst);
        true
    }
}

#[cfg(not(loom))]
mod kernel {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Registers the process for the kernel's barrier and returns whether it is available. Call it
    /// before the first barrier.
    pub(crate) fn register() -> bool {
        static THERE: OnceLock<bool> = OnceLock::new();
        *THERE.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
    }

    pub(super) fn pass() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(loom)]
mod kernel {
    pub(crate) fn register() -> bool {
        false
    }

    pub(super) fn pass() -> bool {
        false
    }
}

use kernel::pass;
pub(crate) use kernel::register;
