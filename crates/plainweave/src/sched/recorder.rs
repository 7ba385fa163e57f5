//! A flight recorder: what each worker did last, for a trace.
//!
//! Each worker writes events (`sched/event`) into a ring of its own (`atomics/event_ring`), 16
//! bytes each, the newest over the oldest. Threads outside the pool share one ring behind a lock.
//! Any thread may copy all rings at any time, also when a worker is held up, and when the runtime
//! has ended.
//!
//! **Cost, off:** a worker has no [`Lane`], and asks so once a switch and once a wake-up; the word
//! lies beside others that it needs then. All that records is in functions of its own, out of the
//! way of the loop.
//!
//! **Cost, on:** two events a switch, one a wake-up, and a reading of the clock for each, but that
//! a switch from one fiber straight to the next is one point in time. The clock is the processor's
//! time stamp counter where the kernel keeps time by it, because then it is the same on all
//! processors and does not stop; else the kernel's.
//!
//! **Names** are recorded as events before the fiber runs, again after half a ring, so that
//! whatever is in the newer half has its name.

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::event::{Event, Stop, TIME_BITS, pieces};
use crate::atomics::event_ring::{Copied, EventRing};
use crate::fiber::{Header, Switch};
use crate::policy::{Ready, WorkerId};
use crate::sys;

/// Fibers whose names a worker remembers to have recorded; a power of two.
const NAMED: usize = 256;

/// The rings of a pool, and its clock.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// What the runtime's threads are called.
    pub(crate) name: String,
    pub(crate) clock: Clock,
    capacity: usize,
    /// For each worker, once it has started.
    rings: Box<[OnceLock<Arc<EventRing>>]>,
    outside: Mutex<Outside>,
}

#[derive(Debug)]
struct Outside {
    ring: EventRing,
    /// The thread that the last event is of.
    thread: u32,
}

/// The recorder's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Whether it reads the time stamp counter; else it counts nanoseconds.
    counter: bool,
    /// The counter at the epoch.
    first: u64,
    pub(crate) epoch: Instant,
}

/// From readings of the clock to nanoseconds since its epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    now: u64,
    nanos: u64,
    nanos_per_tick: f64,
}

impl Clock {
    fn new() -> Self {
        let counter = sys::counter_is_clock();
        Self {
            counter,
            first: if counter { sys::read_counter() } else { 0 },
            epoch: Instant::now(),
        }
    }

    #[inline]
    fn read(&self) -> u64 {
        let time = if self.counter {
            sys::read_counter().wrapping_sub(self.first)
        } else {
            self.epoch.elapsed().as_nanos() as u64
        };
        time & (u64::MAX >> (64 - TIME_BITS))
    }

    /// Returns the scale as of now.
    pub(crate) fn scale(&self) -> Scale {
        let now = self.read();
        let nanos = self.epoch.elapsed().as_nanos() as u64;
        let ticks = if self.counter {
            sys::read_counter().wrapping_sub(self.first)
        } else {
            nanos
        };

        Scale {
            now,
            nanos,
            nanos_per_tick: nanos as f64 / ticks.max(1) as f64,
        }
    }
}

impl Scale {
    /// Returns its own time in nanoseconds since the epoch.
    pub(crate) fn now_nanos(&self) -> u64 {
        self.nanos
    }

    /// Returns the time of a reading in nanoseconds since the epoch; of one that came after this
    /// scale, that of the scale.
    pub(crate) fn nanos(&self, time: u64) -> u64 {
        let ago = self.now.wrapping_sub(time) & (u64::MAX >> (64 - TIME_BITS));
        // Later than now: other processors have gone on meanwhile.
        let ago = if ago >> (TIME_BITS - 1) == 1 { 0 } else { ago };
        self.nanos
            .saturating_sub((ago as f64 * self.nanos_per_tick) as u64)
    }
}

impl Recorder {
    /// Creates one for that many workers, each with a ring for `capacity` events or a few more.
    pub(crate) fn new(name: String, workers: usize, capacity: usize) -> Arc<Self> {
        let capacity = capacity.next_power_of_two();
        let outside = Mutex::new(Outside {
            ring: EventRing::new(capacity),
            thread: 0,
        });

        let rings = (0..workers).map(|_| OnceLock::new()).collect();
        Arc::new(Self {
            name,
            clock: Clock::new(),
            capacity,
            rings,
            outside,
        })
    }

    /// Creates the lane of a worker.
    ///
    /// Context: once for each worker.
    pub(super) fn lane(self: &Arc<Self>, worker: WorkerId) -> Lane {
        let ring = self.rings[worker]
            .get_or_init(|| Arc::new(EventRing::new(self.capacity)))
            .clone();
        let named = std::array::from_fn(|_| Cell::new((u64::MAX, 0)));
        Lane {
            recorder: self.clone(),
            ring,
            switched: Cell::new(None),
            steals: Cell::new((0, 0)),
            named,
        }
    }

    /// Records that a thread outside the pool makes a fiber ready.
    #[cold]
    pub(super) fn ready_outside(&self, fiber: u64, why: Ready) {
        let thread = rustix::thread::gettid().as_raw_pid() as u32;
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        let time = self.clock.read();

        if outside.thread != thread {
            outside.thread = thread;
            outside.ring.write(
                Event::Thread {
                    number: thread.into(),
                }
                .encode(time),
            );
        }

        outside.ring.write(ready(fiber, why).encode(time));
    }

    /// Copies the rings: each worker's that has started, with its number, then that of the threads
    /// outside.
    pub(crate) fn copy(&self) -> (Vec<(WorkerId, Copied)>, Copied) {
        let started = self
            .rings
            .iter()
            .enumerate()
            .filter_map(|(worker, ring)| Some((worker, ring.get()?)));
        let workers = started
            .map(|(worker, ring)| (worker, ring.copy()))
            .collect();
        (
            workers,
            self.outside
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .ring
                .copy(),
        )
    }
}

/// How a fiber became ready.
fn ready(fiber: u64, why: Ready) -> Event {
    if why == Ready::Spawned {
        Event::Spawned { fiber }
    } else {
        Event::Woken { fiber }
    }
}

/// A worker's own part.
///
/// Context: its thread only.
pub(crate) struct Lane {
    recorder: Arc<Recorder>,
    ring: Arc<EventRing>,
    /// When the last fiber stopped, if nothing has come after that.
    switched: Cell<Option<u64>>,
    /// Steals that have been recorded, and the fibers that they brought.
    steals: Cell<(u64, u64)>,
    /// Fibers whose names have been recorded, and before which event.
    named: [Cell<(u64, u64)>; NAMED],
}

/// Steals of a worker so far, the fibers that they brought, and from whom the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steals {
    pub(super) count: u64,
    pub(super) fibers: u64,
    pub(super) victim: WorkerId,
}

impl Lane {
    fn write(&self, event: Event) {
        self.switched.set(None);
        self.ring.write(event.encode(self.recorder.clock.read()));
    }

    /// Forgets when the last fiber stopped: the worker does something else now.
    pub(super) fn leave(&self) {
        self.switched.set(None);
    }

    /// Records that the worker is about to run a fiber.
    pub(super) fn runs(&self, fiber: &Header, steals: Steals) {
        let time = self
            .switched
            .get()
            .unwrap_or_else(|| self.recorder.clock.read());
        let (count, fibers) = self.steals.replace((steals.count, steals.fibers));
        if count != steals.count {
            let stole = Event::Stole {
                victim: steals.victim,
                fibers: steals.fibers - fibers,
            };
            self.ring.write(stole.encode(time));
        }

        if fiber.is_named() {
            self.name(fiber);
        }
        self.ring
            .write(Event::Runs { fiber: fiber.id() }.encode(time));
    }

    fn name(&self, fiber: &Header) {
        let id = fiber.id();
        let now = self.ring.written();
        let slot = &self.named[id as usize % NAMED];
        let (named, at) = slot.get();
        if named != id || now - at > self.recorder.capacity as u64 / 2 {
            slot.set((id, now));
            pieces(fiber.name().unwrap_or_default()).for_each(|piece| self.ring.write(piece));
        }
    }

    /// Records that the fiber has left its stack.
    ///
    /// Context: the worker still owns the fiber.
    pub(super) fn stops(&self, fiber: &Header, how: Switch) {
        let time = self.recorder.clock.read();
        let why = Stop::new(how, fiber.own.waits.reason());
        self.ring.write(
            Event::Stops {
                fiber: fiber.id(),
                why,
            }
            .encode(time),
        );
        self.switched.set(Some(time));
    }

    /// Records that a fiber becomes ready.
    #[cold]
    #[inline(never)]
    pub(super) fn ready(&self, fiber: u64, why: Ready) {
        self.write(ready(fiber, why));
    }

    /// Returns the time, for [`Self::ready_at`].
    #[cold]
    #[inline(never)]
    pub(super) fn now(&self) -> u64 {
        self.recorder.clock.read()
    }

    /// Records that a fiber became ready at that time, since when nothing else has been recorded.
    #[cold]
    #[inline(never)]
    pub(super) fn ready_at(&self, time: u64, fiber: u64, why: Ready) {
        self.switched.set(None);
        self.ring.write(ready(fiber, why).encode(time));
    }

    /// Records that the worker falls asleep.
    pub(super) fn sleeps(&self) {
        self.write(Event::Sleeps);
    }

    /// Records that it is awake.
    pub(super) fn awake(&self) {
        self.write(Event::Awake);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_scale_goes_back_from_now() {
        let scale = Scale {
            now: 1000,
            nanos: 500,
            nanos_per_tick: 0.5,
        };

        assert_eq!(
            [1000, 0, 900, 1010].map(|time| scale.nanos(time)),
            [500, 0, 450, 500]
        );
        // Readings from before the wrap.
        let scale = Scale {
            now: 10,
            nanos: 500,
            nanos_per_tick: 1.0,
        };

        assert_eq!(scale.nanos((1 << TIME_BITS) - 90), 400);
    }

    #[test]
    fn both_clocks_keep_time() {
        for counter in [sys::counter_is_clock(), false] {
            let clock = Clock {
                counter,
                first: if counter { sys::read_counter() } else { 0 },
                epoch: Instant::now(),
            };

            let before = clock.epoch.elapsed().as_nanos() as u64;
            let reading = clock.read();
            std::thread::sleep(std::time::Duration::from_millis(5));
            let scale = clock.scale();
            let at = scale.nanos(reading);
            assert!(
                at + 4_000_000 <= scale.nanos(scale.now) && scale.nanos(scale.now) <= scale.nanos,
                "{scale:?}"
            );
            assert!(at + 2_000_000 > before, "{at} {before}");
        }
    }
}
