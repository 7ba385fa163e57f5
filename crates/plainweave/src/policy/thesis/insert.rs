//! Inserts that spin until a thief has made room: the base case of the OCaml schedulers' thesis,
//! which counts their retries.
//!
//! There the spawner spins without end, which is a deadlock if nobody is left to steal: with one
//! worker, or when two full workers wait for each other. So an insert ends, and its task overflows
//! to the shared queue, which is counted:
//! 1. if it is made for a completion, a timer or a task that yields, since then no fiber is the
//!    spawner, and the worker could not serve its driver meanwhile;
//! 2. at once, if every worker is spinning in an insert;
//! 3. after [`ATTEMPTS`] attempts, if each of the others is spinning or *out*: its last search
//!    found nothing, it has never popped, or it has ended. A worker that sleeps is out, and so is
//!    one that searches again; the pushes before this one have woken it, and it is given the time
//!    to wake up and to find something.
//!
//! A worker that is held up in a fiber is neither. The spawner waits for it, as published, unless a
//! spare worker steals.
//!
//! Both counts are hints (`Relaxed`): a stale one delays an overflow or causes a needless one, and
//! loses nothing.

use crossbeam_utils::CachePadded;

use crate::policy::{Cx, Wake};
use crate::shim::atomic::AtomicUsize;
use crate::shim::atomic::Ordering::Relaxed;
use crate::shim::spin_loop;

/// Attempts before a spawner gives up on workers that are out: longer than waking one takes.
const ATTEMPTS: u32 = 1 << 14;

/// Which workers could make room for an insert.
pub(super) struct Inserts {
    workers: usize,
    out: CachePadded<AtomicUsize>,
    spinning: CachePadded<AtomicUsize>,
}

/// Whether a worker counts as out; its own.
#[derive(Debug)]
pub(super) struct Out(bool);

impl Inserts {
    /// All workers are out until they pop.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers,
            out: CachePadded::new(AtomicUsize::new(workers)),
            spinning: CachePadded::default(),
        }
    }

    /// For a worker that has not popped yet.
    pub(super) fn attach(&self) -> Out {
        Out(true)
    }

    /// Notes whether the worker is out.
    pub(super) fn set_out(&self, me: &mut Out, out: bool) {
        match (me.0, out) {
            (false, true) => self.out.fetch_add(1, Relaxed),
            (true, false) => self.out.fetch_sub(1, Relaxed),
            _ => return,
        };
        me.0 = out;
    }

    /// Repeats `attempt` until it succeeds.
    ///
    /// # Errors
    /// The task, if nobody would make room for it.
    pub(super) fn spin<T>(
        &self,
        cx: &mut Cx,
        me: &mut Out,
        mut task: T,
        mut attempt: impl FnMut(T) -> Result<Wake, T>,
    ) -> Result<Wake, T> {
        // Only a pop shows that a worker looks for tasks: afterwards it is out again if it was
        // before.
        let was_out = me.0;
        self.set_out(me, false);
        self.spinning.fetch_add(1, Relaxed);
        let mut hopeless = 0;
        let done = loop {
            spin_loop();
            cx.counts.insert_retries += 1;
            task = match attempt(task) {
                Ok(wake) => break Ok(wake),
                Err(task) => task,
            };
            let out = self.out.load(Relaxed);
            let spinning = self.spinning.load(Relaxed);
            hopeless = if out + spinning < self.workers {
                0
            } else {
                hopeless + 1
            };
            if spinning >= self.workers || hopeless > ATTEMPTS {
                break Err(task);
            }
        };
        self.spinning.fetch_sub(1, Relaxed);
        self.set_out(me, was_out);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spins on worker `me`'s behalf: `attempt` is called with the number of attempts so far and
    /// says whether there was room. Returns whether the task got in, and the retries counted.
    fn spin(inserts: &Inserts, me: &mut Out, mut attempt: impl FnMut(u64) -> bool) -> (bool, u64) {
        let mut cx = Cx::new(1);
        let mut attempts = 0;
        let done = inserts.spin(&mut cx, me, (), |()| {
            attempts += 1;
            if attempt(attempts) {
                Ok(Wake::Any)
            } else {
                Err(())
            }
        });

        assert_eq!(attempts, cx.counts.insert_retries);
        (done.is_ok(), attempts)
    }

    fn both_run() -> (Inserts, Out, Out) {
        let inserts = Inserts::new(2);
        let a = inserts.attach();
        let mut b = inserts.attach();
        inserts.set_out(&mut b, false);
        (inserts, a, b)
    }

    #[test]
    fn the_spawner_spins_while_another_worker_runs() {
        let (inserts, mut a, _b) = both_run();
        let long = 10 * u64::from(ATTEMPTS);
        assert_eq!(spin(&inserts, &mut a, |n| n == long), (true, long));
    }

    #[test]
    fn it_gives_up_some_time_after_the_last_of_the_others_is_out() {
        let (inserts, mut a, mut b) = both_run();
        let ended = |n| {
            inserts.set_out(&mut b, n >= 1000);
            false
        };

        assert_eq!(
            spin(&inserts, &mut a, ended),
            (false, 1000 + u64::from(ATTEMPTS))
        );
        // One that comes back in time makes it start again.
        let (inserts, mut a, mut b) = both_run();
        let naps = |n| {
            inserts.set_out(&mut b, n % 1000 < 999);
            n == 100_000
        };

        assert_eq!(spin(&inserts, &mut a, naps), (true, 100_000));
    }

    #[test]
    fn it_gives_up_at_once_when_all_spin() {
        let (inserts, mut a, mut b) = both_run();
        let outer = spin(&inserts, &mut a, |_| {
            assert_eq!(spin(&inserts, &mut b, |_| false), (false, 1));
            true
        });

        assert_eq!(outer, (true, 1));
        let alone = Inserts::new(1);
        let mut me = alone.attach();
        assert_eq!(spin(&alone, &mut me, |_| false), (false, 1));
    }
}
