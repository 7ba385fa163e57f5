//! What each worker counts: steals, spills, retries, help, messages, sleep. Each test makes the
//! event happen by fibers that hold workers until it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::policy::Observer;
use plainweave::{JoinHandle, Metrics, Movement, Runtime, RuntimeBuilder, WorkerMetrics};

on_every_setup!(
    a_thief_counts_what_it_steals,
    totals_are_those_of_the_workers,
    messages_are_counted_where_they_arrive
);

/// Two workers, which is all there will be; fibers move at any time.
fn two(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .workers(2)
        .max_workers(2)
        .own_storage()
        .movement(Movement::Anytime)
}

fn of_policy(policy: &str) -> Runtime {
    two(Runtime::builder())
        .policy(policy)
        .report_stalls(false)
        .build()
        .expect("a runtime")
}

/// Holds the calling fiber's worker until it is so.
fn spin_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::hint::spin_loop();
        std::thread::yield_now();
    }
}

/// Runs `busy` on one worker while another fiber holds the other one; that fiber ends when `busy`
/// calls the function that it gets.
fn beside_a_held_worker<T: Send + 'static>(
    runtime: &Runtime,
    busy: impl FnOnce(&dyn Fn()) -> T + Send + 'static,
) -> T {
    let arrived = Arc::new(AtomicUsize::new(0));
    let let_go = Arc::new(AtomicUsize::new(0));
    let meet = {
        let arrived = arrived.clone();
        move || {
            arrived.fetch_add(1, Ordering::SeqCst);
            spin_until(|| arrived.load(Ordering::SeqCst) == 2);
        }
    };

    let held = let_go.clone();
    let meets = meet.clone();
    let goes = let_go;
    let holder = runtime.spawn(move || {
        meets();
        spin_until(|| held.load(Ordering::SeqCst) == 1);
    });

    let busy = runtime.spawn(move || {
        meet();
        busy(&|| goes.store(1, Ordering::SeqCst))
    });

    let value = busy.join().expect("no panic");
    holder.join().expect("no panic");
    value
}

/// Spawns fibers that count themselves.
fn spawn_counted(count: usize) -> (Arc<AtomicUsize>, Vec<JoinHandle<()>>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let spawn = |_| {
        let ran = ran.clone();
        plainweave::spawn(move || _ = ran.fetch_add(1, Ordering::SeqCst))
    };

    let fibers = (0..count).map(spawn).collect();
    (ran, fibers)
}

/// Waits until all workers sleep, and what they have counted is out.
fn at_rest(runtime: &Runtime) -> Metrics {
    assert!(runtime.wait_idle(HANG));
    eventually("all workers sleep", || {
        runtime.metrics().sleeping_workers == runtime.workers()
    });
    runtime.metrics()
}

fn sum(metrics: &Metrics, count: impl Fn(&WorkerMetrics) -> u64) -> u64 {
    metrics.workers.iter().map(count).sum()
}

fn a_thief_counts_what_it_steals(setup: Setup) {
    let runtime = setup.check(two(setup.builder()).build().expect("a runtime"));
    let busy = runtime.spawn(|| {
        let (ran, fibers) = spawn_counted(100);
        // Only a thief can run them.
        spin_until(|| ran.load(Ordering::SeqCst) >= 90);
        (plainweave::worker_index().expect("on a fiber"), fibers)
    });

    let (victim, fibers) = busy.join().expect("no panic");
    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
    let metrics = at_rest(&runtime);
    let thief = &metrics.workers[1 - victim];
    let counts = thief.policy;

    assert!(
        counts.steals >= 1 && counts.steal_attempts >= counts.steals,
        "{metrics:?}"
    );
    assert!(
        counts.stolen >= 90 && counts.stolen >= counts.steals,
        "{metrics:?}"
    );
    assert!(
        thief.fibers_per_steal().is_some_and(|fibers| fibers >= 1.0),
        "{metrics:?}"
    );

    assert!(
        thief.finished_fibers >= 90 && metrics.workers[victim].spawned_fibers >= 100,
        "{metrics:?}"
    );
}

fn totals_are_those_of_the_workers(setup: Setup) {
    let runtime = setup.check(two(setup.builder()).build().expect("a runtime"));
    runtime.run(|| {
        let yields = |_| plainweave::spawn(|| (0..10).for_each(|_| plainweave::yield_now()));
        let fibers: Vec<_> = (0..300).map(yields).collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    });
    let metrics = at_rest(&runtime);
    assert_eq!(
        metrics
            .workers
            .iter()
            .map(|worker| worker.worker)
            .collect::<Vec<_>>(),
        [0, 1]
    );
    assert!(
        metrics
            .workers
            .iter()
            .all(|worker| !worker.spare && worker.policy.longest_wait.is_none())
    );
    assert_eq!(
        (
            metrics.finished_fibers,
            sum(&metrics, |worker| worker.finished_fibers)
        ),
        (301, 301)
    );

    // The first was spawned from outside.
    assert_eq!(sum(&metrics, |worker| worker.spawned_fibers), 300);
    let switches = sum(&metrics, |worker| worker.switches);
    assert_eq!(switches, metrics.switches);
    assert!(
        switches > 300 * 11,
        "main, and each at its start and after each yield: {metrics:?}"
    );
    assert_eq!(sum(&metrics, |worker| worker.sleeps), metrics.sleeps);

    assert_eq!(
        sum(&metrics, |worker| worker.policy.insert_retries),
        metrics.insert_retries
    );
}

fn messages_are_counted_where_they_arrive(setup: Setup) {
    // Without a watchdog, which sends messages too where a fiber is late.
    let builder = setup.builder().movement(Movement::Never).stall_after(None);
    let runtime = setup.check(builder.build().expect("a runtime"));
    let index = || plainweave::worker_index().expect("on a fiber");

    // Fibers from outside go to the workers in turn.
    let began = Arc::new(AtomicUsize::new(0));
    let begins = began.clone();
    let waits = runtime.spawn(move || {
        begins.store(1, Ordering::SeqCst);
        plainweave::park().expect("not cancelled");
        index()
    });

    let waiter = waits.fiber().clone();
    let wakes = runtime.spawn(move || {
        let asleep = || plainweave::metrics().expect("on a fiber").sleeping_workers == 1;
        spin_until(|| began.load(Ordering::SeqCst) == 1 && asleep());
        waiter.unpark();
        index()
    });

    let to = waits.join().expect("no panic");
    let from = wakes.join().expect("no panic");
    assert_ne!(to, from);
    let metrics = at_rest(&runtime);

    // Both came from outside; the second also got the wake-up.
    assert_eq!(metrics.workers[from].inbox_messages, 1, "{metrics:?}");
    assert_eq!(metrics.workers[to].inbox_messages, 2, "{metrics:?}");
}

#[test]
fn spills_are_counted() {
    for policy in [
        "fifo:capacity=2",
        "lifo-slot:capacity=2",
        "lifo:capacity=2",
        "fifo:capacity=2,full=overflow",
    ] {
        unless_it_hangs(policy, || {
            let runtime = of_policy(policy);
            let (me, fibers) = beside_a_held_worker(&runtime, |let_go| {
                let (_, fibers) = spawn_counted(20);
                let_go();
                (plainweave::worker_index().expect("on a fiber"), fibers)
            });

            fibers
                .into_iter()
                .for_each(|fiber| fiber.join().expect("no panic"));
            let metrics = at_rest(&runtime);
            assert!(
                metrics.workers[me].policy.spills >= 3,
                "{policy}: {metrics:?}"
            );
            assert_eq!(
                metrics.workers[1 - me].policy.spills,
                0,
                "{policy}: {metrics:?}"
            );
        });
    }
}

#[test]
fn retries_are_counted() {
    unless_it_hangs("retries_are_counted", || {
        let runtime = of_policy("ot-fifo-base:capacity=2");
        let (me, fibers) = beside_a_held_worker(&runtime, |let_go| {
            // The inserts spin, and the worker that is let go steals.
            let_go();
            let (_, fibers) = spawn_counted(200);
            (plainweave::worker_index().expect("on a fiber"), fibers)
        });

        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        let metrics = at_rest(&runtime);
        assert!(
            metrics.workers[me].policy.insert_retries >= 1,
            "{metrics:?}"
        );
        assert_eq!(
            sum(&metrics, |worker| worker.policy.insert_retries),
            metrics.insert_retries
        );
        assert_eq!(
            sum(&metrics, |worker| worker.policy.insert_overflows),
            metrics.insert_overflows
        );
    });
}

#[test]
fn help_is_counted() {
    for policy in [
        "ot-fifo-request:capacity=2,spin=0",
        "ot-fifo-announce:capacity=2,spin=0",
    ] {
        unless_it_hangs(policy, || {
            let runtime = of_policy(policy);
            let (me, fibers) = beside_a_held_worker(&runtime, |let_go| {
                // The third finds no room: this worker asks the other one, which answers when it is
                // let go.
                let (ran, fibers) = spawn_counted(20);
                let_go();
                spin_until(|| ran.load(Ordering::SeqCst) == 20);
                (plainweave::worker_index().expect("on a fiber"), fibers)
            });

            fibers
                .into_iter()
                .for_each(|fiber| fiber.join().expect("no panic"));
            let metrics = at_rest(&runtime);
            let helper = metrics.workers[1 - me].policy;
            assert!(
                helper.helped >= 1 && helper.steals >= helper.helped,
                "{policy}: {metrics:?}"
            );
        });
    }
}

#[test]
fn lanes_of_others_are_stolen_from() {
    unless_it_hangs("lanes_of_others_are_stolen_from", || {
        let runtime = of_policy("helping");
        let (me, fibers) = beside_a_held_worker(&runtime, |let_go| {
            let (ran, fibers) = spawn_counted(20);
            let_go();
            spin_until(|| ran.load(Ordering::SeqCst) == 20);
            (plainweave::worker_index().expect("on a fiber"), fibers)
        });

        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        let metrics = at_rest(&runtime);
        let thief = metrics.workers[1 - me].policy;
        assert!(
            thief.stolen >= 20 && thief.stolen == thief.steals,
            "{metrics:?}"
        );
        assert!(thief.steal_attempts >= thief.steals, "{metrics:?}");
    });
}

#[test]
fn idle_time_goes_on_while_a_worker_sleeps() {
    for policy in ["fifo", "helping"] {
        let runtime = of_policy(policy);
        at_rest(&runtime);
        let idle = |metrics: &Metrics| -> Vec<Duration> {
            metrics
                .workers
                .iter()
                .map(|worker| worker.idle.expect("a clock that is known"))
                .collect()
        };

        let before = runtime.metrics();
        let grew = |(now, then): (&Duration, &Duration)| *now >= *then + ms(20);
        let mut metrics = before.clone();
        eventually("20 ms of sleep each", || {
            metrics = runtime.metrics();
            idle(&metrics).iter().zip(&idle(&before)).all(grew)
        });

        // Nobody woke up for it.
        assert_eq!(metrics.sleeps, before.sleeps);
        // A fiber that holds both workers: neither sleeps.
        let (first, second) = beside_a_held_worker(&runtime, |let_go| {
            let read = || plainweave::metrics().expect("on a fiber");
            let first = read();
            std::thread::sleep(ms(20));
            let second = read();
            let_go();
            (first, second)
        });

        assert_eq!(idle(&first), idle(&second), "{policy}");
    }
}

#[test]
fn waits_are_known_of_observed_policies() {
    let builder = two(Runtime::builder()).policy("fifo").report_stalls(false);
    let runtime = builder.build_observed(Observer::new()).expect("a runtime");
    let me = runtime.run(|| {
        let fibers: Vec<_> = (0..50)
            .map(|_| plainweave::spawn(plainweave::yield_now))
            .collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        plainweave::worker_index().expect("on a fiber")
    });

    let metrics = at_rest(&runtime);
    assert!(
        metrics.workers[me]
            .policy
            .longest_wait
            .is_some_and(|wait| wait > Duration::ZERO),
        "{metrics:?}"
    );
}

/// The watchdog takes the same number for a sign that something has run. A worker that polls its
/// driver publishes it, and may then find nothing to run.
#[test]
fn switches_never_go_back() {
    let runtime = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let parked = runtime.spawn(|| while plainweave::park().is_ok() {});
    let fiber = parked.fiber().clone();
    let mut before = 0;

    for round in 0..20_000 {
        fiber.unpark();
        for _ in 0..20 {
            let switches = runtime.metrics().switches;
            assert!(
                switches >= before,
                "{switches} after {before}, in round {round}"
            );
            before = switches;
        }
    }

    parked.cancel();
    parked.join().expect("no panic");
    assert!(at_rest(&runtime).switches >= before);
}

#[test]
fn spare_workers_are_on_the_list_once_they_have_started() {
    let builder = Runtime::builder()
        .workers(1)
        .max_workers(3)
        .own_storage()
        .movement(Movement::Anytime);
    let runtime = builder.report_stalls(false).build().expect("a runtime");
    let regular = |metrics: &Metrics| {
        metrics
            .workers
            .iter()
            .filter(|worker| !worker.spare)
            .count()
    };

    assert_eq!(regular(&runtime.metrics()), 1);
    let added = runtime.add_workers(2).expect("room for two");
    eventually("two spare workers", || runtime.metrics().workers.len() == 3);
    let metrics = runtime.metrics();
    assert_eq!(
        metrics
            .workers
            .iter()
            .map(|worker| worker.worker)
            .collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert_eq!(regular(&metrics), 1);
    let (me, fibers) = runtime.run(|| {
        let (ran, fibers) = spawn_counted(100);
        // The others run them: spare workers both, or the regular one and a spare one.
        spin_until(|| ran.load(Ordering::SeqCst) == 100);
        (plainweave::worker_index().expect("on a fiber"), fibers)
    });

    fibers
        .into_iter()
        .for_each(|fiber| fiber.join().expect("no panic"));
    drop(added);
    eventually("what the others and the spare ones did", || {
        let workers = runtime.metrics().workers;
        let finished = |counts: &dyn Fn(&WorkerMetrics) -> bool| -> u64 {
            workers
                .iter()
                .filter(|worker| counts(worker))
                .map(|worker| worker.finished_fibers)
                .sum()
        };
        finished(&|worker| worker.worker != me) >= 100 && finished(&|worker| worker.spare) >= 1
    });
}

/// A detached fiber that finds no stack leaves a line and a figure.
#[test]
fn a_detached_fiber_that_is_refused_is_reported() {
    let name = "a_detached_fiber_that_is_refused_is_reported";
    if is_child("refuses") {
        let runtime = Runtime::builder()
            .workers(1)
            .max_fibers(10)
            .build()
            .expect("a runtime");
        let parked: Vec<_> = (0..10).map(|_| runtime.spawn(plainweave::park)).collect();
        eventually("all have stacks", || runtime.metrics().stacks_in_use == 10);
        (0..91).for_each(|_| drop(runtime.spawn(|| ())));
        eventually("they are refused", || {
            runtime.metrics().refused_fibers == 91
        });
        assert!(
            runtime
                .metrics()
                .to_prometheus()
                .contains("\nplainweave_fibers_refused_total 91\n")
        );
        parked.iter().for_each(|p| p.fiber().unpark());
        return;
    }

    let text = String::from_utf8_lossy(&in_child(name, "refuses", &[]).stderr).into_owned();
    assert_eq!(
        text.matches("nobody joins could not start").count(),
        1,
        "{text}"
    );
    let silent = in_child(name, "refuses", &[("PLAINWEAVE_REPORT", "none")]);
    assert!(!String::from_utf8_lossy(&silent.stderr).contains("could not start"));
}

#[test]
fn metrics_are_written_for_prometheus() {
    if apart() {
        return;
    }

    let runtime = Runtime::builder()
        .workers(2)
        .blocking_threads(1)
        .build()
        .expect("a runtime");
    // The one that has the only thread keeps it until the metrics have been read.
    let held = Arc::new(std::sync::RwLock::new(()));
    let finish = held.write().expect("nobody has it");
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let held = held.clone();
            runtime.spawn(move || plainweave::blocking(move || held.read().is_ok()))
        })
        .collect();
    eventually("three wait", || runtime.metrics().blocking_queue == 3);
    let metrics = runtime.metrics();
    let text = metrics.to_prometheus();

    drop(finish);
    for line in [
        "plainweave_fibers 4",
        "plainweave_blocking_threads 1",
        "plainweave_blocking_queue 3",
        "plainweave_worker_steals_total{worker=\"1\"} ",
        "plainweave_worker_idle_seconds_total{worker=\"0\"} ",
    ] {
        assert!(text.contains(&format!("\n{line}")), "{line} in {text}");
    }

    // What is not known is left out, and every other line is a sample of the metric above it.
    assert_eq!(
        text.contains("stack_high_water"),
        metrics.stack_high_water.is_some(),
        "{text}"
    );
    let mut name = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            name = rest.split(' ').next().expect("a name");
        } else if !line.starts_with('#') {
            let value = line.rsplit(' ').next().expect("a value");
            assert!(
                line.starts_with(name) && value.parse::<f64>().is_ok(),
                "{line}"
            );
        }
    }

    jobs.into_iter()
        .for_each(|job| assert!(job.join().expect("no panic").expect("not cancelled")));
}
