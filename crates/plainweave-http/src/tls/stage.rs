//! The stage of a handshake that computes, for a bounded number of connections at once.
//!
//! A step of a handshake computes signatures and keys for 100 microseconds or more, and does not
//! suspend. Of a thousand clients that connect at once, each has a fiber that is ready; run in a
//! row, they would hold up every other connection of their worker for a tenth of a second. So a
//! step takes a permit, and its fiber **yields before it gives the permit back**: whatever else is
//! ready has its turn between two steps, and the other handshakes meanwhile wait in the semaphore,
//! where they are no work for the scheduler. A permit alone would do nothing: a step that does not
//! suspend would have given it back before the next fiber could want it.
//!
//! Nothing waits for a peer in here: the permit is taken when a whole record has arrived, and given
//! back before the answer is sent.

use std::io;
use std::time::Instant;

use plainweave::sync::Semaphore;
use plainweave::time::with_deadline;

#[derive(Debug)]
pub(super) struct Stage(Semaphore);

impl Stage {
    pub(super) fn new(at_once: usize) -> Self {
        Self(Semaphore::new(at_once))
    }

    /// Computes, once there is a permit.
    ///
    /// # Errors
    /// The caller was cancelled, or `deadline` passed, while it waited.
    ///
    /// Context: any thread or fiber; may suspend.
    pub(super) fn run<T>(&self, deadline: Instant, work: impl FnOnce() -> T) -> io::Result<T> {
        let _permit = with_deadline(deadline, || self.0.acquire())?;
        let done = work();
        plainweave::yield_now();
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        plainweave::time::now() + Duration::from_secs(30)
    }

    /// A thousand handshakes are ready when a connection wants its turn: it has it after each step
    /// of one of them.
    #[test]
    fn others_have_their_turn_between_two_steps() {
        for at_once in [1, 3] {
            let runtime = plainweave::Runtime::builder()
                .workers(1)
                .max_workers(1)
                .report_stalls(false);
            let runtime = runtime.build().expect("a runtime");
            let stage = Arc::new(Stage::new(at_once));
            let order = Arc::new(Mutex::new(Vec::new()));
            let seen = order.clone();
            runtime.run(move || {
                let steps = (0..1000).map(|_| {
                    let stage = stage.clone();
                    let order = order.clone();
                    plainweave::spawn(move || {
                        stage.run(soon(), || order.lock().expect("not poisoned").push(true))
                    })
                });

                let steps: Vec<_> = steps.collect();
                let other = plainweave::spawn(move || {
                    for _ in 0..500 {
                        order.lock().expect("not poisoned").push(false);
                        plainweave::yield_now();
                    }
                });

                other.join().expect("no panic");
                steps
                    .into_iter()
                    .for_each(|step| step.join().expect("no panic").expect("a permit"));
            });
            let seen = seen.lock().expect("not poisoned");
            let first = seen.iter().position(|step| !step).expect("it ran");
            let last = seen.iter().rposition(|step| !step).expect("it ran");
            let most = seen[first..=last]
                .split(|step| !step)
                .map(<[bool]>::len)
                .max();

            // Permits that come back are given out at once, so a few more than `at_once` can lie
            // between two turns.
            assert!(
                most <= Some(2 * at_once),
                "{at_once}: {most:?} steps in a row"
            );
            assert!(
                first <= at_once,
                "{at_once}: {first} steps before the first turn"
            );
        }
    }

    #[test]
    fn a_wait_for_a_permit_ends_at_the_deadline() {
        let stage = Stage::new(1);
        let _held = stage.0.acquire().expect("free");
        let error = stage
            .run(Instant::now() + Duration::from_millis(5), || ())
            .expect_err("held");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
