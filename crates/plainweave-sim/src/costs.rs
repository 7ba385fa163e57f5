//! What things cost on a simulated machine, in nanoseconds. `docs/simulator.md` names the source of
//! each figure.
//!
//! Simulated time is counted in picoseconds, so that costs below a nanosecond add up.

/// A time or a duration, in picoseconds.
pub(crate) type Picos = u64;

/// Picoseconds in a nanosecond.
pub(crate) const NANO: Picos = 1_000;
/// Picoseconds in a microsecond.
pub(crate) const MICRO: Picos = 1_000 * NANO;

/// Picoseconds in a millisecond.
pub(crate) const MILLI: Picos = 1_000 * MICRO;

/// The cost model. Nothing here is measured by a run: these are the constants that a run assumes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Costs {
    /// A load or store that finds its line in the worker's own cache.
    pub(crate) hit: Picos,
    /// What an atomic read-modify-write costs on top of having the line.
    pub(crate) exchange: Picos,
    /// A full fence, on top of waiting for the worker's stores.
    pub(crate) fence: Picos,
    /// A line from the cache of a worker on the same core.
    pub(crate) core: Picos,
    /// A line from a worker that shares the last-level cache.
    pub(crate) group: Picos,
    /// A line from another group of the same socket.
    pub(crate) socket: Picos,
    /// A line from another socket.
    pub(crate) machine: Picos,
    /// A line that no worker has.
    pub(crate) memory: Picos,
    /// For how much of its transfer a line that is only read keeps other readers waiting, in
    /// percent. One that is written keeps everybody waiting for all of it.
    pub(crate) read_share: u64,
    /// One turn of a loop that spins.
    pub(crate) spin: Picos,
    /// What a push or a pop of a policy costs beside its shared words.
    pub(crate) queue: Picos,
    /// Switching to a fiber and back.
    pub(crate) switch: Picos,
    /// What a switch takes longer if the fiber's stack is not in the worker's cache (`stacks`).
    /// Nothing by default, as for the next two: the published figures do not tell them. `plainweave
    /// bench predict` fits them.
    pub(crate) away: Picos,
    /// The same if the fiber begins on such a stack.
    pub(crate) fresh: Picos,
    /// What a fiber that waits and the one that wakes it do for that, both together, beside their
    /// shared words, a push and a switch.
    pub(crate) park: Picos,
    /// Waking a worker that sleeps: what the waker spends on it.
    pub(crate) signal: Picos,
    /// The same: how long the sleeper takes from then on.
    pub(crate) wake: Picos,
    /// What a sleep of a worker's thread takes beyond its time. Measured: `nanosleep` of 500 ns
    /// takes 80 to 90 us on a stock kernel.
    pub(crate) nap: Picos,
    /// What a thief spends on each victim that it looks at, beside the words that it reads: the
    /// draw, the loop.
    pub(crate) look: Picos,
    /// What a worker that never sleeps waits between two searches.
    pub(crate) search: Picos,
    /// What a spawner of packets does for each, beside the push. **Fitted** to the highest
    /// published peak of `packets`, 1.55 million a second, which one spawner cannot exceed.
    pub(crate) create: Picos,
    /// A task that scans the shortest packet, all of it. **Fitted** to the published 0.33 million
    /// packets a second at 5 domains, four of which run handlers.
    pub(crate) scan: Picos,
    /// What each longer packet adds to that, in proportion to its length.
    pub(crate) longer: Picos,
    /// Creating a fiber and ending it, beside its push, pop and switch, in the workloads whose
    /// tasks do little else. Derived: a spawn and join takes this runtime 58 ns (`bench micro`),
    /// less its switch and its queue.
    pub(crate) task: Picos,
    /// What a call of `fib` computes itself. Assumed: a comparison, an addition, a counter.
    pub(crate) call: Picos,
    /// What building a leaf of an option's tree takes: a power and a maximum. Measured on the
    /// developer's machine, an EPYC: 9 ns in a tree of 20 time steps, 34 in one of 5,000.
    pub(crate) leaf: Picos,
    /// What folding a node of an option's tree takes; a time step folds all of them. Measured on
    /// the same machine, in a loop that the compiler vectorises: 0.2 ns in a tree of 2,000 time
    /// steps, 0.5 in one of 5,000.
    pub(crate) node: Picos,
    /// By how much transfers vary, in percent to either side, drawn by the seed.
    pub(crate) jitter: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            hit: NANO,
            exchange: 5 * NANO,
            fence: 8 * NANO,
            core: 8 * NANO,
            group: 25 * NANO,
            socket: 95 * NANO,
            machine: 200 * NANO,
            memory: 95 * NANO,
            read_share: 30,
            spin: 10 * NANO,
            queue: 3 * NANO,
            switch: 10 * NANO,
            away: 0,
            fresh: 0,
            park: 0,
            signal: 700 * NANO,
            wake: 4 * MICRO,
            nap: 80 * MICRO,
            look: 3 * NANO,
            search: 10 * NANO,
            create: 500 * NANO,
            scan: 11_000 * NANO,
            longer: 160 * NANO,
            task: 40 * NANO,
            call: 5 * NANO,
            leaf: 20 * NANO,
            node: NANO / 2,
            jitter: 10,
        }
    }
}

/// The costs that can be changed, by name.
const NAMES: &[&str] = &[
    "hit",
    "exchange",
    "fence",
    "core",
    "group",
    "socket",
    "machine",
    "memory",
    "read-share",
    "spin",
    "queue",
    "switch",
    "away",
    "fresh",
    "park",
    "signal",
    "wake",
    "nap",
    "look",
    "search",
    "create",
    "scan",
    "longer",
    "task",
    "call",
    "leaf",
    "node",
    "jitter",
];

/// The longest that something may take, a millisecond: the clocks of the longest runs do not
/// overflow by far.
const MOST: f64 = 1e6;

impl Costs {
    /// Sets the constant of a name.
    ///
    /// # Errors
    /// There is none of that name, or the value makes no sense: a message that says what is
    /// allowed.
    pub(crate) fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        let Some((place, unit)) = self.place(name) else {
            return Err(format!(
                "no cost is called '{name}'; there are: {}",
                NAMES.join(", ")
            ));
        };
        let (most, of) = if unit == 1 {
            (100.0, "percent")
        } else {
            (MOST, "nanoseconds")
        };
        // Time must pass while a worker waits.
        let least = if matches!(name, "spin" | "search") {
            1.0
        } else {
            0.0
        };
        if !(least..=most).contains(&value) {
            return Err(format!(
                "the cost '{name}' is {value}: {least} to {most} {of} are allowed"
            ));
        }
        *place = (value * unit as f64).round() as Picos;
        Ok(())
    }

    /// Returns where the constant of a name is kept, and its unit; 1: percent.
    fn place(&mut self, name: &str) -> Option<(&mut Picos, Picos)> {
        let place = match name {
            "hit" => &mut self.hit,
            "exchange" => &mut self.exchange,
            "fence" => &mut self.fence,
            "core" => &mut self.core,
            "group" => &mut self.group,
            "socket" => &mut self.socket,
            "machine" => &mut self.machine,
            "memory" => &mut self.memory,
            "read-share" => return Some((&mut self.read_share, 1)),
            "spin" => &mut self.spin,
            "queue" => &mut self.queue,
            "switch" => &mut self.switch,
            "away" => &mut self.away,
            "fresh" => &mut self.fresh,
            "park" => &mut self.park,
            "signal" => &mut self.signal,
            "wake" => &mut self.wake,
            "nap" => &mut self.nap,
            "look" => &mut self.look,
            "search" => &mut self.search,
            "create" => &mut self.create,
            "scan" => &mut self.scan,
            "longer" => &mut self.longer,
            "task" => &mut self.task,
            "call" => &mut self.call,
            "leaf" => &mut self.leaf,
            "node" => &mut self.node,
            "jitter" => return Some((&mut self.jitter, 1)),
            _ => return None,
        };
        Some((place, NANO))
    }
}
