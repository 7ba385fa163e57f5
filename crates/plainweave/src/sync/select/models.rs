//! Models of the protocol in `select`: the real lists and claims, sources behind loom's mutex,
//! waiters that loom parks.

use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread::{self, Thread};

use super::watchers::{Place, Selector, Watchers};
use crate::atomics::claim::Ended;

type Waiter = Selector<Thread>;

/// A channel of the model, with room for many values or, `rendezvous`, for none.
struct Source {
    values: Vec<u32>,
    receivers: Watchers<u32, Thread>,
    senders: Watchers<u32, Thread>,
}

type Shared = Arc<Mutex<Source>>;

fn source() -> Shared {
    Arc::new(Mutex::new(Source {
        values: Vec::new(),
        receivers: Watchers::new(),
        senders: Watchers::new(),
    }))
}

fn lock(source: &Shared) -> MutexGuard<'_, Source> {
    source.lock().unwrap()
}

/// Closes the claim, and returns which operation a peer has done.
fn claimed(waiter: &Waiter) -> Option<usize> {
    match waiter.claim.close()? {
        Ended::Claimed(branch) => Some(branch),
        Ended::Notified(_) => None,
    }
}

/// Has a wait, as a select does.
fn wait<R>(body: impl FnOnce(&Waiter) -> R) -> R {
    Selector::wait(thread::current(), body)
}

/// Sends into a channel with room, as `Sender::send` does.
fn send(source: &Shared, value: u32) {
    let notices = {
        let mut locked = lock(source);
        locked.values.push(value);
        locked.receivers.take()
    };

    if let Some(notices) = notices {
        notices.each(|waiter| waiter.unpark());
    }
}

/// Enters operation `branch` to receive from a channel with room; true if an attempt may succeed.
fn watch(source: &Shared, me: &Waiter, branch: usize, place: &mut Place) -> bool {
    let mut locked = lock(source);
    if locked.values.is_empty() {
        *place = locked.receivers.enter(me, branch, None);
    }
    !locked.values.is_empty()
}

/// Two senders, a select over their channels that gives up at any moment, and then one that does
/// not: everything that was sent is received, and the second select sleeps only while there is
/// nothing.
#[test]
fn loom_two_sources_and_a_giving_up() {
    loom::model(|| {
        let sources = [source(), source()];
        let senders = [0, 1].map(|n| {
            let source = sources[n].clone();
            thread::spawn(move || send(&source, 1))
        });

        let mut received = 0;
        // Cancelled: it enters both lists and leaves them without a wait.
        let mut patient = false;
        while received < 2 {
            if sources
                .iter()
                .any(|source| lock(source).values.pop().is_some())
            {
                received += 1;
                continue;
            }
            wait(|me| {
                me.claim.open();
                let mut places = [Place::default(); 2];
                let ready = (0..2).any(|n| watch(&sources[n], me, n, &mut places[n]));

                while patient && !ready && me.claim.is_open() {
                    thread::park();
                }
                assert!(
                    claimed(me).is_none(),
                    "nobody claims on a channel with room"
                );
                (0..2).for_each(|n| {
                    assert_eq!(lock(&sources[n]).receivers.leave(me, n, places[n]), None)
                });
            });
            patient = true;
        }

        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

/// One attempt at a rendezvous, as a sender with a value or as a receiver without one. Returns
/// whether it succeeded.
fn meet(source: &Shared, value: &mut Option<u32>, sends: bool) -> bool {
    let mut locked = lock(source);
    let peer = if sends {
        locked.receivers.give(value)
    } else {
        locked.senders.receive().map(|(received, peer)| {
            *value = Some(received);
            peer
        })
    };

    drop(locked);
    peer.inspect(Thread::unpark).is_some()
}

/// A select with one operation on each of two rendezvous channels; it goes on until one of them is
/// done. If it may be cancelled, it gives up after one wait that did not last. Returns the value
/// that it holds at the end.
fn select(sources: &[Shared; 2], sends: [bool; 2], cancelled: bool) -> Option<u32> {
    let mut values = sends.map(|sends| sends.then_some(7));
    loop {
        if let Some(n) = (0..2).find(|&n| meet(&sources[n], &mut values[n], sends[n])) {
            return values[n];
        }
        let claimed = wait(|me| {
            me.claim.open();
            let mut places = [Place::default(); 2];
            let ready = (0..2).any(|n| {
                let mut locked = lock(&sources[n]);
                let (mine, others) = match &mut *locked {
                    Source {
                        senders, receivers, ..
                    } if sends[n] => (senders, receivers),
                    Source {
                        senders, receivers, ..
                    } => (receivers, senders),
                };

                places[n] = mine.enter(me, n, values[n].take());
                others.any_other(me)
            });

            while !ready && !cancelled && me.claim.is_open() {
                thread::park();
            }
            let claimed = claimed(me);
            for n in 0..2 {
                let mut locked = lock(&sources[n]);
                let list = match &mut *locked {
                    Source { senders, .. } if sends[n] => senders,
                    Source { receivers, .. } => receivers,
                };
                values[n] = list.leave(me, n, places[n]);
            }

            claimed
        });

        if let Some(n) = claimed {
            return values[n];
        }
        if cancelled {
            return None;
        }
    }
}

/// Each sends on one channel and receives from the other, in opposite directions: exactly one value
/// changes hands.
#[test]
fn loom_two_selects_meet() {
    loom::model(|| {
        let sources = [source(), source()];
        let theirs = sources.clone();
        let other = thread::spawn(move || select(&theirs, [false, true], false));
        let mine = select(&sources, [true, false], false);
        let theirs = other.join().unwrap();
        assert!(
            mine.is_some() != theirs.is_some(),
            "one has sent, one has received: {mine:?} {theirs:?}"
        );
    });
}

/// A receiver that gives up has the value, or the sender keeps it and does not wait for ever for
/// another receiver.
#[test]
fn loom_a_rendezvous_is_cancelled() {
    loom::model(|| {
        let sources = [source(), source()];
        let theirs = sources.clone();
        let other = thread::spawn(move || select(&theirs, [false, false], true));
        let mut value = Some(7);
        let sent = meet(&sources[0], &mut value, true);
        let received = other.join().unwrap();

        assert_eq!(sent, received.is_some());
        assert_eq!(sent, value.is_none());
    });
}

/// A semaphore of the model: permits, and the selects that wait for one.
struct Permits {
    available: usize,
    watchers: Watchers<(), Thread>,
}

/// Adds a permit, and gives it to a select that waits, as `Semaphore::release` does.
fn release(permits: &Mutex<Permits>) {
    let mut locked = permits.lock().unwrap();
    locked.available += 1;
    let served = locked.watchers.give(&mut Some(()));
    locked.available -= usize::from(served.is_some());
    drop(locked);
    if let Some(waiter) = served {
        waiter.unpark();
    }
}

/// Takes a permit if there is one.
fn take(permits: &Mutex<Permits>) -> bool {
    let mut locked = permits.lock().unwrap();
    locked.available = match locked.available.checked_sub(1) {
        Some(left) => left,
        None => return false,
    };
    true
}

/// Two semaphores, each with a permit released, a select over both that gives up at any moment, and
/// then selects that do not: each permit is taken once, and no select sleeps while there is one.
#[test]
fn loom_permits_and_a_giving_up() {
    loom::model(|| {
        let permits = [0, 1].map(|_| {
            Arc::new(Mutex::new(Permits {
                available: 0,
                watchers: Watchers::new(),
            }))
        });

        let releasers = [0, 1].map(|n| {
            let permits = permits[n].clone();
            thread::spawn(move || release(&permits))
        });

        let mut taken = [0; 2];
        let mut patient = false;
        while taken != [1; 2] {
            if let Some(n) = (0..2).find(|&n| take(&permits[n])) {
                taken[n] += 1;
                continue;
            }

            let claimed = wait(|me| {
                me.claim.open();
                let mut places = [Place::default(); 2];
                let ready = (0..2).any(|n| {
                    let mut locked = permits[n].lock().unwrap();
                    if locked.available == 0 {
                        places[n] = locked.watchers.enter(me, n, None);
                    }
                    locked.available > 0
                });

                while patient && !ready && me.claim.is_open() {
                    thread::park();
                }
                let claimed = claimed(me);
                (0..2).for_each(|n| {
                    permits[n].lock().unwrap().watchers.leave(me, n, places[n]);
                });
                claimed
            });
            if let Some(n) = claimed {
                taken[n] += 1;
            }
            patient = true;
        }

        releasers
            .into_iter()
            .for_each(|releaser| releaser.join().unwrap());
        assert!(
            permits
                .iter()
                .all(|permits| permits.lock().unwrap().available == 0)
        );
    });
}
