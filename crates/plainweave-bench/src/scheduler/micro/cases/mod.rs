//! The workloads, each written once over [`Shim`]. Each counts what it did and fails if it is not
//! what it set out to do.

mod beside; // What a select costs while others wait for a source of its own.
mod broadcast; // A sender whose every number goes to several receivers.
mod meet; // A channel each way, and locks.
// Servers that are asked by channels and answer by channels, and a client that takes whichever
// answer comes first.
mod select;
// Sleeping workers: how long one takes to wake, and that it costs nothing while it sleeps.
mod sleep;
mod spawn; // What it costs to start and end threads, and to keep many.
mod spots; // Churn and Locality: threads that wake each other at random places.
mod switch; // Yield and Cycle: what it costs to give way, and to wake and be woken.
mod transfer; // Transfer: a leader that does not give way, and must be seen by all others.

use anyhow::bail;

use super::repetition::{Figure, Size};
use crate::scheduler::shim::{CHOICES, Shim};
pub(super) use beside::selects as selects_beside;
pub(super) use sleep::{idle, wake_sleeper};

/// A workload by name.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Whether it is of Plainweave alone.
    pub(super) own: bool,
    /// Whether a repetition with clocks measures its delays.
    pub(super) clocked: bool,
    /// Whether that repetition counts migrations too, which is then done as often as the others, by
    /// peers as well.
    pub(super) migrates: bool,
    pub(super) least_workers: usize,
}

const fn case(name: &'static str, summary: &'static str) -> Case {
    Case {
        name,
        summary,
        own: false,
        clocked: false,
        migrates: false,
        least_workers: 1,
    }
}

const fn clocked(name: &'static str, summary: &'static str) -> Case {
    Case {
        clocked: true,
        ..case(name, summary)
    }
}

const fn migrating(name: &'static str, summary: &'static str) -> Case {
    Case {
        migrates: true,
        ..clocked(name, summary)
    }
}

const fn own(name: &'static str, summary: &'static str) -> Case {
    Case {
        own: true,
        ..case(name, summary)
    }
}

pub(super) const CASES: [Case; 23] = [
    clocked("yield", "100 threads a worker that yield; ns a switch"),
    clocked(
        "yield-1",
        "one thread a worker that yields: out of it, through the scheduler, back into it",
    ),
    clocked(
        "cycle",
        "100 rings of five threads a worker, one token a ring: wait for mine, pass it on",
    ),
    clocked("cycle-1", "one ring a worker: workers sleep and wake"),
    clocked(
        "churn",
        "100 threads a worker, 50 semaphores: release a random one, acquire the same",
    ),
    clocked("churn-2", "the same with 2 semaphores"),
    migrating(
        "locality",
        "write 2 words of mine, swap myself into a random one of 50 spots, wake whom I found there",
    ),
    migrating("locality-share", "the same; whom I wake gets my words"),
    Case {
        least_workers: 2,
        ..case(
            "transfer-yield",
            "100 threads: a leader waits for all without giving way, then another leads; us each",
        )
    },
    Case {
        least_workers: 2,
        ..case("transfer-park", "the same; the others park")
    },
    case(
        "spawn-join",
        "spawn, run and join empty threads in batches of 1,000",
    ),
    case("spawn-join-1", "one at a time"),
    case(
        "ping-pong",
        "two threads, two channels with room for one; ns a round trip",
    ),
    case(
        "select",
        "8 servers, each with a request: select from their 8 channels, send the next; ns a request",
    ),
    case(
        "select-1",
        "the same, one request at a time: each select waits",
    ),
    case(
        "broadcast",
        "one sender, 8 receivers: 16 numbers, then wait until all have them; ns a number",
    ),
    clocked("mutex", "100 threads a worker: lock, add, unlock, yield"),
    clocked(
        "rwlock",
        "the same with a readers-writer lock; 19 of 20 operations read",
    ),
    case(
        "parked-fibers",
        "many threads parked at once: memory, mappings, time to park and to wake and join",
    ),
    own(
        "wake-sleeper",
        "a thread wakes a fiber whose worker sleeps, beside a bare futex; ns until it runs",
    ),
    own(
        "select-beside",
        "a round trip of two selects, beside 0, 10,000 and 50,000 others that wait for the same stop; ns",
    ),
    own(
        "idle",
        "CPU time of a runtime with nothing to do, us a second",
    ),
    own(
        "resume-suspend",
        "one fiber that yields a million times, counted and not timed from outside",
    ),
];

/// Runs one repetition of a case on a system's main thread.
pub(super) async fn run<S: Shim>(name: &str, size: Size) -> anyhow::Result<Vec<Figure>> {
    match name {
        "yield" | "yield-1" => switch::yields::<S>(&size).await,
        "resume-suspend" => switch::alone::<S>(&size).await,
        "cycle" | "cycle-1" => switch::cycle::<S>(&size).await,
        "churn" | "churn-2" => spots::churn::<S>(&size).await,
        "locality" | "locality-share" => spots::locality::<S>(&size).await,
        "transfer-yield" => transfer::transfer::<S>(false, &size).await,
        "transfer-park" => transfer::transfer::<S>(true, &size).await,
        "spawn-join" => spawn::spawn_join::<S>(1000, &size).await,
        "spawn-join-1" => spawn::spawn_join::<S>(1, &size).await,
        "parked-fibers" => spawn::parked::<S>(&size).await,
        "ping-pong" => meet::ping_pong::<S>(&size).await,
        "select" => select::select::<S>(CHOICES, &size).await,
        "select-1" => select::select::<S>(1, &size).await,
        "broadcast" => broadcast::broadcast::<S>(&size).await,
        "mutex" => meet::mutex::<S>(&size).await,
        "rwlock" => meet::rw_lock::<S>(&size).await,
        other => bail!("no case is called '{other}'"),
    }
}
