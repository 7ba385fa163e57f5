//! A process with nothing to do uses no CPU.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use plainweave::net;

on_every_setup!(an_idle_runtime_uses_no_cpu);

/// CPU time that the process has used.
fn cpu() -> Duration {
    // SAFETY: all zeroes is a valid rusage, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };

    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// What the process uses in a second of idleness: at most two ticks of the clock. Threads of a test
/// before may still be on their way out, which is their kernel's time and counts: hence more than
/// one try.
fn assert_idle(what: &str) {
    let second = || {
        std::thread::sleep(ms(50));
        let before = cpu();
        std::thread::sleep(Duration::from_secs(1));
        cpu() - before
    };

    let used: Vec<_> = (0..3)
        .map(|_| second())
        .take_while(|used| *used > ms(20))
        .collect();
    assert!(used.len() < 3, "{what}: {used:?}");
}

/// A runtime of every policy, all of which have worked and sleep.
#[test]
fn no_policy_uses_cpu_when_idle() {
    if apart() {
        return;
    }
    let start = |preset: &plainweave::policy::Preset| {
        let runtime = plainweave::Runtime::builder()
            .workers(3)
            .policy(preset.name)
            .build()
            .expect("a runtime");
        let fibers: Vec<_> = (0..50)
            .map(|_| runtime.spawn(plainweave::yield_now))
            .collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        let parked = runtime.spawn(plainweave::park);
        (preset.name, runtime, parked)
    };

    let runtimes: Vec<_> = plainweave::policy::PRESETS.iter().map(start).collect();
    // Stacks are tidied up for a while after fibers have ended.
    std::thread::sleep(Duration::from_secs(1));
    for (name, runtime, _) in &runtimes {
        eventually(name, || runtime.metrics().sleeping_workers == 3);
    }
    let sleeps: Vec<_> = runtimes
        .iter()
        .map(|(_, runtime, _)| runtime.metrics().sleeps)
        .collect();
    assert_idle("a runtime of every policy");

    for ((name, runtime, parked), before) in runtimes.into_iter().zip(sleeps) {
        let woken = runtime.metrics().sleeps - before;
        assert!(woken <= 30, "{name}: {woken} times");
        parked.fiber().unpark();
        parked.join().expect("no panic").expect("unparked");
    }
}

fn an_idle_runtime_uses_no_cpu(setup: Setup) {
    if apart() {
        return;
    }
    let runtime = setup.workers(4);
    assert_idle("just built");
    runtime.run(|| plainweave::spawn(|| 1).join().expect("no panic"));
    let fibers: Vec<_> = (0..1000).map(|_| runtime.spawn(plainweave::park)).collect();
    let listener = Arc::new(listener());
    let accepting = listener.clone();
    let acceptor = runtime.spawn(move || accepting.accept().is_err());
    let sleeper = runtime.spawn(|| plainweave::time::sleep(Duration::from_secs(3600)).is_err());
    let mut theirs = Vec::new();

    for _ in 0..200 {
        let (conn, other) = connected();
        theirs.push(other);
        runtime.run(|| net::on_readable(conn, Some(Duration::from_secs(3600)), |_, _| ()));
    }

    eventually("all workers sleep", || {
        runtime.metrics().sleeping_workers == 4
    });
    let sleeps = runtime.metrics().sleeps;
    assert_idle("with parked fibers and connections");

    // A few are for tidying up; one that wakes for nothing does it thousands of times.
    let woken = runtime.metrics().sleeps - sleeps;
    assert!(woken <= 100, "{woken} times");
    assert_eq!(runtime.metrics().idle_connections, 200);
    listener.close();
    sleeper.cancel();
    assert!(acceptor.join().expect("no panic") && sleeper.join().expect("no panic"));
    fibers.iter().for_each(|f| f.fiber().unpark());

    fibers
        .into_iter()
        .for_each(|f| f.join().expect("no panic").expect("unparked"));
}
