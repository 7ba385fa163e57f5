//! Panics that say which fiber they are of.

use std::panic::{set_hook, take_hook};
use std::sync::Once;

use crate::abort::report;
use crate::thread::{current, on_fiber};

/// Has each panic on a fiber say which one that is, on standard error, before the hook that is
/// installed now says the rest. Once for the whole process.
///
/// The hook of `std` names threads, and a fiber is none: there is no public way to name one that
/// `std` has not started, so `std::thread::current().name()` is `None` on a fiber. Loggers that
/// want a name find it in [`current`]. `#[plainweave::main]` and `#[plainweave::test]` call this;
/// the library never does.
///
/// ```
/// plainweave::name_panics();
/// let fiber = || plainweave::Builder::new().name("conn-1").spawn(|| panic!("no such user"));
/// let error = plainweave::run(|| fiber().unwrap().join().unwrap_err());
/// assert!(error.is_panic()); // standard error: plainweave: a panic on fiber "conn-1":
/// ```
pub fn name_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            if on_fiber() {
                say_fiber();
            }
            hook(info);
        }));
    });
}

/// Nothing here may panic.
fn say_fiber() {
    let fiber = current();
    match fiber.name() {
        Some(name) => report(&format!("a panic on fiber {name:?}:")),
        None => report(&format!("a panic on fiber {}:", fiber.id())),
    }
}
