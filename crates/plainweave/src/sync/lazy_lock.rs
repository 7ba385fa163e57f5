//! A value that its first use computes.

use std::fmt;
use std::io;
use std::ops::Deref;

use super::OnceLock;

/// A value that is computed when it is first used, in the shape of [`std::sync::LazyLock`], by an
/// initialiser that may wait: for fibers and plain threads.
///
/// The initialiser is an `Fn`, where `std` takes an `FnOnce`: if it panics, the next use runs it
/// again. Otherwise as for [`OnceLock`]: one that uses its own value panics.
///
/// ```
/// use plainweave::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
/// plainweave::run(|| assert_eq!(SQUARES[3], 9));
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceLock<T>,
    init: F,
}

impl<T, F: Fn() -> T> LazyLock<T, F> {
    /// Creates a value that `init` will compute.
    #[must_use]
    pub const fn new(init: F) -> Self {
        Self {
            cell: OnceLock::new(),
            init,
        }
    }

    /// Returns the value; computes it first, or waits for another fiber that does so, whatever
    /// happens to the caller.
    ///
    /// # Panics
    /// The initialiser panicked, or uses this value.
    ///
    /// Context: any thread or fiber; may suspend.
    #[inline]
    pub fn force(this: &Self) -> &T {
        this.cell
            .get()
            .unwrap_or_else(|| this.cell.init_always(&this.init))
    }

    /// Returns the value like [`Self::force`], but heeds cancellation and deadlines.
    ///
    /// # Errors
    /// The caller was cancelled ([`crate::is_cancelled`]) or ran into its deadline
    /// ([`io::ErrorKind::TimedOut`]) while it waited for another that computes the value.
    ///
    /// # Panics
    /// As for [`Self::force`].
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn try_force(this: &Self) -> io::Result<&T> {
        this.cell.get_or_init(&this.init)
    }
}

impl<T, F> LazyLock<T, F> {
    /// Returns the value, if it has been computed. Never waits.
    pub fn get(this: &Self) -> Option<&T> {
        this.cell.get()
    }
}

impl<T, F: Fn() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::get(self) {
            Some(value) => f.debug_tuple("LazyLock").field(value).finish(),
            None => f.write_str("LazyLock(not computed)"),
        }
    }
}
