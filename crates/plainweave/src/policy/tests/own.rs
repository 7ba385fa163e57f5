//! What single policies promise beyond the suite, and how policies are named.

use std::time::Duration;

use super::*;
use crate::policy::thesis::*;

/// Pushes tasks 0 to `n - 1` on one worker, all for the same reason, and pops them all.
fn order_of<P: Policy<Probe>>(params: P::Params, n: usize, why: Ready) -> Vec<usize> {
    let policy = P::new(params, &Topology::flat(1));
    let mut cx = Cx::new(6);
    let mut local = policy.attach(0);
    for i in 0..n {
        policy.push(&mut cx, Some(&mut local), Probe::new(i), why);
    }

    pop_all(&policy, &mut cx, &mut local, Effort::Quick)
        .iter()
        .map(|t| t.id)
        .collect()
}

/// The same by name.
fn order(name: &str, n: usize, why: Ready) -> Vec<usize> {
    struct Order(usize, Ready);
    impl Visitor<Probe> for Order {
        type Output = Vec<usize>;
        fn visit<P: Policy<Probe>>(self, params: P::Params) -> Vec<usize> {
            order_of::<P>(params, self.0, self.1)
        }
    }
    Choice::parse(name).expect("a policy").visit(Order(n, why))
}

#[test]
fn orders() {
    let up: Vec<_> = (0..50).collect();
    let down: Vec<_> = (0..50).rev().collect();
    assert_eq!(order("fifo", 50, Ready::Woken), up);
    assert_eq!(order("lifo", 50, Ready::Woken), down);
    assert_eq!(
        order("lifo", 50, Ready::Yielded),
        up,
        "tasks that yield wait in line"
    );
    assert_eq!(order("local-lifo", 50, Ready::Woken), down);
    assert_eq!(order("global-fifo", 50, Ready::Woken), up);
    assert_eq!(order("lifo-slot", 4, Ready::Woken), [3, 0, 1, 2]);
    assert_eq!(
        order("lifo:order=alternate:2", 6, Ready::Woken),
        [5, 0, 4, 1, 3, 2]
    );
    assert_eq!(
        order("lifo:order=reverse:3", 6, Ready::Woken),
        [5, 4, 0, 1, 2, 3]
    );
    let mixed = order("lifo:order=stochastic:50", 50, Ready::Woken);

    assert!(mixed != up && mixed != down && ids(mixed.into_iter().map(Probe::new)) == up);
    assert_eq!(order("lifo:order=stochastic:0", 50, Ready::Woken), down);
    assert_eq!(order("lifo:order=stochastic:100", 50, Ready::Woken), up);
}

#[test]
fn a_thief_takes_the_oldest_and_the_amount_that_was_asked_for() {
    for (amount, most) in [("half", 5), ("one", 1), ("atleast:8", 8)] {
        for order in ["fifo", "lifo"] {
            struct Steal;
            impl Visitor<Probe> for Steal {
                type Output = Vec<usize>;
                fn visit<P: Policy<Probe>>(self, params: P::Params) -> Vec<usize> {
                    let policy = P::new(params, &Topology::flat(2));
                    let mut cx = Cx::new(1);
                    let mut a = policy.attach(0);
                    let mut b = policy.attach(1);
                    for i in 0..10 {
                        policy.push(&mut cx, Some(&mut a), Probe::new(i), Ready::Spawned);
                    }
                    let first = policy.pop(&mut cx, &mut b, Effort::Search).into_iter();

                    ids(first.chain(pop_all(&policy, &mut cx, &mut b, Effort::Quick)))
                }
            }
            let choice = Choice::parse(&format!("{order}:amount={amount}")).expect("a policy");
            assert_eq!(
                choice.visit(Steal),
                (0..most).collect::<Vec<_>>(),
                "{order} {amount}"
            );
        }
    }
}

#[test]
fn a_slot_is_given_up_after_three_in_a_row_and_to_thieves() {
    let params = || match Choice::parse("lifo-slot").expect("a preset").family() {
        Family::Stealing(params) => params.clone(),
        other => panic!("{other:?}"),
    };

    let policy = LifoSlot::<Probe>::new(params(), &Topology::flat(1));
    let mut cx = Cx::new(7);
    let mut local = policy.attach(0);
    policy.push(&mut cx, Some(&mut local), Probe::new(7), Ready::Spawned);
    policy.push(&mut cx, Some(&mut local), Probe::new(1), Ready::Woken);
    let mut pops = 0;

    while let Some(task) = policy
        .pop(&mut cx, &mut local, Effort::Quick)
        .filter(|t| t.id == 1)
    {
        pops += 1;
        policy.push(&mut cx, Some(&mut local), task, Ready::Woken);
    }
    assert_eq!(pops, 3);

    for stealable in [true, false] {
        let mut params = params();
        params.slot.stealable = stealable;
        let policy = LifoSlot::<Probe>::new(params, &Topology::flat(2));
        let mut a = policy.attach(0);
        let mut b = policy.attach(1);
        let wake = policy.push(&mut cx, Some(&mut a), Probe::new(1), Ready::Woken);

        assert_eq!(wake == Wake::Any, stealable);
        assert_eq!(policy.maybe_ready(1), stealable);
        assert_eq!(
            policy.pop(&mut cx, &mut b, Effort::Search).is_some(),
            stealable
        );
    }
}

/// With `publish=8`: after the last pop the 1st push is seen, the 2nd, the 4th and the 8th, and
/// then each 8th.
#[test]
fn what_is_pushed_in_a_row_is_shown_in_batches() {
    struct Show;
    impl Visitor<Probe> for Show {
        type Output = ();
        fn visit<P: Policy<Probe>>(self, params: P::Params) {
            let policy = P::new(params, &Topology::flat(2));
            let mut cx = Cx::new(5);
            let mut a = policy.attach(0);
            let mut b = policy.attach(1);
            for round in 0..3 {
                let mut wakes = |id: usize| {
                    let wake = policy.push(&mut cx, Some(&mut a), Probe::new(id), Ready::Spawned);
                    assert_eq!(policy.maybe_ready(1), wake == Wake::Any || id > 0);
                    wake == Wake::Any
                };

                let shown: Vec<_> = (0..25).filter(|id| wakes(*id)).map(|id| id + 1).collect();
                assert_eq!(shown, [1, 2, 4, 8, 16, 24], "round {round}");
                // A thief finds all but the 25th; then the owner has nothing else.
                let stolen = take_all(&policy, &mut cx, 1, &mut b);
                assert_eq!(ids(stolen), (0..24).collect::<Vec<_>>());
                let last = policy.pop(&mut cx, &mut a, Effort::Quick);

                assert_eq!(last.map(|task| task.id), Some(24));
                assert!(policy.pop(&mut cx, &mut a, Effort::Quick).is_none());
            }

            // Where thieves have taken what they saw, the owner's next pop shows the rest.
            for id in 0..7 {
                policy.push(&mut cx, Some(&mut a), Probe::new(id), Ready::Woken);
            }
            assert_eq!(ids(take_all(&policy, &mut cx, 1, &mut b)), [0, 1, 2, 3]);
            assert!(!policy.maybe_ready(1));
            assert_eq!(
                policy
                    .pop(&mut cx, &mut a, Effort::Quick)
                    .map(|task| task.id),
                Some(4)
            );
            assert_eq!(ids(take_all(&policy, &mut cx, 1, &mut b)), [5, 6]);
        }
    }
    Choice::parse("fifo:publish=8")
        .expect("a policy")
        .visit(Show);
}

/// A structure that is full of tasks that nobody takes: what comes overflows, and the oldest come
/// first.
#[test]
fn batches_that_find_no_room_overflow() {
    for full in ["spill", "overflow", "announce"] {
        let order = order(
            &format!("fifo:publish=8,capacity=16,full={full}"),
            300,
            Ready::Spawned,
        );
        assert_eq!(
            order,
            (0..300).collect::<Vec<_>>(),
            "a sole worker has no thieves, {full}"
        );
        struct Overflow;
        impl Visitor<Probe> for Overflow {
            type Output = Vec<usize>;
            fn visit<P: Policy<Probe>>(self, params: P::Params) -> Vec<usize> {
                let policy = P::new(params, &Topology::flat(2));
                let mut cx = Cx::new(5);
                let mut a = policy.attach(0);
                let _b = policy.attach(1);
                for id in 0..300 {
                    policy.push(&mut cx, Some(&mut a), Probe::new(id), Ready::Spawned);
                }
                ids(pop_all(&policy, &mut cx, &mut a, Effort::Quick))
            }
        }
        let policy =
            Choice::parse(&format!("fifo:publish=8,capacity=16,full={full}")).expect("a policy");

        assert_eq!(
            policy.visit(Overflow),
            (0..300).collect::<Vec<_>>(),
            "{full}"
        );
    }
}

/// A worker that is stuck in a task holds none back that yielded before it, whatever the order.
#[test]
fn what_yielded_softly_can_be_stolen() {
    struct Yield;
    impl Visitor<Probe> for Yield {
        type Output = Vec<usize>;
        fn visit<P: Policy<Probe>>(self, params: P::Params) -> Vec<usize> {
            let policy = P::new(params, &Topology::flat(2));
            let mut cx = Cx::new(5);
            let mut a = policy.attach(0);
            let mut b = policy.attach(1);
            assert_eq!(
                policy.push(&mut cx, Some(&mut a), Probe::new(0), Ready::Yielded),
                Wake::None,
                "yields to nobody"
            );

            for i in 1..4 {
                assert_eq!(
                    policy.push(&mut cx, Some(&mut a), Probe::new(i), Ready::Yielded),
                    Wake::Any
                );
            }

            assert!(policy.maybe_ready(1));
            pop_all(&policy, &mut cx, &mut b, Effort::Search)
                .iter()
                .map(|task| task.id)
                .collect()
        }
    }
    for order in ["fifo", "lifo", "stochastic:50", "alternate:2", "reverse:2"] {
        let choice = Choice::parse(&format!("lifo:order={order},yields=local")).expect("a policy");
        assert_eq!(choice.visit(Yield), [0, 1, 2, 3], "{order}");
    }
}

/// What a full structure does: how many of 20 tasks, pushed on a worker with room for 8, wait in
/// the shared queue.
#[test]
fn a_full_structure_does_what_was_asked_for() {
    struct Fill;
    impl Visitor<Probe> for Fill {
        type Output = (usize, bool);
        fn visit<P: Policy<Probe>>(self, params: P::Params) -> (usize, bool) {
            let policy = P::new(params, &Topology::flat(2));
            let mut cx = Cx::new(1);
            let mut a = policy.attach(0);
            let mut b = policy.attach(1);
            for i in 0..20 {
                policy.push(&mut cx, Some(&mut a), Probe::new(i), Ready::Spawned);
            }

            // What a worker finds that does not search; one that was asked for help steals.
            let found = pop_all(&policy, &mut cx, &mut b, Effort::Quick);
            (found.len(), found.iter().any(|t| t.id < 8))
        }
    }
    let fill = |what: &str| {
        Choice::parse(&format!("fifo:capacity=8,{what}"))
            .expect("a policy")
            .visit(Fill)
    };

    // Thrice half of eight and one more.
    assert_eq!(fill("full=spill"), (15, true));
    assert_eq!(
        fill("full=spill,shards=2"),
        (15, true),
        "the family does as the default"
    );
    assert_eq!(fill("full=overflow"), (12, false));
    assert_eq!(fill("full=overflow,shared=locked"), (12, false));
    assert_eq!(fill("full=overflow,shards=3,spin=5"), (12, false));
    assert_eq!(fill("full=announce"), (12, false));
    assert_eq!(fill("full=grow"), (0, false));
    assert_eq!(fill("full=request"), (12 + 4, true));
    assert_eq!(fill("full=sticky"), (12 + 8, true));
}

#[test]
fn an_announced_worker_is_robbed_first() {
    let text = "fifo:capacity=8,full=announce";
    let Family::Stealing(params) = Choice::parse(text).expect("a policy").family().clone() else {
        panic!()
    };
    let policy = Fifo::<Probe>::new(params, &Topology::flat(8));
    let mut cx = Cx::new(1);

    let mut locals: Vec<_> = (0..8).map(|w| policy.attach(w)).collect();
    for (w, local) in locals.iter_mut().enumerate() {
        let tasks = if w == 5 { 9 } else { 1 };
        for i in 0..tasks {
            policy.push(
                &mut cx,
                Some(local),
                Probe::new(w * 100 + i),
                Ready::Spawned,
            );
        }
    }

    let thief = &mut locals[0];
    let mut found = pop_all(&policy, &mut cx, thief, Effort::Quick);
    assert_eq!(found.len(), 2, "its own and what overflowed");
    found = policy
        .pop(&mut cx, thief, Effort::Search)
        .into_iter()
        .collect();
    assert_eq!(found[0].id, 500);
}

#[test]
fn what_is_wrong_is_told_with_what_is_valid() {
    for (text, parts) in [
        ("fiffo", &["'fiffo'", "fifo, lifo-slot"] as &[_]),
        ("", &["''", "global-fifo"]),
        ("fifo:speed=9", &["'fifo'", "'speed'", "poll=1..65535"]),
        ("fifo:poll", &["'poll'", "NAME=VALUE"]),
        ("fifo:poll=0", &["poll=0", "1..65535"]),
        ("fifo:poll=99999999999", &["1..65535"]),
        ("fifo:victim=near:0", &["victim=near:0", "near:K"]),
        ("lifo:order=stochastic:101", &["stochastic:P"]),
        ("fifo:amount=passover:10", &["passover:N:P"]),
        ("fifo:full=overflow:101", &["overflow[:P]"]),
        ("global-fifo:poll=1", &["'global-fifo'", "it has none"]),
        ("lifo:slot=3", &["slot=0"]),
        ("lifo-slot:full=horizontal", &["slot=0"]),
        ("lifo:order=reverse:2,full=horizontal", &["two structures"]),
        ("lifo:publish=2", &["publish=1"]),
        ("lifo-slot:publish=2", &["no slot"]),
        ("fifo:publish=0", &["publish=0", "1..1024"]),
        ("lifo:yields=swap", &["order=fifo"]),
        ("ot-fifo-swap:full=horizontal", &["one structure"]),
    ] {
        let message = Choice::parse(text).expect_err(text);
        assert!(
            parts.iter().all(|part| message.contains(part)),
            "{text}: {message}"
        );
    }
}

#[test]
fn presets_have_names_of_their_own_and_can_be_changed() {
    let mut names: Vec<_> = PRESETS.iter().map(|p| p.name).collect();
    assert_eq!(names[0], "fifo");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PRESETS.len());

    for preset in PRESETS {
        let choice = Choice::parse(preset.name).expect("well-formed");
        assert_eq!(choice.preset().name, preset.name);
        assert!(!preset.source.is_empty() && !preset.tradeoff.is_empty());
    }

    for (text, simple) in [
        ("fifo", true),
        ("fifo:capacity=64,poll=9", true),
        ("fifo:victim=near:2", false),
    ] {
        let choice = Choice::parse(text).expect("a policy");
        assert_eq!(
            matches!(choice.family(), Family::WorkStealing(_)),
            simple,
            "{text}"
        );
    }

    let changed = Choice::parse("lifo:capacity=64,victim=near:13,amount=one").expect("a policy");
    let Family::Stealing(params) = changed.family() else {
        panic!("{changed:?}")
    };
    assert_eq!((params.ends, params.capacity), (Ends::Lifo, 64));
    assert_eq!(
        (params.victim, params.amount),
        (Victim::Nearest { k: 13 }, Amount::One)
    );
    let only = Choice::parse("lifo:victim=only:13").expect("a policy");

    assert_eq!(only.conservation(), Conservation::Never);
    assert!(only.experiment().is_some() && changed.experiment().is_none());
}

/// Two workers; worker 0 has ten tasks and is busy, worker 1 has tasks that yield for ever. How
/// many pops of worker 1 until all ten have run there.
fn pops_until_helped(name: &str) -> Option<usize> {
    struct Stuck;
    impl Visitor<Probe> for Stuck {
        type Output = Option<usize>;
        fn visit<P: Policy<Probe>>(self, params: P::Params) -> Option<usize> {
            let policy = P::new(params, &Topology::flat(2));
            let mut cx = Cx::new(11);
            let mut a = policy.attach(0);
            let mut b = policy.attach(1);
            cx.set_now(1_000_000);
            for i in 0..10 {
                policy.push(&mut cx, Some(&mut a), Probe::new(i), Ready::Woken);
                policy.push(&mut cx, Some(&mut b), Probe::new(100 + i), Ready::Woken);
            }

            let mut left = 10;
            for pops in 1..SOON {
                cx.set_now(1_000_000 + pops as u64 * 100);
                let task = policy
                    .pop(&mut cx, &mut b, Effort::Quick)
                    .expect("never empty");
                if task.id < 10 {
                    left -= 1;
                    if left == 0 {
                        return Some(pops);
                    }
                } else {
                    policy.push(&mut cx, Some(&mut b), task, Ready::Yielded);
                }
            }

            None
        }
    }
    Choice::parse(name).expect("a policy").visit(Stuck)
}

#[test]
fn helpers_leave_their_own_work_for_who_waits_behind_a_busy_worker() {
    assert_eq!(
        pops_until_helped("fifo"),
        None,
        "thieves only come when they have nothing"
    );
    for name in [
        "helping",
        "helping-early",
        "helping-bounded",
        "multi-queue",
        "global-fifo",
    ] {
        assert!(pops_until_helped(name).is_some(), "{name}");
    }

    // Four lanes, each visited once in 4 * 13 pops, and five tasks in each of worker 0's.
    let bound = 5 * 4 * 13 + 13;
    let pops = pops_until_helped("helping-bounded:factor=1000,far=0").expect("helped");
    assert!(pops <= bound, "{pops} of at most {bound}");
}

/// Tasks 0, 1, 2 with something of their own each, pushed at once; the order in which they first
/// run.
fn order_with(name: &str, give: fn(&mut Probe)) -> Vec<usize> {
    struct Give(fn(&mut Probe));
    impl Visitor<Probe> for Give {
        type Output = Vec<usize>;
        fn visit<P: Policy<Probe>>(self, params: P::Params) -> Vec<usize> {
            let policy = P::new(params, &Topology::flat(2));
            let mut cx = Cx::new(1);
            let mut local = policy.attach(0);
            cx.set_now(1_000_000_000);

            for i in 0..6 {
                let mut task = if i % 2 == 0 {
                    Probe::pinned_to(i, 0)
                } else {
                    Probe::new(i)
                };

                (self.0)(&mut task);
                policy.push(&mut cx, Some(&mut local), task, Ready::Spawned);
            }

            pop_all(&policy, &mut cx, &mut local, Effort::Quick)
                .iter()
                .map(|t| t.id)
                .collect()
        }
    }
    Choice::parse(name).expect("a policy").visit(Give(give))
}

#[test]
fn priorities_and_deadlines_order() {
    assert_eq!(
        order_with("priority", |t| t.priority = t.id as u8 * 10),
        [5, 4, 3, 2, 1, 0]
    );
    let due =
        |t: &mut Probe| t.deadline = (t.id > 0).then(|| 2_000_000_000 - t.id as u64 * 1_000_000);
    // Without a deadline, task 0 is due 100 ms from now: before those that are due in a second.
    assert_eq!(order_with("edf", due), [0, 5, 4, 3, 2, 1]);
    assert_eq!(order_with("edf:patience=60000", due), [5, 4, 3, 2, 1, 0]);

    // Who is late is not served before who became ready earlier.
    let late = |t: &mut Probe| t.deadline = Some(if t.id == 3 { 0 } else { 1_000_000_000 });
    assert_eq!(
        ids(order_with("edf", late).into_iter().map(Probe::new)),
        [0, 1, 2, 3, 4, 5]
    );
    assert_ne!(order_with("edf", late)[0], 5);
}

#[test]
fn waiting_makes_urgent() {
    let policy = Priority::<Probe>::new(PriorityParams { level_us: 1 }, &Topology::flat(1));
    let mut cx = Cx::new(1);
    let mut local = policy.attach(0);
    let with = |id: usize, priority: u8| Probe {
        priority,
        ..Probe::new(id)
    };

    cx.set_now(1_000_000);
    policy.push(&mut cx, Some(&mut local), with(0, 0), Ready::Spawned);
    cx.set_now(1_000_000 + 254_000);
    policy.push(&mut cx, Some(&mut local), with(1, 255), Ready::Spawned);
    cx.set_now(1_000_000 + 256_000);
    policy.push(&mut cx, Some(&mut local), with(2, 255), Ready::Spawned);
    let order: Vec<_> = pop_all(&policy, &mut cx, &mut local, Effort::Quick)
        .iter()
        .map(|t| t.id)
        .collect();

    assert_eq!(order, [1, 0, 2], "255 levels of a microsecond each");
}

#[test]
fn shares_follow_weights() {
    for pinned in [true, false] {
        let policy = Shares::<Probe>::new((), &Topology::flat(2));
        let mut cx = Cx::new(1);
        let mut local = policy.attach(0);
        let mut ran = [0usize; 3];

        for (id, weight) in [50, 100, 250].into_iter().enumerate() {
            let task = Probe {
                weight,
                pinned: pinned.then_some(0),
                ..Probe::new(id)
            };
            policy.push(&mut cx, Some(&mut local), task, Ready::Spawned);
        }

        for _ in 0..4000 {
            let task = policy
                .pop(&mut cx, &mut local, Effort::Quick)
                .expect("never empty");
            ran[task.id] += 1;
            policy.push(&mut cx, Some(&mut local), task, Ready::Yielded);
        }

        assert!(
            ran.iter()
                .zip([500, 1000, 2500])
                .all(|(&ran, due)| ran.abs_diff(due) <= 3),
            "{ran:?}"
        );
        // Who comes late gets its share, not what it has missed.
        policy.push(
            &mut cx,
            Some(&mut local),
            Probe {
                weight: 400,
                ..Probe::new(1)
            },
            Ready::Spawned,
        );
        ran = [0; 3];

        for _ in 0..800 {
            let task = policy
                .pop(&mut cx, &mut local, Effort::Quick)
                .expect("never empty");
            ran[task.id] += 1;
            policy.push(&mut cx, Some(&mut local), task, Ready::Yielded);
        }

        assert!(
            ran.iter()
                .zip([50, 500, 250])
                .all(|(&ran, due)| ran.abs_diff(due) <= 3),
            "{ran:?}"
        );
    }
}

#[test]
fn tiers_conform_and_keep_their_order() {
    type Two = Tiers<Edf<Probe>, WorkStealing<Probe>>;
    let params = || TiersParams {
        high: DeadlineParams::default(),
        low: WorkStealingParams::default(),
        from: PRIORITY + 1,
        every: 61,
    };

    let any = &PRESETS[0];
    loses_nothing::<Two>(any, params());
    keeps_pinned::<Two>(any, params());
    serves_outside::<Two>(any, params());
    serves_yields::<Two>(any, params());
    moves_started::<Two>(any, params());
    bounds_waiting::<Two>(any, params());
    drains::<Two>(any, params());
    runs_once::<Two>(any, params());
    looks_well::<Two>(any, params());
    let policy = Two::new(params(), &Topology::flat(1));
    let mut cx = Cx::new(1);
    let mut local = policy.attach(0);

    for id in 0..4 {
        let priority = if id < 2 { PRIORITY } else { 200 };
        let task = Probe {
            priority,
            deadline: Some(1000 - id as u64),
            ..Probe::new(id)
        };
        policy.push(&mut cx, Some(&mut local), task, Ready::Spawned);
    }

    let order: Vec<_> = pop_all(&policy, &mut cx, &mut local, Effort::Quick)
        .iter()
        .map(|t| t.id)
        .collect();
    assert_eq!(order, [3, 2, 0, 1]);
}

/// Times and rank errors of four tasks, by hand: in the order of arrival and in the opposite one.
#[test]
fn waits_are_observed() {
    fn waits(policy: &str) -> [Waits; 2] {
        struct Run;
        impl Visitor<Numbered<Probe>> for Run {
            type Output = [Waits; 2];
            fn visit<P: Policy<Numbered<Probe>>>(self, policy: P::Params) -> [Waits; 2] {
                let observer = Observer::by_loop_clock();
                let params = ObservedParams {
                    policy,
                    observer: observer.clone(),
                };

                let policy = Observed::<P>::new(params, &Topology::flat(1));
                let mut cx = Cx::new(1);
                let mut local = policy.attach(0);
                (0..4).for_each(|i| {
                    cx.set_now(10 * i);
                    policy.push(
                        &mut cx,
                        Some(&mut local),
                        Probe::new(i as usize),
                        Ready::Woken,
                    );
                });
                cx.set_now(100);
                assert_eq!(
                    pop_all(&policy, &mut cx, &mut local, Effort::Quick).len(),
                    4
                );

                [observer.take(), observer.take()]
            }
        }
        Choice::parse(policy).expect("known").visit(Run)
    }
    let total = Duration::from_nanos(100 + 90 + 80 + 70);
    let fifo = Waits {
        pops: 4,
        total,
        greatest: Duration::from_nanos(100),
        rank_errors: 0,
        greatest_rank_error: 0,
    };

    assert_eq!(waits("local-fifo"), [fifo, Waits::default()]);
    // The newest has three before it, and so on.
    assert_eq!(
        waits("local-lifo")[0],
        Waits {
            rank_errors: 3 + 2 + 1,
            greatest_rank_error: 3,
            ..fifo
        }
    );
}

/// One task waits while thousands go before it: the numbers between are given up, its own is kept.
#[test]
fn who_is_overtaken_for_long_is_counted_each_time() {
    let observer = Observer::by_loop_clock();
    let params = ObservedParams {
        policy: LocalParams {
            order: TakeOrder::Lifo,
            ..LocalParams::default()
        },
        observer,
    };

    let observer = params.observer.clone();
    let policy = Observed::<Local<Numbered<Probe>>>::new(params, &Topology::flat(1));
    let mut cx = Cx::new(1);
    let mut local = policy.attach(0);
    policy.push(&mut cx, Some(&mut local), Probe::new(0), Ready::Woken);

    for i in 1..1000 {
        policy.push(&mut cx, Some(&mut local), Probe::new(i), Ready::Woken);
        assert_eq!(
            policy
                .pop(&mut cx, &mut local, Effort::Quick)
                .map(|task| task.id),
            Some(i)
        );
    }

    let waits = observer.take();
    assert_eq!((waits.rank_errors, waits.greatest_rank_error), (999, 1));
    assert_eq!(
        policy
            .pop(&mut cx, &mut local, Effort::Quick)
            .map(|task| task.id),
        Some(0)
    );
    assert_eq!(observer.take().rank_errors, 0);
}

/// Tasks that a policy has given up wait no more.
#[test]
fn what_is_drained_counts_no_longer() {
    let observer = Observer::by_loop_clock();
    let new = || {
        let params = ObservedParams {
            policy: LocalParams::default(),
            observer: observer.clone(),
        };
        Observed::<Local<Numbered<Probe>>>::new(params, &Topology::flat(1))
    };

    let ended = new();
    let mut cx = Cx::new(1);
    let mut local = ended.attach(0);
    for i in 0..100 {
        ended.push(&mut cx, Some(&mut local), Probe::new(i), Ready::Woken);
    }
    let mut drained = 0;

    ended.drain(local, &mut |_| drained += 1);
    let policy = new();
    let mut cx = Cx::new(1);
    let mut local = policy.attach(0);

    policy.push(&mut cx, Some(&mut local), Probe::new(0), Ready::Woken);
    assert!(policy.pop(&mut cx, &mut local, Effort::Quick).is_some());
    assert_eq!((drained, observer.take().rank_errors), (100, 0));
}
