//! How a signal handler hands an answer to the thread that asked for it: in one place of fixed size, without a lock
//! and without an allocation.
//!
//! # Why it is hard
//! The handler may run at any point of the thread that is asked, so it can wait for nothing. The asker can wait, but
//! not for ever: the thread may be stuck in the kernel, and come to its handler a minute later, when the place has been
//! given to another question.
//!
//! # Protocol
//! One word, `state`, has the number of a question and its phase.
//! 1. The asker (one at a time, by a lock of its own) begins unless a handler still writes (`ANSWERING`): it stores
//!    whom it asks, then the next number with `ASKED` (release), and sends the signal.
//! 2. The handler loads `state` (acquire). Not `ASKED`, or not of its thread: it leaves.
//! 3. It exchanges what it has loaded for `ANSWERING` (relaxed: 2 has acquired). `state` has changed: it leaves.
//! 4. It writes the words, stores `ANSWERED` (release) and wakes the asker, which waits on `state` as a futex.
//! 5. The asker loads `ANSWERED` (acquire) and reads the words. Out of patience it exchanges `ASKED` for `IDLE`; where
//!    that fails the handler is at step 4, and the asker leaves the place to it.
//!
//! # Why it is safe
//! * The exchanges of 3 and 5 start from the same value, so one of them fails: nobody writes a place that was given up
//!   and asked anew. A handler that comes late finds another phase or another number, or a question to its own thread,
//!   and answers that; then it is the second signal that finds nothing.
//! * Whom a question is for is read between 2 and 3. It changes only when the question is over, and then 3 fails.
//! * Words are written between 3 and 4 and read after `ANSWERED` was seen. (Model:
//!   `loom_late_answers_spoil_no_question`.)
//!
//! Numbers have 30 bits. A handler that stands still between 2 and 3 for exactly 2^30 questions could answer one that
//! was put to another thread: a wrong report, and no more.
//!
//! # Rejected
//! * *A pointer to the place in the signal's value* (`sigqueue`): other processes of the user may send one, too.
//! * *A place for each worker*: it has to outlive the worker, for the sake of late handlers.

use crate::shim::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Nobody asks.
const IDLE: u32 = 0;
/// The asker waits.
const ASKED: u32 = 1;
/// The words are the handler's.
const ANSWERING: u32 = 2;
/// The words are the asker's.
const ANSWERED: u32 = 3;
/// The bits of a phase; a number is above them.
const PHASE: u32 = 3;

/// See the module's page.
pub(crate) struct Board<const N: usize> {
    state: AtomicU32,
    target: AtomicU32,
    words: [AtomicUsize; N],
}

/// The number of a question, where it stands in `state`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question(u32);

impl<const N: usize> Board<N> {
    pub(crate) fn new() -> Self {
        let words = std::array::from_fn(|_| AtomicUsize::new(0));
        Self { state: AtomicU32::new(IDLE), target: AtomicU32::new(0), words }
    }

    /// The asker. A question to the thread `target`; `None` while a handler still writes an answer that was given up.
    pub(crate) fn ask(&self, target: u32) -> Option<Question> {
        let state = self.state.load(Ordering::Acquire);
        if state & PHASE == ANSWERING {
            return None;
        }
        let number = (state & !PHASE).wrapping_add(PHASE + 1);
        self.target.store(target, Ordering::Relaxed);
        self.state.store(number | ASKED, Ordering::Release);
        Some(Question(number))
    }

    /// The asker. The answer, or the state to wait on until it changes.
    pub(crate) fn answer(&self, question: Question) -> Result<[usize; N], u32> {
        let state = self.state.load(Ordering::Acquire);
        if state != question.0 | ANSWERED {
            return Err(state);
        }
        Ok(std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed)))
    }

    /// The asker. Gives a question up; what has been answered by then can still be read.
    pub(crate) fn withdraw(&self, question: Question) {
        let (asked, idle) = (question.0 | ASKED, question.0 | IDLE);
        let _ = self.state.compare_exchange(asked, idle, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The asker waits here, the handler wakes it.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.state
    }

    /// A handler on the thread `me`. The right to answer, if this thread is asked.
    pub(crate) fn take(&self, me: u32) -> Option<Answer<'_, N>> {
        let state = self.state.load(Ordering::Acquire);
        if state & PHASE != ASKED || self.target.load(Ordering::Relaxed) != me {
            return None;
        }
        let number = state & !PHASE;
        self.state.compare_exchange(state, number | ANSWERING, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(Answer { board: self, number })
    }
}

/// The words are the handler's until this is dropped, which hands them over.
pub(crate) struct Answer<'a, const N: usize> {
    board: &'a Board<N>,
    number: u32,
}

impl<const N: usize> Answer<'_, N> {
    /// Beyond the last word: nothing happens.
    pub(crate) fn put(&self, at: usize, word: usize) {
        if let Some(place) = self.board.words.get(at) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Drop for Answer<'_, N> {
    fn drop(&mut self) {
        self.board.state.store(self.number | ANSWERED, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_is_asked_answers_and_once() {
        let board = Board::<2>::new();
        assert!(board.take(7).is_none());
        let question = board.ask(7).expect("nobody writes");
        assert!(board.take(8).is_none());
        board.take(7).expect("asked").put(1, 42);
        assert!(board.take(7).is_none());
        assert_eq!(board.answer(question), Ok([0, 42]));
    }

    #[test]
    fn who_gives_up_is_not_answered_and_the_next_is() {
        let board = Board::<1>::new();
        let first = board.ask(7).expect("nobody writes");
        board.withdraw(first);
        assert!(board.take(7).is_none());
        let second = board.ask(7).expect("nobody writes");
        board.take(7).expect("asked").put(0, 2);
        assert!(board.answer(first).is_err());
        assert_eq!(board.answer(second), Ok([2]));
    }

    #[test]
    fn nobody_asks_while_an_answer_that_was_given_up_is_written() {
        let board = Board::<1>::new();
        let first = board.ask(7).expect("nobody writes");
        let answer = board.take(7).expect("asked");
        board.withdraw(first);
        assert!(board.ask(8).is_none());
        answer.put(0, 1);
        answer.put(1, 1);
        drop(answer);
        assert_eq!(board.answer(first), Ok([1]));
        assert!(board.ask(8).is_some());
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use crate::shim::Arc;

    /// A handler of a question that was given up answers none that was put to another thread, and whatever is read was
    /// written by one handler, for that question.
    #[test]
    fn loom_late_answers_spoil_no_question() {
        loom::model(|| {
            let board = Arc::new(Board::<2>::new());
            let handlers: Vec<_> = (1..=2)
                .map(|me| {
                    let board = board.clone();
                    loom::thread::spawn(move || {
                        if let Some(answer) = board.take(me) {
                            answer.put(0, me as usize);
                            answer.put(1, me as usize);
                        }
                    })
                })
                .collect();
            for target in 1..=2 {
                let Some(question) = board.ask(target) else { continue };
                board.withdraw(question);
                if let Ok(words) = board.answer(question) {
                    assert_eq!(words, [target as usize; 2]);
                }
            }
            handlers.into_iter().for_each(|handler| handler.join().unwrap());
        });
    }
}
