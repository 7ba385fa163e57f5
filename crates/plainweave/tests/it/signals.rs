//! Signals, before and after somebody waits for them.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::os::unix::process::ExitStatusExt;

use crate::common::*;
use plainweave::signal::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1,
    SIGUSR2, SIGWINCH, Signals,
};

/// Each signal that has a name here is caught; once nobody catches it, it does what it did before.
#[test]
fn a_signal_that_nobody_catches_any_more_has_its_default_action() {
    let name = "a_signal_that_nobody_catches_any_more_has_its_default_action";
    let raise = |signal| {
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    };

    if is_child("ends") {
        let all = [
            SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD, SIGWINCH, SIGCONT, SIGTSTP, SIGALRM,
            SIGPIPE, SIGUSR1, SIGUSR2,
        ];
        let first = Signals::new(all).expect("caught");
        for signal in all {
            raise(signal);
            assert_eq!(first.wait_timeout(HANG).expect("caught"), signal);
        }

        let second = Signals::new([SIGTERM]).expect("caught");
        drop(first);
        raise(SIGTERM);
        assert_eq!(
            second.wait_timeout(HANG).expect("caught by the other"),
            SIGTERM
        );

        // Ignored by default, or by Rust's runtime.
        [SIGCHLD, SIGWINCH, SIGCONT, SIGPIPE]
            .into_iter()
            .for_each(raise);
        drop(second);
        drop(Signals::new([SIGTERM]).expect("caught again"));
        raise(SIGTERM);
        unreachable!("SIGTERM ends the process");
    }

    if is_child("ignores") {
        // SAFETY: no handler.
        unsafe { libc::signal(SIGHUP, libc::SIG_IGN) };
        drop(Signals::new([SIGHUP]).expect("caught"));
        raise(SIGHUP);
        return;
    }

    let output = in_child(name, "ends", &[]);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGTERM),
        "{}",
        stderr_of(&output)
    );
    let output = in_child(name, "ignores", &[]);
    assert!(output.status.success(), "{}", stderr_of(&output));
}
