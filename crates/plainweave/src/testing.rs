//! What `#[plainweave::test]` expands to: a test on a fiber, in a process of its own.
//!
//! The test that libtest calls starts its own program again, with its name in an environment
//! variable. There the same function runs the body on a fiber, judges, and ends the process. So
//! what fibers print is the child's output, which the test prints in turn, and libtest captures
//! that; it cannot capture what other threads than the test's print, once they have thread-local
//! storage of their own. And a test that overflows a stack, or never ends, ends alone.

mod child; // The side that runs the body.
mod parent; // The side that libtest calls.

use std::panic::resume_unwind;
use std::process::Termination;
use std::time::Duration;

use crate::builder::RuntimeBuilder;

/// The variable that names the test which a child runs.
const CHILD: &str = "PLAINWEAVE_TEST_CHILD";
/// The variable that says how tests are run, and its value for no child.
const HOW: (&str, &str) = ("PLAINWEAVE_TEST", "inline");
/// Before what a child says of itself, in a line of its own on standard output or error.
const MARK: &str = "\u{1e}plainweave-test ";
/// Behind the mark: output of the body follows.
const BEGINS: &str = "begins";
/// Behind the mark: why the test has failed follows.
const FAILS: &str = "fails ";
/// Behind the mark: the seed that comes next follows.
const BY_SEED: &str = "seed ";
/// A line's end in such a line.
const LINE_END: char = '\u{1f}';
/// The child's exit code in that case.
const FAILED: i32 = 101;

/// A test, as its attribute describes it.
#[derive(Debug)]
pub struct Case {
    /// With its modules, the crate first.
    pub name: &'static str,
    /// Makes its runtime.
    pub builder: RuntimeBuilder,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether fibers may be left behind it.
    pub deny_leaks: bool,
    /// On virtual time: how many seeds it is run with, from the builder's on.
    pub seeds: u64,
}

impl Case {
    /// Runs it.
    ///
    /// # Panics
    /// It fails; the text says why.
    pub fn run<R: Termination + 'static>(self, body: fn() -> R) {
        let is_here = std::env::var_os(CHILD).is_some_and(|name| name == self.name);
        if is_here {
            child::run(self, body);
        }

        // nextest gives each test a process of its own already.
        let nextest = std::env::var_os("NEXTEST_EXECUTION_MODE");
        let has_own = nextest.is_some_and(|mode| mode == "process-per-test");
        let is_inline = std::env::var_os(HOW.0).is_some_and(|how| how == HOW.1);

        let failure = match has_own || is_inline {
            true => child::judged(self, body),
            false => match parent::run(&self) {
                Some(failure) => failure,
                // This program is not libtest's, and does not know tests by their names.
                None => child::judged(self, body),
            },
        };
        if let Err(why) = failure {
            parent::say_failed(&why);
            // Without another message, and the same text for `should_panic`.
            resume_unwind(Box::new(why));
        }
    }
}
