//! Virtual time.

#![deny(unsafe_code)]

use super::*;
use crate::io::sim::Sim;

const HOUR: u64 = 3_600_000_000_000;

fn sim() -> Sim {
    Sim::new(Box::new(|| false)).unwrap()
}

#[test]
fn sleeping_is_a_jump_of_the_clock() {
    let mut sim = sim();
    let start = Instant::now();
    assert_eq!((sim.now(), sim.in_flight()), (0, 0));
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), HOUR);
    sim.poll(Wait::Until(5), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), HOUR, "the clock does not go back");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn looking_takes_no_time_until_it_is_a_loop() {
    let mut sim = sim();
    let mut look = |times: u64| {
        (0..times).for_each(|_| sim.poll(Wait::No, &mut Vec::new()).map(drop).unwrap());
        sim.now()
    };
    assert_eq!(look(100_000), 0);
    assert_eq!(look(3), 3_000);
    assert!(sim.wants_poll());
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    sim.poll(Wait::No, &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), HOUR);
}

#[test]
fn a_held_clock_stands() {
    let looks = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = looks.clone();
    let held = move || count.replace(count.get() + 1) < 3;
    let mut sim = Sim::new(Box::new(held)).unwrap();
    let start = Instant::now();
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    assert_eq!((sim.now(), looks.get()), (HOUR, 4));
    assert!(start.elapsed() >= Duration::from_millis(2));
}

#[test]
fn a_wake_up_comes_before_the_jump() {
    let mut sim = sim();
    sim.wakeup().wake();
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), 0);
    sim.poll(Wait::Until(HOUR), &mut Vec::new()).unwrap();
    assert_eq!(sim.now(), HOUR);
}

#[test]
fn for_ever_ends_by_another_thread() {
    let mut rig = Rig::new(&|| super::named("sim", Sim::new(Box::new(|| false))));
    super::sleep::woken_before_and_during_a_wait(&|| {
        super::named("sim", Sim::new(Box::new(|| false)))
    });
    let (source, _peer) = tcp_pair();
    assert_eq!(rig.finish(&recv(&source, &mut [0])), -libc::ENOSYS);
}
