//! Whether a socket is likely to have another datagram.

use std::sync::atomic::{AtomicU8, Ordering};

/// A guess, from what was found before. Where one is likely, it is received directly, which costs
/// half of what a ring's entry does. An attempt in vain costs a quarter, so each that follows
/// another comes after twice as many receives, 16 at most.
///
/// Threads beside each other may lose a change.
#[derive(Debug, Default)]
pub(super) struct Likely {
    /// The low half counts the receives to pass over, the high half the attempts in vain.
    misses: AtomicU8,
    /// How many were found one after the other.
    found: AtomicU8,
}

impl Likely {
    const MOST_MISSES: u8 = 4;
    /// Found one after the other: then others get their turn.
    const MOST_FOUND: u8 = 32;

    /// Returns whether to try; counts.
    pub(super) fn is_so(&self) -> bool {
        let state = self.misses.load(Ordering::Relaxed);
        if state & 0xf == 0 {
            return true;
        }
        self.misses.store(state - 1, Ordering::Relaxed);
        false
    }

    /// Notes that there was one. Returns whether others are to get their turn: a flood ends no wait.
    pub(super) fn was_so(&self) -> bool {
        let found = self.found.load(Ordering::Relaxed) + 1;
        let is_flood = found >= Self::MOST_FOUND;
        self.found
            .store(if is_flood { 0 } else { found }, Ordering::Relaxed);
        if self.misses.load(Ordering::Relaxed) != 0 {
            self.misses.store(0, Ordering::Relaxed);
        }
        is_flood
    }

    /// Notes that there was none.
    pub(super) fn was_not_so(&self) {
        self.found.store(0, Ordering::Relaxed);
        let misses = (self.misses.load(Ordering::Relaxed) >> 4) + 1;
        let misses = misses.min(Self::MOST_MISSES);
        let passes = (1 << misses) - 1;
        self.misses.store(misses << 4 | passes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the next receives are tried, as a text.
    fn tries(likely: &Likely, found: impl Fn(usize) -> bool) -> String {
        let step = |at| match likely.is_so() {
            true if found(at) => match likely.was_so() {
                true => '*',
                false => '+',
            },
            true => {
                likely.was_not_so();
                '-'
            }
            false => '.',
        };
        (0..40).map(step).collect()
    }

    #[test]
    fn attempts_in_vain_become_rare() {
        let likely = Likely::default();
        assert_eq!(
            tries(&likely, |_| false),
            "-.-...-.......-...............-........."
        );
        // One that is found makes them as frequent as ever; after many others get their turn.
        assert_eq!(
            tries(&likely, |_| true),
            "......+++++++++++++++++++++++++++++++*++"
        );
        assert_eq!(
            tries(&likely, |at| at % 8 != 7),
            "+++++++-.++++++-.++++++-.++++++-.++++++-"
        );
    }
}
