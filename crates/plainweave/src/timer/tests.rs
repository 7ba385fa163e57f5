//! The wheel against a `BTreeMap`, at the ends of its range, and its cost.

use std::collections::BTreeMap;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const TICK: u64 = 1 << TICK_SHIFT;
const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;

fn fired<T>(wheel: &mut Wheel<T>, now: u64) -> Vec<T> {
    let mut values = Vec::new();
    wheel.advance(now, usize::MAX, &mut |value| values.push(value));
    values
}

#[test]
fn a_timer_fires_within_its_tick_and_never_early() {
    for deadline in [
        1,
        TICK - 1,
        TICK,
        TICK + 1,
        63 * TICK,
        64 * TICK,
        64 * TICK + 1,
        5000 * TICK + 7,
        3 * YEAR + 11,
    ] {
        let mut wheel = Wheel::new();
        wheel.insert(deadline, deadline);
        assert_eq!(fired(&mut wheel, deadline - 1), []);
        assert!(wheel.next_wake().unwrap() < deadline + TICK);
        assert_eq!(fired(&mut wheel, deadline + TICK - 1), [deadline]);
        assert_eq!((wheel.len(), wheel.next_wake()), (0, None));
    }
}

#[test]
fn one_advance_fires_by_deadline_then_by_insertion() {
    let mut wheel = Wheel::new();
    let deadlines = [
        YEAR + 5,
        900,
        7,
        YEAR + 4,
        900,
        70 * TICK,
        8,
        YEAR + 4,
        70 * TICK - 1,
    ];
    for (number, deadline) in deadlines.into_iter().enumerate() {
        wheel.insert(deadline, (deadline, number));
    }
    let mut expected: Vec<_> = deadlines.into_iter().zip(0..).collect();
    expected.sort_unstable();
    assert_eq!(fired(&mut wheel, 2 * YEAR), expected);
}

#[test]
fn following_next_wake_reaches_every_deadline_in_few_steps() {
    let mut wheel = Wheel::new();
    for deadline in [3 * YEAR, 60_000_000_000, 12_345] {
        wheel.insert(deadline, deadline);
    }
    let mut steps = 0;

    while let Some(wake) = wheel.next_wake() {
        steps += 1;
        for deadline in fired(&mut wheel, wake) {
            assert!(deadline <= wake && wake < deadline + TICK);
        }
    }

    assert!(steps <= 3 * LEVELS, "{steps} wake-ups");
}

#[test]
fn the_ends_of_time() {
    let mut wheel = Wheel::new();
    let never = wheel.insert(u64::MAX, "never");
    wheel.insert(0, "past");
    assert_eq!(wheel.next_wake(), Some(0));
    assert_eq!(fired(&mut wheel, 0), ["past"]);
    wheel.insert(u64::MAX - TICK + 1, "last tick");
    assert_eq!(fired(&mut wheel, u64::MAX - TICK), [""; 0]);
    assert_eq!(fired(&mut wheel, u64::MAX), ["last tick"]);
    assert_eq!(wheel.next_wake(), Some(u64::MAX));
    wheel.insert(5, "long ago");
    assert!(wheel.next_wake().unwrap() <= u64::MAX - TICK + 1);
    assert_eq!(fired(&mut wheel, 5), ["long ago"], "time does not run back");
    assert_eq!(wheel.remove(never), Some("never"));
    assert!(wheel.is_empty());
}

#[test]
fn a_stale_key_finds_nothing() {
    let mut wheel = Wheel::new();
    let first = wheel.insert(TICK, 1);
    assert_eq!(fired(&mut wheel, TICK), [1]);
    let second = wheel.insert(2 * TICK, 2);
    assert_eq!(second.index, first.index);

    assert_eq!(
        (
            wheel.remove(first),
            wheel.remove(second),
            wheel.remove(second)
        ),
        (None, Some(2), None)
    );
}

#[test]
fn a_panic_in_fire_loses_only_its_own_timer() {
    let mut wheel = Wheel::new();
    for value in 0..4 {
        wheel.insert(10, value);
    }
    let panics = std::panic::AssertUnwindSafe(|| {
        wheel.advance(TICK, usize::MAX, &mut |value| {
            assert!(value < 1, "on purpose")
        });
    });

    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(wheel.len(), 2);
    assert_eq!(fired(&mut wheel, TICK), [2, 3]);
}

/// What is left fires first, in order, with removed ones left out; what becomes due meanwhile fires
/// afterwards.
#[test]
fn an_advance_goes_on_where_the_last_one_stopped() {
    fn some(wheel: &mut Wheel<u64>, now: u64, most: usize) -> Vec<u64> {
        let mut values = Vec::new();
        wheel.advance(now, most, &mut |value| values.push(value));
        values
    }
    let mut wheel = Wheel::new();
    let keys: Vec<_> = (0..10)
        .map(|value| wheel.insert(5 * TICK - value, value))
        .collect();
    let later = wheel.insert(7 * TICK, 70);
    assert_eq!(some(&mut wheel, 20 * TICK, 0), []);
    assert_eq!(some(&mut wheel, 20 * TICK, 4), [9, 8, 7, 6]);
    assert!(
        wheel.is_behind() && wheel.next_wake().unwrap() <= 5 * TICK,
        "the rest is due"
    );
    assert_eq!(
        (wheel.remove(keys[4]), wheel.remove(keys[9])),
        (Some(4), None)
    );
    wheel.insert(1, 100);
    wheel.insert(6 * TICK, 60);
    assert_eq!(some(&mut wheel, 20 * TICK, 2), [5, 3]);
    assert_eq!(some(&mut wheel, 20 * TICK, 4), [2, 1, 0, 100]);
    assert!(wheel.is_behind() && wheel.next_wake().unwrap() <= 6 * TICK);
    assert_eq!(wheel.remove(later), Some(70));
    assert_eq!(some(&mut wheel, 20 * TICK, 4), [60]);

    assert_eq!(
        (wheel.is_behind(), wheel.len(), wheel.next_wake()),
        (false, 0, None)
    );
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(prop::sample::Index),
    Advance(u64),
    /// Advance to `next_wake`, as an idle worker does.
    Wake,
}

/// Generates distances at every scale, from within a tick to years.
fn distances() -> impl Strategy<Value = u64> {
    (0u32..60, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => distances().prop_map(Step::Insert),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
        3 => distances().prop_map(Step::Advance),
        2 => Just(Step::Wake),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 40 } else { 300 })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 1000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// The model: a map by (deadline, insertion). At `now`, each deadline whose tick has begun
    /// fires.
    #[test]
    fn the_wheel_is_a_sorted_map(steps in steps(), exact: bool) {
        let mut wheel = if exact { Wheel::exact() } else { Wheel::new() };
        let shift = wheel.tick_shift;
        let mut model = BTreeMap::new();
        let mut keys = Vec::new();
        let mut now: u64 = 0;

        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(distance) => {
                    // A quarter of them are in the past.
                    let past = number % 4 == 0;
                    let deadline = if past { now.saturating_sub(distance) } else { now.saturating_add(distance) };
                    keys.push(((deadline, number), wheel.insert(deadline, (deadline, number))));
                    model.insert((deadline, number), ());
                }
                Step::Remove(index) if !keys.is_empty() => {
                    let (id, key) = keys[index.index(keys.len())];
                    prop_assert_eq!(wheel.remove(key), model.remove(&id).map(|()| id));
                }
                Step::Remove(_) => {}
                Step::Advance(distance) => now = now.saturating_add(distance),
                Step::Wake => now = now.max(wheel.next_wake().unwrap_or(0)),
            }

            if let Some((&(deadline, _), ())) = model.first_key_value() {
                let wake = wheel.next_wake().unwrap();
                let start = tick_of(deadline, shift).saturating_mul(1 << shift);
                prop_assert!(wake <= now || wake <= start);
            }

            let mut due = model.clone();
            due.retain(|(deadline, _), ()| tick_of(*deadline, shift) <= now >> shift);
            model.retain(|id, ()| !due.contains_key(id));
            prop_assert_eq!(fired(&mut wheel, now), due.into_keys().collect::<Vec<_>>());
            prop_assert_eq!(wheel.len(), model.len());
        }
    }
}

/// `cargo test -p plainweave --release --lib timer::tests::cost -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr)]
fn cost() {
    const N: u64 = 10_000_000;
    let per = |start: Instant| start.elapsed().as_nanos() as f64 / N as f64;
    for waiting in [0u64, 1_000, 1_000_000] {
        let mut wheel = Wheel::new();
        let mut state = 88_172_645_463_325_252u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };

        let mut keys: Vec<_> = (0..waiting)
            .map(|i| wheel.insert(random() % 60_000_000_000, i))
            .collect();
        let start = Instant::now();
        for i in 0..N {
            let key = wheel.insert(30_000_000_000 + i, i);
            assert_eq!(wheel.remove(std::hint::black_box(key)), Some(i));
        }

        let pair = per(start);
        let start = Instant::now();
        for i in 0..if waiting == 0 { 0 } else { N } {
            let key = &mut keys[random() as usize % waiting as usize];
            wheel.remove(*key);
            *key = wheel.insert(random() % 60_000_000_000, i);
        }

        let renew = per(start);
        let start = Instant::now();
        for i in 0..N {
            wheel.advance(std::hint::black_box(i % 1000), usize::MAX, &mut drop);
        }
        let idle = per(start);
        let start = Instant::now();
        let mut count = 0u64;

        wheel.advance(60_000_000_000 + TICK, usize::MAX, &mut |_| count += 1);
        let fire = start.elapsed().as_nanos() as f64 / count.max(1) as f64;
        eprintln!(
            "{waiting} waiting: insert+remove {pair:.1} ns, renewing a random one {renew:.1} ns, \
             idle advance {idle:.1} ns, \
             firing {count} took {fire:.1} ns each"
        );
    }
}
