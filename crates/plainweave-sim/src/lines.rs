//! Cache lines: which worker has which, and what it costs to get one. The only source of contention in the simulator.
//!
//! **The model.** A line is in the caches of any number of workers that only read it, or of one that has written it. A
//! worker that has what an access needs *hits*. One that has not *misses*: the line travels, from the nearest worker
//! that has it for a read, and from the farthest for a write, which must hear from all that they have dropped it.
//!
//! **One at a time.** While a line travels nobody else gets it: later misses queue behind. That is what makes a word
//! that all workers write slower the more of them there are. Reads of a line that nobody writes overlap in part.
//!
//! **Stores** do not wait for their line: the processor buffers them. A fence and an atomic exchange wait for the
//! buffered ones.
//!
//! **What is left out.** Capacity (every cache is large enough), the bandwidth of links and of memory, prefetching, the
//! translation of addresses, several lines on their way for one worker at once.

use foldhash::{HashMap, HashMapExt};

use crate::costs::{Costs, Picos};
use crate::meter::Access;
use crate::policy::{Distance, Topology, WorkerId};

/// Bytes of a line. Neighbouring lines of 64 bytes travel together, as `crossbeam_utils::CachePadded` assumes too.
pub(crate) const LINE: usize = 128;

/// The most workers and outside threads of a machine.
pub(crate) const MAX_ACTORS: usize = 320;

const WORDS: usize = MAX_ACTORS / 64;

/// What an access came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// When the line has arrived.
    pub(crate) done: Picos,
    /// How much of that was waiting for others' transfers of the same line.
    pub(crate) queued: Picos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// One bit for each worker that has it.
    holders: [u64; WORDS],
    /// Whether the one holder may write it.
    exclusive: bool,
    /// When the transfer under way ends.
    busy: Picos,
}

impl Line {
    fn has(&self, actor: usize) -> bool {
        self.holders[actor / 64] & (1 << (actor % 64)) != 0
    }

    fn set_only(&mut self, actor: usize) {
        self.holders = [0; WORDS];
        self.holders[actor / 64] = 1 << (actor % 64);
    }

    fn others(&self, actor: usize) -> impl Iterator<Item = usize> + '_ {
        let bits = self.holders.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(word * 64 + bit as usize)
            })
        });
        bits.filter(move |holder| *holder != actor)
    }
}

/// All lines of a run.
#[derive(Debug)]
pub(crate) struct Lines {
    topology: Topology,
    lines: HashMap<u64, Line>,
}

impl Lines {
    pub(crate) fn new(topology: &Topology) -> Self {
        Self { topology: topology.clone(), lines: HashMap::new() }
    }

    /// Returns whether `actor` has what the access needs.
    pub(crate) fn hits(&self, actor: usize, line: u64, access: Access) -> bool {
        self.lines.get(&line).is_some_and(|line| line.has(actor) && (access == Access::Load || line.exclusive))
    }

    /// Brings a line to `actor` that it does not have, from `now` on, at `percent` of its cost.
    pub(crate) fn fetch(
        &mut self,
        actor: usize,
        line: u64,
        access: Access,
        now: Picos,
        costs: &Costs,
        percent: u64,
    ) -> Transfer {
        let topology = &self.topology;
        let far = |other: WorkerId| distance(topology, actor, other);
        let line = self.lines.entry(line).or_default();
        let read = access == Access::Load;
        let from = if read { line.others(actor).map(far).min() } else { line.others(actor).map(far).max() };
        let cost = match from {
            // It upgrades a line that it alone reads.
            None if line.has(actor) => costs.hit,
            None => costs.memory,
            Some(Distance::Same | Distance::Core) => costs.core,
            Some(Distance::Group) => costs.group,
            Some(Distance::Socket) => costs.socket,
            Some(Distance::Machine) => costs.machine,
        };
        let cost = cost * percent / 100;
        let begin = now.max(line.busy);
        let shared_read = read && !line.exclusive;
        line.busy = begin + if shared_read { cost * costs.read_share / 100 } else { cost };
        if read {
            line.holders[actor / 64] |= 1 << (actor % 64);
            line.exclusive = false;
        } else {
            line.set_only(actor);
            line.exclusive = true;
        }
        Transfer { done: begin + cost, queued: begin - now }
    }
}

/// Returns how far apart two actors are: threads outside the pool have the places of workers.
fn distance(topology: &Topology, a: usize, b: usize) -> Distance {
    let place = |actor| if actor < topology.workers { actor } else { actor % topology.workers };
    match topology.distance(place(a), place(b)) {
        Distance::Same if a != b => Distance::Group,
        distance => distance,
    }
}
