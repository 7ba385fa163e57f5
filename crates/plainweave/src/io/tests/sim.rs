//! Virtual time.

#![deny(unsafe_code)]

use super::*;
use crate::io::sim::Sim;

const HOUR: u64 = 3_600_000_000_000;

#[test]
fn sleeping_is_a_jump_of_the_clock() {
    let mut sim = Sim::new().unwrap();
    let start = Instant::now();
    assert_eq!((sim.now(), sim.in_flight()), (0, 0));
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), HOUR);
    sim.poll(Wait::Until(5), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), HOUR, "the clock does not go back");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn looking_takes_a_little_time() {
    let mut sim = Sim::new().unwrap();
    sim.poll(Wait::No, &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), 1_000);
    let mut sim = Sim::new().unwrap().poll_cost(7);
    (0..3).for_each(|_| sim.poll(Wait::No, &mut Vec::new()).map(drop).unwrap());
    assert_eq!(sim.now(), 21);
    assert!(sim.wants_poll());
}

#[test]
fn a_wake_up_comes_before_the_jump() {
    let mut sim = Sim::new().unwrap().poll_cost(0);
    sim.wakeup().wake();
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), 0);
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), HOUR);
}

#[test]
fn for_ever_ends_by_another_thread() {
    let mut rig = Rig::new(&|| super::named("sim", Sim::new()));
    super::sleep::woken_before_and_during_a_wait(&|| super::named("sim", Sim::new()));
    let (source, _peer) = tcp_pair();
    assert_eq!(rig.finish(&recv(&source, &mut [0])), -libc::ENOSYS);
}
