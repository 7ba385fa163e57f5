//! The loom model of the count.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use super::*;
use crate::shim::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};

struct Scope {
    count: LiveCount,
    /// What the children borrow.
    data: [UnsafeCell<u32>; 2],
    token: Mutex<bool>,
    called: Condvar,
}

// SAFETY: what the model checks: each child writes its own, and the owner reads after both.
unsafe impl Sync for Scope {}
// SAFETY: as above.
unsafe impl Send for Scope {}

/// (Loom reports a deadlock if nobody wakes the owner.)
#[test]
fn loom_the_owner_sees_what_children_did() {
    loom::model(|| {
        let scope = Arc::new(Scope {
            count: LiveCount::new(),
            data: [UnsafeCell::new(0), UnsafeCell::new(0)],
            token: Mutex::new(false),
            called: Condvar::new(),
        });

        let children = [0, 1].map(|n| {
            let scope = scope.clone();
            scope.count.begin();
            loom::thread::spawn(move || {
                // SAFETY: this child's own.
                scope.data[n].with_mut(|data| unsafe { *data = 1 });
                if scope.count.end() {
                    *scope.token.lock().unwrap() = true;
                    scope.called.notify_one();
                }
            })
        });

        while scope.count.get() > 0 {
            let mut token = scope.token.lock().unwrap();
            while !*token {
                token = scope.called.wait(token).unwrap();
            }
            *token = false;
        }

        // SAFETY: the children have ended.
        scope
            .data
            .iter()
            .for_each(|data| data.with_mut(|data| assert_eq!(unsafe { *data }, 1)));
        children.into_iter().for_each(|child| child.join().unwrap());
    });
}
