//! Simulated runs: they repeat, they are checked, and they show what their model is made of.

use plainweave_sim::{Fault, Load, Machine, Outcome, Setup, Trial, simulate, simulate_fault};

fn setup(policy: &str, workers: usize, packets: u64) -> Setup {
    Setup {
        policy: policy.to_owned(),
        machine: Machine::named("epyc", workers).expect("a machine"),
        load: Load::named("packets", Some(packets)).expect("a workload"),
        seed: 1,
        record: false,
        limit: None,
    }
}

fn run(setup: &Setup) -> Outcome {
    simulate(setup).unwrap_or_else(|error| panic!("{}: {error}", setup.policy))
}

#[test]
fn a_seed_repeats_a_run_bit_for_bit() {
    for policy in ["fifo", "ot-lifo-base", "helping"] {
        let one = setup(policy, 12, 2_000);
        let first = run(&one);
        let second = run(&one);
        assert_eq!(
            (first.digest, first.nanos),
            (second.digest, second.nanos),
            "{policy}"
        );
        let other = run(&Setup { seed: 2, ..one });

        assert_ne!(
            first.digest, other.digest,
            "{policy}: another seed is another run"
        );
    }
}

#[test]
fn random_small_machines_with_every_policy() {
    for seed in 0..400 {
        if let Err(message) = Trial::random(seed).run() {
            panic!("{message}");
        }
    }
}

#[test]
fn each_checker_finds_the_fault_that_is_planted_for_it() {
    let cases = [
        (Fault::Loses, "lost: "),
        (Fault::Repeats, "comes out of the policy twice"),
        (Fault::LetsSleep, "work is conserved, but"),
        (Fault::Spins, "livelock"),
        (Fault::Panics, "panics on purpose"),
    ];
    let setup = setup("fifo", 4, 15_000);
    simulate_fault(&setup, None).expect("without a fault there is nothing to find");

    for (fault, expected) in cases {
        let found = simulate_fault(&setup, Some(fault))
            .map(|outcome| outcome.digest)
            .expect_err("a fault");
        assert!(found.contains(expected), "{fault:?}: {found}");
    }
}

/// The bound on waiting grows with what was ready before, so it takes an overload that lasts.
#[test]
fn a_fiber_that_starves_is_found() {
    let load = load("open", 20_000).at_rate(200);
    let setup = Setup {
        load,
        ..setup("fifo", 2, 1)
    };

    simulate_fault(&setup, None).expect("without a fault there is nothing to find");
    let found = simulate_fault(&setup, Some(Fault::Starves))
        .map(|outcome| outcome.digest)
        .expect_err("a fault");
    assert!(found.contains("waiting is bounded, but"), "{found}");
}

#[test]
fn a_failing_seed_prints_the_command_that_repeats_it() {
    let trial = Trial::random(7);
    let message = trial
        .run_by(|_| Err("lost: a task".to_owned()))
        .expect_err("it was made to fail");
    assert_eq!(
        message,
        format!("lost: a task\nThe same again: {}", trial.command())
    );
    assert!(message.ends_with(" --seed 7"), "{message}");
}

#[test]
fn more_workers_do_more() {
    for policy in ["fifo", "ot-fifo-base"] {
        let [two, four, eight] =
            [2, 4, 8].map(|workers| run(&setup(policy, workers, 3_000)).throughput());
        assert!(
            four > 1.5 * two && eight > 1.5 * four,
            "{policy}: {two:.0}, {four:.0}, {eight:.0} packets a second"
        );
    }
}

#[test]
fn every_packet_has_a_latency() {
    let outcome = run(&setup("ot-fifo-base", 6, 1_500));
    assert_eq!(
        (outcome.latency.len(), outcome.operations, outcome.runs),
        (1_500, 1_500, 1_501)
    );
}

#[test]
fn a_spawner_with_a_full_queue_spins_while_time_passes() {
    // Four handlers cannot keep up with the spawner, so its structure of 128 is full most of the
    // time.
    let base = run(&setup("ot-fifo-base", 5, 5_000));
    assert!(figure(&base, "insert-retries") > 1_000.0);
    assert_eq!(figure(&base, "insert-overflows"), 0.0);

    // A worker alone must not wait for itself.
    assert_eq!(
        figure(&run(&setup("ot-fifo-base", 1, 500)), "insert-retries"),
        0.0
    );
    // The default spills instead.
    let fifo = run(&setup("fifo", 5, 5_000));
    assert!(figure(&fifo, "insert-retries") == 0.0 && figure(&fifo, "spills") > 0.0);
}

#[test]
fn a_policy_that_shares_one_queue_waits_for_its_lines() {
    let waits = |policy, workers| {
        let outcome = run(&setup(policy, workers, 4_000));
        outcome
            .figures()
            .iter()
            .find(|(name, ..)| *name == "waited-for-lines")
            .expect("that figure")
            .2
    };
    assert!(waits("global-fifo", 40) > 1.5 * waits("global-fifo", 2));
}

/// All fibers come through a shared queue with a lock. When those who wait for it never slept,
/// nothing went on here.
#[test]
fn a_lock_that_hundreds_wait_for_is_handed_on() {
    let outcome = run(&Setup {
        load: load("yield", 100_000),
        ..setup("fifo", 240, 1)
    });
    assert!(outcome.operations >= 100_000);
}

/// Runs any workload on a machine with one cache.
fn on_flat(policy: &str, workers: usize, load: Load) -> Outcome {
    let machine = Machine::named("flat", workers).expect("a machine");
    run(&Setup {
        policy: policy.to_owned(),
        machine,
        load,
        seed: 3,
        record: false,
        limit: None,
    })
}

fn load(name: &str, size: u64) -> Load {
    Load::named(name, Some(size)).expect("a workload")
}

#[test]
fn the_micro_benchmarks_do_what_they_are_asked_for() {
    for name in ["yield", "cycle", "churn", "locality"] {
        for policy in ["fifo", "lifo-slot", "helping"] {
            let outcome = on_flat(policy, 4, load(name, 5_000));
            // What is under way when the last operation is done counts too.
            assert!(
                (5_000..6_000).contains(&outcome.operations),
                "{name}, {policy}: {}",
                outcome.operations
            );
        }
    }
}

/// A time in nanoseconds at which that part of all was done.
fn quantile(outcome: &Outcome, part: f64) -> u64 {
    outcome.latency.value_at_quantile(part)
}

fn with(name: &str, size: u64, parameters: &[(&str, f64)]) -> Load {
    parameters
        .iter()
        .fold(load(name, size), |load, (name, value)| {
            load.with(name, *value).expect("what is allowed")
        })
}

#[test]
fn a_delay_holds_up_handlers_and_spawners_share_the_packets() {
    let plain = on_flat("fifo", 4, load("packets", 1_000));
    let delayed = |how: &str| {
        let load = with("packets", 1_000, &[("delay-ns", 20_000.0)])
            .with("delay", how)
            .expect("a choice");
        on_flat("fifo", 4, load).nanos
    };

    let [spins, sleeps, suspends] = ["spin", "sleep", "suspend"].map(delayed);
    assert!(spins > 2 * plain.nanos, "{} and {spins} ns", plain.nanos);
    // A sleep of the thread takes 80 us more than it should.
    assert!(
        sleeps > 1_000 / 4 * 100_000 && sleeps < 2 * 1_000 / 4 * 112_000,
        "{sleeps} ns"
    );
    assert!(
        suspends < plain.nanos * 3 / 2,
        "{} and {suspends} ns",
        plain.nanos
    );
    let spawned = on_flat("fifo", 4, with("packets", 1_000, &[("spawners", 7.0)]));

    assert_eq!((spawned.latency.len(), spawned.runs), (1_000, 1_007));
}

#[test]
fn heavy_packets_sleep_and_hold_up_their_workers() {
    let run = |heavy| on_flat("fifo", 4, with("bimodal", 600, &[("heavy", heavy)]));
    let none = run(0.0);
    let all = run(100.0);

    // Ten spawners, three tasks a packet.
    assert_eq!(
        (none.runs, none.latency.len(), none.operations),
        (1_810, 600, 600)
    );
    assert!(quantile(&none, 1.0) < 20_000_000);

    // 1,200 sleeps of 20 ms on four workers.
    assert!(
        quantile(&all, 0.0) > 40_000_000 && (6_000_000_000..6_200_000_000).contains(&all.nanos),
        "{}",
        all.nanos
    );
}

#[test]
fn sleeps_that_suspend_hold_up_nobody() {
    for policy in ["fifo", "ot-lifo-base", "global-fifo"] {
        let load = with("bimodal", 600, &[("heavy", 100.0)])
            .with("wait", "suspend")
            .expect("a choice");
        for machine in [
            Machine::named("flat", 4),
            Machine::named("flat", 4).map(Machine::without_sleep),
        ] {
            let machine = machine.expect("a machine");
            let load = load.clone();
            let outcome = run(&Setup {
                policy: policy.to_owned(),
                machine,
                load,
                seed: 3,
                record: false,
                limit: None,
            });

            // Two sleeps of 20 ms each, and they overlap; each wakes once.
            assert_eq!(outcome.runs, 10 + 600 * 3 + 600 * 2, "{policy}");
            assert!(
                quantile(&outcome, 0.0) > 40_000_000 && outcome.nanos < 100_000_000,
                "{policy}: {}",
                outcome.nanos
            );
        }
    }
}

#[test]
fn heavy_packets_with_a_pool_of_their_own_hold_up_no_others() {
    let run = |pools: &str| {
        let load = with("bimodal", 600, &[("heavy", 10.0)])
            .with("pools", pools)
            .expect("a choice");
        on_flat("fifo", 4, load)
    };

    let single = run("single");
    let staged = run("staged");
    assert_eq!((single.runs, staged.runs), (1_810, 1_810));

    // The same packets are heavy in both, two sleeps of 20 ms for each: all on one worker, or on
    // four.
    let heavy = staged.latency.count_between(20_000_000, u64::MAX);
    assert!((30..100).contains(&heavy), "{heavy} heavy packets");
    let sleeps = heavy * 40_000_000;
    assert!(
        (sleeps..sleeps + 30_000_000).contains(&staged.nanos),
        "{} ns, sleeps of {sleeps}",
        staged.nanos
    );
    assert!(single.nanos < sleeps / 2, "{} ns", single.nanos);
    assert!(quantile(&staged, 0.8) < 20_000_000 && quantile(&single, 0.8) > 40_000_000);
}

#[test]
fn every_frame_is_sent_in_time_whatever_the_pools() {
    for (pools, workers) in [("staged", 3), ("staged", 5), ("silos", 2), ("silos", 5)] {
        for policy in ["fifo", "ot-fifo-base", "local-fifo"] {
            let load = with("mixer", 10, &[("rounds", 3.0)])
                .with("pools", pools)
                .expect("a choice");
            let outcome = on_flat(policy, workers, load);
            let outcomes = (outcome.operations, figure(&outcome, "breach_rate"));
            assert_eq!(
                outcomes,
                (60, 0.0),
                "{policy}, {pools} of {workers} workers"
            );
        }
    }
}

#[test]
fn pools_need_a_worker_each() {
    let load = load("mixer", 10).with("pools", "staged").expect("a choice");
    let setup = Setup {
        load,
        ..setup("fifo", 2, 1)
    };

    let error = simulate(&setup)
        .map(|outcome| outcome.digest)
        .expect_err("two workers, three pools");
    assert_eq!(
        error,
        "workers is 2: 'mixer' with pools=staged needs 3 or more"
    );
}

fn figure(outcome: &Outcome, metric: &str) -> f64 {
    outcome
        .figures()
        .iter()
        .find(|(name, ..)| *name == metric)
        .expect("a figure of that name")
        .2
}

#[test]
fn every_frame_is_mixed_and_sent_in_time_if_there_is_room() {
    for policy in ["fifo", "ot-fifo", "ot-lifo-base"] {
        let outcome = on_flat(
            policy,
            4,
            with("mixer", 10, &[("rounds", 3.0), ("legs", 3.0)]),
        );
        assert_eq!(
            (outcome.operations, outcome.latency.len()),
            (90, 90),
            "{policy}"
        );
        let shares = [
            "breach_rate",
            "excellent_share",
            "good_share",
            "poor_share",
            "unsent",
        ];
        assert_eq!(
            shares.map(|metric| figure(&outcome, metric)),
            [0.0, 1.0, 0.0, 0.0, 0.0],
            "{policy}"
        );

        // The third frames are due after 40 ms.
        assert!(
            (40_000_000..50_000_000).contains(&outcome.nanos),
            "{policy}: {}",
            outcome.nanos
        );
    }
}

#[test]
fn a_mixer_without_room_breaches_its_deadlines_and_gives_up_in_the_end() {
    // One worker: a frame of 1 MB takes some 2.4 ms to make, and 1.4 to send.
    let late = on_flat(
        "fifo",
        1,
        with("mixer", 4, &[("rounds", 2.0), ("bytes", 1e6)]),
    );
    assert_eq!(
        (figure(&late, "breach_rate"), figure(&late, "unsent")),
        (1.0, 0.0)
    );
    let overload = on_flat(
        "fifo",
        1,
        with(
            "mixer",
            40,
            &[("rounds", 50.0), ("bytes", 1e6), ("frame-ms", 1.0)],
        ),
    );
    let unsent = figure(&overload, "unsent");
    assert!(
        unsent > 0.0 && unsent + overload.operations as f64 == 4_000.0,
        "{unsent} unsent"
    );
    let classes =
        ["excellent_share", "good_share", "poor_share"].map(|metric| figure(&overload, metric));

    assert!(
        (classes.iter().sum::<f64>() - 1.0).abs() < 1e-9,
        "{classes:?}"
    );
}

#[test]
fn options_are_priced_step_by_step_from_the_beginning() {
    let shallow = on_flat("fifo", 4, with("options", 500, &[("deep-in", 1e9)]));
    // The spawner, and for each option its first task and twenty time steps.
    assert_eq!(
        (shallow.runs, shallow.operations, shallow.latency.len()),
        (1 + 500 * 21, 500, 500)
    );
    assert!(quantile(&shallow, 1.0).abs_diff(shallow.nanos) < shallow.nanos / 100);
    let deep = on_flat(
        "fifo",
        4,
        with("options", 20, &[("deep-in", 1.0), ("deep", 100.0)]),
    );
    assert_eq!(deep.runs, 1 + 20 * 101);

    // One worker: the oldest first gives shallow trees their turns beside deep ones, the newest
    // first stays with a deep one until it is done.
    let p99 = |policy| {
        quantile(
            &on_flat(policy, 1, with("options", 2_000, &[("deep", 1_000.0)])),
            0.99,
        )
    };

    assert!(2 * p99("ot-lifo") > 3 * p99("ot-fifo"));
}

#[test]
fn calls_of_fib_join_both_children() {
    for policy in ["fifo", "lifo", "ot-fifo-base", "helping"] {
        let outcome = on_flat(policy, 4, load("fib", 12));
        assert_eq!(
            (outcome.operations, outcome.latency.len()),
            (465, 1),
            "{policy}"
        );
        // The first call ends last. Each call starts once, and again after at most two waits.
        assert!(
            quantile(&outcome, 1.0).abs_diff(outcome.nanos) <= outcome.nanos / 100,
            "{policy}"
        );
        assert!(
            (465..3 * 465).contains(&outcome.runs),
            "{policy}: {}",
            outcome.runs
        );
    }
    assert_eq!(on_flat("fifo", 1, load("fib", 20)).operations, 21_891);
}

#[test]
fn a_busy_leader_starves_those_behind_it_unless_busy_workers_help() {
    assert_eq!(on_flat("helping", 4, load("transfer", 10)).operations, 10);
    assert_eq!(
        on_flat("global-fifo", 4, load("transfer", 10)).operations,
        10
    );
    assert!(on_flat("local-fifo", 4, load("transfer", 10)).operations < 10);
}

#[test]
fn overload_makes_requests_wait_and_room_does_not() {
    let p99 = |percent| {
        let outcome = on_flat("fifo", 8, load("open", 8_000).at_rate(percent));
        assert_eq!(outcome.latency.len(), 8_000);
        outcome.latency.value_at_quantile(0.99)
    };

    let half = p99(50);
    let double = p99(200);
    assert!(
        half < 100_000 && double > 1_000_000,
        "p99 of {half} and {double} ns"
    );
}

#[test]
fn a_stuck_worker_holds_back_only_what_nobody_else_may_take() {
    let p99 = |policy| {
        on_flat(policy, 4, load("stuck", 4_000))
            .latency
            .value_at_quantile(0.99)
    };
    assert!(p99("fifo") < 2_000_000 && p99("local-deal") > 3_000_000);
}

#[test]
fn slow_cores_take_twice_as_long() {
    let time = |machine| {
        let machine = Machine::named(machine, 2).expect("a machine");
        run(&Setup {
            policy: "fifo".to_owned(),
            machine,
            load: load("burst", 4_000),
            seed: 3,
            record: false,
            limit: None,
        })
        .nanos
    };

    let even = time("flat");
    let hybrid = time("hybrid");
    // Two fast ones do in 3 what one fast and one slow one do in 4.
    let ratio = hybrid as f64 / even as f64;
    assert!((1.25..1.42).contains(&ratio), "{ratio}");
}

#[test]
fn machines_and_workloads_that_make_no_sense_are_refused() {
    for workers in [0, 257] {
        let error = Machine::named("flat", workers).expect_err("a number that is not allowed");
        assert!(error.contains("1 to 256"), "{error}");
    }

    assert!(
        Machine::named("toaster", 2)
            .expect_err("no such machine")
            .contains("epyc, flat, numa, hybrid")
    );
    assert!(
        Load::named("parcels", None)
            .expect_err("no such workload")
            .contains("packets")
    );
    assert!(
        Load::named("packets", Some(0))
            .expect_err("no packets")
            .contains("1 to 20000000")
    );
}
