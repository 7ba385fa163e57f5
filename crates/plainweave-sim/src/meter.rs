//! Where simulated workers meet simulated time: every shared word that they touch, every turn of a
//! loop that spins, and every sleep comes through here.
//!
//! **How a run goes.** Each worker is a coroutine with a clock of its own. A queue of events says
//! which worker goes on when; the engine always resumes the one with the earliest time. A worker
//! that is ahead of that queue gives way before it touches a line that it does not have, so
//! transfers of lines happen in the order of simulated time, and two workers that race for a word
//! do so in an order that the machine could have shown. Between such points it runs on without a
//! switch: words in its own cache concern nobody else.
//!
//! **How exact.** A worker runs at most [`SKEW`] ahead on its own lines. What another worker writes
//! in that span it may see late by as much, which is less than one transfer between caches.
//!
//! **How a run ends.** Never by unwinding a worker out of the policy, whose code expects to unwind
//! only where it panics itself. A pop that waits for its turn in `queue/mpmc` holds a ticket; if it
//! vanished there, the queue's `Drop` would take every slot between `head` and `tail` for a task.
//! So simulated time goes on after the last fiber has ended: sleepers wake, calls of the policy
//! return as always, those that spin included, and each worker stops between two of them, when it
//! sees [`is_ending`]. Once all have stopped, nobody holds a ticket, a claim or a lock, and the
//! policy is dropped in a state in which the runtime would drop it too. If a checker objects,
//! before or after the last fiber's end (its bound on a livelock ends a spin that nobody will end),
//! no worker is resumed again: all of them are leaked, and the policy with them
//! ([`Actor`](crate::engine::Actor)), so no destructor meets what a call has left half done.
//!
//! **One run a thread.** Policies reach the meter through their atomics, which have no room for a
//! reference to it, so it is a variable of the thread. Outside a run, and for what the engine
//! itself does, it is off: nothing is charged.

#![expect(
    unsafe_code,
    reason = "a simulated worker finds the way out of its coroutine"
)]

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic;
use std::ptr;

use corosensei::Yielder;

use crate::costs::{Costs, NANO, Picos};
use crate::lines::{Access, LINE, Lines};
use crate::machine::Machine;

/// How far a worker may run ahead of the others on lines that are its own.
const SKEW: Picos = 100 * NANO;

/// What the workers' accesses came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Lines that travelled.
    pub(crate) transfers: u64,
    /// Time that workers waited for lines.
    pub(crate) waited: Picos,
    /// How much of that was for others' transfers of the same line.
    pub(crate) queued: Picos,
    /// Victims that thieves looked at, those without tasks included.
    pub(crate) looks: u64,
    /// Events of the simulation.
    pub(crate) events: u64,
}

/// The time, the lines and the queue of events of one run.
pub(crate) struct Meter {
    costs: Costs,
    lines: Lines,
    random: Random,
    /// Each actor's clock.
    clocks: Vec<Picos>,
    /// When the last store of each has arrived.
    stored: Vec<Picos>,
    /// The number of the event that each waits for; events with other numbers are out of date.
    awaited: Vec<u64>,
    events: BinaryHeap<Reverse<(Picos, u64, usize)>>,
    next_event: u64,
    /// Which actor runs.
    current: Option<usize>,
    /// The run ends: workers stop between two operations.
    ending: bool,
    pub(crate) traffic: Traffic,
}

thread_local! {
    static METER: RefCell<Option<Box<Meter>>> = const { RefCell::new(None) };
    /// The way out of the coroutine that runs.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

impl Meter {
    fn new(machine: &Machine, actors: usize, seed: u64) -> Self {
        Self {
            costs: machine.costs.clone(),
            lines: Lines::new(&machine.topology, actors),
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            clocks: vec![0; actors],
            stored: vec![0; actors],
            awaited: vec![0; actors],
            events: BinaryHeap::new(),
            next_event: 1,
            current: None,
            ending: false,
            traffic: Traffic::default(),
        }
    }

    /// Lets `actor` go on at `time`, in place of whatever it waited for.
    fn schedule(&mut self, actor: usize, time: Picos) {
        self.awaited[actor] = self.next_event;
        self.events.push(Reverse((time, self.next_event, actor)));
        self.next_event += 1;
    }

    /// Returns when the next of the others goes on.
    fn horizon(&mut self) -> Picos {
        // An actor that was woken sooner has left its old event in the heap. To take it out there
        // would be a search.
        while let Some(Reverse((time, number, actor))) = self.events.peek() {
            if self.awaited[*actor] == *number {
                return *time;
            }
            self.events.pop();
        }
        Picos::MAX
    }

    fn vary(&mut self, cost: Picos) -> Picos {
        cost * self.random.percent(self.costs.jitter) / 100
    }

    /// Charges an access to the running actor. Returns false, and charges nothing, if the actor
    /// must give way first.
    fn charge(&mut self, actor: usize, line: u64, access: Access) -> bool {
        let clock = self.clocks[actor];
        let horizon = self.horizon();
        let found = self.lines.find(actor, line, access);
        let hits = found.hits();
        // A hit moves no line, so its order among others' accesses matters little, and fewer
        // switches between actors make the simulator faster.
        let ahead = if hits { SKEW } else { 0 };
        if clock > horizon.saturating_add(ahead) {
            return false;
        }
        // It empties the buffer of stores first, as on x86.
        let ready = if access == Access::Exchange {
            clock.max(self.stored[actor])
        } else {
            clock
        };

        let mut done = ready + self.costs.hit;
        if !hits {
            let transfer = found.fetch(ready, &self.costs, self.random.percent(self.costs.jitter));
            self.traffic.transfers += 1;
            self.traffic.queued += transfer.queued;

            if access == Access::Store {
                // A store waits in its buffer while its worker goes on.
                self.stored[actor] = self.stored[actor].max(transfer.done);
            } else {
                self.traffic.waited += transfer.done - ready;
                done = transfer.done;
            }
        }

        if access == Access::Exchange {
            done += self.costs.exchange;
        }
        self.clocks[actor] = done;
        true
    }
}

/// Draws by which costs vary.
struct Random(u64);

impl Random {
    /// Returns a number of percent that is at most `jitter` from 100.
    fn percent(&mut self, jitter: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        100 - jitter + self.0 % (2 * jitter + 1)
    }
}

/// Calls `f` with the run's meter and the actor that runs, if there is one.
fn charged<R>(f: impl FnOnce(&mut Meter, usize) -> R) -> Option<R> {
    METER.with_borrow_mut(|meter| {
        let meter = meter.as_mut()?;
        let actor = meter.current?;
        Some(f(meter, actor))
    })
}

/// Charges an access to the word at `at`.
#[inline]
pub(crate) fn touch<T>(at: *const T, access: Access) {
    touch_line((at as usize / LINE) as u64, access);
}

/// Charges an access to a line with a number of its own: [`own_line`] makes such numbers.
pub(crate) fn touch_line(line: u64, access: Access) {
    // An actor that unwinds must not let others run: to them, their thread would be panicking.
    while charged(|meter, actor| meter.charge(actor, line, access)) == Some(false)
        && !std::thread::panicking()
    {
        give_way();
    }
}

/// Returns the number of a line that no word of the process lies on.
pub(crate) fn own_line(number: u64) -> u64 {
    (1 << 62) + number
}

/// Waits until the running actor's stores have arrived.
pub(crate) fn fence() {
    charged(|meter, actor| {
        meter.clocks[actor] = meter.clocks[actor].max(meter.stored[actor]) + meter.costs.fence;
    });
}

/// Spends time.
pub(crate) fn spend(time: Picos) {
    charged(|meter, actor| meter.clocks[actor] += time);
}

/// Spends time that varies by the machine's jitter.
pub(crate) fn spend_about(time: Picos) {
    charged(|meter, actor| meter.clocks[actor] += meter.vary(time));
}

/// Spends what a look at a victim costs.
pub(crate) fn look() {
    charged(|meter, actor| {
        meter.clocks[actor] += meter.costs.look;
        meter.traffic.looks += 1;
    });
}

/// Spends one turn of a loop that waits for another worker.
pub(crate) fn spin() {
    if charged(|meter, actor| meter.clocks[actor] += meter.costs.spin).is_some() {
        give_way();
    }
}

/// Spends time, and lets all others go on that are due until then.
pub(crate) fn run_for(time: Picos) {
    spend(time);
    give_way();
}

/// Suspends the running actor until the others have caught up. If there are no others, the engine
/// sees what it waits for will not come.
fn give_way() {
    let waits = charged(|meter, actor| {
        let clock = meter.clocks[actor];
        let horizon = meter.horizon();
        // Without any others it waits too: the engine then resumes it, or ends the run.
        let waits = clock > horizon || horizon == Picos::MAX;
        if waits {
            meter.schedule(actor, clock);
        }
        waits
    });

    if waits == Some(true) {
        suspend();
    }
}

/// Suspends the running actor until `time`, or until [`wake`] names it.
pub(crate) fn sleep(until: Option<Picos>) {
    let sleeps = charged(|meter, actor| match until {
        Some(time) => meter.schedule(actor, time.max(meter.clocks[actor])),
        // No event has the number 0, so only `wake` makes another one.
        None => meter.awaited[actor] = 0,
    });

    if sleeps.is_some() {
        suspend();
    }
}

/// Spends what it costs to signal a thread.
pub(crate) fn signal() {
    charged(|meter, actor| meter.clocks[actor] += meter.vary(meter.costs.signal));
}

/// Ends the sleep of `actor`, which goes on once the kernel has woken its thread.
pub(crate) fn wake(actor: usize) {
    charged(|meter, current| meter.schedule(actor, meter.clocks[current] + meter.costs.wake));
}

/// Returns which actor runs; none outside a run.
pub(crate) fn actor() -> Option<usize> {
    charged(|_, actor| actor)
}

/// Returns the running actor's time; 0 outside a run.
pub(crate) fn now() -> Picos {
    charged(|meter, actor| meter.clocks[actor]).unwrap_or(0)
}

/// Returns whether the run is ending: a worker stops, and does not sleep any more.
pub(crate) fn is_ending() -> bool {
    METER.with_borrow(|meter| meter.as_ref().is_some_and(|meter| meter.ending))
}

fn suspend() {
    let yielder = YIELDER.get();
    // SAFETY: only an actor that is charged suspends, and it runs on its coroutine. `enter` has set
    // the pointer to that coroutine's yielder, which lives as long as its stack; every resume of it
    // sets the pointer again, below.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

/// Runs `body` on the coroutine that `yielder` leads out of. Returns the message of a panic in it.
pub(crate) fn enter(yielder: &Yielder<(), ()>, body: impl FnOnce()) -> Result<(), String> {
    YIELDER.set(yielder);
    panic::catch_unwind(panic::AssertUnwindSafe(body)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// A run's hold on the meter of this thread.
pub(crate) struct Installed(());

impl Installed {
    /// Installs a meter for `actors` actors, all of which are due at time 0.
    pub(crate) fn new(machine: &Machine, actors: usize, seed: u64) -> Self {
        let mut meter = Meter::new(machine, actors, seed);
        (0..actors).for_each(|actor| meter.schedule(actor, 0));
        METER.set(Some(Box::new(meter)));
        Self(())
    }

    fn with<R>(&self, f: impl FnOnce(&mut Meter) -> R) -> R {
        METER.with_borrow_mut(|meter| f(meter.as_mut().expect("installed until this is dropped")))
    }

    /// Takes the next event: the actor to resume, and its time.
    pub(crate) fn next(&self) -> Option<(usize, Picos)> {
        self.with(|meter| {
            meter.horizon();
            let Reverse((time, _, actor)) = meter.events.pop()?;
            meter.awaited[actor] = 0;
            // It may have run ahead of its event, on lines of its own.
            meter.clocks[actor] = meter.clocks[actor].max(time);
            meter.current = Some(actor);
            meter.traffic.events += 1;
            Some((actor, time))
        })
    }

    /// Begins the end of the run at `now`: of its `actors`, those that sleep wake. Returns the
    /// traffic until then.
    pub(crate) fn end(&self, actors: impl Iterator<Item = usize>, now: Picos) -> Traffic {
        self.with(|meter| {
            meter.ending = true;
            for actor in actors {
                if meter.awaited[actor] == 0 {
                    meter.schedule(actor, now);
                }
            }
            meter.traffic
        })
    }

    /// Turns the meter off while the engine itself works.
    pub(crate) fn pause(&self) {
        self.with(|meter| meter.current = None);
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        METER.set(None);
    }
}
