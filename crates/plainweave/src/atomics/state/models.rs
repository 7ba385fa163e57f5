//! Loom models of the state word.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use super::*;
use crate::shim::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;

/// A fiber that waits for `flag`. All that accompanies the word is plain or relaxed: only the
/// word's own orderings make it visible, and loom finds two threads on one stack.
struct Model {
    state: State,
    flag: AtomicU32,
    queued: AtomicUsize,
    /// The fiber's stack and cells: whoever owns the fiber writes there. Counts how often.
    stack: UnsafeCell<u32>,
    /// What a granter has written before it wakes the fiber.
    message: UnsafeCell<u32>,
}

// SAFETY: what the models check: the cells are reached by one thread at a time.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

fn model() -> Arc<Model> {
    Arc::new(Model {
        state: State::new(),
        flag: AtomicU32::new(0),
        queued: AtomicUsize::new(0),
        stack: UnsafeCell::new(0),
        message: UnsafeCell::new(0),
    })
}

impl Model {
    /// Runs the fiber for a moment, as its owner.
    fn run(&self) {
        // SAFETY: what the models check.
        self.stack.with_mut(|stack| unsafe { *stack += 1 });
    }

    /// Queues the fiber; the thread that has won it also runs it, in the place of a worker.
    fn queue(&self) {
        self.run();
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives the fiber a grant: in its cells (here in `flag`) if that wins the fiber, otherwise in
    /// the word.
    fn grant(&self) {
        // SAFETY: what the models check: the fiber reads it once it has the grant.
        self.message.with_mut(|message| unsafe { *message = 7 });
        if self.state.wake(WakePayload::Grant) {
            self.flag.fetch_add(1, Ordering::Relaxed);
            self.queued.fetch_add(1, Ordering::Release);
        }
    }

    fn read_message(&self) {
        // SAFETY: the grant has come.
        assert_eq!(self.message.with(|message| unsafe { *message }), 7);
    }
}

fn waker(m: &Model) {
    m.flag.fetch_add(1, Ordering::Relaxed);
    if m.state.wake(WakePayload::Nothing) {
        m.queue();
    }
}

/// The fiber checks its flag and suspends: it ends up suspended only if nobody has set the flag. If
/// it does not suspend, it finds the flag set.
#[test]
fn loom_wake_is_never_lost() {
    loom::model(|| {
        let m = model();
        let other = m.clone();
        let t = loom::thread::spawn(move || waker(&other));
        m.run();

        let seen = m.flag.load(Ordering::Relaxed) == 1;
        if !seen && !m.state.suspend() {
            assert_eq!(
                m.flag.load(Ordering::Relaxed),
                1,
                "woken, and does not see why"
            );
            m.queue();
        }

        t.join().unwrap();
        assert!(
            seen || m.queued.load(Ordering::Relaxed) == 1,
            "suspended for ever"
        );
        m.run();
    });
}

/// A worker suspends a fiber; one thread claims it, reads its frames and suspends it again, while
/// another wakes it with a grant. It is queued once, and the grant comes once: from the word, or by
/// the granter that has won the fiber.
#[test]
fn loom_a_claim_loses_no_wake() {
    loom::model(|| {
        let m = model();
        let worker = m.clone();
        let granter = m.clone();
        let worker = loom::thread::spawn(move || {
            worker.run();
            if !worker.state.suspend() {
                worker.queue();
            }
        });

        let granter = loom::thread::spawn(move || {
            if granter.state.wake(WakePayload::Grant) {
                granter.flag.fetch_add(1, Ordering::Relaxed);
                granter.queue();
            }
        });

        if m.state.claim() {
            m.run();
            assert_eq!(
                m.flag.load(Ordering::Relaxed),
                0,
                "the granter has not won it"
            );
            if !m.state.suspend() {
                m.queue();
            }
        }

        worker.join().unwrap();
        granter.join().unwrap();
        assert_eq!(m.queued.load(Ordering::Relaxed), 1);
        let grants = m.flag.load(Ordering::Relaxed) + u32::from(m.state.take(WakePayload::Grant));
        assert_eq!(grants, 1);
    });
}

#[test]
fn loom_two_wakers_push_once() {
    loom::model(|| {
        let m = model();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let m = m.clone();
                loom::thread::spawn(move || waker(&m))
            })
            .collect();
        m.run();
        let suspended = m.state.suspend();
        for t in threads {
            t.join().unwrap();
        }
        let queued = m.queued.load(Ordering::Relaxed);

        assert!(
            if suspended { queued == 1 } else { queued == 0 },
            "suspended {suspended}, queued {queued} times"
        );
    });
}

/// A fiber waits for a grant while another wakes it without cause: it gets the grant once, from the
/// word or from its cells, and with it sees what the granter has written; whoever wins it pushes
/// it.
#[test]
fn loom_a_grant_comes_once() {
    loom::model(|| {
        let m = model();
        let granter = m.clone();
        let other = m.clone();
        let granter = loom::thread::spawn(move || granter.grant());
        let other = loom::thread::spawn(move || {
            if other.state.wake(WakePayload::Nothing) {
                other.queued.fetch_add(1, Ordering::Release);
            }
        });

        let mut grants = 0;
        let mut suspended = 0;
        while grants == 0 {
            grants += u32::from(m.state.take(WakePayload::Grant));
            if grants == 0 && m.state.suspend() {
                suspended += 1;
                // The fiber runs again once it has been pushed.
                while m.queued.load(Ordering::Acquire) < suspended {
                    loom::thread::yield_now();
                }
                grants += m.flag.swap(0, Ordering::Relaxed);
            }
        }

        m.read_message();
        granter.join().unwrap();
        other.join().unwrap();
        assert_eq!(grants, 1);
        assert!(
            !m.state.take(WakePayload::Grant) && m.flag.load(Ordering::Relaxed) == 0,
            "granted twice"
        );
    });
}

/// Whoever sees that a fiber has ended sees what it has done.
#[test]
fn loom_an_end_is_seen_whole() {
    loom::model(|| {
        let m = model();
        let fiber = m.clone();
        let fiber = loom::thread::spawn(move || {
            fiber.run();
            fiber.state.finish();
        });

        if m.state.is_finished() {
            m.run();
        }
        fiber.join().unwrap();
        assert!(m.state.is_finished());
    });
}
