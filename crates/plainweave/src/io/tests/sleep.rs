//! Sleeping and being woken.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

pub(super) fn woken_before_and_during_a_wait(make: &Make) {
    let mut rig = Rig::new(make);
    let wakeup = rig.driver.wakeup();
    wakeup.wake();
    rig.poll(Wait::Forever);
    let thread = std::thread::spawn({
        let wakeup = wakeup.clone();
        move || {
            std::thread::sleep(Duration::from_millis(20));
            wakeup.wake();
        }
    });

    let start = Instant::now();
    rig.poll(Wait::Forever);
    assert!(
        start.elapsed() >= Duration::from_millis(15),
        "returned early: {:?}",
        start.elapsed()
    );
    thread.join().unwrap();
}

/// Every wake-up ends a sleep, also after many of them, with and without waiting operations.
pub(super) fn woken_many_times(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, _peer) = tcp_pair();
    let mut buf = [0; 4];
    let op = recv(&source, &mut buf);
    rig.pending(&op);

    for n in 0..2_000 {
        let wakeup = rig.driver.wakeup();
        if n % 50 == 0 {
            let thread = std::thread::spawn(move || wakeup.wake());
            rig.poll(Wait::Forever);
            thread.join().unwrap();
        } else {
            (0..n % 3 + 1).for_each(|_| wakeup.wake());
            rig.poll(Wait::Forever);
        }
    }

    rig.cancel(&op);
    assert_eq!(rig.wait_for(&op), -libc::ECANCELED);
}

pub(super) fn until_is_not_early(make: &Make) {
    let mut rig = Rig::new(make);
    for nanoseconds in [0, 1, 50_000, 300_000, 1_500_000, 20_000_000] {
        let time = rig.driver.now() + nanoseconds;
        rig.poll(Wait::Until(time));
        let now = rig.driver.now();
        assert!(now >= time, "{} ns early", time - now);
        assert!(now < time + 500_000_000, "{} ns late", now - time);
    }
    rig.poll(Wait::Until(0));
}

extern "C" fn ignore(_: libc::c_int) {}

pub(super) fn signals_do_not_end_a_sleep(make: &Make) {
    let mut rig = Rig::new(make);
    // SAFETY: a handler that does nothing, without SA_RESTART, for a signal that no other test here
    // uses.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }

    // SAFETY: plain call.
    let me = unsafe { libc::pthread_self() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(2));
                // SAFETY: the thread lives until the scope ends.
                unsafe { libc::pthread_kill(me, libc::SIGUSR2) };
            }
        });
        let time = rig.driver.now() + 30_000_000;
        rig.poll(Wait::Until(time));
        over.store(true, Ordering::Relaxed);
        assert!(rig.driver.now() >= time, "a signal ended the sleep");
    });
}

pub(super) fn an_idle_driver_wants_no_poll(make: &Make) {
    let mut rig = Rig::new(make);
    rig.poll(Wait::No);
    assert!(!rig.driver.wants_poll());
    let (source, peer) = tcp_pair();
    let mut buf = [0; 4];
    let op = recv(&source, &mut buf);

    rig.pending(&op);
    rig.poll(Wait::No);
    write(&peer, b"1");

    let limit = Instant::now() + Duration::from_secs(5);
    while op.result.get().is_none() && Instant::now() < limit {
        if rig.driver.wants_poll() {
            rig.poll(Wait::No);
        }
    }

    assert_eq!(
        op.result.get(),
        Some(1),
        "a worker that asks wants_poll first sees completions"
    );
}

/// The kernel may end a multishot poll at any time; the test forces it to. Once re-armed, wake-ups
/// still end sleeps.
#[test]
fn a_wake_up_poll_that_ended_is_armed_again() {
    let mut uring = Uring::new(Instant::now(), 0, Access::OwnerThread, 8).unwrap();
    let wakeup = uring.wakeup();
    for _ in 0..20 {
        uring.end_wakeup_poll();
        uring.poll(Wait::No, &mut Vec::new()).unwrap();
        wakeup.wake();
        uring.poll(Wait::Forever, &mut Vec::new()).unwrap();

        // Nothing may be left over that would end the next sleep.
        (0..3).for_each(|_| uring.poll(Wait::No, &mut Vec::new()).map(drop).unwrap());
        let time = uring.now() + 2_000_000;
        uring.poll(Wait::Until(time), &mut Vec::new()).unwrap();
        assert!(uring.now() >= time, "woken by nobody");
    }
}

#[test]
fn a_ring_with_operations_in_flight_is_leaked_and_counted() {
    let before = crate::io::uring::leaked_rings();
    super::cancel::dropped_with_operations_in_flight(&|| {
        super::named(
            "uring",
            Uring::new(Instant::now(), 0, Access::OwnerThread, 8),
        )
    });
    assert!(crate::io::uring::leaked_rings() > before);
}
