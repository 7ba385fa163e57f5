//! Passes an answer from a signal handler to the thread that asked for it: through one slot of
//! fixed size, without locks and without allocation.
//!
//! # Why it is hard
//! The handler may run at any point of the thread that is asked, so it can wait for nothing. The
//! asker can wait, but not for ever: the thread may be stuck in the kernel and reach its handler a
//! minute later, when the slot has been given to another question.
//!
//! # Protocol
//! One word, `state`, holds the number of a question and its phase.
//! 1. The asker (one at a time, by a lock of its own) proceeds unless a handler is still writing
//!    (`ANSWERING`). It stores the target thread and the question's detail, then the next number with
//!    `ASKED` (release), and sends the signal.
//! 2. The handler loads `state` (acquire). If it is not `ASKED`, or the target is another thread,
//!    it returns.
//! 3. It exchanges what it has loaded for `ANSWERING` (relaxed: 2 has acquired). If `state` has
//!    changed, it returns.
//! 4. It writes the words, stores `ANSWERED` (release) and wakes the asker, which waits on `state`
//!    as a futex.
//! 5. The asker loads `ANSWERED` (acquire) and reads the words. If it times out, it exchanges
//!    `ASKED` for `IDLE`. If that fails the handler is at step 4, and the asker leaves the slot to
//!    it.
//!
//! # Why it is safe
//! * The exchanges of 3 and 5 start from the same value, so one of them fails: nobody writes to a
//!   slot that was given up and asked again. A late handler finds another phase, another number, or
//!   a question to its own thread. It answers the last of these; the second signal then finds
//!   nothing to do.
//! * Target and detail are read between 2 and 3. They change only when the question is over, and
//!   then 3 fails.
//! * Words are written between 3 and 4 and read after `ANSWERED` was seen. (Model:
//!   `loom_late_answers_spoil_no_question`.)
//!
//! Numbers have 30 bits. A handler that pauses between 2 and 3 for exactly 2^30 questions could
//! answer a question to another thread. The result is a wrong report, nothing worse.
//!
//! # Rejected
//! * *A pointer to the slot in the signal's value* (`sigqueue`): other processes of the user can
//!   send one too.
//! * *A slot for each worker*: it would have to outlive the worker, because of late handlers.

use crate::shim::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// No question is pending.
const IDLE: u32 = 0;
/// The asker waits.
const ASKED: u32 = 1;
/// The handler owns the words.
const ANSWERING: u32 = 2;
/// The asker owns the words.
const ANSWERED: u32 = 3;
/// The bits of the phase; the number is above them.
const PHASE: u32 = 3;

/// The slot: one question and its answer.
pub(crate) struct SignalSlot {
    state: AtomicU32,
    target: AtomicU32,
    detail: AtomicU64,
    words: Box<[AtomicUsize]>,
}

/// The number of a question, shifted as it is in `state`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question(u32);

impl SignalSlot {
    /// Creates a slot for answers of this many words.
    pub(crate) fn new(words: usize) -> Self {
        let words = (0..words).map(|_| AtomicUsize::new(0)).collect();
        Self {
            state: AtomicU32::new(IDLE),
            target: AtomicU32::new(0),
            detail: AtomicU64::new(0),
            words,
        }
    }

    /// Asks the thread `target`, and tells it a detail. Returns `None` while a handler still writes
    /// an answer that was given up.
    pub(crate) fn ask(&self, target: u32, detail: u64) -> Option<Question> {
        let state = self.state.load(Ordering::Acquire);
        if state & PHASE == ANSWERING {
            return None;
        }
        let number = (state & !PHASE).wrapping_add(PHASE + 1);
        self.target.store(target, Ordering::Relaxed);
        self.detail.store(detail, Ordering::Relaxed);
        self.state.store(number | ASKED, Ordering::Release);
        Some(Question(number))
    }

    /// Returns the answer, or the state to wait on until it changes.
    pub(crate) fn answer(&self, question: Question) -> Result<Vec<usize>, u32> {
        let state = self.state.load(Ordering::Acquire);
        if state != question.0 | ANSWERED {
            return Err(state);
        }
        Ok(self
            .words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect())
    }

    /// Gives a question up; if it has been answered by then, the answer can still be read.
    pub(crate) fn withdraw(&self, question: Question) {
        let (asked, idle) = (question.0 | ASKED, question.0 | IDLE);
        let _ = self
            .state
            .compare_exchange(asked, idle, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the futex that the asker waits on and the handler wakes.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.state
    }

    /// Returns the right to answer, if the question is for the thread `me`.
    ///
    /// Context: a signal handler.
    pub(crate) fn take(&self, me: u32) -> Option<Answer<'_>> {
        let state = self.state.load(Ordering::Acquire);
        if state & PHASE != ASKED || self.target.load(Ordering::Relaxed) != me {
            return None;
        }
        let detail = self.detail.load(Ordering::Relaxed);
        let number = state & !PHASE;
        self.state
            .compare_exchange(
                state,
                number | ANSWERING,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .ok()?;

        Some(Answer {
            slot: self,
            number,
            detail,
        })
    }
}

/// The handler's hold on the words. Dropping it publishes them.
pub(crate) struct Answer<'a> {
    slot: &'a SignalSlot,
    number: u32,
    detail: u64,
}

impl Answer<'_> {
    /// Returns the question's detail.
    pub(crate) fn detail(&self) -> u64 {
        self.detail
    }

    /// Writes one word; does nothing beyond the last.
    pub(crate) fn put(&self, at: usize, word: usize) {
        if let Some(place) = self.slot.words.get(at) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.slot
            .state
            .store(self.number | ANSWERED, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_is_asked_answers_and_once() {
        let slot = SignalSlot::new(2);
        assert!(slot.take(7).is_none());
        let question = slot.ask(7, 1).expect("nobody writes");
        assert!(slot.take(8).is_none());
        slot.take(7).expect("asked").put(1, 42);
        assert!(slot.take(7).is_none());
        assert_eq!(slot.answer(question), Ok(vec![0, 42]));
    }

    #[test]
    fn who_gives_up_is_not_answered_and_the_next_is() {
        let slot = SignalSlot::new(1);
        let first = slot.ask(7, 1).expect("nobody writes");
        slot.withdraw(first);
        assert!(slot.take(7).is_none());
        let second = slot.ask(7, 1).expect("nobody writes");
        slot.take(7).expect("asked").put(0, 2);
        assert!(slot.answer(first).is_err());
        assert_eq!(slot.answer(second), Ok(vec![2]));
    }

    #[test]
    fn nobody_asks_while_an_answer_that_was_given_up_is_written() {
        let slot = SignalSlot::new(1);
        let first = slot.ask(7, 1).expect("nobody writes");
        let answer = slot.take(7).expect("asked");
        slot.withdraw(first);
        assert!(slot.ask(8, 2).is_none());
        answer.put(0, 1);
        answer.put(1, 1);
        drop(answer);
        assert_eq!(slot.answer(first), Ok(vec![1]));
        assert!(slot.ask(8, 2).is_some());
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::Arc;

    /// A handler never answers a question to another thread, and every answer was written by one
    /// handler, for that question.
    #[test]
    fn loom_late_answers_spoil_no_question() {
        loom::model(|| {
            let slot = Arc::new(SignalSlot::new(2));
            let handlers: Vec<_> = (1..=2)
                .map(|me| {
                    let slot = slot.clone();
                    loom::thread::spawn(move || {
                        if let Some(answer) = slot.take(me) {
                            answer.put(0, me as usize);
                            answer.put(1, answer.detail() as usize);
                        }
                    })
                })
                .collect();
            for target in 1..=2 {
                let Some(question) = slot.ask(target, u64::from(target)) else {
                    continue;
                };
                slot.withdraw(question);
                if let Ok(words) = slot.answer(question) {
                    assert_eq!(words, [target as usize; 2]);
                }
            }

            handlers
                .into_iter()
                .for_each(|handler| handler.join().unwrap());
        });
    }
}
