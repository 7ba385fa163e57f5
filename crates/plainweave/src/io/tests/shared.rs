//! A ring for any thread, called by more than one.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{MembarrierCommand, membarrier};

use super::recurring::{read_past_the_driver, wait};
use super::*;

/// A value that another thread uses while its owner does not.
struct Lent<T>(T);
// SAFETY: tests hand over a ring that may be called by any thread, one at a time, and operations
// with it.
unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    fn take(self) -> T {
        self.0
    }
}

fn rig() -> Rig {
    Rig::new(&|| named("uring", Uring::new(Instant::now(), 0, Access::AnyThread, 8)))
}

/// What the watchdog does for a worker whose fiber computes.
#[test]
fn another_thread_fetches_what_its_submitter_is_too_busy_for() {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("there is one");
    let (source, peer) = tcp_pair();
    let mut rig = rig();
    let mut buf = [0; 8];
    let op = recv(&source, &mut buf);
    rig.pending(&op);
    rig.poll(Wait::No);
    let fetched = AtomicBool::new(false);
    let lent = Lent((&mut rig, &op));

    std::thread::scope(|scope| {
        let fetched = &fetched;
        scope.spawn(move || {
            let (rig, op) = lent.take();
            write(&peer, b"now");

            let limit = Instant::now() + Duration::from_secs(5);
            while op.result.get().is_none() && Instant::now() < limit {
                membarrier(MembarrierCommand::PrivateExpedited).expect("as before");
                rig.poll(Wait::No);
                std::thread::sleep(Duration::from_micros(100));
            }

            fetched.store(true, Ordering::Release);
        });
        while !fetched.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    });

    assert_eq!(
        op.result.get(),
        Some(3),
        "its submitter made no system call meanwhile"
    );
    assert_eq!(&buf[..3], b"now");
}

/// The kernel cancels what a thread has submitted when that thread ends, although nobody requested
/// it.
#[test]
fn an_operation_outlives_the_thread_that_submitted_it() {
    let (source, peer) = tcp_pair();
    let mut rig = rig();
    let mut buf = [0; 8];
    let op = recv(&source, &mut buf);

    let other = unix_pair();
    let readable = poll(&other.0, Interest::Read);
    for op in [&op, &readable] {
        let lent = Lent((&mut rig, op));
        let submit = move || {
            let (rig, op) = lent.take();
            rig.pending(op);
            rig.poll(Wait::No);
        };
        std::thread::scope(|scope| scope.spawn(submit).join()).expect("no panic");
    }

    rig.settle();
    assert_eq!(
        (op.result.get(), readable.result.get()),
        (None, None),
        "nothing has come yet"
    );
    write(&peer, b"late");
    write(&other.1, b"!");
    assert_eq!(rig.wait_for(&readable), 0);
    assert_eq!(rig.wait_for(&op), 4);
    assert_eq!(&buf[..4], b"late");
}

/// On such a ring the kernel reports at any time: a report that is in the queue when a wait begins
/// may be about what has been read since.
#[test]
fn a_report_from_before_a_wait_is_checked() {
    let (source, peer) = tcp_pair();
    let mut rig = rig();
    for _ in 0..3 {
        let first = wait(&source);
        rig.pending(&first);
        rig.poll(Wait::No);
        write(&peer, b"first");
        assert_eq!(rig.wait_for(&first), 0);
        let mut buf = [0; 8];
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 5);

        // The driver has not taken the report of this.
        write(&peer, b"second");
        assert_eq!(read_past_the_driver(&source, &mut buf), 6);

        let second = wait(&source);
        rig.pending(&second);
        rig.settle();
        assert_eq!(second.result.get(), None, "nothing has come since");
        write(&peer, b"third");
        assert_eq!(rig.wait_for(&second), 0);
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 5);
    }
}

/// A connection has moved to another driver, which leaves a poll behind.
#[test]
fn a_standing_poll_that_nobody_waits_for_ends() {
    // The wake-up's among them.
    let polls = |rig: &Rig| {
        let watched = rig.driver.watched().expect("any thread may call");
        let info = format!("/proc/self/fdinfo/{}", watched.fd.as_raw_fd());
        let info = std::fs::read_to_string(info).expect("an open ring");
        info.lines().filter(|line| line.contains("op=6")).count()
    };
    let (source, peer) = tcp_pair();
    let (mut left, mut right) = (rig(), rig());
    let turn = |rig: &mut Rig| {
        let op = wait(&source);
        rig.pending(&op);
        rig.poll(Wait::No);
        write(&peer, b"x");
        assert_eq!(rig.wait_for(&op), 0);
        assert_eq!(rig.finish(&recv(&source, &mut [0; 8])), 1);
    };

    for _ in 0..3 {
        turn(&mut left);
        assert_eq!(polls(&left), 2);
        for _ in 0..4 {
            turn(&mut right);
            left.settle();
        }

        assert_eq!((polls(&left), polls(&right)), (1, 2));
    }
}
