//! The scheduler: how a fiber gets onto a core, leaves it, and comes back.
//!
//! A **worker** is an OS thread that runs fibers. A **policy** holds the ready ones and says which
//! is next ([`Policy`](crate::policy::Policy)); a **driver** reports what the kernel has completed
//! ([`Driver`](crate::io::driver::Driver)). This folder is what connects the three, and nothing
//! else schedules.
//!
//! # The life of a fiber
//!
//! 1. **Spawn.** `thread::spawn` and its kin fill in a [`FiberSpec`](crate::fiber::FiberSpec)
//!    (`PoolShared::spec`); [`closure::create`] puts header, result and closure into one heap
//!    block; [`PoolShared::spawn`](pool::PoolShared) (in [`wake`]) counts it and schedules it. It
//!    has no stack yet. A spawn from another pool first passes a [`gate`](crate::atomics::gate),
//!    which closes when the pool ends.
//! 2. **Queue.** [`wake::schedule`] pushes it to the policy, through the worker's local half or,
//!    from outside the pool, without one. The policy says which worker to wake, if any;
//!    `PoolShared::act_on` (in [`sleep`]) wakes it.
//! 3. **Start.** [`Worker::run`](worker::Worker) pops it and calls `Worker::resume`. A fiber that
//!    moves only before its start may be placed on another worker first (`LocalPolicy::place` asks
//!    the policy). Then `Worker::start` gives it a stack and storage ([`recycle`]), pins it if it
//!    moves only before its start (`Movement`), and puts it on record so that shutdown finds it.
//! 4. **Resume.** `Worker::resume` switches to its stack
//!    ([`FiberTask::resume`](crate::fiber::FiberTask)); or the fiber that ran before goes on with
//!    it directly ([`direct`]).
//! 5. **Yield.** `thread::yield_now` leaves the stack with `Switch::Yield`
//!    ([`Header::switch`](crate::fiber::Header)): for the next fiber's, if one is at hand, else for
//!    the worker's. On that one `Worker::settle` pushes the fiber again as `Ready::Yielded`.
//!    `yield_local` and `yield_shared` have a `Switch` and a `Ready` each, which tells the policy
//!    the kind, and a cold path (`Worker::requeue`), so that the ordinary yield does nothing for
//!    them.
//! 6. **Suspend.** Whatever blocks calls [`wait::until`] or [`wait::suspend`], which leaves the
//!    stack with `Switch::Suspend`. Only now, on another stack, `Worker::settle` publishes that the
//!    fiber is suspended ([`Header::suspended`](crate::fiber::Header)). If a wake-up came first, it
//!    queues it again.
//! 7. **Wake, from here and from elsewhere.** Every way is in [`wake`]. Waking a fiber that is
//!    pinned for good to this worker costs a store and a push; one pinned for good elsewhere goes
//!    to its worker's inbox ([`mailbox`] says when that is read). Waking one that may move costs a
//!    compare-and-exchange, then a push or, while a `Pin` ties it to a worker, a send to the inbox
//!    of that worker. Timers and completions come from [`worker_io`].
//! 8. **Migrate.** A fiber that may move runs wherever its task is popped or stolen. While a
//!    worker's driver or timer wheel holds something of it, [`wait::Pin`] pins it there.
//! 9. **Cancel.** A handle or a scope sets a word and wakes the fiber
//!    ([`cancel`](crate::fiber::cancel)); its blocking call looks at the word before and after each
//!    suspension, has the driver cancel its operation ([`io_call`]), and returns an error. Nothing
//!    is unwound by force.
//! 10. **End.** `closure::run` keeps the result and wakes the joiner
//!     ([`join`](crate::atomics::join)); `Worker::retire` takes it off the record, and gives stack,
//!     storage and block back to be used again.
//!
//! # Where else to look
//!
//! | question | file |
//! |---|---|
//! | a worker's loop, and how often it looks at its driver and inbox | [`worker`], [`mailbox`] |
//! | from one fiber straight to the next | [`direct`], by [`context`](crate::context) |
//! | when a worker searches and sleeps; the proof | [`idle`], [`sleep`]; [`sleepers`](crate::atomics::sleepers) |
//! | driver, timers and idle connections of a worker; the watchdog's way to them | [`worker_io`], [`worker_shared`] |
//! | one blocking system call | [`io_call`] |
//! | spare workers, with and without a driver | [`spare`], [`workers`], [`lent`], [`held_back`] |
//! | an idle connection that needs no fiber | [`idle_conn`] |
//! | what all threads share; how a pool ends | [`pool`] |
//! | what a worker counts, for `Metrics`; what it records, for a trace | [`counts`]; [`recorder`], [`event`] |
//! | what every fiber does, asked while they run | [`inspect`] |
//! | scopes, blocking jobs | [`children`], [`blocking_pool`] |

pub(crate) mod blocking_pool; // The threads for blocking work.
pub(crate) mod children; // What a scope shares with its children.
pub(crate) mod circles; // Fibers that wait for each other while others run.
pub(crate) mod closure; // The typed part of a fiber: its closure and result.
mod counts; // What a worker counts, published for others.
mod direct; // How a fiber goes on with the next one; what is done for the one that left.
mod end; // How fibers end, and what becomes of those that are left.
pub(crate) mod event; // What is recorded, as two words.
pub(crate) mod held_back; // Fresh fibers that wait while many workers are held up.
mod idle; // What a worker without work decides; the simulator carries out the same steps.
pub(crate) mod idle_conn; // Idle connections that have no fiber.
pub(crate) mod inspect; // What every fiber of a pool does, asked while they run.
pub(crate) mod io_call; // One blocking I/O call, by a fiber or a thread.
mod lent; // How a fiber waits whose worker has no driver.
mod load; // How busy a worker is, as the others see it.
mod local_policy; // A worker's half of the policy.
mod long_waits; // The stacks of fibers that wait for long.
mod mailbox; // When a worker reads its inbox.
#[cfg(all(test, loom))]
mod models;
mod outside; // How threads outside the pool push.
pub(crate) mod pending; // What a fiber has at a driver, and how its wait ends early.
pub(crate) mod poll_any; // A wait for several descriptors and something besides.
pub(crate) mod pool; // What all threads may touch of a pool; how a pool ends.
pub(crate) mod recorder; // What each worker did last, for a trace.
mod recycle; // Stacks and storage that a worker keeps for the next fibers.
mod sleep; // How a worker falls asleep and is woken.
pub(crate) mod spare; // Workers that run fibers while others are held up.
// The one way to wait, for fibers and plain threads; what a panicking fiber does.
pub(crate) mod wait;
pub(crate) mod wake; // Every way in which a fiber becomes ready.
pub(crate) mod worker; // The worker's loop.
// A worker's driver, timers and idle connections, and what their events cause.
pub(crate) mod worker_io;
mod worker_shared; // What all threads may touch of a worker.
mod workers; // Which numbers are whose; workers that are made when they start.
