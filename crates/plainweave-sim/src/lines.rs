//! Cache lines: which worker has which, and what it costs to get one. The only source of contention
//! in the simulator.
//!
//! **The model.** A line is in the caches of any number of workers that only read it, or of one
//! that has written it. A worker that has what an access needs *hits*. One that has not *misses*:
//! the line travels, from the nearest worker that has it for a read, and from the farthest for a
//! write, which must hear from all that they have dropped it.
//!
//! **One at a time.** While a line travels nobody else gets it: later misses queue behind. That is
//! what makes a word that all workers write slower the more of them there are. Reads of a line that
//! nobody writes overlap in part.
//!
//! **Stores** do not wait for their line: the processor buffers them. A fence and an atomic
//! exchange wait for the buffered ones.
//!
//! **What is left out.** Capacity (every cache is large enough), the bandwidth of links and of
//! memory, prefetching, the translation of addresses, several lines on their way for one worker at
//! once.

use foldhash::{HashMap, HashMapExt};

use crate::costs::{Costs, Picos};
use crate::policy::{Distance, Topology};

/// What is done to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read.
    Load,
    /// It is written.
    Store,
    /// It is read, and then written by a plain store.
    Update,
    /// It is read and written in one step.
    Exchange,
}

/// Bytes of a line. Neighbouring lines of 64 bytes travel together, as
/// `crossbeam_utils::CachePadded` assumes too.
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

/// A set of actors, one bit for each.
type Set = [u64; WORDS];

fn meet(a: &Set, b: &Set) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

fn reaches_beyond(a: &Set, b: &Set) -> bool {
    a.iter().zip(b).any(|(a, b)| a & !b != 0)
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// The workers that have it.
    holders: Set,
    /// Whether the one holder may write it.
    exclusive: bool,
    /// When the transfer under way ends.
    busy: Picos,
}

impl Line {
    fn has(&self, actor: usize) -> bool {
        self.holders[actor / 64] & (1 << (actor % 64)) != 0
    }

    fn others(&self, actor: usize) -> Set {
        let mut others = self.holders;
        others[actor / 64] &= !(1 << (actor % 64));
        others
    }

    fn set_only(&mut self, actor: usize) {
        self.holders = [0; WORDS];
        self.holders[actor / 64] = 1 << (actor % 64);
    }
}

/// Which others are near an actor; each set contains the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Near {
    core: Set,
    group: Set,
    socket: Set,
}

impl Near {
    fn of(actor: usize, actors: usize, topology: &Topology) -> Self {
        let mut near = Self::default();
        for other in (0..actors).filter(|other| *other != actor) {
            let bit = 1 << (other % 64);
            let far = distance(topology, actor, other);
            for (set, reach) in [
                (&mut near.core, Distance::Core),
                (&mut near.group, Distance::Group),
                (&mut near.socket, Distance::Socket),
            ] {
                set[other / 64] |= if far <= reach { bit } else { 0 };
            }
        }
        near
    }

    /// Returns what a line costs that comes from the nearest of `holders`.
    fn nearest(&self, holders: &Set, costs: &Costs) -> Picos {
        match () {
            () if meet(holders, &self.core) => costs.core,
            () if meet(holders, &self.group) => costs.group,
            () if meet(holders, &self.socket) => costs.socket,
            () => costs.machine,
        }
    }

    /// Returns what a line costs that comes from the farthest of `holders`.
    fn farthest(&self, holders: &Set, costs: &Costs) -> Picos {
        match () {
            () if reaches_beyond(holders, &self.socket) => costs.machine,
            () if reaches_beyond(holders, &self.group) => costs.socket,
            () if reaches_beyond(holders, &self.core) => costs.group,
            () => costs.core,
        }
    }
}

/// All lines of a run.
#[derive(Debug)]
pub(crate) struct Lines {
    /// By actor.
    near: Vec<Near>,
    lines: HashMap<u64, Line>,
}

impl Lines {
    pub(crate) fn new(topology: &Topology, actors: usize) -> Self {
        let near = (0..actors)
            .map(|actor| Near::of(actor, actors, topology))
            .collect();
        Self {
            near,
            lines: HashMap::new(),
        }
    }

    /// Looks up a line for an access by `actor`.
    pub(crate) fn find(&mut self, actor: usize, line: u64, access: Access) -> Found<'_> {
        Found {
            actor,
            access,
            near: &self.near[actor],
            line: self.lines.entry(line).or_default(),
        }
    }
}

/// A line, and what an actor wants of it.
pub(crate) struct Found<'a> {
    actor: usize,
    access: Access,
    near: &'a Near,
    line: &'a mut Line,
}

impl Found<'_> {
    /// Returns whether the actor has what the access needs.
    pub(crate) fn hits(&self) -> bool {
        self.line.has(self.actor) && (self.access == Access::Load || self.line.exclusive)
    }

    /// Brings the line to the actor, which does not have it, from `now` on, at `percent` of its
    /// cost.
    pub(crate) fn fetch(self, now: Picos, costs: &Costs, percent: u64) -> Transfer {
        let Self {
            actor,
            access,
            near,
            line,
        } = self;
        let read = access == Access::Load;
        let others = line.others(actor);
        let cost = match () {
            // It upgrades a line that it alone reads.
            () if others == [0; WORDS] && line.has(actor) => costs.hit,
            () if others == [0; WORDS] => costs.memory,
            () if read => near.nearest(&others, costs),
            // A write has to wait until all of them have given it up.
            () => near.farthest(&others, costs),
        };

        let cost = cost * percent / 100;
        // One transfer of a line at a time: this is what makes a contended word slow.
        let begin = now.max(line.busy);
        // Caches that have a line for reading answer several readers at a time.
        let shared_read = read && !line.exclusive;
        line.busy = begin
            + if shared_read {
                cost * costs.read_share / 100
            } else {
                cost
            };

        if read {
            line.holders[actor / 64] |= 1 << (actor % 64);
            line.exclusive = false;
        } else {
            line.set_only(actor);
            line.exclusive = true;
        }

        Transfer {
            done: begin + cost,
            queued: begin - now,
        }
    }
}

/// Returns how far apart two actors are: threads outside the pool have the places of workers.
fn distance(topology: &Topology, a: usize, b: usize) -> Distance {
    let place = |actor| {
        if actor < topology.workers {
            actor
        } else {
            actor % topology.workers
        }
    };

    match topology.distance(place(a), place(b)) {
        // An outside thread in a worker's place: another thread all the same.
        Distance::Same if a != b => Distance::Group,
        distance => distance,
    }
}
