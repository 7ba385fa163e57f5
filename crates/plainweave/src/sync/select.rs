//! Waiting for whichever of several things comes first: [`select!`](crate::sync::select!).
//!
//! # Concepts
//! A *source* is what a branch waits for: a channel, a promise, a fiber's end, a socket, the clock.
//! A *watcher* is a select's entry in a source's list. Only a *try-operation* takes anything from a
//! source, and a select makes one after the other until one succeeds. So a branch that loses has
//! taken nothing, and neither has a select that is cancelled.
//!
//! # Why it is hard
//! A fiber's place in wait queues is in its header, and there is one of it (`wait_queue`); a select
//! is in several lists at once. A grant from a wait queue must be used by the waiter that gets it.
//! A select that had grants from two sources would have to pass one on, to a waiter that may have
//! left meanwhile.
//!
//! # Protocol
//! 1. Try all branches, in random order or, if it is biased, as written. The first that succeeds is
//!    chosen, and that is all.
//! 2. Open a claim (`atomics/claim`) and enter a watcher in each source's list. A source in which
//!    an attempt may succeed says so instead (it decides under its lock): then go to 4.
//! 3. Wait until the claim has ended, or for the nearest timer.
//! 4. Close the claim, and leave all lists. Go to 1, but in random order try the branch first whose
//!    source ended the wait.
//!
//! A source that changes takes *all* its watchers off its list and notifies them, and grants to its
//! first plain waiter as if there were none. Each looks for itself, and one finds what there is. So
//! a select that is notified and then takes another branch has kept nothing from anybody; no
//! wake-up is passed on. The price is that all look; it is paid where several selects watch one
//! source.
//!
//! *No wake-up is lost:* a source changes and reads its list in one critical section; a watcher
//! checks the source and enters the list in one. If the watcher comes second it sees the change; if
//! it comes first it is notified (`loom_two_sources_and_a_giving_up`).
//!
//! *Rendezvous.* Two selects that meet on a channel without room could both watch and never try at
//! the same moment. So there a watcher can be *claimed*: a peer that tries ends its wait and does
//! both operations under the channel's lock (`watchers`). A select that tries has closed its claim,
//! so it is claimed by nobody meanwhile, itself included. If two watch each other, the one that
//! entered second has seen the first, and tries (`loom_two_selects_meet`). A claim that came before
//! a cancellation stands: the operation is done.
//!
//! *Permits* are claimed for selects too, by whoever releases them: a select that had to look again
//! would find that those in the queue have been served, each time (`loom_permits_and_a_giving_up`).
//!
//! *Descriptors* are polled by operations of the fiber's own at its worker's driver
//! (`sched/poll_any`), to which it is pinned until they have all ended; no helper waits in its
//! place. They transfer nothing. A signal is a byte in a pipe, which an attempt reads.
//!
//! # Rejected
//! A place in each wait queue with a claim on each grant, passed on by losers: nothing wakes more
//! than one, but every lock and channel would pay for it, and each source would need its own way to
//! pass a grant on. The macro's `send` evaluating its value only when chosen: a rendezvous peer
//! would have to wait for user code.

mod future; // A future as a branch.
mod join; // A fiber's end as a branch.
mod macros; // `select!`.
#[cfg(all(test, loom))]
mod models;
mod notice; // Watched values, broadcast channels and notifications as branches.
mod readiness; // A socket's readiness as a branch.
mod timer; // The clock, or the next time of an interval, as a branch.
mod watchers; // The selects that wait for a source.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use self::future::FutureBranch;
pub use self::join::JoinBranch;
pub use self::notice::NoticeBranch;
pub(crate) use self::notice::Watched;
pub use self::readiness::ReadinessBranch;
pub use self::timer::{TickBranch, TimerBranch};
pub(crate) use self::watchers::{Notices, Place, Selector, Watchers};
pub use super::channel::branch::{RecvBranch, SendBranch};
pub use super::semaphore::AcquireBranch;
use crate::atomics::claim::Ended;
use crate::fiber::cancel::Interrupt;
use crate::fiber::{self, Reason};
use crate::io::eventfd::Wakeup;
use crate::policy::Cx;
use crate::sched::poll_any::{Poll, poll_any};
use crate::sched::wait::{self, Interrupts, WaitSpec, Waker};
use crate::time;

/// By how much two clocks may disagree.
const INSTANT: Duration = Duration::from_millis(10);

/// What a select can wait for.
pub(crate) trait Source {
    /// Performs the operation if it need not wait, and keeps its outcome. Returns whether it did.
    fn attempt(&mut self) -> bool;

    /// Enters the source's list as operation `branch` of a select, unless an attempt may succeed
    /// now: then it returns true.
    fn watch(&mut self, selector: &Selector, branch: usize) -> bool;

    /// Leaves the list, if it is in it. `claimed`: a peer has performed the operation.
    fn unwatch(&mut self, selector: &Selector, branch: usize, claimed: bool);

    /// Returns whether an attempt may succeed, where the source wakes the waiter without ending its
    /// claim.
    ///
    /// Provided: false.
    fn is_ready(&self) -> bool {
        false
    }

    /// Returns when an attempt will succeed, where that is known.
    ///
    /// Provided: `None`.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Returns the descriptor to poll, where it is that.
    ///
    /// Provided: `None`.
    fn poll(&self) -> Option<Poll<'_>> {
        None
    }
}

/// One branch of a select that runs.
pub struct Case<'a> {
    source: &'a mut dyn Source,
    branch: usize,
}

impl<'a> Case<'a> {
    pub(crate) fn new(source: &'a mut dyn Source) -> Self {
        Self { source, branch: 0 }
    }
}

impl fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.branch).finish()
    }
}

/// Waits until one of the enabled cases has been performed; if `default` is set, only tries. One of
/// the cases has an output afterwards, unless nothing was ready. An interrupt is returned, and an
/// error if none is enabled. `biased`: of several that can be performed, the first is.
pub fn run(
    cases: &mut [Case<'_>],
    enabled: &[bool],
    default: bool,
    biased: bool,
) -> Option<io::Error> {
    let mut count = 0;
    for branch in (0..cases.len()).filter(|branch| enabled[*branch]) {
        cases.swap(count, branch);
        cases[count].branch = branch;
        count += 1;
    }

    let cases = &mut cases[..count];
    if cases.is_empty() && !default {
        return Some(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the conditions of all branches are false",
        ));
    }

    let mut order = if biased {
        Order::AsWritten
    } else {
        Order::Random(random())
    };

    if attempt(cases, &mut order) || default {
        return None;
    }
    let on_thread =
        wait::suspendable().is_none() && cases.iter().any(|case| case.source.poll().is_some());
    let event = match on_thread.then(Wakeup::new).transpose() {
        Ok(event) => event.map(Arc::new),
        Err(error) => return Some(error),
    };

    wait_for_first(cases, &mut order, event.as_ref())
        .err()
        .map(io::Error::from)
}

/// Returns why no case has an output, after [`run`] without a default.
pub fn interrupted(interrupt: Option<io::Error>) -> io::Error {
    interrupt.unwrap_or_else(|| unreachable!("a select ends with a branch or an interrupt"))
}

/// Waits until the case, which polls no descriptor, has been performed.
///
/// Context: any thread or fiber; may suspend.
pub(super) fn perform(case: Case<'_>) -> Result<(), Interrupt> {
    let mut cases = [case];
    let mut order = Order::AsWritten;
    if attempt(&mut cases, &mut order) {
        return Ok(());
    }
    wait_for_first(&mut cases, &mut order, None)
}

/// Waits until one of the cases, which have been tried in vain, has been performed. A thread that
/// polls descriptors brings an `event`.
fn wait_for_first(
    cases: &mut [Case<'_>],
    order: &mut Order,
    event: Option<&Arc<Wakeup>>,
) -> Result<(), Interrupt> {
    loop {
        let (ended, waited) = watch(cases, event);
        let performed = match ended {
            Some(Ended::Claimed(_)) => true,
            Some(Ended::Notified(branch)) if matches!(order, Order::Random(_)) => {
                attempt_of(cases, branch)
            }
            Some(Ended::Notified(_)) | None => false,
        };
        // Also after an interrupt: what has come meanwhile is delivered, as by every wait.
        if performed || attempt(cases, order) {
            return Ok(());
        }
        let Err(interrupt) = waited else { continue };
        // A branch may have asked for the timeout, and its clock may disagree by an instant. (If
        // the branch's time is further off, a panicking fiber has waited for as long as it may.)
        let mut due = cases.iter().filter_map(|case| case.source.due());
        let timer = due.any(|at| at.saturating_duration_since(time::now()) < INSTANT);
        if interrupt != Interrupt::TimedOut || !timer || wait::interrupted().is_some() {
            return Err(wait::fail_after_others(interrupt));
        }
    }
}

/// In which order branches are tried.
enum Order {
    /// Drawn again each time, so that no branch starves another.
    Random(Cx),
    AsWritten,
}

/// Performs step 1: a shuffle, unless there is an order, that stops at the first success.
fn attempt(cases: &mut [Case<'_>], order: &mut Order) -> bool {
    let count = cases.len();
    (0..count).any(|next| {
        if let Order::Random(random) = order
            && next + 1 < count
        {
            cases.swap(next, next + random.below(count - next));
        }
        cases[next].source.attempt()
    })
}

/// Tries the branch at whose source something has changed, before all others are tried.
fn attempt_of(cases: &mut [Case<'_>], branch: usize) -> bool {
    cases
        .iter_mut()
        .find(|case| case.branch == branch)
        .is_some_and(|case| case.source.attempt())
}

/// Performs steps 2 to 4 once. Returns who of the sources or peers ended the wait, and how it
/// ended.
fn watch(
    cases: &mut [Case<'_>],
    event: Option<&Arc<Wakeup>>,
) -> (Option<Ended>, Result<(), Interrupt>) {
    let waker = event.map_or_else(Waker::current, |event| Waker::Event(event.clone()));
    Selector::wait(waker, |selector| {
        selector.claim.open();
        let ready = cases
            .iter_mut()
            .any(|case| case.source.watch(selector, case.branch));

        // From here on nothing unwinds until all lists have been left.
        let waited = if ready {
            Ok(())
        } else {
            wait_for(cases, selector, event)
        };

        let ended = selector.claim.close();
        for case in cases {
            let claimed = ended == Some(Ended::Claimed(case.branch));
            case.source.unwatch(selector, case.branch, claimed);
        }

        (ended, waited)
    })
}

/// Performs step 3.
fn wait_for(
    cases: &[Case<'_>],
    selector: &Selector,
    event: Option<&Arc<Wakeup>>,
) -> Result<(), Interrupt> {
    let due = cases.iter().filter_map(|case| case.source.due()).min();
    let limit = due.map(|at| at.saturating_duration_since(time::now()));
    let over = || {
        (!selector.claim.is_open() || cases.iter().any(|case| case.source.is_ready())).then_some(())
    };
    let polls: Vec<_> = cases.iter().filter_map(|case| case.source.poll()).collect();
    if !polls.is_empty() {
        return poll_any(&polls, event.map(|event| &**event), limit, over);
    }
    wait::until(
        WaitSpec::new(Reason::Sync, Interrupts::Allowed).timeout(limit),
        over,
    )
}

/// Returns what the order of attempts is drawn from; each select draws its own, on a fiber from its
/// runtime's seed.
fn random() -> Cx {
    static ON_THREADS: AtomicU64 = AtomicU64::new(0);
    let selects = fiber::current().map_or(&ON_THREADS, |me| &me.worker().pool().selects);
    Cx::new(selects.fetch_add(1, Ordering::Relaxed))
}
