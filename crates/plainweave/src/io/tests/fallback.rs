//! Choosing a driver, also where io_uring is forbidden.
//!
//! A seccomp filter applies to the thread that installs it and to the threads it starts: a thread
//! of the test is as good as a process, and the other tests are not affected.

#![deny(unsafe_code)]

#[path = "../../../tests/common/seccomp.rs"]
mod seccomp;

use super::*;
use crate::io::probe::{Io, open};
use seccomp::forbid;

/// What never holds a virtual clock.
fn free() -> crate::io::sim::Held {
    Box::new(|| false)
}

fn on_a_thread_without(call: libc::c_long, errno: i32, test: impl FnOnce() + Send + 'static) {
    let filtered = std::thread::spawn(move || {
        forbid(call, errno);
        test();
    });
    filtered.join().expect("the filtered thread succeeds");
}

#[test]
fn without_io_uring_auto_takes_epoll_and_says_why() {
    for (errno, word) in [
        (libc::EPERM, "forbidden"),
        (libc::ENOSYS, "does not have it"),
        (libc::ENOMEM, "memory"),
    ] {
        for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
            on_a_thread_without(call, errno, move || {
                let (driver, reason) =
                    open(Io::Auto, Instant::now(), 0, Access::OwnerThread, free())
                        .expect("falls back");
                assert_eq!(driver.name(), "epoll");
                let reason = reason.expect("a reason");
                assert!(reason.contains(word), "{reason}");
                super::stream::receives_what_comes_later(&|| {
                    open(Io::Auto, Instant::now(), 0, Access::OwnerThread, free())
                        .unwrap()
                        .0
                });
            });
        }
    }
}

#[test]
fn a_forced_driver_that_is_not_available_is_an_error_with_the_remedy() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        on_a_thread_without(libc::SYS_io_uring_setup, errno, || {
            let error = open(Io::Uring, Instant::now(), 0, Access::OwnerThread, free())
                .err()
                .expect("an error")
                .to_string();
            assert!(
                error.contains("seccomp profile") && error.contains("PLAINWEAVE_IO=epoll"),
                "{error}"
            );
        });
    }
}

#[test]
fn without_epoll_pwait2_sleeps_are_rounded_up() {
    on_a_thread_without(libc::SYS_epoll_pwait2, libc::ENOSYS, || {
        super::sleep::until_is_not_early(&|| {
            open(Io::Epoll, Instant::now(), 0, Access::OwnerThread, free())
                .unwrap()
                .0
        });
    });
}

#[test]
fn without_a_registered_ring_the_descriptor_serves() {
    // The probe of opcodes needs io_uring_register, so a filter on the whole call fails `build`:
    // test the gate alone.
    on_a_thread_without(libc::SYS_io_uring_register, libc::EPERM, || {
        let (driver, reason) =
            open(Io::Auto, Instant::now(), 0, Access::OwnerThread, free()).unwrap();
        assert_eq!(driver.name(), "epoll");
        assert!(reason.is_some());
    });
}

#[test]
fn each_choice_opens_its_driver() {
    let choices = [
        (Io::Auto, "uring"),
        (Io::Uring, "uring"),
        (Io::Epoll, "epoll"),
    ];
    for (choice, name) in choices.into_iter().chain([(Io::Sim { seed: 7 }, "sim")]) {
        let (driver, reason) =
            open(choice, Instant::now(), 0, Access::OwnerThread, free()).unwrap();
        assert_eq!((driver.name(), reason), (name, None));
    }
}

#[test]
fn the_environment_forces_and_bad_values_are_named() {
    assert_eq!(Io::Auto.or_forced_by("epoll").unwrap(), Io::Epoll);
    assert_eq!(
        Io::Epoll.or_forced_by("uring").unwrap(),
        Io::Epoll,
        "asked for by name"
    );
    assert_eq!(Io::Epoll.or_forced_by("").unwrap(), Io::Epoll);
    let sim = Io::Sim { seed: 1 };
    assert_eq!(
        sim.or_forced_by("epoll").unwrap(),
        sim,
        "virtual time stays"
    );
    let error = sim.or_forced_by("kqueue").unwrap_err().to_string();

    assert!(
        ["kqueue", "uring", "epoll", "PLAINWEAVE_IO"]
            .iter()
            .all(|word| error.contains(word)),
        "{error}"
    );
}
