//! Loom models of the [deque](super). Each starts two positions before the wrap at 2^21.

#![deny(unsafe_code)]

use loom::thread;

use super::{Owner, Stealer, deque, deque_at};

fn filled(capacity: usize, tasks: &[u32]) -> Owner<u32> {
    let mut owner = deque_at(capacity, (1 << 21) - 2);
    for &task in tasks {
        owner.push(task).unwrap();
    }
    owner
}

fn rest(owner: &mut Owner<u32>) -> Vec<u32> {
    std::iter::from_fn(|| owner.pop_oldest()).collect()
}

/// A thief with a deque of its own that steals half once, then returns all it has.
fn steal_half(victim: &Stealer<u32>, own: &mut Owner<u32>) -> Vec<u32> {
    let first = victim.steal_into(own, |len| len.div_ceil(2));
    first.into_iter().chain(rest(own)).collect()
}

fn assert_conserved(seen: &[&[u32]], last: u32) {
    let mut all = seen.concat();
    all.sort_unstable();
    assert_eq!(
        all,
        (1..=last).collect::<Vec<_>>(),
        "lost or doubled: {seen:?}"
    );
}

#[test]
fn loom_deque_a_thief_against_push_and_pop_of_the_newest() {
    loom::model(|| {
        let mut owner = filled(2, &[1, 2]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || steal_half(&victim, &mut deque(2)));

        // Full, until the pop or the thief's release: the push must never land on a slot that is
        // being moved.
        let mut own: Vec<u32> = owner.push(3).err().into_iter().collect();
        own.extend(owner.pop_newest());
        own.extend(owner.push(4).err());
        own.extend(owner.pop_newest());
        own.extend(rest(&mut owner));
        let stolen = thief.join().unwrap();

        assert!(stolen.is_sorted());
        assert_conserved(&[&own, &stolen], 4);
    });
}

#[test]
fn loom_deque_of_one() {
    loom::model(|| {
        let mut owner = filled(1, &[1]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || [victim.steal_one(), victim.steal_one()]);
        let mut own: Vec<u32> = owner.push(2).err().into_iter().collect();
        own.extend(owner.pop_newest());
        own.extend(owner.push(3).err());
        own.extend(rest(&mut owner));
        let stolen: Vec<u32> = thief.join().unwrap().into_iter().flatten().collect();

        assert_conserved(&[&own, &stolen], 3);
    });
}

#[test]
fn loom_deque_a_batch_against_pops_at_both_ends() {
    loom::model(|| {
        let mut owner = filled(4, &[1, 2, 3, 4]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || steal_half(&victim, &mut deque(2)));
        let mut own: Vec<u32> = owner.pop_oldest().into_iter().collect();
        own.extend(owner.push(5).err());
        own.extend(owner.pop_newest());
        own.extend(rest(&mut owner));
        assert_conserved(&[&own, &thief.join().unwrap()], 5);
    });
}

#[test]
fn loom_deque_two_thieves() {
    loom::model(|| {
        let mut owner = filled(4, &[1, 2, 3]);
        let thieves = [owner.stealer(), owner.stealer()]
            .map(|victim| thread::spawn(move || steal_half(&victim, &mut deque(2))));
        let mut own: Vec<u32> = owner.pop_newest().into_iter().collect();
        own.extend(owner.push(4).err());
        let [x, y] = thieves.map(|thief| thief.join().unwrap());

        own.extend(rest(&mut owner));
        assert_conserved(&[&own, &x, &y], 4);
    });
}

#[test]
fn loom_deque_a_thief_is_robbed_while_it_steals() {
    loom::model(|| {
        let mut owner = filled(4, &[1, 2, 3]);
        let mut middle = filled(2, &[4]);
        let first = owner.stealer();
        let second = middle.stealer();
        let middle = thread::spawn(move || steal_half(&first, &mut middle));
        let last = thread::spawn(move || steal_half(&second, &mut deque(2)));
        let [x, y] = [middle, last].map(|thief| thief.join().unwrap());

        assert_conserved(&[&rest(&mut owner), &x, &y], 4);
    });
}

/// A thief claims before, during and after a growth; the owner goes on in the new slots.
#[test]
fn loom_deque_grows_while_a_thief_reads() {
    loom::model(|| {
        let mut owner = filled(2, &[1, 2]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || {
            let mut stolen = steal_half(&victim, &mut deque(2));
            stolen.extend(victim.steal_one());
            stolen
        });

        assert!(owner.grow());
        owner.push(3).unwrap();
        let mut own: Vec<u32> = owner.pop_newest().into_iter().collect();
        owner.push(4).unwrap();
        own.extend(rest(&mut owner));
        let stolen = thief.join().unwrap();

        assert!(stolen.is_sorted());
        assert_conserved(&[&own, &stolen], 4);
    });
}

#[test]
fn loom_deque_gives_half_away_against_a_thief() {
    loom::model(|| {
        let mut owner = filled(2, &[1, 2]);
        let victim = owner.stealer();
        let thief = thread::spawn(move || steal_half(&victim, &mut deque(2)));
        let mut own = Vec::new();
        if let Err(task) = owner.push(3) {
            own.extend(owner.take_half());
            own.push(task);
        }

        own.extend(owner.push(4).err());
        own.extend(rest(&mut owner));
        assert_conserved(&[&own, &thief.join().unwrap()], 4);
    });
}
