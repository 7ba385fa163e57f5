//! The protocol as a state machine. A step is one access to shared memory; `ReadMail` is several.
//!
//! Most steps are named after the functions of `sched/idle`, `atomics/sleepers` and `sched/spare`
//! that they model. Numbers in comments (4 to 9) are those of the protocol in `atomics/sleepers`.
//! Memory is sequentially consistent here: that the fences make it so where it matters is what the
//! loom models show.

use stateright::{Model, Property};

use super::{Flaw, Setup};

/// A worker's number, or a thread's.
type Id = usize;

pub(crate) const NOBODY_WAITS: &str = "no task waits while a worker sleeps";
pub(crate) const MAIL_IS_READ: &str = "mail is read";
pub(crate) const COUNTS_END: &str = "nobody counts as searching for ever";
pub(crate) const RELEASED_REST: &str = "a released worker comes to rest";
const CLAIM_FAILS: &str = "a claim fails";
const CASCADE: &str = "a search that ended wakes another worker";
const ALL_SLEEP: &str = "all sleep before the first push";

/// Room for the threads of any setup: workers first, then pushers, then the watchdog.
const MOST_THREADS: usize = 7;
const MOST_WORKERS: usize = 4;

/// What threads share, and where each of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Tasks that any worker may take: the policy's queues.
    queue: u8,
    /// Tasks that were sent to one worker.
    inbox: [u8; MOST_WORKERS],
    /// One bit per worker: asleep, or about to be.
    asleep: u8,
    /// How many workers count as searching. Negative only if the protocol is wrong.
    searching: i8,
    /// One bit per worker: a signal that it has not seen yet.
    signals: u8,
    /// What the spare worker is to do.
    role: Role,
    threads: [Thread; MOST_THREADS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Active,
    Released,
    Resting,
    /// Its thread ends or has ended.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Thread {
    at: At,
    /// Where it is in `wake_any`; that goes before `at`.
    wakes: Wake,
    /// Whether this worker counts as searching.
    searches: bool,
    /// What a pusher has still to push, or the watchdog to change.
    left: u8,
}

/// A thread's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    /// There is no such thread, or it has ended.
    Nowhere,

    // A worker's turn.
    Role,
    Pop,
    HasMail,
    ReadMail,
    BeginSearch,
    BeginSearchCount,
    PopSearching,
    Announce,
    AnnounceCount,
    LastLookMail,
    LastLookQueue,
    LastLookRole,
    CancelSleep,
    CancelSleepCount,
    Rest,
    EndSleep,
    Settle,
    EndSearch,
    OthersSeeWork,
    Run,
    /// Its task holds it up for ever.
    HeldUp,
    // A spare worker that is let go.
    Leave,
    LeaveRole,
    RestAside,
    RestAsideSleep,

    // A thread outside the pool.
    Push,
    Send,
    WakeWorker,
    Signal,

    // The watchdog.
    ChangeRole,
    SignalSpare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Wake {
    No,
    AnySearching,
    Sleeper,
    Count(Id),
    Claim(Id),
    Uncount,
    Signal(Id),
}

/// A thread's step, and which one where it has a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Step(Id),
    /// It finds this sleeper. (The code takes the one with the lowest number; the protocol does not
    /// depend on it.)
    Choose(Id, Id),
    /// A worker asks its driver for events in between and sees a signal, though it does not sleep.
    Turn(Id),
    /// It reads its inbox because it is time to.
    MailDue(Id),
    /// A timer or an event ends its sleep.
    Event(Id),
}

impl Wake {
    fn chosen_mut(&mut self) -> Option<&mut Id> {
        match self {
            Wake::Count(chosen) | Wake::Claim(chosen) | Wake::Signal(chosen) => Some(chosen),
            Wake::No | Wake::AnySearching | Wake::Sleeper | Wake::Uncount => None,
        }
    }

    fn chosen(mut self) -> Option<Id> {
        self.chosen_mut().copied()
    }

    /// Returns the same step, of whichever sleeper.
    fn of_any(mut self) -> Self {
        self.chosen_mut().into_iter().for_each(|chosen| *chosen = 0);
        self
    }
}

const IDLE: Thread = Thread {
    at: At::Nowhere,
    wakes: Wake::No,
    searches: false,
    left: 0,
};

impl State {
    /// Returns whether nothing will happen any more, timers and events apart.
    fn is_quiet(&self, setup: &Setup) -> bool {
        let signalled = |id: Id| id < setup.workers && self.signals & bit(id) != 0;
        self.threads.iter().enumerate().all(|(id, thread)| {
            let waits = matches!(thread.at, At::Rest | At::RestAsideSleep) && !signalled(id);
            thread.wakes == Wake::No && (waits || matches!(thread.at, At::Nowhere | At::HeldUp))
        })
    }

    fn sleeps(&self, id: Id) -> bool {
        self.threads[id].at == At::Rest
    }

    /// Numbers these workers by what they do. Their numbers mean nothing to the protocol.
    fn renumber(&mut self, alike: &[Id]) {
        let old = *self;
        let chosen_by = |id| {
            old.threads
                .iter()
                .position(|thread| thread.wakes.chosen() == Some(id))
        };

        let mut sorted = alike.to_vec();
        sorted.sort_by_key(|id| {
            let thread = &old.threads[*id];
            let bits = (old.asleep & bit(*id) != 0, old.signals & bit(*id) != 0);
            (
                thread.at,
                thread.searches,
                thread.wakes.of_any(),
                bits,
                chosen_by(*id),
            )
        });
        let mut new = std::array::from_fn::<Id, MOST_THREADS, _>(|id| id);
        alike
            .iter()
            .zip(&sorted)
            .for_each(|(to, from)| new[*from] = *to);
        let renumbered = |bits: u8| {
            (0..MOST_WORKERS)
                .map(|id| (bits >> id & 1) << new[id])
                .sum()
        };

        (self.asleep, self.signals) = (renumbered(old.asleep), renumbered(old.signals));
        for (mut thread, id) in old.threads.into_iter().zip(new) {
            thread
                .wakes
                .chosen_mut()
                .into_iter()
                .for_each(|chosen| *chosen = new[*chosen]);
            self.threads[id] = thread;
        }
    }
}

fn bit(worker: Id) -> u8 {
    1 << worker
}

impl Setup {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn regular(&self) -> usize {
        self.workers - usize::from(self.spare)
    }

    fn is_spare(&self, id: Id) -> bool {
        self.spare && id + 1 == self.workers
    }

    fn role(&self, state: &State, id: Id) -> Role {
        if self.is_spare(id) {
            state.role
        } else {
            Role::Active
        }
    }

    fn most_searching(&self) -> i8 {
        i8::try_from(self.regular().div_ceil(2)).expect("a few workers")
    }

    /// Returns whether it has room for what a property says may happen.
    pub(crate) fn reaches(&self, property: &str) -> bool {
        match property {
            CLAIM_FAILS => self.pushers.len() > 1,
            CASCADE => self.pushers == [(At::Push, 1); 2],
            _ => !self.starts_resting && self.role_changes == 0,
        }
    }

    /// Takes one step of `wake_any`; `chosen` is the sleeper that it finds.
    fn wake(&self, state: &mut State, id: Id, chosen: Option<Id>) {
        let next = match state.threads[id].wakes {
            Wake::No => Wake::No,
            Wake::AnySearching if state.searching > 0 => Wake::No,
            Wake::AnySearching => Wake::Sleeper,
            Wake::Sleeper => match chosen {
                None => Wake::No,
                Some(chosen) if self.has(Flaw::ClaimBeforeCount) => Wake::Claim(chosen),
                Some(chosen) => Wake::Count(chosen),
            },
            Wake::Count(chosen) => {
                state.searching += 1;
                if self.has(Flaw::ClaimBeforeCount) {
                    Wake::Signal(chosen)
                } else {
                    Wake::Claim(chosen)
                }
            }
            Wake::Claim(chosen) => {
                let was_set = state.asleep & bit(chosen) != 0;
                state.asleep &= !bit(chosen);
                match (was_set, self.has(Flaw::ClaimBeforeCount)) {
                    (true, false) => Wake::Signal(chosen),
                    (true, true) => Wake::Count(chosen),
                    (false, false) => Wake::Uncount,
                    (false, true) => Wake::AnySearching,
                }
            }
            Wake::Uncount => {
                state.searching -= 1;
                if self.has(Flaw::FailedClaimGivesUp) {
                    Wake::No
                } else {
                    Wake::AnySearching
                }
            }
            Wake::Signal(chosen) => {
                state.signals |= bit(chosen);
                Wake::No
            }
        };
        state.threads[id].wakes = next;
    }

    /// Takes a worker's next step, outside `wake_any`.
    fn work(&self, state: &mut State, id: Id) {
        use At::*;
        let mut thread = state.threads[id];
        let me = &mut thread;
        me.at = match me.at {
            Role | Pop | HasMail | ReadMail | BeginSearch | BeginSearchCount | PopSearching => {
                self.look_for_work(state, id, me)
            }
            Announce | AnnounceCount | LastLookMail | LastLookQueue | LastLookRole => {
                self.fall_asleep(state, id, me)
            }
            CancelSleep | CancelSleepCount | Rest | EndSleep | Settle => {
                self.wake_up(state, id, me)
            }
            EndSearch | OthersSeeWork | Run => self.found(state, me),
            Leave | LeaveRole | RestAside | RestAsideSleep => self.leave(state, id, me),
            other => unreachable!("{other:?} is no step of a worker"),
        };
        state.threads[id] = thread;
    }

    fn look_for_work(&self, state: &mut State, id: Id, me: &mut Thread) -> At {
        match me.at {
            At::Role => match self.role(state, id) {
                Role::Active => At::Pop,
                Role::Released => At::Leave,
                Role::Resting => At::RestAside,
                Role::Ended => At::Nowhere,
            },
            At::Pop | At::PopSearching if state.queue > 0 => {
                state.queue -= 1;
                let searches = me.searches;
                let forgets = self.has(Flaw::OwnTaskEndsNoSearch) && me.at == At::Pop;
                me.searches &= forgets;

                if searches && !forgets {
                    At::EndSearch
                } else {
                    At::Run
                }
            }
            At::Pop => At::HasMail,
            At::HasMail if state.inbox[id] > 0 => At::ReadMail,
            At::HasMail if self.regular() == 1 => At::Announce,
            At::HasMail if me.searches => At::PopSearching,
            At::HasMail => At::BeginSearch,
            At::ReadMail => {
                state.queue += std::mem::take(&mut state.inbox[id]);
                if !self.has(Flaw::MailWakesNobody) {
                    me.wakes = Wake::AnySearching;
                }
                At::Role
            }
            At::BeginSearch if state.searching >= self.most_searching() => At::Announce,
            At::BeginSearch => At::BeginSearchCount,
            At::BeginSearchCount => {
                state.searching += 1;
                me.searches = true;
                At::PopSearching
            }
            _ if self.has(Flaw::LookBeforeAnnouncing) => At::LastLookMail,
            _ => At::Announce,
        }
    }

    /// Steps 4 to 7.
    fn fall_asleep(&self, state: &mut State, id: Id, me: &mut Thread) -> At {
        let looks = !self.has(Flaw::NoLastLook) && !self.has(Flaw::LookBeforeAnnouncing);
        let next = if looks { At::LastLookMail } else { At::Rest };
        match me.at {
            At::Announce => {
                state.asleep |= bit(id);
                let counts =
                    std::mem::take(&mut me.searches) && !self.has(Flaw::SleeperStaysCounted);
                if counts { At::AnnounceCount } else { next }
            }
            At::AnnounceCount => {
                state.searching -= 1;
                next
            }
            At::LastLookMail if state.inbox[id] > 0 && !self.has(Flaw::NoLookAtMail) => {
                self.found_at_last_look()
            }
            At::LastLookMail => At::LastLookQueue,
            At::LastLookQueue if state.queue > 0 && !self.has(Flaw::NoLookAtQueue) => {
                self.found_at_last_look()
            }
            At::LastLookQueue => At::LastLookRole,
            _ if self.role(state, id) != Role::Active && self.has(Flaw::LeavesAnnounced) => {
                At::Leave
            }
            _ if self.role(state, id) != Role::Active && !self.has(Flaw::NoLookAtRole) => {
                self.found_at_last_look()
            }
            _ if self.has(Flaw::LookBeforeAnnouncing) => At::Announce,
            _ => At::Rest,
        }
    }

    fn found_at_last_look(&self) -> At {
        // A look before the announcement has nothing to cancel.
        if self.has(Flaw::LookBeforeAnnouncing) {
            At::Role
        } else {
            At::CancelSleep
        }
    }

    /// What follows a last look that found something; steps 8 and 9.
    fn wake_up(&self, state: &mut State, id: Id, me: &mut Thread) -> At {
        let own = state.asleep & bit(id) != 0;
        match me.at {
            At::CancelSleep => {
                state.asleep &= !bit(id);
                me.searches = !self.has(Flaw::CancelledSleepUncounted) || !own;
                if own && me.searches {
                    At::CancelSleepCount
                } else {
                    At::Settle
                }
            }
            At::CancelSleepCount => {
                state.searching += 1;
                At::Settle
            }
            At::Rest => {
                state.signals &= !bit(id);
                At::EndSleep
            }
            At::EndSleep => {
                state.asleep &= !bit(id);
                me.searches = !own && !self.has(Flaw::WokenWorkerForgetsItsCount);
                At::Settle
            }
            _ if me.searches && state.inbox[id] > 0 => At::ReadMail,
            _ => At::Role,
        }
    }

    fn found(&self, state: &mut State, me: &mut Thread) -> At {
        match me.at {
            At::EndSearch => {
                state.searching -= 1;
                let last = state.searching == 0;
                if last && !self.has(Flaw::NoCascade) {
                    At::OthersSeeWork
                } else {
                    At::Run
                }
            }
            At::OthersSeeWork => {
                if state.queue > 0 {
                    me.wakes = Wake::AnySearching;
                }
                At::Run
            }
            _ if self.tasks_hold_up => At::HeldUp,
            _ => At::Role,
        }
    }

    fn leave(&self, state: &mut State, id: Id, me: &mut Thread) -> At {
        match me.at {
            At::Leave => {
                if std::mem::take(&mut me.searches) && !self.has(Flaw::LeaverStaysCounted) {
                    state.searching -= 1;
                    if !self.has(Flaw::LeaverWakesNobody) {
                        me.wakes = Wake::AnySearching;
                    }
                }
                At::LeaveRole
            }
            At::LeaveRole => {
                if state.role == Role::Released {
                    state.role = if self.ends {
                        Role::Ended
                    } else {
                        Role::Resting
                    };
                }
                At::Role
            }
            At::RestAside if state.inbox[id] > 0 => At::ReadMail,
            At::RestAside => At::RestAsideSleep,
            _ => {
                state.signals &= !bit(id);
                At::Role
            }
        }
    }

    /// Makes one state of those that differ by nothing: takes all steps that touch nothing shared,
    /// and numbers workers and pushers by what they do.
    fn normalise(&self, state: &mut State) {
        for id in 0..self.workers {
            while self.touches_nothing(&state.threads[id], id) {
                self.work(state, id);
            }
        }

        let alike = (0..self.workers).filter(|id| !self.is_spare(*id) && self.sent_to != Some(*id));
        state.renumber(&alike.collect::<Vec<_>>());
        let pushers = &mut state.threads[self.workers..][..self.pushers.len()];
        if self.pushers.windows(2).all(|two| two[0] == two[1]) {
            pushers.sort_unstable();
        }
    }

    fn touches_nothing(&self, thread: &Thread, id: Id) -> bool {
        thread.wakes == Wake::No
            && match thread.at {
                At::Run => true,
                At::Role | At::LastLookRole => !self.is_spare(id),
                At::HasMail | At::LastLookMail => self.sent_to != Some(id),
                At::Settle => !thread.searches || self.sent_to != Some(id),
                At::Leave => !thread.searches,
                _ => false,
            }
    }

    /// Takes the next step of a pusher or of the watchdog.
    fn act(&self, state: &mut State, id: Id) {
        let to = self.sent_to.unwrap_or(0);
        let spare = self.workers - 1;
        let mut thread = state.threads[id];
        thread.at = match thread.at {
            At::Push | At::Send if thread.left == 0 => At::Nowhere,
            At::Push => {
                thread.left -= 1;
                state.queue += 1;
                thread.wakes = Wake::AnySearching;
                At::Push
            }
            At::Send => {
                thread.left -= 1;
                state.inbox[to] += 1;

                // Only who finds the inbox empty asks whether to signal; the others rely on that
                // one.
                let first = state.inbox[to] == 1;
                match (first, self.is_spare(to)) {
                    (false, _) => At::Send,
                    (true, true) => At::Signal,
                    (true, false) => At::WakeWorker,
                }
            }
            At::WakeWorker if state.asleep & bit(to) != 0 => At::Signal,
            At::WakeWorker => At::Send,
            At::Signal => {
                state.signals |= bit(to);
                At::Send
            }
            At::ChangeRole if thread.left == 0 => At::Nowhere,
            At::ChangeRole => {
                thread.left -= 1;
                let (role, next) = match state.role {
                    Role::Active => (Role::Released, At::SignalSpare),
                    Role::Released => (Role::Active, At::ChangeRole),
                    Role::Resting => (Role::Active, At::SignalSpare),
                    Role::Ended => {
                        // A new thread starts in its place.
                        state.threads[spare].at = At::Role;
                        (Role::Active, At::ChangeRole)
                    }
                };

                state.role = role;
                next
            }
            At::SignalSpare => {
                state.signals |= bit(spare);
                At::ChangeRole
            }
            other => unreachable!("{other:?} is no step of a thread outside the pool"),
        };
        state.threads[id] = thread;
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut threads = [IDLE; MOST_THREADS];
        threads[..self.workers].fill(Thread {
            at: At::Role,
            ..IDLE
        });
        let outside = threads[self.workers..].iter_mut();
        let pushers = self.pushers.iter().map(|pusher| Thread {
            at: pusher.0,
            left: pusher.1,
            ..IDLE
        });

        let watchdog = self.spare.then_some(Thread {
            at: At::ChangeRole,
            left: self.role_changes,
            ..IDLE
        });

        outside
            .zip(pushers.chain(watchdog))
            .for_each(|(thread, is)| *thread = is);
        let role = match (self.starts_resting, self.ends) {
            (false, _) => Role::Active,
            (true, false) => Role::Resting,
            (true, true) => Role::Ended,
        };

        if role == Role::Ended {
            threads[self.workers - 1].at = At::Nowhere;
        }
        let mut state = State {
            queue: 0,
            inbox: [0; MOST_WORKERS],
            asleep: 0,
            searching: 0,
            signals: 0,
            role,
            threads,
        };

        self.normalise(&mut state);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (id, thread) in state.threads.iter().enumerate() {
            let is_worker = id < self.workers;
            let signalled = is_worker && state.signals & bit(id) != 0;
            match thread.at {
                _ if thread.wakes == Wake::Sleeper && state.asleep != 0 => {
                    let sleepers =
                        (0..self.workers).filter(|worker| state.asleep & bit(*worker) != 0);
                    actions.extend(sleepers.map(|worker| Action::Choose(id, worker)));
                }
                _ if thread.wakes != Wake::No => actions.push(Action::Step(id)),
                At::Nowhere | At::HeldUp => {}
                // The watchdog waits for the end of the thread first.
                At::ChangeRole
                    if state.role == Role::Ended
                        && state.threads[self.workers - 1].at != At::Nowhere => {}
                At::Rest | At::RestAsideSleep => {
                    if signalled {
                        actions.push(Action::Step(id));
                    } else if self.events {
                        actions.push(Action::Event(id));
                    }
                }
                at => {
                    actions.push(Action::Step(id));
                    if at == At::Pop && signalled {
                        actions.push(Action::Turn(id));
                    }
                    if at == At::Pop && state.inbox[id] > 0 {
                        actions.push(Action::MailDue(id));
                    }
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = *state;
        match action {
            Action::Choose(id, sleeper) => self.wake(&mut state, id, Some(sleeper)),
            Action::Step(id) if state.threads[id].wakes != Wake::No => {
                self.wake(&mut state, id, None)
            }
            Action::Step(id) if id < self.workers => self.work(&mut state, id),
            Action::Step(id) => self.act(&mut state, id),
            Action::Turn(id) => state.signals &= !bit(id),
            Action::MailDue(id) => state.threads[id].at = At::ReadMail,
            Action::Event(id) => {
                let thread = &mut state.threads[id];
                thread.at = if thread.at == At::Rest {
                    At::EndSleep
                } else {
                    At::Role
                };
            }
        }

        self.normalise(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOBODY_WAITS, |setup: &Setup, state: &State| {
                let sleeper = (0..setup.workers).any(|id| state.sleeps(id));
                !state.is_quiet(setup) || !sleeper || state.queue == 0
            }),
            Property::always(MAIL_IS_READ, |setup: &Setup, state: &State| {
                let held_up = |id: Id| state.threads[id].at == At::HeldUp;
                !state.is_quiet(setup)
                    || (0..setup.workers).all(|id| state.inbox[id] == 0 || held_up(id))
            }),
            Property::always(COUNTS_END, |setup: &Setup, state: &State| {
                state.searching >= 0 && (!state.is_quiet(setup) || state.searching == 0)
            }),
            Property::always(RELEASED_REST, |setup: &Setup, state: &State| {
                let held_up = state.threads[setup.workers - 1].at == At::HeldUp;
                !state.is_quiet(setup) || state.role != Role::Released || held_up
            }),
            Property::sometimes(CLAIM_FAILS, |_: &Setup, state: &State| {
                state
                    .threads
                    .iter()
                    .any(|thread| thread.wakes == Wake::Uncount)
            }),
            Property::sometimes(CASCADE, |_: &Setup, state: &State| {
                state
                    .threads
                    .iter()
                    .any(|thread| thread.at == At::Run && matches!(thread.wakes, Wake::Signal(_)))
            }),
            Property::sometimes(ALL_SLEEP, |setup: &Setup, state: &State| {
                let mut pushers = setup.pushers.iter().zip(&state.threads[setup.workers..]);
                pushers.all(|(pusher, thread)| thread.left == pusher.1)
                    && (0..setup.workers).all(|id| state.sleeps(id))
            }),
        ]
    }
}
