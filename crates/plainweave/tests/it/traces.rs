//! Traces: what is in them, read by a parser; in each mode, on both drivers, beside workers that go
//! on.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use crate::common::*;
use plainweave::sync::{Mutex, Semaphore};
use plainweave::trace::{self, Tracer};
use plainweave::{Builder, Io, Movement, Runtime, RuntimeBuilder, scope, spawn, time, yield_now};
use serde_json::Value;

on_every_setup!(
    every_mode_has_a_trace,
    wakes_say_by_whom,
    steals_say_from_whom,
    each_grant_is_one_wake
);
on_every_driver!(
    reasons_are_told,
    spare_workers_have_tracks,
    a_runtime_that_ends_can_be_traced
);

/// Microseconds by which a sum of two times may differ from a third.
const ROUNDED: f64 = 1e-4;
/// Room for all that a test does.
const ROOM: usize = 1 << 14;

/// A trace as a parser sees it, checked: slices nest, times do not go back, arrows lead from slices
/// to slices.
struct Trace {
    events: Vec<Value>,
    overwritten: u64,
    slices: Vec<Slice>,
    arrows: Vec<Arrow>,
}

#[derive(Clone, Debug)]
struct Slice {
    track: (u64, u64),
    name: String,
    cat: String,
    fiber: Option<u64>,
    then: String,
    begin: f64,
    end: f64,
}

/// From one slice to another, by their numbers.
#[derive(Debug)]
struct Arrow {
    name: String,
    from: usize,
    to: usize,
}

fn number(event: &Value, key: &str) -> u64 {
    event[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key}: {event}"))
}

fn text(event: &Value, key: &str) -> String {
    event[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key}: {event}"))
        .to_owned()
}

impl Trace {
    fn of(tracers: &[&Tracer]) -> Self {
        let mut json = Vec::new();
        trace::write_json(tracers.iter().copied(), &mut json).expect("memory takes it");
        Self::read(&json)
    }

    fn read(json: &[u8]) -> Self {
        let file: Value = serde_json::from_slice(json).expect("JSON");
        let events = file["traceEvents"].as_array().expect("events").clone();
        let (mut slices, mut named): (Vec<Slice>, _) = (Vec::new(), HashSet::new());

        // By track: the times at which the open slices end, the last slice, the last time.
        let mut open = HashMap::<_, Vec<f64>>::new();
        let mut last = HashMap::new();
        let mut times = HashMap::new();
        // By number: name, time and slice.
        let mut begun = HashMap::new();
        let mut ended = HashMap::new();
        for event in &events {
            let track = (number(event, "pid"), number(event, "tid"));
            let ts = event["ts"].as_f64().expect("a time");
            if event["ph"] != "M" {
                let before = times.insert(track, ts).unwrap_or(0.0);
                assert!(ts >= before, "{ts} comes after {before}: {event}");
                assert!(named.contains(&track), "a track without a name: {event}");
            }

            let end = |(slices, last): (&Vec<Slice>, Option<&usize>)| {
                let slice: usize = *last.expect("a slice");
                assert!(
                    slices[slice].begin <= ts && ts <= slices[slice].end + ROUNDED,
                    "{:?}: {event}",
                    slices[slice]
                );
                (text(event, "name"), ts, slice)
            };

            match event["ph"].as_str().expect("a phase") {
                "M" if event["name"] == "thread_name" => assert!(named.insert(track)),
                "M" => {}
                "X" => {
                    let name = text(event, "name");
                    let cat = text(event, "cat");
                    let end = ts + event["dur"].as_f64().unwrap();
                    let around = open.entry(track).or_default();
                    around.retain(|end| *end > ts + ROUNDED);
                    assert!(
                        around.iter().all(|outer| end <= outer + ROUNDED),
                        "it ends after what it is in: {event}"
                    );
                    assert!(
                        cat != "fiber" || around.is_empty(),
                        "a fiber runs within another slice: {event}"
                    );
                    around.push(end);
                    last.insert(track, slices.len());
                    let fiber = event["args"]["fiber"].as_u64();
                    let then = event["args"]["then"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned();

                    slices.push(Slice {
                        track,
                        name,
                        cat,
                        fiber,
                        then,
                        begin: ts,
                        end,
                    });
                }
                "i" => assert_eq!(text(event, "s"), "t"),
                "s" => {
                    let from = end((&slices, last.get(&track)));
                    assert!(begun.insert(number(event, "id"), from).is_none(), "{event}");
                }
                "f" => {
                    assert_eq!(text(event, "bp"), "e");
                    let to = end((&slices, last.get(&track)));
                    assert!(ended.insert(number(event, "id"), to).is_none(), "{event}");
                }
                other => panic!("phase {other}"),
            }
        }

        let arrows = ended.into_iter().map(|(id, (name, at, to))| {
            let (begins, since, from) = begun.remove(&id).expect("an arrow that has begun");
            // Slices that touch are a nanosecond apart, so either end may be a few late.
            assert!(
                name == begins && since <= at + 0.01,
                "{name} {begins}, {since} {at}"
            );
            Arrow { name, from, to }
        });

        let arrows = arrows.collect();
        Self {
            overwritten: number(&file["otherData"], "overwritten"),
            events,
            slices,
            arrows,
        }
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Slice> {
        self.slices.iter().filter(move |slice| slice.name == name)
    }

    /// What the fibers of that name did after their slices.
    fn then(&self, name: &str) -> Vec<&str> {
        let of_name = self.slices.iter().filter(|slice| slice.name == name);
        of_name.map(|slice| slice.then.as_str()).collect()
    }

    /// The names of the slices at both ends of such arrows.
    fn arrows(&self, name: &str) -> Vec<(&str, &str)> {
        let ends = |arrow: &Arrow| {
            (
                self.slices[arrow.from].name.as_str(),
                self.slices[arrow.to].name.as_str(),
            )
        };

        let of_name = |arrow: &&Arrow| arrow.name == name;
        self.arrows
            .iter()
            .filter(of_name)
            .map(|arrow| (ends(arrow).0, ends(arrow).1))
            .collect()
    }
}

fn traced(builder: RuntimeBuilder) -> (Runtime, Tracer) {
    let runtime = builder
        .trace_capacity(ROOM)
        .report_stalls(false)
        .build()
        .expect("a runtime");
    let tracer = runtime.tracer().expect("it has a capacity");
    (runtime, tracer)
}

/// The trace once all fibers have ended: a join returns a little before.
fn after_all(runtime: &Runtime, tracer: &Tracer) -> Trace {
    assert!(runtime.wait_idle(HANG));
    Trace::of(&[tracer])
}

fn spawn_named<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> plainweave::JoinHandle<T> {
    Builder::new().name(name).spawn(f).expect("a fiber")
}

fn spin_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

fn every_mode_has_a_trace(setup: Setup) {
    for movement in [Movement::Never, Movement::BeforeStart, Movement::Anytime] {
        for own in [true, false] {
            let builder = setup.builder().max_workers(2);
            let builder = match movement {
                movement if own => builder.own_storage().movement(movement),
                // SAFETY: these fibers use no thread-local storage of their own, and everything in
                // them is Send.
                Movement::Anytime => unsafe { builder.shared_storage().movement_anytime() },
                // SAFETY: as above.
                movement => unsafe { builder.shared_storage() }.movement(movement),
            };

            let (runtime, tracer) = traced(builder);
            runtime.run(|| {
                let yields = || (0..3).for_each(|_| yield_now());
                let fibers: Vec<_> = (0..20)
                    .map(|i| spawn_named(&format!("f{i}"), yields))
                    .collect();
                fibers
                    .into_iter()
                    .for_each(|fiber| fiber.join().expect("no panic"));
            });
            let trace = after_all(&runtime, &tracer);
            assert_eq!(trace.overwritten, 0);

            for i in 0..20 {
                assert_eq!(
                    trace.then(&format!("f{i}")),
                    ["yielded", "yielded", "yielded", "ended"],
                    "{movement:?}"
                );
            }

            let spawned = trace.arrows("spawn");
            let from_main = spawned
                .iter()
                .filter(|(from, to)| *from == "main" && to.starts_with('f'))
                .count();
            assert_eq!(from_main, 20, "{movement:?}, own {own}: {spawned:?}");
            assert_eq!(trace.then("main").last(), Some(&"ended"));
            let fiber: HashSet<_> = trace
                .named("f7")
                .map(|slice| slice.fiber.expect("a number"))
                .collect();

            assert_eq!(fiber.len(), 1);
        }
    }
}

fn wakes_say_by_whom(setup: Setup) {
    for movement in [Movement::Never, Movement::BeforeStart, Movement::Anytime] {
        let (runtime, tracer) = traced(
            setup
                .builder()
                .max_workers(2)
                .own_storage()
                .movement(movement),
        );
        // Fibers from outside go to different workers where they do not move.
        let sleeper = Builder::new().name("sleeper");
        let waker = Builder::new().name("waker");
        let sleeper = runtime
            .spawn_with(sleeper, || plainweave::park().expect("not cancelled"))
            .expect("a fiber");
        let parked = || Trace::of(&[&tracer]).then("sleeper").last() == Some(&"waits: park");

        eventually("the sleeper parks", parked);
        let fiber = sleeper.fiber().clone();
        let waker = runtime
            .spawn_with(waker, move || fiber.unpark())
            .expect("a fiber");

        waker.join().expect("no panic");
        sleeper.join().expect("no panic");
        let trace = after_all(&runtime, &tracer);
        let wakes = trace.arrows("wake");
        assert!(
            wakes.contains(&("waker", "sleeper")),
            "{movement:?}: {wakes:?}"
        );
    }
}

/// How many wakes begin in the slices of that name.
fn wakes_from(trace: &Trace, name: &str) -> usize {
    let slices: Vec<_> = trace.named(name).collect();
    let within = |event: &&Value| {
        let track = (number(event, "pid"), number(event, "tid"));
        let at = event["ts"].as_f64().expect("a time");
        slices
            .iter()
            .any(|slice| slice.track == track && slice.begin <= at && at <= slice.end + ROUNDED)
    };

    trace
        .events
        .iter()
        .filter(|event| event["ph"] == "s" && event["name"] == "wake")
        .filter(within)
        .count()
}

/// More grants than there is room for among a worker's messages, and one to another runtime's
/// fiber.
fn each_grant_is_one_wake(setup: Setup) {
    const MANY: usize = 600;
    let two = || traced(setup.builder().movement(Movement::Never).max_workers(2));
    let (runtime, tracer) = two();
    let (other, others) = traced(
        setup
            .builder()
            .movement(Movement::Never)
            .workers(1)
            .max_workers(1),
    );
    let waits = |gate: &Arc<Vec<Semaphore>>, begun: &Arc<AtomicUsize>, i: usize| {
        let gate = gate.clone();
        let begun = begun.clone();
        move || {
            begun.fetch_add(1, Ordering::SeqCst);
            gate[i].acquire().expect("let go").forget();
        }
    };

    let gates: Arc<Vec<_>> = Arc::new((0..=MANY).map(|_| Semaphore::new(0)).collect());
    let begun = Arc::new(AtomicUsize::new(0));
    // Fibers that a thread spawns go to the two workers alternately.
    for i in 0..MANY {
        runtime.spawn(waits(&gates, &begun, i));
        runtime.spawn(|| ());
    }

    other.spawn(waits(&gates, &begun, MANY));
    eventually("all to begin", || begun.load(Ordering::SeqCst) == MANY + 1);
    let is_busy = Arc::new(AtomicBool::new(false));
    let is_done = Arc::new(AtomicBool::new(false));
    let busy = is_busy.clone();
    let done = is_done.clone();
    let holder = runtime.spawn(move || {
        busy.store(true, Ordering::SeqCst);
        spin_until(|| done.load(Ordering::SeqCst));
    });

    // Now the last of them has suspended too. The other runtime's has when its worker sleeps.
    spin_until(|| is_busy.load(Ordering::SeqCst));
    eventually("the other to wait", || {
        other
            .dump()
            .fibers
            .iter()
            .any(|fiber| format!("{fiber}").contains("semaphore"))
    });
    let releases = move || {
        gates.iter().for_each(Semaphore::release);
        is_done.store(true, Ordering::SeqCst);
    };

    let releaser = runtime
        .spawn_with(Builder::new().name("releaser"), releases)
        .expect("a fiber");
    releaser.join().expect("no panic");
    holder.join().expect("no panic");
    assert!(other.wait_idle(HANG));
    let trace = after_all(&runtime, &tracer);

    assert_eq!(
        (trace.overwritten, wakes_from(&trace, "releaser")),
        (0, MANY)
    );

    // The other runtime's trace has its own: by a thread that is none of its workers.
    let threads = Trace::of(&[&others]);
    let outside = threads
        .events
        .iter()
        .filter(|event| event["ph"] == "s" && event["name"] == "wake")
        .count();
    assert_eq!(outside, 1);
}

fn steals_say_from_whom(setup: Setup) {
    let (runtime, tracer) = traced(setup.builder().max_workers(2));
    runtime.run(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        let count = |i| {
            let ran = ran.clone();
            spawn_named(&format!("f{i}"), move || {
                _ = ran.fetch_add(1, Ordering::SeqCst)
            })
        };

        let fibers: Vec<_> = (0..50).map(count).collect();
        // Only a thief can run them.
        spin_until(|| ran.load(Ordering::SeqCst) >= 40);
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
    });
    let trace = after_all(&runtime, &tracer);
    let victim = trace.named("main").next().expect("it ran").track.1;
    let steals: Vec<_> = trace
        .events
        .iter()
        .filter(|event| event["ph"] == "i")
        .collect();
    let steal = steals
        .iter()
        .find(|steal| number(&steal["args"], "victim") == victim)
        .expect("a steal");

    assert!(
        number(&steal["args"], "fibers") >= 1 && number(steal, "tid") != victim,
        "{steal}"
    );
    assert!(
        trace
            .arrows("steal")
            .iter()
            .any(|(from, to)| *from == "main" && to.starts_with('f')),
        "{:?}",
        trace.arrows
    );
}

fn reasons_are_told(setup: Setup) {
    let (runtime, tracer) = traced(setup.builder().workers(1).max_workers(1));
    let (mut ours, mut theirs) = connected();
    runtime.run(move || {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().expect("not cancelled");
        let its = lock.clone();
        let locks = spawn_named("locks", move || drop(its.lock().expect("not cancelled")));
        let sleeps = spawn_named("sleeps", || time::sleep(ms(1)).expect("not cancelled"));
        let reads = spawn_named("reads", move || ours.read_exact(&mut [0]).expect("a byte"));
        let (lets_go, let_go) = mpsc::channel::<()>();
        let job = move || plainweave::blocking(move || _ = let_go.recv()).expect("not cancelled");
        let blocks = spawn_named("blocks", job);
        let parks = spawn_named("parks", || plainweave::park().expect("not cancelled"));
        let scopes = spawn_named("scopes", || scope(|s| _ = s.spawn(yield_now)));
        let futures = spawn_named("futures", || {
            let gate = Gate::default();
            let opens = gate.clone();
            spawn(move || opens.open());
            plainweave::block_on(gate).expect("not cancelled");
        });

        yield_now();
        yield_now();
        drop(held);
        theirs.write_all(&[1]).expect("sent");
        parks.fiber().unpark();
        drop(lets_go);
        for fiber in [locks, sleeps, reads, blocks, parks, scopes, futures] {
            fiber.join().expect("no panic");
        }
    });
    let trace = after_all(&runtime, &tracer);

    for (name, reason) in [
        ("locks", "waits: sync"),
        ("sleeps", "waits: sleep"),
        ("reads", "waits: I/O"),
        ("blocks", "waits: blocking"),
        ("parks", "waits: park"),
        ("scopes", "waits: scope"),
        ("futures", "waits: future"),
    ] {
        let then = trace.then(name);
        assert!(
            then.contains(&reason) && then.last() == Some(&"ended"),
            "{name}: {then:?}"
        );
    }

    assert!(
        trace.then("main").contains(&"waits: join"),
        "{:?}",
        trace.then("main")
    );
    let wakes = trace.arrows("wake");
    // What the driver and the timers wake, the worker wakes; the blocking pool is threads of its
    // own.
    assert!(
        wakes.contains(&("wake", "sleeps")) && wakes.contains(&("main", "locks")),
        "{wakes:?}"
    );
    assert!(
        wakes
            .iter()
            .any(|(from, to)| from.starts_with("thread ") && *to == "blocks"),
        "{wakes:?}"
    );

    eventually("the worker sleeps", || {
        Trace::of(&[&tracer]).named("asleep").next().is_some()
    });
}

fn spare_workers_have_tracks(setup: Setup) {
    let (runtime, tracer) = traced(setup.builder().workers(1).max_workers(2));
    let added = runtime.add_workers(1).expect("room for one");
    eventually("a spare worker", || runtime.metrics().workers.len() == 2);
    runtime.run(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        let fiber = spawn_named("taken", move || runs.store(true, Ordering::SeqCst));
        spin_until(|| ran.load(Ordering::SeqCst));
        fiber.join().expect("no panic");
    });
    drop(added);
    let trace = after_all(&runtime, &tracer);

    // One of them ran on the regular worker and the other one on the spare worker, whichever took
    // which.
    let tracks = trace
        .named("taken")
        .chain(trace.named("main"))
        .map(|slice| slice.track.1);
    assert_eq!(
        tracks.collect::<HashSet<_>>(),
        HashSet::from([0, 1]),
        "{:?}",
        trace.slices
    );
}

fn a_runtime_that_ends_can_be_traced(setup: Setup) {
    let runtime = setup
        .builder()
        .max_workers(2)
        .trace_capacity(1000)
        .build()
        .expect("a runtime");
    let tracer = runtime.tracer().expect("it has a capacity");
    // Yields never end by themselves, sleeps end when they are cancelled.
    let spin = || {
        while time::sleep(std::time::Duration::ZERO).is_ok() {
            yield_now();
        }
    };

    for i in 0..10 {
        runtime
            .spawn_with(Builder::new().name(format!("f{i}")), spin)
            .expect("a fiber");
    }

    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        // Two callers at once, before, while and after it ends.
        for _ in 0..2 {
            s.spawn(|| {
                let mut traces = 0;
                while !done.load(Ordering::SeqCst) || traces < 3 {
                    Trace::of(&[&tracer]);
                    traces += 1;
                }
            });
        }

        pause_thread();
        assert_eq!(runtime.shutdown(HANG), plainweave::Shutdown::default());
        done.store(true, Ordering::SeqCst);
    });

    let trace = Trace::of(&[&tracer]);
    assert!(
        trace
            .slices
            .iter()
            .all(|slice| slice.then != "goes on" || slice.cat == "worker"),
        "nothing runs"
    );
    let ended = trace
        .slices
        .iter()
        .filter(|slice| slice.then == "ended")
        .count();
    assert!(ended >= 1, "{:?}", trace.slices);
}

fn pause_thread() {
    std::thread::sleep(ms(5));
}

#[test]
fn names_are_escaped_and_cut() {
    let (runtime, tracer) = traced(Runtime::builder().workers(1).max_workers(1));
    let long = "\u{e4}".repeat(100);
    let odd = "\"<script>\\\u{1}\n\u{7f}\u{2028}'";
    runtime.run(|| {
        for name in [odd, &long, ""] {
            spawn_named(name, || ()).join().expect("no panic");
        }
        spawn(|| ()).join().expect("no panic");
    });
    assert!(runtime.wait_idle(HANG));
    let mut json = Vec::new();

    tracer.write_json(&mut json).expect("memory takes it");
    assert!(
        !json.iter().any(|byte| *byte < b' ' && *byte != b'\n'),
        "no control characters but ends of lines"
    );
    let trace = Trace::read(&json);
    assert_eq!(trace.then(odd), ["ended"]);
    assert_eq!(trace.then(&"\u{e4}".repeat(30)), ["ended"]);
    let numbered = trace
        .slices
        .iter()
        .filter(|slice| slice.cat == "fiber" && slice.name.starts_with("fiber "));

    assert_eq!(
        numbered.count(),
        2,
        "those without a name have a number: {:?}",
        trace.slices
    );
}

/// The newest events stay, whatever came before, and fibers that go on keep their names.
#[test]
fn the_oldest_events_are_overwritten() {
    let builder = Runtime::builder()
        .workers(1)
        .max_workers(1)
        .trace_capacity(100)
        .report_stalls(false);
    let runtime = builder.build().expect("a runtime");
    let tracer = runtime.tracer().expect("it has a capacity");
    runtime.run(|| (0..10_000).for_each(|_| yield_now()));
    let trace = after_all(&runtime, &tracer);

    // 100 is rounded up to 128.
    assert!(
        trace.overwritten > 19_000 && trace.slices.len() <= 128,
        "{}",
        trace.overwritten
    );
    assert!(trace.slices.len() >= 40, "{}", trace.slices.len());
    let last: Vec<_> = trace
        .slices
        .iter()
        .filter(|slice| slice.cat == "fiber")
        .rev()
        .take(20)
        .collect();
    assert!(last.iter().all(|slice| slice.name == "main"), "{last:?}");
}

#[test]
fn a_worker_that_is_held_up_is_shown() {
    unless_it_hangs("a_worker_that_is_held_up_is_shown", || {
        let (runtime, tracer) = traced(Runtime::builder().workers(1).max_workers(1));
        let let_go = Arc::new(AtomicBool::new(false));
        let goes = let_go.clone();
        let builder = Builder::new().name("culprit");
        let fiber = runtime
            .spawn_with(builder, move || spin_until(|| goes.load(Ordering::SeqCst)))
            .expect("a fiber");

        eventually("it runs", || {
            Trace::of(&[&tracer]).then("culprit") == ["goes on"]
        });
        let_go.store(true, Ordering::SeqCst);
        fiber.join().expect("no panic");
        assert_eq!(after_all(&runtime, &tracer).then("culprit"), ["ended"]);
    });
}

#[test]
fn runtimes_are_processes_of_one_trace() {
    let [(a, traces_a), (b, traces_b)] = ["a", "b"].map(|name| {
        traced(
            Runtime::builder()
                .workers(1)
                .max_workers(1)
                .thread_name(name),
        )
    });

    for (runtime, name) in [(&a, "in a"), (&b, "in b")] {
        runtime.run(|| spawn_named(name, || ()).join().expect("no panic"));
    }
    assert!(a.wait_idle(HANG) && b.wait_idle(HANG));
    let trace = Trace::of(&[&traces_a, &traces_b]);
    let pid = |name| {
        trace
            .named(name)
            .map(|slice| slice.track.0)
            .collect::<Vec<_>>()
    };

    assert_eq!((pid("in a"), pid("in b")), (vec![1], vec![2]));
    let processes = trace
        .events
        .iter()
        .filter(|event| event["name"] == "process_name");
    let names: Vec<_> = processes
        .map(|event| text(&event["args"], "name"))
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn the_simulated_driver_has_a_trace() {
    let (runtime, tracer) = traced(Runtime::builder().io(Io::Sim { seed: 3 }));
    runtime.run(|| time::sleep(std::time::Duration::from_secs(3600)).expect("not cancelled"));
    let trace = after_all(&runtime, &tracer);
    assert_eq!(trace.then("main"), ["waits: sleep", "ended"]);
}

#[test]
fn without_a_capacity_there_is_no_trace() {
    let runtime = Runtime::builder().workers(1).build().expect("a runtime");
    assert!(runtime.tracer().is_none());
    for events in [0, 63, (1 << 24) + 1] {
        let error = Runtime::builder()
            .trace_capacity(events)
            .build()
            .expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(
            error.to_string().contains("trace_capacity") && error.to_string().contains("64 to"),
            "{error}"
        );
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let (runtime, tracer) = traced(Runtime::builder().workers(1).max_workers(1));
    runtime.run(yield_now);
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("it exists");
    assert_eq!(
        tracer.write_json(full).expect_err("no room").kind(),
        ErrorKind::StorageFull
    );

    /// Takes one piece, then nothing.
    struct Closed(usize);
    impl Write for Closed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            if self.0 > 1 {
                Ok(0)
            } else {
                Ok(bytes.len().min(10))
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert_eq!(
        tracer.write_json(Closed(0)).expect_err("no room").kind(),
        ErrorKind::WriteZero
    );

    // Nothing is lost by it.
    assert_eq!(
        after_all(&runtime, &tracer).then("main"),
        ["yielded", "ended"]
    );
}
