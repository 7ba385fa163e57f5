//! What shared thread-local storage cannot promise (`docs/soundness.md`): two fibers of one worker
//! that hold guards of scoped thread-local storage across suspensions, and end them in another
//! order than the reverse of their beginnings, leave a pointer behind to something that is gone.
//!
//! The guard below does what `scoped-tls`' `set` does: it saves the slot's pointer, stores its own,
//! and restores the saved one when it ends. Here the slot holds addresses as numbers, which are
//! compared and never followed.

use std::cell::Cell;

use crate::common::*;

on_every_setup!(
    ended_out_of_order_a_stale_pointer_stays,
    ended_in_reverse_order_nothing_stays,
    own_workers_do_not_meet
);

thread_local! {
    /// Where `scoped-tls` would keep the pointer to the value that is set; 0 for none.
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

#[inline(never)]
fn slot() -> usize {
    SLOT.with(Cell::get)
}

#[inline(never)]
fn replace_slot(address: usize) -> usize {
    SLOT.with(|slot| slot.replace(address))
}

/// Restores what was before.
struct Restore(usize);

impl Drop for Restore {
    fn drop(&mut self) {
        replace_slot(self.0);
    }
}

/// As `ScopedKey::set`: while `f` runs, the slot holds the address of `value`.
fn set<R>(value: &u64, f: impl FnOnce() -> R) -> R {
    let _restore = Restore(replace_slot(std::ptr::from_ref(value).addr()));
    f()
}

/// A fiber's part: holds its guard until it has been unparked; says where its value was and what
/// the slot held inside.
fn holds_a_guard() -> (usize, usize) {
    let value = Box::new(7u64);
    let inside = set(&value, || {
        plainweave::park().expect("unparked");
        slot()
    });
    (std::ptr::from_ref(&*value).addr(), inside)
}

/// Two fibers of this worker begin a guard each, first one, then the other; `first_ends_first` says
/// who ends first. Returns what each saw, and the slot after both have ended.
fn two_guards(first_ends_first: bool) -> ((usize, usize), (usize, usize), usize) {
    let first = plainweave::spawn_local(holds_a_guard);
    plainweave::time::sleep(ms(2)).expect("the first holds its guard");
    let second = plainweave::spawn_local(holds_a_guard);
    plainweave::time::sleep(ms(2)).expect("so does the second");
    let (a, b) = if first_ends_first {
        first.fiber().unpark();
        let a = first.join().expect("no panic");
        second.fiber().unpark();
        (a, second.join().expect("no panic"))
    } else {
        second.fiber().unpark();
        let b = second.join().expect("no panic");
        first.fiber().unpark();
        (first.join().expect("no panic"), b)
    };

    (a, b, replace_slot(0))
}

fn ended_out_of_order_a_stale_pointer_stays(setup: Setup) {
    setup.shared_workers(2).run(|| {
        let ((first, first_saw), (_second, second_saw), after) = two_guards(true);
        // Within its own `set` the first fiber finds the value of the second: theirs is one slot.
        assert_ne!(first_saw, first);
        // The first guard's end has taken the second's value away under it.
        assert_eq!(second_saw, 0);

        // And the second's end has put back the address of the first's value, which was dropped
        // long ago.
        assert_eq!(after, first);
    });
}

fn ended_in_reverse_order_nothing_stays(setup: Setup) {
    setup.shared_workers(2).run(|| {
        let ((first, first_saw), (second, second_saw), after) = two_guards(false);
        assert_eq!((first_saw, second_saw), (first, second));
        assert_eq!(after, 0);
    });
}

/// The guard of another worker's fiber is in another slot.
fn own_workers_do_not_meet(setup: Setup) {
    let one = setup.shared_workers(1);
    let two = setup.shared_workers(1);
    let first = one.spawn(holds_a_guard);
    let second = two.spawn(holds_a_guard);
    std::thread::sleep(ms(5));
    first.fiber().unpark();
    let (address, saw) = first.join().expect("no panic");

    assert_eq!(saw, address);
    second.fiber().unpark();
    let (address, saw) = second.join().expect("no panic");

    assert_eq!(saw, address);
}
