//! The rules of the OCaml schedulers' thesis, one by one: scripted runs whose order of execution is
//! known. The table in `docs/policies.md` has those from which ours differ.

use super::*;

/// Workers with their halves and one source of random numbers, driven by a script.
struct Bench<P: Policy<Probe>> {
    policy: P,
    cx: Cx,
    locals: Vec<P::Local>,
}

impl<P: Policy<Probe>> Bench<P> {
    fn new(params: P::Params, workers: usize, seed: u64) -> Self {
        let policy = P::new(params, &Topology::flat(workers));
        let locals = (0..workers).map(|worker| policy.attach(worker)).collect();
        Self {
            policy,
            cx: Cx::new(seed),
            locals,
        }
    }

    fn spawn(&mut self, worker: WorkerId, ids: impl IntoIterator<Item = usize>) {
        for id in ids {
            self.push(worker, id, Ready::Spawned);
        }
    }

    fn push(&mut self, worker: WorkerId, id: usize, why: Ready) {
        self.policy.push(
            &mut self.cx,
            Some(&mut self.locals[worker]),
            Probe::new(id),
            why,
        );
    }

    fn pop(&mut self, worker: WorkerId, effort: Effort) -> Option<usize> {
        self.policy
            .pop(&mut self.cx, &mut self.locals[worker], effort)
            .map(|task| task.id)
    }

    /// What `worker` runs until a pop finds nothing.
    fn run(&mut self, worker: WorkerId, effort: Effort) -> Vec<usize> {
        std::iter::from_fn(|| self.pop(worker, effort)).collect()
    }
}

/// Runs a script under the policy that `text` names.
macro_rules! script {
    ($text:expr, $workers:expr, $seed:expr, |$bench:ident| -> $out:ty $script:block) => {{
        struct Script(u64);
        impl Visitor<Probe> for Script {
            type Output = $out;
            fn visit<P: Policy<Probe>>(self, params: P::Params) -> $out {
                #[allow(unused_mut)]
                let mut $bench = Bench::<P>::new(params, $workers, self.0);
                $script
            }
        }
        Choice::parse($text).expect("a policy").visit(Script($seed))
    }};
}

/// Do not steal less than 10: a thief leaves the three tasks of worker 1 for the twelve of worker
/// 2, wherever it begins.
#[test]
fn a_victim_with_few_tasks_is_passed_over() {
    for seed in 0..20 {
        let stolen = |text: &str| {
            script!(text, 3, seed, |bench| -> Vec<Option<usize>> {
                bench.spawn(1, 100..103);
                bench.spawn(2, 200..212);
                (0..7).map(|_| bench.pop(0, Effort::Search)).collect()
            })
        };

        // Half of twelve. Then both have fewer than ten: that search finds nothing.
        let fifo = [200, 201, 202, 203, 204, 205].map(Some);
        let lifo = [200, 205, 204, 203, 202, 201].map(Some);
        for (policy, order) in [
            ("ot-fifo-uniform", fifo),
            ("ot-lifo-uniform", lifo),
            ("lifo:order=reverse:99", lifo),
            ("lifo-slot", fifo),
        ] {
            let found = stolen(&format!(
                "{policy}{}amount=passover:10:0",
                if policy.contains(':') { ',' } else { ':' }
            ));
            assert_eq!((&found[..6], found[6]), (&order[..], None), "{policy}");
        }
    }
}

/// With its small chance, here a certainty, the thief takes from the first victim that it looks at.
#[test]
fn a_victim_with_few_tasks_is_robbed_by_chance() {
    let first = |text: &str, seed| {
        script!(text, 3, seed, |bench| -> Option<usize> {
            bench.spawn(1, 100..103);
            bench.spawn(2, 200..212);
            bench.pop(0, Effort::Search)
        })
    };

    let robbed = |text: &str| {
        (0..200)
            .filter(|&seed| first(text, seed) == Some(100))
            .count()
    };

    assert_eq!(robbed("ot-fifo-uniform:amount=passover:10:0"), 0);
    let half = robbed("ot-fifo-uniform:amount=half");
    assert!(
        half > 50,
        "{half} of 200: worker 1 is the first victim in half of the runs or more"
    );
    let few = robbed("ot-fifo-pass-10:victim=uniform");
    assert!((1..half / 3).contains(&few), "{few} beside {half} of 200");

    for seed in 0..20 {
        let text = "ot-fifo-uniform:amount=passover:10:100";
        assert!(
            matches!(first(text, seed), Some(100 | 200)),
            "the oldest of either"
        );
    }
}

/// Ours: workers sleep. So the search after one that found nothing passes nobody over.
#[test]
fn a_thief_that_searches_again_passes_nobody_over() {
    for order in ["ot-fifo-uniform", "ot-lifo-uniform", "lifo-slot"] {
        let found = script!(
            &format!("{order}:amount=passover:10:0"),
            2,
            1,
            |bench| -> [Option<usize>; 3] {
                bench.spawn(1, [100]);
                [(); 3].map(|()| bench.pop(0, Effort::Search))
            }
        );
        assert_eq!(found, [None, Some(100), None], "{order}");
    }
}

/// The nearest 15 on a ring of 40: eight after the thief and seven before it.
#[test]
fn a_thief_robs_the_nearest_15() {
    for preset in ["ot-fifo-near-15", "ot-lifo-near-15"] {
        let stolen = script!(preset, 40, 7, |bench| -> Vec<usize> {
            (1..40).for_each(|worker| bench.spawn(worker, [worker]));
            bench.run(0, Effort::Search)
        });

        assert_eq!(
            ids(stolen.into_iter().map(Probe::new)),
            (1..=8).chain(33..40).collect::<Vec<_>>(),
            "{preset}"
        );
    }
}

/// Overflow with a chance before the structure is full: what a worker finds in the shared queue
/// that does not steal, and the order in which the spawner runs the rest.
#[test]
fn tasks_overflow_by_chance_before_the_structure_is_full() {
    let run = |text: &str| {
        script!(text, 2, 3, |bench| -> (Vec<usize>, Vec<usize>) {
            bench.spawn(0, 0..40);
            (bench.run(1, Effort::Quick), bench.run(0, Effort::Quick))
        })
    };

    let all: Vec<_> = (0..40).collect();
    assert_eq!(run("ot-fifo:full=overflow:100"), (all.clone(), vec![]));
    assert_eq!(run("ot-fifo:full=overflow:0"), (vec![], all.clone()));
    assert_eq!(run("ot-fifo"), (vec![], all.clone()));

    // The draws of a source with the same seed say which.
    for (text, percent) in [("ot-fifo:full=overflow:50", 50), ("ot-fifo-overflow", 5)] {
        let mut draws = Cx::new(3);
        let expected: (Vec<_>, Vec<_>) = all.iter().partition(|_| draws.below(100) < percent);
        assert!(!expected.0.is_empty() && !expected.1.is_empty());
        assert_eq!(run(text), expected, "{text}");
    }

    // Pinned tasks stay, and one worker alone shares nothing.
    let kept = script!(
        "ot-fifo:full=overflow:100",
        2,
        3,
        |bench| -> Option<usize> {
            let pinned = Probe::pinned_to(1, 0);
            bench.policy.push(
                &mut bench.cx,
                Some(&mut bench.locals[0]),
                pinned,
                Ready::Woken,
            );
            bench.pop(1, Effort::Search)
        }
    );
    assert_eq!(kept, None);
}

/// Five shards: a push and a pop each begin at a random one, and each is first in, first out. The
/// same draws on five plain queues give the same order.
#[test]
fn the_shared_queue_has_five_shards() {
    const WORKERS: usize = 64;
    let order = script!("ot-fifo-sharded-5", WORKERS, 9, |bench| -> Vec<usize> {
        for id in 0..40 {
            bench
                .policy
                .push(&mut bench.cx, None, Probe::new(id), Ready::Spawned);
        }
        bench.run(0, Effort::Quick)
    });

    let mut draws = Cx::new(9);
    let mut shards = [const { VecDeque::new() }; 5];
    (0..40).for_each(|id| shards[draws.below(5)].push_back(id));
    let model = std::iter::from_fn(|| {
        if shards.iter().all(VecDeque::is_empty) {
            return None;
        }
        let first = draws.below(5);
        (0..5).find_map(|i| shards[(first + i) % 5].pop_front())
    });

    assert_eq!(order, model.collect::<Vec<_>>());
    assert_ne!(order, (0..40).collect::<Vec<_>>());
}

/// A sticky request lasts, even when there is nothing to steal, until another worker asks the same
/// one.
#[test]
fn another_asker_overwrites_a_sticky_request() {
    // Workers 1 and 2 each draw whom they ask, and both draw worker 0.
    let both = |seed: &u64| {
        let mut draws = Cx::new(*seed);
        [(); 2].iter().all(|()| draws.below(2) == 0)
    };

    let seed = (0..).find(both).expect("a quarter of all");
    let ran = |text: &str| {
        script!(text, 3, seed, |bench| -> [Vec<usize>; 3] {
            bench.spawn(1, 100..109);
            let first = bench.pop(0, Effort::Quick).into_iter().collect();
            bench.spawn(2, 200..209);
            let second = bench.run(0, Effort::Quick);
            bench.spawn(1, [110]);
            bench.spawn(2, [210]);
            [first, second, bench.run(0, Effort::Quick)]
        })
    };

    let [first, second, third] = ran("ot-fifo-sticky:capacity=8,amount=one");
    // From worker 1, which has asked; then all of worker 2's, which asked later, and what
    // overflowed.
    assert_eq!(first, [100]);
    assert_eq!(second, [200, 201, 202, 203, 204, 205, 206, 207, 108, 208]);
    assert_eq!(third, [210], "the note is still there");

    // Asked once: one theft for each asker.
    let [first, second, third] = ran("ot-fifo-request:capacity=8,amount=one");
    assert_eq!(
        (first, second, third),
        (vec![100], vec![200, 108, 208], vec![])
    );
}

/// The base case: what finds no room waits for it. Here no other worker runs that could make some,
/// so it overflows in the end, and both are counted; for a completion it does so at once.
#[test]
fn a_full_structure_makes_the_spawner_spin() {
    for (preset, own) in [("ot-fifo-base", [0, 1]), ("ot-lifo-base", [1, 0])] {
        let (retries, spun, handled, order) = script!(
            &format!("{preset}:capacity=2"),
            2,
            1,
            |bench| -> (u64, u64, [u64; 2], Vec<usize>) {
                bench.spawn(0, 0..2);
                assert_eq!(bench.cx.counts.insert_retries, 0);
                bench.spawn(0, [2]);
                let retries = bench.cx.counts.insert_retries;
                let spun = bench.cx.counts.insert_overflows;
                assert!(!bench.cx.set_handles_event(true));
                bench.spawn(0, [3]);
                assert!(bench.cx.set_handles_event(false));
                let handled = [
                    bench.cx.counts.insert_retries - retries,
                    bench.cx.counts.insert_overflows - spun,
                ];

                (retries, spun, handled, bench.run(0, Effort::Quick))
            }
        );
        assert!(retries > 1000, "{retries}");
        assert_eq!((spun, handled), (1, [0, 1]), "{preset}");
        assert_eq!(order, [&own[..], &[2, 3]].concat(), "{preset}");
    }
}

/// Two full workers with room for 2 wait for each other; neither does so for ever, and nothing is
/// lost.
#[test]
fn two_full_workers_do_not_wait_for_each_other_for_ever() {
    const EACH: usize = 1000;
    for preset in ["ot-fifo-base", "ot-lifo-base"] {
        struct Fill;
        impl Visitor<Probe> for Fill {
            type Output = (u64, Vec<usize>);
            fn visit<P: Policy<Probe>>(self, params: P::Params) -> Self::Output {
                let policy = std::sync::Arc::new(P::new(params, &Topology::flat(2)));
                let (start, (done, all)) = (
                    std::sync::Arc::new(Barrier::new(2)),
                    std::sync::mpsc::channel(),
                );
                for worker in 0..2 {
                    let policy = policy.clone();
                    let start = start.clone();
                    let done = done.clone();
                    std::thread::spawn(move || {
                        let mut cx = Cx::new(worker as u64);
                        let mut local = policy.attach(worker);
                        // A worker that has popped something runs.
                        policy.push(&mut cx, Some(&mut local), Probe::new(0), Ready::Spawned);
                        assert!(policy.pop(&mut cx, &mut local, Effort::Search).is_some());
                        start.wait();
                        for id in worker * EACH..(worker + 1) * EACH {
                            policy.push(&mut cx, Some(&mut local), Probe::new(id), Ready::Spawned);
                        }
                        let _ = done.send((cx.counts.insert_overflows, local));
                    });
                }

                let mut overflows = 0;
                let mut tasks = Vec::new();
                for _ in 0..2 {
                    let ended = all.recv_timeout(std::time::Duration::from_secs(60));
                    let (counted, local) = ended.expect("both workers come to an end");
                    overflows += counted;
                    policy.drain(local, &mut |task| tasks.push(task));
                }

                (overflows, ids(tasks))
            }
        }
        let (overflows, ids) = Choice::parse(&format!("{preset}:capacity=2"))
            .expect("a policy")
            .visit(Fill);
        assert_eq!(
            overflows as usize,
            2 * (EACH - 2),
            "{preset}: there was room for two each"
        );
        assert_eq!(ids, (0..2 * EACH).collect::<Vec<_>>(), "{preset}");
    }
}

/// Soft and hard yields: what worker 1 finds that does not steal, and the order in which worker 0
/// runs the rest. The policy's own rule says where task 12 goes.
#[test]
fn a_task_that_yields_waits_where_it_asks_to() {
    let run = |text: &str| {
        script!(text, 2, 1, |bench| -> [Vec<usize>; 2] {
            bench.spawn(0, 0..3);
            bench.push(0, 10, Ready::YieldedLocal);
            bench.push(0, 11, Ready::YieldedShared);
            bench.push(0, 12, Ready::Yielded);
            bench.spawn(0, [3]);
            [bench.run(1, Effort::Quick), bench.run(0, Effort::Quick)]
        })
    };

    for (policy, shared, own) in [
        ("fifo", &[11][..], &[0, 1, 2, 10, 12, 3][..]),
        ("lifo-slot", &[11], &[0, 1, 2, 10, 12, 3]),
        ("lifo", &[11], &[3, 2, 1, 0, 10, 12]),
        ("go", &[11, 12], &[3, 0, 1, 10, 2]),
        ("ot-fifo", &[11, 12], &[0, 1, 2, 10, 3]),
        ("ot-lifo", &[11, 12], &[3, 2, 1, 0, 10]),
        ("ot-fifo-grow:yields=local", &[11], &[0, 1, 2, 10, 12, 3]),
        ("ot-fifo-horizontal", &[11, 12], &[0, 1, 2, 10, 3]),
    ] {
        assert_eq!(run(policy), [shared, own], "{policy}");
    }

    for policy in ["global-fifo", "local-fifo", "priority", "edf", "shares"] {
        let order = script!(policy, 1, 1, |bench| -> Vec<usize> {
            YIELDS
                .into_iter()
                .enumerate()
                .for_each(|(id, why)| bench.push(0, id, why));
            bench.run(0, Effort::Quick)
        });
        assert_eq!(order, [0, 1, 2], "{policy}");
    }
}

/// A hard yield waits for the poll that is due, while others wake each other for ever. A pinned
/// task stays.
#[test]
fn a_hard_yield_is_polled_on_schedule() {
    for policy in [
        "fifo:poll=7",
        "lifo:poll=7",
        "lifo-slot:poll=7",
        "ot-fifo:poll=7",
        "ot-lifo:poll=7",
        "go:poll=7",
    ] {
        let (turn, stolen) = script!(policy, 2, 1, |bench| -> (Option<usize>, Option<usize>) {
            bench.spawn(0, [0, 1]);
            bench.push(0, 9, Ready::YieldedShared);
            let mut turns = 1..100;
            let turn = turns.find(|_| {
                let id = bench.pop(0, Effort::Quick).expect("never empty");
                bench.push(0, id, Ready::Woken);
                id == 9
            });

            bench.run(0, Effort::Quick);
            let pinned = Probe::pinned_to(5, 0);
            bench.policy.push(
                &mut bench.cx,
                Some(&mut bench.locals[0]),
                pinned,
                Ready::YieldedShared,
            );
            (turn, bench.pop(1, Effort::Search))
        });
        assert_eq!((turn, stolen), (Some(7), None), "{policy}");
    }
}

/// Horizontal growth: what a full structure has no room for goes to a second one, and in order;
/// then to the shared queue. A thief begins at one and the other alternately, and takes half of it.
#[test]
fn a_full_structure_gets_a_second_one_beside_it() {
    let run = |text: &str| {
        script!(text, 2, 1, |bench| -> (u64, Vec<usize>, Vec<usize>) {
            bench.spawn(0, 0..10);
            let retries = bench.cx.counts.insert_retries;
            (
                retries,
                bench.run(1, Effort::Quick),
                bench.run(0, Effort::Quick),
            )
        })
    };

    assert_eq!(
        run("ot-fifo-horizontal:capacity=4"),
        (40, vec![8, 9], (0..8).collect())
    );
    assert_eq!(
        run("ot-lifo:full=horizontal,capacity=4"),
        (40, vec![8, 9], (0..8).rev().collect())
    );
    assert_eq!(
        run("ot-fifo:capacity=4"),
        (120, (4..10).collect(), (0..4).collect()),
        "without"
    );
    let kept = script!(
        "ot-fifo-horizontal:capacity=4",
        2,
        1,
        |bench| -> [Vec<usize>; 3] {
            bench.spawn(0, 0..8);
            let first = (0..4).filter_map(|_| bench.pop(0, Effort::Quick)).collect();
            // The structure that has become empty is the second one now.
            bench.spawn(0, 8..13);
            [
                first,
                bench.run(1, Effort::Quick),
                bench.run(0, Effort::Quick),
            ]
        }
    );
    assert_eq!(kept, [vec![0, 1, 2, 3], vec![12], (4..12).collect()]);
    let stolen = script!(
        "ot-fifo-horizontal:capacity=4",
        2,
        1,
        |bench| -> Vec<usize> {
            bench.spawn(0, 0..8);
            bench.run(1, Effort::Search)
        }
    );

    assert_eq!(stolen, [0, 1, 4, 5, 2, 6, 3, 7]);
}

/// The negative control: a task that yields takes the place of a random other one, which runs next.
/// The same draws on a plain queue give the same order.
#[test]
fn a_task_that_yields_swaps_with_a_random_other_one() {
    const SEED: u64 = 11;
    let mut draws = Cx::new(SEED);
    let mut lane = VecDeque::from_iter(0..8);
    let mut model = Vec::new();
    for _ in 0..50 {
        let task = lane.pop_front().expect("never empty");
        model.push(task);
        let place = draws.below(lane.len());
        let other = std::mem::replace(&mut lane[place], task);
        lane.push_front(other);
    }

    let orders = script!("ot-fifo-swap", 2, SEED, |bench| -> [Vec<usize>; 3] {
        let Bench { policy, locals, .. } = &mut bench;
        let local = &mut locals[0];
        [
            (None, Ready::Yielded),
            (Some(0), Ready::Yielded),
            (None, Ready::YieldedLocal),
        ]
        .map(|(pinned, why)| {
            let mut cx = Cx::new(SEED);
            for id in 0..8 {
                policy.push(
                    &mut cx,
                    Some(&mut *local),
                    Probe {
                        pinned,
                        ..Probe::new(id)
                    },
                    Ready::Spawned,
                );
            }

            let mut order = Vec::new();
            for _ in 0..50 {
                let task = policy
                    .pop(&mut cx, local, Effort::Quick)
                    .expect("never empty");
                order.push(task.id);
                policy.push(&mut cx, Some(&mut *local), task, why);
            }

            pop_all(policy, &mut cx, local, Effort::Quick);
            order
        })
    });

    let fifo: Vec<_> = (0..50).map(|i| i % 8).collect();
    assert_ne!(model, fifo);
    assert_eq!(
        orders,
        [model.clone(), model, fifo],
        "may move; pinned; asks for a soft yield"
    );
}
