//! The shared pool of a runtime's stacks: carves slots, keeps free ones, cools them.
//!
//! `mod.rs` has the steps a free stack goes through. Two locks, never held together:
//!
//! - `free`: the three lists. Held for pushes and pops only; counting and dropping pages (system
//!   calls) happens outside, on stacks that are in no list meanwhile.
//! - `growth`: the slabs. Held over the guard's system call, 0.65 us once in the life of a slot.
//!
//! Workers come here for half a cache at a time, so either lock sees at most one visit per 64
//! stacks.
//!
//! *Bounds.* At most `max_stacks` slots are carved; of the free ones `max_free` are hot or warm,
//! the rest cold. So the memory kept in unused stacks is at most `max_free` stacks as their fibers
//! left them; after 200 ms without use at most `ALWAYS_HOT` such stacks and `max_free * WARM_BYTES`
//! (128 MiB by default, a quarter of that when fibers are shallow); after 2.4 s without use only
//! the `ALWAYS_HOT`.

#![cfg_attr(test, expect(unsafe_code, reason = "a test reads the slots' records"))]
#![cfg_attr(not(test), deny(unsafe_code))]

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::free::{ALWAYS_HOT, FreeLists, Left, WARM_BYTES};
use super::guard::{GuardKind, Guards};
#[cfg(test)]
use super::slab::SlotMeta;
use super::slab::{FIRST_SLOTS, Geometry, MAX_SLOTS, Slab};
use super::{Stack, StackConfig, checked_size};

/// Slots carved at once for a worker's cache: few, so that a small runtime does not pay for guards
/// it never uses.
const CARVE_BATCH: usize = 8;

/// The number of stacks in a worker's cache: written by its owner only, read by `stats`.
pub(super) type CachedCount = Arc<CachePadded<AtomicUsize>>;

/// A runtime's stacks; one per runtime.
#[derive(Debug)]
pub(crate) struct StackPool {
    id: u32,
    config: StackConfig,
    free: Mutex<FreeLists>,
    growth: Mutex<Growth>,
    caches: Mutex<Vec<CachedCount>>,
    high_water: AtomicUsize,
}

/// The slabs, the last of which is being carved.
#[derive(Debug)]
struct Growth {
    slabs: Vec<Slab>,
    guards: Guards,
    slots: usize,
}

/// Statistics of a pool, read list by list: exact while no stack is taken or put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackStats {
    /// Slots carved so far.
    pub(crate) slots: usize,
    /// Slots in use, or leaked.
    pub(crate) in_use: usize,
    /// Free slots, in the pool or in a worker's cache.
    pub(crate) free: usize,
    /// Mapped slabs.
    pub(crate) slabs: usize,
    /// How new stacks are guarded.
    pub(crate) guard: GuardKind,
    /// The deepest stack seen so far, in bytes: among those that cooled, the newest free ones, and
    /// those noted.
    pub(crate) high_water: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StackPool {
    /// Creates a pool, maps a first slab and carves its first slot, so a kernel that refuses shows
    /// here and not at the first fiber.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a size out of range or no stacks at all; `Unsupported` for
    /// `GuardMode::Madvise` on a kernel without it; the errors of `mmap`.
    pub(crate) fn new(config: StackConfig) -> io::Result<StackPool> {
        let guards = Guards::new(config.guard);
        Self::with_guards(config, guards)
    }

    pub(super) fn with_guards(config: StackConfig, guards: Guards) -> io::Result<StackPool> {
        static IDS: AtomicU32 = AtomicU32::new(1);
        let config = StackConfig {
            size: checked_size(config.size)?,
            ..config
        };

        if config.max_stacks == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a runtime needs at least one fiber stack",
            ));
        }

        let pool = StackPool {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            config,
            free: Mutex::new(FreeLists::new()),
            growth: Mutex::new(Growth {
                slabs: Vec::new(),
                guards,
                slots: 0,
            }),
            caches: Mutex::default(),
            high_water: AtomicUsize::new(0),
        };

        let first = pool.carve()?;
        locked(&pool.free).hot.extend([first]);
        Ok(pool)
    }

    /// Returns the configuration, with its size rounded up to pages.
    pub(crate) fn config(&self) -> &StackConfig {
        &self.config
    }

    /// Takes a stack with no owner. Takes a lock, and makes a few system calls when nothing is
    /// free.
    ///
    /// # Errors
    ///
    /// `QuotaExceeded` when `max_stacks` or `vm.max_map_count` is reached (the message says which
    /// and what to raise); the errors of `mmap` or the guard call.
    pub(crate) fn take(&self) -> io::Result<Stack> {
        let free = locked(&self.free).pop();
        free.map_or_else(|| self.carve(), Ok)
    }

    /// Gives back a stack of this pool that is no longer in use or pointed into. Takes a lock.
    pub(crate) fn put(&self, stack: Stack) {
        self.disown(&stack);
        self.put_batch(std::iter::once(stack));
    }

    /// Clears the owner of a stack that comes back.
    #[inline]
    pub(super) fn disown(&self, stack: &Stack) {
        debug_assert_eq!(
            stack.meta().pool.load(Ordering::Relaxed),
            self.id,
            "a stack of another pool"
        );
        stack.set_owner(std::ptr::null());
    }

    /// Moves up to `want` stacks to `into`, at least one. Fresh ones are carved only when nothing
    /// is free.
    pub(super) fn take_batch(&self, into: &mut Vec<Stack>, want: usize) -> io::Result<()> {
        {
            let mut free = locked(&self.free);
            into.extend(std::iter::from_fn(|| free.pop()).take(want));
        }
        if into.is_empty() {
            into.push(self.carve()?);
            // More are optional; a caller that needs them gets the error then.
            into.extend((1..want.min(CARVE_BATCH)).map_while(|_| self.carve().ok()));
        }
        Ok(())
    }

    /// Takes back stacks without owners; empties those above the limit.
    pub(super) fn put_batch(&self, stacks: impl Iterator<Item = Stack>) {
        let (warm, hot) = {
            let mut free = locked(&self.free);
            free.hot.extend(stacks);
            free.surplus(self.config.max_free)
        };
        self.empty(warm, hot);
    }

    /// Cools the stacks that have been unused long enough, at most `limit` of them, and says what
    /// is left to do.
    ///
    /// Makes a system call or two per stack. A pool on which it is not called keeps its stacks'
    /// memory.
    pub(crate) fn tidy(&self, limit: usize) -> Left {
        self.tidy_at(Instant::now(), limit)
    }

    pub(super) fn tidy_at(&self, now: Instant, limit: usize) -> Left {
        let (hot, warm) = {
            let mut free = locked(&self.free);
            free.look(now);
            let hot = free.hot.take_aged(limit);
            let warm = free.warm.take_aged(limit - hot.len());
            (hot, warm)
        };

        self.cool(hot);
        self.empty(warm, Vec::new());
        locked(&self.free).left()
    }

    /// Moves stacks from hot to warm; to cold where others have reached the limit meanwhile.
    fn cool(&self, stacks: Vec<Stack>) {
        if stacks.is_empty() {
            return;
        }
        for stack in &stacks {
            let depth = stack.high_water();
            self.note_high_water(depth);
            if depth > WARM_BYTES {
                stack.shrink(WARM_BYTES);
            }
        }

        let (warm, hot) = {
            let mut free = locked(&self.free);
            free.warm.extend(stacks);
            free.surplus(self.config.max_free)
        };

        self.empty(warm, hot);
    }

    /// Moves stacks from warm or hot to cold. Warm ones have been measured already.
    fn empty(&self, warm: Vec<Stack>, hot: Vec<Stack>) {
        hot.iter()
            .for_each(|stack| self.note_high_water(stack.high_water()));
        for mut stacks in [warm, hot] {
            stacks.iter().for_each(|stack| stack.shrink(0));
            if !stacks.is_empty() {
                locked(&self.free).cold.append(&mut stacks);
            }
        }
    }

    /// Includes a depth that the caller measured with [`Stack::high_water`] in the statistics.
    pub(crate) fn note_high_water(&self, depth: usize) {
        self.high_water.fetch_max(depth, Ordering::Relaxed);
    }

    /// Returns a fresh slot, from the last slab or from a new one.
    fn carve(&self) -> io::Result<Stack> {
        // Stacks in workers' caches are not in use: they must not prevent a fiber elsewhere from
        // starting.
        let cached: usize = locked(&self.caches)
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        let growth = &mut *locked(&self.growth);

        let max = self.config.max_stacks + cached;
        if growth.slots >= max {
            let limit = self.config.max_stacks;
            let message = format!(
                "all {limit} fiber stacks are taken; raise the limit or run fewer fibers at a time"
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }

        loop {
            if let Some(slab) = growth.slabs.last_mut()
                && let Some(stack) = slab.carve(&mut growth.guards, self.id)?
            {
                growth.slots += 1;
                return Ok(stack);
            }
            let slots = growth
                .slabs
                .last()
                .map_or(FIRST_SLOTS, |slab| (slab.slots() * 2).min(MAX_SLOTS));
            let slab = Slab::map(
                Geometry {
                    size: self.config.size,
                },
                slots.min(max - growth.slots),
            )?;
            growth.slabs.push(slab);
        }
    }

    /// Returns the statistics. Takes the locks and queries the pages of up to `ALWAYS_HOT` stacks:
    /// not for a hot path.
    pub(crate) fn stats(&self) -> StackStats {
        let (hot, pooled): (Vec<Stack>, usize) = {
            let free = locked(&self.free);
            (
                free.hot
                    .newest()
                    .take(ALWAYS_HOT)
                    .map(Stack::alias)
                    .collect(),
                free.len(),
            )
        };

        // A stack may be taken during the query: the result is then the depth of its new fiber,
        // which is also true.
        hot.iter()
            .for_each(|stack| self.note_high_water(stack.high_water()));
        let cached: usize = locked(&self.caches)
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        let growth = locked(&self.growth);
        let free = (pooled + cached).min(growth.slots);

        StackStats {
            slots: growth.slots,
            in_use: growth.slots - free,
            free,
            slabs: growth.slabs.len(),
            guard: growth.guards.kind(),
            high_water: self.high_water.load(Ordering::Relaxed),
        }
    }

    #[cfg(test)]
    /// Calls `f` with each owner that is set, in no particular order; `f` may use the pool.
    ///
    /// Nothing keeps an owner alive or in place meanwhile: a stack may be put back between the load
    /// and the call. The caller synchronises with `set_owner` and `put` (the workers are stopped,
    /// or owners are freed only after a grace period) before it follows the pointer.
    pub(crate) fn for_each_owner(&self, mut f: impl FnMut(*const ())) {
        let carved: Vec<_> = locked(&self.growth)
            .slabs
            .iter()
            .map(Slab::carved)
            .collect();
        for slots in carved {
            // SAFETY: slabs stay mapped as long as the pool, which `self` borrows; `SlotMeta` is
            // all atomics.
            let slots: &[SlotMeta] = unsafe { slots.as_ref() };
            for slot in slots {
                let owner = slot.owner.load(Ordering::Acquire);
                if !owner.is_null() {
                    f(owner);
                }
            }
        }
    }

    /// Registers a worker's cache with the statistics.
    pub(super) fn enroll(&self) -> CachedCount {
        let count = CachedCount::default();
        locked(&self.caches).push(Arc::clone(&count));
        count
    }

    /// Unregisters a worker's cache.
    pub(super) fn dismiss(&self, count: &CachedCount) {
        locked(&self.caches).retain(|other| !Arc::ptr_eq(other, count));
    }
}

impl Drop for StackPool {
    /// Unmaps every slab, unless a stack is still in use: then all stay, and stay known to the
    /// overflow handler.
    fn drop(&mut self) {
        let free = self
            .free
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .len();
        let growth = self
            .growth
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if free != growth.slots {
            growth.slabs.drain(..).for_each(Slab::leak);
        }
    }
}
