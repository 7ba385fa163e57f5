//! The sleep protocol as a specification that a model checker explores: announce, last look, sleep,
//! wake, cascade, workers that join and leave.
//!
//! Loom runs the protocol's own code with few threads and bounded preemptions. This is a
//! description of the code, with more threads and every order of their steps:
//! `docs/sleep-protocol.md` says what each of the two shows. Flaws are planted to see that the
//! checker finds them.
//!
//! Four workers take minutes and gigabytes: `cargo test --release -p plainweave --test sleep_spec
//! -- --ignored --nocapture`.

mod spec;

use std::time::Instant;

use spec::At::{Push, Send};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A step that is left out or done in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    CancelledSleepUncounted,
    ClaimBeforeCount,
    FailedClaimGivesUp,
    LeavesAnnounced,
    LeaverStaysCounted,
    LeaverWakesNobody,
    LookBeforeAnnouncing,
    MailWakesNobody,
    NoCascade,
    NoLastLook,
    NoLookAtMail,
    NoLookAtQueue,
    NoLookAtRole,
    OwnTaskEndsNoSearch,
    SleeperStaysCounted,
    WokenWorkerForgetsItsCount,
}

/// What takes part.
#[derive(Clone, Debug)]
struct Setup {
    workers: usize,
    /// Whether the last worker is a spare one, whom a watchdog lets go and takes back.
    spare: bool,
    /// Or without a thread, if it ends.
    starts_resting: bool,
    /// Whether its thread ends when it is let go, and another starts; otherwise it rests.
    ends: bool,
    /// How often the watchdog changes its mind.
    role_changes: u8,
    /// Threads outside the pool: what each does first, and how often.
    pushers: Vec<(spec::At, u8)>,
    /// The worker whose inbox they send to.
    sent_to: Option<usize>,
    /// Whether each task holds up its worker for ever: then as many workers must come as there are
    /// tasks.
    tasks_hold_up: bool,
    /// Whether timers and events end sleeps.
    events: bool,
    flaw: Option<Flaw>,
}

impl Setup {
    fn of(workers: usize, pushers: &[(spec::At, u8)]) -> Self {
        Self {
            workers,
            spare: false,
            starts_resting: false,
            ends: false,
            role_changes: 0,
            pushers: pushers.to_vec(),
            sent_to: None,
            tasks_hold_up: false,
            events: false,
            flaw: None,
        }
    }

    fn with_spare(self, role_changes: u8) -> Self {
        Self {
            spare: true,
            role_changes,
            ..self
        }
    }

    fn starts_resting(self) -> Self {
        Self {
            starts_resting: true,
            ..self
        }
    }

    /// Without a driver.
    fn ends(self) -> Self {
        Self { ends: true, ..self }
    }

    fn sent_to(self, worker: usize) -> Self {
        Self {
            sent_to: Some(worker),
            ..self
        }
    }

    fn held_up(self) -> Self {
        Self {
            tasks_hold_up: true,
            ..self
        }
    }

    fn with_events(self) -> Self {
        Self {
            events: true,
            ..self
        }
    }
}

/// Returns the setups that are checked, by name.
fn setups(workers: usize) -> Vec<(&'static str, Setup)> {
    let two_push = || Setup::of(workers, &[(Push, 1), (Push, 1)]);
    let one_pushes = |times| Setup::of(workers, &[(Push, times)]);
    vec![
        ("two push", two_push()),
        ("one pushes twice", one_pushes(2)),
        ("two push, timers expire", two_push().with_events()),
        ("two push, tasks hold up", two_push().held_up()),
        ("one pushes twice, tasks hold up", one_pushes(2).held_up()),
        (
            "one pushes, one sends",
            Setup::of(workers, &[(Push, 1), (Send, 1)]).sent_to(0),
        ),
        (
            "one sends twice",
            Setup::of(workers, &[(Send, 2)]).sent_to(0),
        ),
        (
            "one sends twice, tasks hold up",
            Setup::of(workers, &[(Send, 2)]).sent_to(0).held_up(),
        ),
        ("a spare worker leaves", one_pushes(1).with_spare(1)),
        (
            "a spare worker leaves and joins",
            one_pushes(1).with_spare(2),
        ),
        (
            "a spare worker joins and leaves",
            one_pushes(1).with_spare(2).starts_resting(),
        ),
        (
            "two push, a spare worker leaves, tasks hold up",
            two_push().with_spare(1).held_up(),
        ),
        ("a spare worker ends", one_pushes(1).with_spare(1).ends()),
        (
            "a spare worker ends and starts",
            one_pushes(1).with_spare(2).ends(),
        ),
        (
            "a spare worker starts and ends",
            one_pushes(1).with_spare(2).ends().starts_resting(),
        ),
        (
            "two push, a spare worker ends, tasks hold up",
            two_push().with_spare(1).ends().held_up(),
        ),
        (
            "one sends to a spare worker",
            Setup::of(workers, &[(Send, 1)])
                .with_spare(2)
                .sent_to(workers - 1),
        ),
    ]
}

/// Explores every order of steps and returns the number of states.
#[expect(clippy::print_stdout, reason = "figures for whoever asks for them")]
fn check(name: &str, setup: &Setup) -> usize {
    let start = Instant::now();
    let checker = setup.clone().checker().threads(2).spawn_bfs().join();
    for property in setup.properties() {
        match (property.expectation, checker.discovery(property.name)) {
            (Expectation::Always, Some(path)) => {
                panic!("{name}: {} does not hold:\n{path}", property.name)
            }
            // A protocol whose difficult cases never come would prove nothing.
            (Expectation::Sometimes, None) if setup.reaches(property.name) => {
                panic!("{name}: it never comes to this: {}", property.name)
            }
            _ => {}
        }
    }

    let states = checker.unique_state_count();
    println!(
        "{name}, {} workers: {states} states, {:.1} s",
        setup.workers,
        start.elapsed().as_secs_f64()
    );
    states
}

#[test]
fn no_wake_up_is_lost_with_two_workers() {
    for (name, setup) in setups(2) {
        check(name, &setup);
    }
}

#[test]
fn no_wake_up_is_lost_with_three_workers() {
    // The others have millions of states.
    let is_small = |setup: &Setup| match setup.pushers.as_slice() {
        [_] => setup.role_changes < 2,
        _ => !setup.spare && setup.sent_to.is_none(),
    };

    for (name, setup) in setups(3).iter().filter(|(_, setup)| is_small(setup)) {
        assert!(check(name, setup) > 10_000);
    }
}

#[test]
#[ignore = "minutes and gigabytes"]
fn no_wake_up_is_lost_with_four_workers() {
    for (name, setup) in setups(4) {
        check(name, &setup);
    }
}

/// Each flaw, with what it breaks and the setup in which that shows.
#[test]
fn planted_flaws_are_found() {
    use Flaw::*;
    let waits = spec::NOBODY_WAITS;
    let counts = spec::COUNTS_END;
    let mail = spec::MAIL_IS_READ;
    let rest = spec::RELEASED_REST;
    let flaws = [
        (CancelledSleepUncounted, "two push, tasks hold up", waits),
        (ClaimBeforeCount, "one pushes twice", counts),
        (FailedClaimGivesUp, "two push", waits),
        (
            LeaverStaysCounted,
            "a spare worker leaves and joins",
            counts,
        ),
        (LeaverWakesNobody, "a spare worker leaves", waits),
        (LeaverWakesNobody, "a spare worker ends", waits),
        (LeavesAnnounced, "a spare worker ends and starts", counts),
        (LookBeforeAnnouncing, "one pushes twice", waits),
        (MailWakesNobody, "one sends twice, tasks hold up", waits),
        (NoCascade, "one pushes twice, tasks hold up", waits),
        (NoLastLook, "one pushes twice", waits),
        (NoLookAtMail, "one sends twice", mail),
        (NoLookAtQueue, "one pushes twice", waits),
        (NoLookAtRole, "a spare worker leaves", rest),
        (OwnTaskEndsNoSearch, "two push, tasks hold up", counts),
        (SleeperStaysCounted, "two push", counts),
        (WokenWorkerForgetsItsCount, "one pushes twice", counts),
    ];

    for (flaw, name, breaks) in flaws {
        let (_, setup) = setups(2)
            .into_iter()
            .find(|(other, _)| *other == name)
            .expect("one of the setups");
        let checker = Setup {
            flaw: Some(flaw),
            ..setup
        }
        .checker()
        .finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.spawn_bfs().join();
        assert!(
            checker.discovery(breaks).is_some(),
            "{flaw:?}, {name}: {:?}",
            checker.discoveries().keys()
        );
    }
}
