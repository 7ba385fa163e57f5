//! Scopes: fibers that borrow from their surroundings, and end before the scope does. Three uses:
//! dividing a slice, the first answer of several, and what a panic in one fiber means for the
//! others.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use plainweave::sync::channel;
use plainweave::time::sleep;
use plainweave::{is_cancelled, scope};

/// Sorts by halves, each in a fiber of its own.
pub(crate) fn merge_sort(numbers: &mut [u32]) {
    if numbers.len() <= 64 {
        return numbers.sort_unstable();
    }
    let (left, right) = numbers.split_at_mut(numbers.len() / 2);
    scope(|scope| {
        scope.spawn(|| merge_sort(left));
        merge_sort(right);
    });

    // Both halves are sorted now: the scope has waited.
    numbers.sort();
}

/// Runs all of `tries` and returns what the first of them returned. The others are cancelled, and
/// have ended when this returns.
pub(crate) fn first<T: Send>(
    tries: Vec<Box<dyn FnOnce() -> io::Result<T> + Send + '_>>,
) -> io::Result<T> {
    let (sender, results) = channel::bounded(tries.len());
    scope(|scope| {
        for attempt in tries {
            let sender = sender.clone();
            scope.spawn(move || {
                if let Ok(result) = attempt() {
                    let _ = sender.send(result);
                }
            });
        }

        drop(sender);
        let winner = results.recv().map_err(io::Error::other);
        scope.cancel();
        winner
    })
}

/// Returns whether a fiber's panic cancelled its sibling and came out of the scope.
pub(crate) fn a_panic_ends_all() -> bool {
    let mut sibling_cancelled = false;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        scope(|scope| {
            scope.spawn(|| {
                let slept = sleep(Duration::from_secs(600));
                sibling_cancelled = slept.is_err_and(|error| is_cancelled(&error));
            });
            scope.spawn(|| panic!("as an example"));
        });
    }));
    outcome.is_err() && sibling_cancelled
}

fn main() -> io::Result<()> {
    plainweave::run(|| {
        let mut numbers: Vec<u32> = (0..1000).map(|n| n * 7919 % 1000).collect();
        merge_sort(&mut numbers);
        let quick = |time: u64,
                     name: &'static str|
         -> Box<dyn FnOnce() -> io::Result<&'static str> + Send> {
            Box::new(move || sleep(Duration::from_millis(time)).map(|()| name))
        };

        let winner = first(vec![quick(5000, "tortoise"), quick(5, "hare")])?;
        let ended = a_panic_ends_all();
        writeln!(
            io::stdout(),
            "sorted: {}, first: {winner}, all ended: {ended}",
            numbers.is_sorted()
        )
    })
}
