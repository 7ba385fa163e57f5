//! A source that two epoll drivers wait for in turn, as when its fiber migrates.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd};

use super::*;

fn rig() -> Rig {
    Rig::new(&|| named("epoll", Epoll::new(Instant::now(), 0)))
}

/// Returns the number of the driver's registrations in the kernel, its wake-up among them.
fn registrations(rig: &Rig) -> usize {
    let watch = rig.driver.watched().expect("epoll can be watched");
    let info = std::fs::read_to_string(format!(
        "/proc/self/fdinfo/{}",
        watch.fd.as_fd().as_raw_fd()
    ))
    .unwrap();
    info.lines().filter(|line| line.starts_with("tfd:")).count()
}

/// Receives one byte that arrives while the driver waits for it.
fn turn(rig: &mut Rig, source: &Source, peer: &TcpStream) {
    let mut buf = [0; 1];
    let op = recv(source, &mut buf);
    rig.pending(&op);
    write(peer, b"x");
    assert_eq!(rig.wait_for(&op), 1);
}

#[test]
fn a_registration_left_behind_ends() {
    let (source, peer) = tcp_pair();
    let mut left = rig();
    let mut right = rig();
    for _ in 0..3 {
        turn(&mut left, &source, &peer);
        assert_eq!(registrations(&left), 2);
        for _ in 0..10 {
            turn(&mut right, &source, &peer);
            left.settle();
        }

        assert_eq!((registrations(&left), registrations(&right)), (1, 2));
    }
}

/// Edges come without a waiter, with a call between them: the registration stays.
#[test]
fn a_registration_in_use_stays() {
    let (source, peer) = tcp_pair();
    let mut rig = rig();
    turn(&mut rig, &source, &peer);

    for _ in 0..16 {
        write(&peer, b"x");
        rig.settle();
        let mut buf = [0; 1];
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 1);
        assert_eq!(registrations(&rig), 2);
    }
}

/// A closed descriptor's number has been reused: the driver must not end the new owner's
/// registration.
#[test]
fn a_registration_of_the_same_number_stays() {
    let (first, peer) = tcp_pair();
    let mut rig = rig();
    turn(&mut rig, &first, &peer);

    // Keeps the file, and so its registration, although the source is gone; the driver has not been
    // notified.
    let kept = rustix::io::dup(&first).unwrap();
    // SAFETY: the first source is forgotten, so this alone owns the number.
    let mut number = unsafe { OwnedFd::from_raw_fd(first.raw()) };
    std::mem::forget(first);
    let (second, other) = tcp_pair();
    rustix::io::dup2(&second, &mut number).unwrap();
    let second = source(number);

    turn(&mut rig, &second, &other);
    for _ in 0..10 {
        write(&peer, b"x");
        rig.settle();
    }

    turn(&mut rig, &second, &other);
    drop(kept);
}
