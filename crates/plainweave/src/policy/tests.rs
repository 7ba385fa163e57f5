//! The conformance suite: what every policy owes, whatever it prefers. Each case runs for every
//! preset, through the same `match` as the runtime does; what is one policy's own stands below.

mod own;
mod published;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::*;

/// A task that tells who it is.
#[derive(Debug)]
struct Probe {
    id: usize,
    pinned: Option<WorkerId>,
    stamp: AtomicU64,
    priority: u8,
    deadline: Option<u64>,
    weight: u32,
}

impl Probe {
    fn new(id: usize) -> Self {
        Self {
            id,
            pinned: None,
            stamp: AtomicU64::new(0),
            priority: PRIORITY,
            deadline: None,
            weight: WEIGHT,
        }
    }

    fn pinned_to(id: usize, worker: WorkerId) -> Self {
        Self {
            pinned: Some(worker),
            ..Self::new(id)
        }
    }
}

impl Task for Probe {
    fn pinned(&self) -> Option<WorkerId> {
        self.pinned
    }
    fn last_worker(&self) -> Option<WorkerId> {
        None
    }
    fn stamp(&self) -> Nanos {
        self.stamp.load(Ordering::Relaxed)
    }
    fn set_stamp(&self, now: Nanos) {
        self.stamp.store(now, Ordering::Relaxed);
    }
    fn priority(&self) -> u8 {
        self.priority
    }
    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }
    fn weight(&self) -> u32 {
        self.weight
    }
}

/// A case of the suite.
trait Case {
    fn run<P: Policy<Probe>>(preset: &Preset, params: P::Params);
}

/// Says which preset a test failed on.
struct Named(&'static str);

impl Drop for Named {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the policy is '{}'", self.0);
        }
    }
}

fn on_every_preset<C: Case>() {
    struct Run<C>(&'static Preset, PhantomData<C>);
    impl<C: Case> Visitor<Probe> for Run<C> {
        type Output = ();
        fn visit<P: Policy<Probe>>(self, params: P::Params) {
            C::run::<P>(self.0, params);
        }
    }
    struct RunObserved<C>(&'static Preset, PhantomData<C>);
    impl<C: Case> Visitor<Numbered<Probe>> for RunObserved<C> {
        type Output = ();
        fn visit<P: Policy<Numbered<Probe>>>(self, policy: P::Params) {
            C::run::<Observed<P>>(
                self.0,
                ObservedParams {
                    policy,
                    observer: Observer::by_loop_clock(),
                },
            );
        }
    }

    // Policies have no `unsafe`: Miri follows the ring under these two, and takes an hour for all.
    let under_miri = |preset: &&Preset| !cfg!(miri) || matches!(preset.name, "fifo" | "lifo-slot");
    for preset in PRESETS.iter().filter(under_miri) {
        let _named = Named(preset.name);
        let choice = Choice::parse(preset.name).expect("a preset is well-formed");
        choice.visit(Run::<C>(preset, PhantomData));

        // To be observed changes nothing.
        if matches!(preset.name, "fifo" | "tokio" | "helping") {
            choice.visit(RunObserved::<C>(preset, PhantomData));
        }
    }
}

macro_rules! conformance {
    ($($(#[$what:meta])* $test:ident: $case:ident;)+) => {$(
        $(#[$what])*
        #[test]
        fn $test() {
            struct This;
            impl Case for This {
                fn run<P: Policy<Probe>>(preset: &Preset, params: P::Params) {
                    $case::<P>(preset, params);
                }
            }
            on_every_preset::<This>();
        }
    )+};
}

conformance! {
    /// Everything pushed, here and from outside, beyond any ring's size, is popped once.
    nothing_is_lost: loses_nothing;
    /// A thief gets what may move and never what is pinned; the victim keeps that.
    pinned_tasks_stay: keeps_pinned;
    /// A push from outside is run although local tasks yield for ever.
    outside_pushes_are_not_starved: serves_outside;
    /// A task that yields is run although others wake each other for ever.
    yields_are_not_starved: serves_yields;
    /// What has run and may still move is as good as new.
    started_tasks_move: moves_started;
    /// While its only worker is held up, everything that may move is popped by spare workers, and
    /// nothing else.
    spare_workers_find_what_may_move: serves_spares;
    /// Tasks that wake each other do not keep others from running, where the policy promises it.
    waiting_is_bounded: bounds_waiting;
    /// A policy that says that what yields may be pushed after the next pop pops the same then.
    what_yields_may_be_pushed_last: pushes_last;
    drain_gives_up_everything: drains;
    /// Workers on real threads push, pop, yield and steal: every task runs exactly as often as it
    /// should.
    nothing_runs_twice: runs_once;
    /// A worker that sleeps when told that nothing is ready, beside others that work, leaves
    /// nothing behind.
    the_last_look_misses_nothing: looks_well;
}

fn ids(tasks: impl IntoIterator<Item = Probe>) -> Vec<usize> {
    let mut ids: Vec<_> = tasks.into_iter().map(|t| t.id).collect();
    ids.sort_unstable();
    ids
}

fn pop_all<P: Policy<Probe>>(
    policy: &P,
    cx: &mut Cx,
    local: &mut P::Local,
    effort: Effort,
) -> Vec<Probe> {
    std::iter::from_fn(|| policy.pop(cx, local, effort)).collect()
}

const YIELDS: [Ready; 3] = [Ready::Yielded, Ready::YieldedLocal, Ready::YieldedShared];

/// Makes the same calls twice, but that the second time it pops before it pushes what yields.
fn pushes_last<P: Policy<Probe>>(_: &Preset, params: P::Params) {
    if P::DIRECT != DirectSwitch::Always {
        return;
    }

    // No more than a ring holds: when it spills depends on the order too.
    for (count, workers) in [(1, 1), (2, 1), (2, 2), (7, 2), (200, 2)] {
        let topology = Topology::flat(workers);
        let [early, late] = [true, false].map(|pushes_first| {
            let policy = P::new(params.clone(), &topology);
            let (mut cx, mut local) = (Cx::new(1), policy.attach(0));
            for id in 0..count {
                policy.push(&mut cx, Some(&mut local), Probe::new(id), Ready::Woken);
            }

            let mut running = policy.pop(&mut cx, &mut local, Effort::Quick);
            let mut order = Vec::new();
            for turn in 0..2_000 {
                // Now and then one comes from outside. (Beside a sole task it may be found earlier:
                // the other order would pop that one again.)
                if turn % 50 == 0 && count > 1 {
                    policy.push(&mut cx, None, Probe::new(count + turn), Ready::Woken);
                }
                let yields = running.take().expect("there is always one");
                order.push(yields.id);
                if !pushes_first {
                    running = policy.pop(&mut cx, &mut local, Effort::Quick);
                }

                policy.push(&mut cx, Some(&mut local), yields, Ready::Yielded);
                running = running.or_else(|| policy.pop(&mut cx, &mut local, Effort::Quick));
            }
            order
        });
        let differs = early
            .iter()
            .zip(&late)
            .position(|(early, late)| early != late);
        assert_eq!(differs, None, "{count} tasks, {workers} workers");
    }
}

/// No policy promises less.
const SOON: usize = 40_000;

fn loses_nothing<P: Policy<Probe>>(_: &Preset, params: P::Params) {
    let policy = P::new(params, &Topology::flat(1));
    let mut cx = Cx::new(1);
    let mut local = policy.attach(0);

    for i in 0..3000 {
        match i % 4 {
            0 => policy.push(&mut cx, Some(&mut local), Probe::new(i), Ready::Spawned),
            1 => policy.push(
                &mut cx,
                Some(&mut local),
                Probe::pinned_to(i, 0),
                Ready::Woken,
            ),
            2 => policy.push(&mut cx, Some(&mut local), Probe::new(i), YIELDS[i / 4 % 3]),
            _ => policy.push(&mut cx, None, Probe::new(i), Ready::Woken),
        };
    }

    let popped = pop_all(&policy, &mut cx, &mut local, Effort::Quick);
    assert_eq!(ids(popped), (0..3000).collect::<Vec<_>>());
    assert!(!policy.maybe_ready(0));
}

/// What a thief finds that searches for as long as there may be something.
fn take_all<P: Policy<Probe>>(
    policy: &P,
    cx: &mut Cx,
    worker: WorkerId,
    local: &mut P::Local,
) -> Vec<Probe> {
    let mut taken = Vec::new();
    while policy.maybe_ready(worker) && taken.len() < 10_000 {
        taken.extend(pop_all(policy, cx, local, Effort::Search));
    }
    taken.extend(pop_all(policy, cx, local, Effort::Search));
    taken
}

/// How many tasks that may move a worker of this preset may keep from thieves: in a closed slot, or
/// until there is a batch of them.
fn hidden(preset: &Preset) -> usize {
    match Choice::parse(preset.name)
        .expect("a preset is well-formed")
        .family()
    {
        Family::Stealing(params) if params.publish > 1 => params.publish - 1,
        Family::Stealing(params) => usize::from(params.slot.in_a_row > 0 && !params.slot.stealable),
        _ => 0,
    }
}

fn keeps_pinned<P: Policy<Probe>>(preset: &Preset, params: P::Params) {
    let policy = P::new(params, &Topology::flat(2));
    let mut cx = Cx::new(2);
    let mut a = policy.attach(0);
    let mut b = policy.attach(1);

    for i in 0..100 {
        let task = if i % 2 == 0 {
            Probe::pinned_to(i, 0)
        } else {
            Probe::new(i)
        };
        policy.push(&mut cx, Some(&mut a), task, Ready::Woken);
    }

    let shares = preset.family != FamilyName::Local;
    assert_eq!(policy.maybe_ready(1), shares, "there is something to steal");
    let stolen = take_all(&policy, &mut cx, 1, &mut b);
    assert!(stolen.iter().all(|t| t.pinned.is_none()));
    let all = if shares {
        50 - hidden(preset)..=50
    } else {
        0..=0
    };

    assert!(
        all.contains(&stolen.len()),
        "a thief that searches on finds all that may move: {}",
        stolen.len()
    );
    let kept = pop_all(&policy, &mut cx, &mut a, Effort::Quick);
    assert_eq!(kept.len() + stolen.len(), 100);
    assert_eq!(kept.iter().filter(|t| t.pinned == Some(0)).count(), 50);
}

fn serves_outside<P: Policy<Probe>>(_: &Preset, params: P::Params) {
    let policy = P::new(params, &Topology::flat(1));
    let mut cx = Cx::new(3);
    let mut local = policy.attach(0);

    for i in 0..10 {
        policy.push(
            &mut cx,
            Some(&mut local),
            Probe::pinned_to(i, 0),
            Ready::Spawned,
        );
        policy.push(
            &mut cx,
            Some(&mut local),
            Probe::new(100 + i),
            Ready::Spawned,
        );
    }

    policy.push(&mut cx, None, Probe::new(999), Ready::Spawned);
    for now in 0..SOON {
        cx.set_now(now as u64 * 100_000);
        let task = policy
            .pop(&mut cx, &mut local, Effort::Quick)
            .expect("never empty");
        if task.id == 999 {
            return;
        }
        policy.push(&mut cx, Some(&mut local), task, Ready::Yielded);
    }

    panic!("the task from outside has not run in {SOON} pops");
}

fn serves_yields<P: Policy<Probe>>(preset: &Preset, params: P::Params) {
    let policy = P::new(params, &Topology::flat(2));
    let mut cx = Cx::new(3);
    let mut local = policy.attach(0);
    let _other = policy.attach(1);
    for i in 0..10 {
        policy.push(
            &mut cx,
            Some(&mut local),
            Probe::pinned_to(i, 0),
            Ready::Woken,
        );
        policy.push(&mut cx, Some(&mut local), Probe::new(100 + i), Ready::Woken);
    }

    // A soft yield waits in the worker's own queue, behind the slot as all that is there.
    let unbounded_slot = preset.settings.contains("slot=1000000");
    let yields = YIELDS
        .into_iter()
        .filter(|why| *why != Ready::YieldedLocal || !unbounded_slot);
    let mut left = 0;

    for (i, why) in yields.enumerate() {
        policy.push(&mut cx, Some(&mut local), Probe::new(200 + i), why);
        policy.push(&mut cx, Some(&mut local), Probe::pinned_to(300 + i, 0), why);
        left += 2;
    }

    for now in 0..SOON {
        cx.set_now(now as u64 * 100_000);
        let task = policy
            .pop(&mut cx, &mut local, Effort::Quick)
            .expect("never empty");
        if task.id >= 200 {
            left -= 1;
            if left == 0 {
                return;
            }
            continue;
        }

        policy.push(&mut cx, Some(&mut local), task, Ready::Woken);
    }

    panic!("{left} tasks that yielded have not run in {SOON} pops");
}

fn moves_started<P: Policy<Probe>>(preset: &Preset, params: P::Params) {
    let policy = P::new(params, &Topology::flat(2));
    let mut cx = Cx::new(3);
    let mut a = policy.attach(0);
    let mut b = policy.attach(1);
    for i in 0..40 {
        policy.push(&mut cx, Some(&mut a), Probe::new(i), Ready::Spawned);
    }
    let started: Vec<_> = (0..40)
        .filter_map(|_| policy.pop(&mut cx, &mut a, Effort::Quick))
        .collect();

    assert!(!started.is_empty());
    let all = started.len();

    for task in started {
        policy.push(&mut cx, Some(&mut a), task, Ready::Woken);
    }
    let taken = take_all(&policy, &mut cx, 1, &mut b).len();
    assert!(
        preset.family == FamilyName::Local || taken + hidden(preset) >= all,
        "{taken} of {all}"
    );
}

fn serves_spares<P: Policy<Probe>>(preset: &Preset, params: P::Params) {
    assert_eq!(P::SPARES, preset.family != FamilyName::Local);
    let policy = P::new(
        params,
        &Topology {
            spares: true,
            ..Topology::flat(1)
        },
    );
    let mut cx = Cx::new(6);
    let mut local = policy.attach(0);
    assert!(!policy.maybe_ready_spare());
    assert!(policy.pop_spare(&mut cx).is_none());

    for i in 0..600 {
        let pinned = (i % 3 == 0).then_some(0);
        let own = (i % 3 < 2).then_some(&mut local);
        policy.push(
            &mut cx,
            own,
            Probe {
                pinned,
                ..Probe::new(i)
            },
            [Ready::Spawned, Ready::Woken][i % 2],
        );
    }

    let mut found = Vec::new();
    while policy.maybe_ready_spare() {
        found.push(policy.pop_spare(&mut cx).expect("what it has said"));
    }
    assert!(found.iter().all(|task| task.pinned.is_none()));
    let all = if preset.family == FamilyName::Local {
        0
    } else {
        400 - hidden(preset)
    };

    assert!(found.len() >= all, "{} of 400", found.len());
    while let Some(task) = policy.pop(&mut cx, &mut local, Effort::Search) {
        found.push(task);
    }
    assert_eq!(ids(found), (0..600).collect::<Vec<_>>());
}

fn bounds_waiting<P: Policy<Probe>>(preset: &Preset, params: P::Params) {
    if !preset.bounded {
        return;
    }
    let policy = P::new(params, &Topology::flat(1));
    let mut cx = Cx::new(4);
    let mut local = policy.attach(0);
    let mut ran = [0; 20];

    for i in 0..20 {
        let mut task = if i % 2 == 0 {
            Probe::pinned_to(i, 0)
        } else {
            Probe::new(i)
        };

        task.priority = if i < 2 { 255 } else { 0 };
        task.deadline = (i < 2).then_some(0);
        task.weight = if i < 2 { 1000 } else { 1 };
        policy.push(&mut cx, Some(&mut local), task, Ready::Spawned);
    }

    for now in 0..SOON {
        cx.set_now(now as u64 * 100_000);
        let task = policy
            .pop(&mut cx, &mut local, Effort::Quick)
            .expect("never empty");
        ran[task.id] += 1;
        let why = if task.id < 2 {
            Ready::Woken
        } else {
            Ready::Yielded
        };

        policy.push(&mut cx, Some(&mut local), task, why);
    }

    assert!(ran.iter().all(|&n| n > 0), "{ran:?}");
}

fn drains<P: Policy<Probe>>(_: &Preset, params: P::Params) {
    let policy = P::new(params, &Topology::flat(2));
    let mut cx = Cx::new(5);
    let mut a = policy.attach(0);
    let mut b = policy.attach(1);
    for i in 0..900 {
        let why = [Ready::Woken, Ready::Spawned, YIELDS[i / 3 % 3]][i % 3];
        let local = [Some(&mut a), Some(&mut b), None]
            .into_iter()
            .nth(i % 5 % 3)
            .flatten();
        let pinned = if i % 5 % 3 < 2 && i % 7 == 0 {
            Some(i % 5 % 3)
        } else {
            None
        };

        policy.push(
            &mut cx,
            local,
            Probe {
                pinned,
                ..Probe::new(i)
            },
            why,
        );
    }

    let mut drained = VecDeque::new();
    for local in [a, b] {
        policy.drain(local, &mut |t| drained.push_back(t));
    }
    assert_eq!(ids(drained), (0..900).collect::<Vec<_>>());
}

/// Runs workers that each spawn tasks, which yield once; `idle` is what a worker does that finds
/// nothing.
fn run_workers<P: Policy<Probe>>(
    params: P::Params,
    each: usize,
    idle: impl Fn(&P, WorkerId, &AtomicUsize) + Sync,
) {
    const WORKERS: usize = 4;
    let policy = P::new(
        params,
        &Topology {
            group: 2,
            ..Topology::flat(WORKERS)
        },
    );
    let runs: Vec<_> = (0..WORKERS * each).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(WORKERS * each);
    let start = Barrier::new(WORKERS);
    let work = |w: usize| {
        let mut cx = Cx::new(w as u64);
        let mut local = policy.attach(w);
        start.wait();
        let mut now = 0;
        let mut next = (w * each..(w + 1) * each).map(|id| match id % 7 {
            0 => Probe::pinned_to(id, w),
            _ => Probe::new(id),
        });

        while left.load(Ordering::Acquire) > 0 {
            now += 1000;
            cx.set_now(now);
            for task in next.by_ref().take(3) {
                let own = task.pinned.is_some() || task.id % 11 != 1;
                policy.push(&mut cx, own.then_some(&mut local), task, Ready::Spawned);
            }

            let Some(task) = policy.pop(&mut cx, &mut local, Effort::Search) else {
                // Who has not brought everything goes on.
                if next.len() == 0 {
                    idle(&policy, w, &left);
                }
                continue;
            };

            assert!(
                task.pinned.is_none_or(|a| a == w),
                "a pinned task has moved"
            );
            if runs[task.id].fetch_add(1, Ordering::Relaxed) == 0 {
                let why = if task.id % 3 == 0 {
                    Ready::Woken
                } else {
                    YIELDS[task.id % 5 % 3]
                };
                policy.push(&mut cx, Some(&mut local), task, why);
            } else {
                left.fetch_sub(1, Ordering::AcqRel);
            }
        }
    };

    std::thread::scope(|s| (0..WORKERS).for_each(|w| drop(s.spawn(move || work(w)))));
    assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 2));
}

fn runs_once<P: Policy<Probe>>(_: &Preset, params: P::Params) {
    const EACH: usize = if cfg!(miri) { 50 } else { 3_000 };
    run_workers::<P>(params, EACH, |_, _, _| std::thread::yield_now());
}

/// Idle workers sleep until the policy says that something may be ready, and search only then. The
/// test hangs if it denies what is there; tasks of a policy that does not share are run by their
/// own workers, which sleep as well.
fn looks_well<P: Policy<Probe>>(_: &Preset, params: P::Params) {
    const EACH: usize = if cfg!(miri) { 20 } else { 300 };
    run_workers::<P>(params, EACH, |policy, worker, left| {
        while !policy.maybe_ready(worker) && left.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    });
}
