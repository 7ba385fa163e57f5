//! The conformance suite: what every policy owes, whatever it prefers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use super::*;

/// A task that counts how often it was run.
struct Probe {
    id: usize,
    anchor: Option<WorkerId>,
    stamp: Arc<AtomicU64>,
}

impl Probe {
    fn new(id: usize) -> Self {
        Self { id, anchor: None, stamp: Arc::default() }
    }

    fn anchored(id: usize, worker: WorkerId) -> Self {
        Self { anchor: Some(worker), ..Self::new(id) }
    }
}

impl Task for Probe {
    fn anchor(&self) -> Option<WorkerId> {
        self.anchor
    }
    fn last_worker(&self) -> Option<WorkerId> {
        None
    }
    fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Relaxed)
    }
    fn set_stamp(&self, now: u64) {
        self.stamp.store(now, Ordering::Relaxed);
    }
}

fn ids(tasks: impl IntoIterator<Item = Probe>) -> Vec<usize> {
    let mut ids: Vec<_> = tasks.into_iter().map(|t| t.id).collect();
    ids.sort_unstable();
    ids
}

fn pop_all<P: Policy<Probe>>(policy: &P, cx: &mut Cx, local: &mut P::Local, effort: Effort) -> Vec<Probe> {
    std::iter::from_fn(|| policy.pop(cx, local, effort)).collect()
}

/// Everything pushed, here and from outside, beyond any ring's size, is popped once.
fn nothing_is_lost<P: Policy<Probe>>(params: P::Params) {
    let policy = P::new(params, &Topology { workers: 1 });
    let (mut cx, mut local) = (Cx::new(1), policy.attach(0));
    for i in 0..3000 {
        match i % 3 {
            0 => policy.push(&mut cx, Some(&mut local), Probe::new(i), Ready::Spawned),
            1 => policy.push(&mut cx, Some(&mut local), Probe::anchored(i, 0), Ready::Woken),
            _ => policy.push(&mut cx, None, Probe::new(i), Ready::Woken),
        };
    }
    let popped = pop_all(&policy, &mut cx, &mut local, Effort::Quick);
    assert_eq!(ids(popped), (0..3000).collect::<Vec<_>>());
    assert!(!policy.maybe_ready(0));
}

/// A thief gets what may move and never what is anchored; the victim keeps that.
fn anchored_tasks_stay<P: Policy<Probe>>(params: P::Params) {
    let policy = P::new(params, &Topology { workers: 2 });
    let mut cx = Cx::new(2);
    let (mut a, mut b) = (policy.attach(0), policy.attach(1));
    for i in 0..100 {
        let task = if i % 2 == 0 { Probe::anchored(i, 0) } else { Probe::new(i) };
        policy.push(&mut cx, Some(&mut a), task, Ready::Spawned);
    }
    assert!(policy.maybe_ready(1), "there is something to steal");
    let stolen = pop_all(&policy, &mut cx, &mut b, Effort::Search);
    assert!(stolen.iter().all(|t| t.anchor.is_none()));
    assert_eq!(ids(stolen).len(), 50, "a thief that searches on finds all that may move");
    assert!(pop_all(&policy, &mut cx, &mut a, Effort::Quick).iter().all(|t| t.anchor == Some(0)));
}

/// A push from outside is run within 1,000 pops although local tasks yield for ever.
fn outside_pushes_are_not_starved<P: Policy<Probe>>(params: P::Params) {
    let policy = P::new(params, &Topology { workers: 1 });
    let (mut cx, mut local) = (Cx::new(3), policy.attach(0));
    for i in 0..10 {
        policy.push(&mut cx, Some(&mut local), Probe::anchored(i, 0), Ready::Spawned);
        policy.push(&mut cx, Some(&mut local), Probe::new(100 + i), Ready::Spawned);
    }
    policy.push(&mut cx, None, Probe::new(999), Ready::Spawned);
    for _ in 0..1000 {
        let task = policy.pop(&mut cx, &mut local, Effort::Quick).expect("never empty");
        if task.id == 999 {
            return;
        }
        policy.push(&mut cx, Some(&mut local), task, Ready::Yielded);
    }
    panic!("the task from outside has not run in 1,000 pops");
}

/// Tasks that wake each other do not keep others from running: each of them runs at least once in 1,000 pops.
fn waiting_is_bounded<P: Policy<Probe>>(params: P::Params) {
    let policy = P::new(params, &Topology { workers: 1 });
    let (mut cx, mut local) = (Cx::new(4), policy.attach(0));
    let mut ran = [0; 20];
    for i in 0..20 {
        let task = if i % 2 == 0 { Probe::anchored(i, 0) } else { Probe::new(i) };
        policy.push(&mut cx, Some(&mut local), task, Ready::Spawned);
    }
    for _ in 0..1000 {
        let task = policy.pop(&mut cx, &mut local, Effort::Quick).expect("never empty");
        ran[task.id] += 1;
        let why = if task.id < 2 { Ready::Woken } else { Ready::Yielded };
        policy.push(&mut cx, Some(&mut local), task, why);
    }
    assert!(ran.iter().all(|&n| n > 0), "{ran:?}");
}

fn drain_gives_up_everything<P: Policy<Probe>>(params: P::Params) {
    let policy = P::new(params, &Topology { workers: 1 });
    let (mut cx, mut local) = (Cx::new(5), policy.attach(0));
    for i in 0..500 {
        let why = if i % 2 == 0 { Ready::Woken } else { Ready::Spawned };
        policy.push(&mut cx, (i % 5 != 0).then_some(&mut local), Probe::new(i), why);
    }
    let mut drained = VecDeque::new();
    policy.drain(local, &mut |t| drained.push_back(t));
    assert_eq!(ids(drained), (0..500).collect::<Vec<_>>());
}

/// Workers on real threads push, pop and steal: every task runs exactly once.
fn nothing_runs_twice<P: Policy<Probe>>(params: P::Params) {
    const WORKERS: usize = 4;
    const EACH: usize = if cfg!(miri) { 50 } else { 20_000 };
    let policy = Arc::new(P::new(params, &Topology { workers: WORKERS }));
    let runs: Arc<[AtomicUsize]> = (0..WORKERS * EACH).map(|_| AtomicUsize::new(0)).collect();
    let (left, start) = (Arc::new(AtomicUsize::new(WORKERS * EACH)), Arc::new(Barrier::new(WORKERS)));
    let workers: Vec<_> = (0..WORKERS)
        .map(|w| {
            let (policy, runs, left, start) = (policy.clone(), runs.clone(), left.clone(), start.clone());
            std::thread::spawn(move || {
                let (mut cx, mut local) = (Cx::new(w as u64), policy.attach(w));
                start.wait();
                let mut next = (w * EACH..(w + 1) * EACH).map(|id| match id % 7 {
                    0 => Probe::anchored(id, w),
                    _ => Probe::new(id),
                });
                while left.load(Ordering::Acquire) > 0 {
                    for task in next.by_ref().take(3) {
                        let own = task.anchor.is_some() || task.id % 11 != 1;
                        policy.push(&mut cx, own.then_some(&mut local), task, Ready::Spawned);
                    }
                    if let Some(task) = policy.pop(&mut cx, &mut local, Effort::Search) {
                        assert!(task.anchor.is_none_or(|a| a == w), "an anchored task has moved");
                        runs[task.id].fetch_add(1, Ordering::Relaxed);
                        left.fetch_sub(1, Ordering::AcqRel);
                    }
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|w| w.join().unwrap());
    assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 1));
}

macro_rules! conformance {
    ($($name:ident: $policy:ty, $params:expr;)+) => {$(
        mod $name {
            use super::*;
            macro_rules! case {
                ($case:ident) => {
                    #[test]
                    fn $case() {
                        super::$case::<$policy>($params);
                    }
                };
            }
            case!(nothing_is_lost);
            case!(anchored_tasks_stay);
            case!(outside_pushes_are_not_starved);
            case!(waiting_is_bounded);
            case!(drain_gives_up_everything);
            case!(nothing_runs_twice);
        }
    )+};
}

conformance! {
    fifo: Fifo<Probe>, ();
    lifo_slot: LifoSlot<Probe>, ();
}

#[test]
fn fifo_keeps_the_order_of_each_lane() {
    let policy = Fifo::<Probe>::new((), &Topology { workers: 1 });
    let (mut cx, mut local) = (Cx::new(6), policy.attach(0));
    for i in 0..100 {
        policy.push(&mut cx, Some(&mut local), Probe::anchored(i, 0), Ready::Woken);
    }
    let order: Vec<_> = pop_all(&policy, &mut cx, &mut local, Effort::Quick).iter().map(|t| t.id).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn lifo_slot_runs_what_was_woken_last_first() {
    let policy = LifoSlot::<Probe>::new((), &Topology { workers: 1 });
    let (mut cx, mut local) = (Cx::new(7), policy.attach(0));
    for i in 0..3 {
        policy.push(&mut cx, Some(&mut local), Probe::new(i), Ready::Woken);
    }
    let order: Vec<_> = pop_all(&policy, &mut cx, &mut local, Effort::Quick).iter().map(|t| t.id).collect();
    assert_eq!(order, [2, 0, 1]);
}
