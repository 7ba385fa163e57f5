//! What runs next: one small trait, one small file per policy.
//!
//! A policy is generic over the task type, so the worker loop, the simulator and unit tests share
//! its code. It has a shared half (`&self`), for stealing and for pushes from other threads, and
//! one `Local` per worker, passed as `&mut` so that only its worker can use it. It never sleeps,
//! never wakes, never switches: its answer to a push says which workers to wake ([`Wake`]); waking
//! them is for `sched/sleep`.
//!
//! **Where to begin.** `work_stealing` has the default policy, which is called `fifo`.
//! [`GlobalFifo`] is the smallest. [`thesis`] has the variants of work stealing from a thesis on
//! OCaml's schedulers, and others, as parameters of one family.
//!
//! **Pinned tasks** ([`Task::pinned`]) may run on one worker only. The loop pushes such a task on
//! that worker alone (wake-ups by other threads travel through its inbox), and the policy keeps it
//! where thieves do not look ([`Pinned`]). [`Movement`](crate::Movement) decides whether a task is
//! pinned once it has run, so a policy must not assume that it is.
//!
//! **By name.** [`PRESETS`] lists the policies that have a name; `NAME:param=value,...` changes
//! parameters of one ([`Choice::parse`]). The one `match` from a name to a type is
//! [`Choice::visit`]: the runtime, the conformance suite and all other code that drives policies by
//! name go through it.

use std::ops::Range;

mod counts; // What a policy counts: steals, spills, retries, help.
mod deadline; // The earliest deadline.
mod global; // One queue for all.
mod helping; // Lanes of a worker, and help for workers that fall behind (CFA).
mod helping_params; // The constants of `helping`.
mod local; // Each worker by itself.
mod multi_queue; // The better of two random lanes.
mod observed; // Any policy, observed: how long ready tasks wait, and who goes before them.
mod pct; // Priorities that are drawn, for tests.
mod pinned; // What all policies do with pinned tasks and with yields.
mod placement; // Where a task starts that then stays there.
mod priority; // The most urgent; waiting adds urgency.
mod ranked; // The smallest key first.
mod registry; // The named policies, and the type behind each name.
mod settings; // Parameters as text.
mod shares; // In proportion to weights.
mod stamped; // Lanes that tell how long their oldest task has waited.
#[cfg(test)]
mod tests;
pub mod thesis; // Work stealing with parameters: the variants of a thesis and of others.
mod tiers; // Two policies, one before the other.
mod work_stealing; // The default: work stealing, first in, first out.

pub use counts::Counts;
pub use deadline::{Deadline, DeadlineParams, Edf};
pub use global::GlobalFifo;
pub use helping::Helping;
pub use helping_params::{Average, HelpingParams};
pub use local::{Local, LocalParams, Place, TakeOrder};
pub use multi_queue::{MultiQueue, MultiQueueParams};
pub use observed::{Numbered, Observed, ObservedParams, Observer, Waits};
pub use pinned::Pinned;
pub use placement::Load;
pub use priority::{Ageing, Priority, PriorityParams};
pub use ranked::{Rank, Ranked};
pub use registry::{Choice, Conservation, Family, FamilyName, PRESETS, Preset, Visitor};
pub use settings::Key;
pub use shares::{Shares, Stride};
pub use tiers::{Tiers, TiersLocal, TiersParams};
pub use work_stealing::{WorkStealing, WorkStealingLocal, WorkStealingParams};

/// A worker's number within its pool, from 0.
pub type WorkerId = usize;

/// A moment by the clock of a pool, or a span of its time: nanoseconds, the moments since its epoch.
pub type Nanos = u64;

/// What a policy may ask of a task.
pub trait Task: Send {
    /// The one worker that may run it, if it is pinned to one.
    fn pinned(&self) -> Option<WorkerId>;
    /// Where it ran last; spare workers do not count.
    fn last_worker(&self) -> Option<WorkerId>;
    /// The time stamp that the policy gave it, on [`Cx::now`]'s clock or another of its own; 0
    /// before the first.
    fn stamp(&self) -> Nanos;
    /// Gives it a time stamp.
    fn set_stamp(&self, now: Nanos);
    /// How urgent it is: 255 is the most; [`PRIORITY`] unless it was set.
    fn priority(&self) -> u8 {
        PRIORITY
    }
    /// By when it should have run, on [`Cx::now`]'s clock; `None` if it does not matter.
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    /// Its share of the processor beside others, never 0; [`WEIGHT`] unless it was set.
    fn weight(&self) -> u32 {
        WEIGHT
    }
}

/// The priority of a task that was given none: the middle.
pub const PRIORITY: u8 = 128;

/// The weight of a task that was given none.
pub const WEIGHT: u32 = 100;

/// How far apart two workers are: the nearest level that both are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// It is the same worker.
    Same,
    /// They share a core.
    Core,
    /// They share a last-level cache.
    Group,
    /// They share a socket.
    Socket,
    /// They are on different sockets.
    Machine,
}

/// The machine as a policy sees it.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Workers in the pool, at least one; spare ones do not count.
    pub workers: usize,
    /// Workers that share a core, at least one: workers 0 to `core - 1` are on the first, and so
    /// on.
    ///
    /// Here and below: workers are not pinned to processors, so this is what the machine has, not
    /// what the kernel must keep to.
    pub core: usize,
    /// Workers that share a last-level cache, a multiple of `core`.
    pub group: usize,
    /// Workers that share a socket, a multiple of `group`.
    pub socket: usize,
    /// Whether spare workers may come and go: threads that pop by [`Policy::pop_spare`].
    pub spares: bool,
}

impl Topology {
    /// `workers` workers behind one cache.
    #[must_use]
    pub fn flat(workers: usize) -> Self {
        let all = workers.max(1);
        Self {
            workers,
            core: 1,
            group: all,
            socket: all,
            spares: false,
        }
    }

    /// Returns how far apart two workers are.
    #[must_use]
    pub fn distance(&self, a: WorkerId, b: WorkerId) -> Distance {
        let share = |level: usize| a / level == b / level;
        match () {
            () if a == b => Distance::Same,
            () if share(self.core) => Distance::Core,
            () if share(self.group) => Distance::Group,
            () if share(self.socket) => Distance::Socket,
            () => Distance::Machine,
        }
    }

    /// Whether there is one worker and never another, so that nobody but it pops.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        self.workers == 1 && !self.spares
    }

    /// The workers of `worker`'s cache group.
    #[must_use]
    pub fn group_of(&self, worker: WorkerId) -> Range<WorkerId> {
        let first = worker - worker % self.group;
        first..(first + self.group).min(self.workers)
    }
}

/// Why a task is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It has never run.
    Spawned,
    /// It was waiting for something that has come.
    Woken,
    /// It ran until now and gives way.
    Yielded,
    /// The same, and it asks to stay with its worker (a *soft* yield).
    YieldedLocal,
    /// The same, and it asks for a queue that all workers share and poll on a schedule (a *hard*
    /// yield).
    YieldedShared,
}

impl Ready {
    /// Returns whether the task ran until now and gives way, wherever it asks to wait.
    #[inline(always)]
    #[must_use]
    pub fn is_yield(self) -> bool {
        matches!(
            self,
            Ready::Yielded | Ready::YieldedLocal | Ready::YieldedShared
        )
    }
}

/// Which workers a push should wake, if they sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// No worker: the pushing one itself pops the task soon.
    None,
    /// Any worker that could take it.
    Any,
    /// This worker.
    Worker(WorkerId),
}

/// How hard a pop should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Own and shared queues.
    Quick,
    /// Other workers' queues as well.
    Search,
}

/// What the loop lends to a policy: its last reading of the clock, random numbers, counters. One a
/// worker.
#[derive(Debug)]
pub struct Cx {
    now: Nanos,
    random: u64,
    /// Tasks placed by load.
    placements: usize,
    /// The worker whose tasks were taken last.
    victim: WorkerId,
    /// What the policy has done so far.
    pub counts: Counts,
    event: bool,
}

impl Cx {
    /// `seed` makes a run's draws repeatable.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Splitmix's finaliser: neighbouring seeds give unrelated sequences; never zero, which
        // xorshift cannot leave.
        let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self {
            now: 0,
            random: (z ^ (z >> 31)) | 1,
            placements: 0,
            victim: 0,
            counts: Counts::default(),
            event: false,
        }
    }

    /// Returns the loop's last reading of the clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The loop (or a test) has read the clock.
    pub fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Returns whether pushes come from a completion or a timer: from the worker's loop, where no
    /// fiber is the spawner.
    #[must_use]
    pub fn handles_event(&self) -> bool {
        self.event
    }

    /// Sets [`Self::handles_event`]; returns what it was.
    pub fn set_handles_event(&mut self, event: bool) -> bool {
        std::mem::replace(&mut self.event, event)
    }

    /// A number below `n`, which is not 0 (Marsaglia's xorshift64*, Lemire's reduction).
    pub fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let high = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high * n as u64) >> 32) as usize
    }
}

/// When a fiber that leaves its stack goes on with the next one directly, and the policy is called
/// on their stacks: see [`Policy::DIRECT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectSwitch {
    /// Never: the policy is called on its worker's stack.
    Never,
    /// When it waits or ends.
    Waits,
    /// When it yields, too: the next one is popped before it is pushed.
    Always,
}

impl DirectSwitch {
    /// Returns what two policies allow that stand for one, if the first is asked before the second:
    /// then what yields must be pushed first, since it may come before all that is in the second.
    #[must_use]
    pub const fn before(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            _ => Self::Waits,
        }
    }
}

/// A scheduling policy: it keeps the ready tasks and decides which of them a worker runs next. It
/// never sleeps, wakes or switches; its answer to a push says which workers to wake.
///
/// The runtime stays sound whatever a policy does:
/// * A task that is dropped before its fiber has started is refused: its `join` gives an error.
///   Dropping a task whose fiber has started ends the process with a message, because its frames
///   may hold what others wait for.
/// * A task that comes out of `pop` on a worker where it must not run (it is pinned elsewhere, or
///   belongs to another runtime) ends the process with a message, and so does a panic in `push`,
///   `pop`, `maybe_ready` or `place`. `build_with` passes a panic in `new` on and makes an error of
///   one in `attach`. After a panic in `drain` the policy has given up all that it will.
/// * A task that is kept for ever waits for ever, and so does whatever joins its fiber.
pub trait Policy<T: Task>: Send + Sync + Sized + 'static {
    /// What distinguishes presets of the policy.
    type Params: Clone + Send;
    /// The owner's half.
    type Local: Send;

    /// Whether [`Self::pop_spare`] finds what the search of any worker would, its local half aside.
    /// Only then does the runtime add spare workers: a pusher counts on any worker that searches.
    ///
    /// Provided: false.
    const SPARES: bool = false;

    /// When fibers go on with one another directly, which takes half the switches. `pop`, and the
    /// `push` of the fiber that has yielded, are then called on a fiber's stack and with its
    /// thread-local storage. So they must not block or suspend, and take little of the stack: a few
    /// hundred bytes, and a few KiB where they seldom come.
    ///
    /// [`DirectSwitch::Always`] changes the order of two calls where a fiber yields: `pop`, then
    /// the `push` of the one that yields. It is for policies whose `pop` hands out the same task in
    /// both orders, unless that is the one that yields, or a queue is full. If the push says
    /// [`Wake::None`] of a task that may move, another worker is woken all the same: the next one
    /// runs first.
    ///
    /// Provided: never.
    const DIRECT: DirectSwitch = DirectSwitch::Never;

    /// The shared half.
    fn new(params: Self::Params, topology: &Topology) -> Self;

    /// The owner's half of `worker`; called once for each worker.
    fn attach(&self, worker: WorkerId) -> Self::Local;

    /// Takes a task that is ready. `local` is the pushing worker's own half, `None` from outside
    /// the pool. A pinned task comes with the half of the worker that it is pinned to.
    fn push(&self, cx: &mut Cx, local: Option<&mut Self::Local>, task: T, why: Ready) -> Wake;

    /// The next task for the owner of `local`.
    fn pop(&self, cx: &mut Cx, local: &mut Self::Local, effort: Effort) -> Option<T>;

    /// Checks the queues once more before `worker` sleeps. Returns false only if a `pop` with
    /// [`Effort::Search`] by that worker could find nothing but tasks pushed after this check (its
    /// own local half aside).
    ///
    /// Context: any thread.
    fn maybe_ready(&self, worker: WorkerId) -> bool;

    /// Pops a task for a *spare* worker: one that runs fibers while other workers are held up, and
    /// then no more. It has no half of its own, so it holds nothing that it would have to give
    /// back: it pushes with `None`, and takes one task at a time. `None` if there is nothing that a
    /// worker without a half can reach.
    ///
    /// Provided: always `None`; see [`Self::SPARES`].
    fn pop_spare(&self, _cx: &mut Cx) -> Option<T> {
        None
    }

    /// As [`Self::maybe_ready`], for [`Self::pop_spare`].
    fn maybe_ready_spare(&self) -> bool {
        false
    }

    /// Chooses the worker on which a task starts that has never run and will be pinned where it
    /// starts. The runtime asks when worker [`load.me()`](Load::me) has popped such a task. `None`,
    /// or a number that is not another worker's: the task starts there. Otherwise it is sent to
    /// that worker and pushed a second time, with [`Ready::Woken`] and that worker's half;
    /// whichever worker pops it then asks again, so the answers must come to an end.
    ///
    /// Provided: a worker with many more live tasks than one that is out of work sends the next
    /// ones there. A policy that is about places returns `None`, as does one whose pops count,
    /// because a task that is sent is popped twice.
    #[inline(always)]
    fn place(&self, cx: &mut Cx, _task: &impl Task, load: &impl Load) -> Option<WorkerId> {
        placement::by_load(cx, load)
    }

    /// Gives up every task in `local`, and in the shared half, to `sink`.
    fn drain(&self, local: Self::Local, sink: &mut dyn FnMut(T));
}
