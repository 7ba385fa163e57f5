//! What panics say, kept until a test fails.
//!
//! Many tests let fibers panic. libtest captures what the threads of a test print, by a
//! thread-local that fibers with storage of their own do not have; so those messages would stand
//! between the results.

#![deny(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Mutex, Once, PoisonError};

/// The last ones.
const KEPT: usize = 100;

static MESSAGES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

thread_local! {
    /// This thread runs a test, and its output is captured.
    static CAPTURED: Cell<bool> = const { Cell::new(false) };
}

/// From now on keeps what panics say, except on this thread. When the value is dropped by a panic,
/// it shows them.
pub(crate) fn keep_panics() -> Kept {
    static ONCE: Once = Once::new();
    CAPTURED.set(true);
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            if CAPTURED.try_with(Cell::get) == Ok(true) || is_a_test(&thread) {
                return print(panic);
            }
            let text = panic.to_string();

            // Those after which the process aborts.
            if text.contains("in a destructor during cleanup") || text.contains("cannot unwind") {
                show_panics();
                return print(panic);
            }

            let mut messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
            if messages.len() == KEPT {
                messages.pop_front();
            }
            messages.push_back(format!(
                "thread '{}' {text}",
                thread.name().unwrap_or("<unnamed>")
            ));
        }));
    });
    Kept
}

/// Whether libtest runs a test there that does not keep panics: it names its threads after the
/// tests; what tests start has no name, but for fibers and the workers.
fn is_a_test(thread: &std::thread::Thread) -> bool {
    !plainweave::on_fiber()
        && thread
            .name()
            .is_some_and(|name| !name.starts_with("plainweave"))
}

/// Prints what was kept: of all tests so far, as several may run at once.
pub(crate) fn show_panics() {
    let messages = std::mem::take(&mut *MESSAGES.lock().unwrap_or_else(PoisonError::into_inner));
    if !messages.is_empty() {
        let text: String = messages
            .iter()
            .map(|message| format!("{message}\n"))
            .collect();
        let _ = write!(
            std::io::stderr(),
            "panics on other threads, in this test or beside it:\n{text}"
        );
    }
}

/// See [`keep_panics`].
pub(crate) struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_panics();
        }
        CAPTURED.set(false);
    }
}
