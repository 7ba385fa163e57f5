//! The loom model of the count.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use super::*;
use crate::shim::UnsafeCell;
use loom::sync::Arc;

struct Object {
    refs: RefCount,
    freed: AtomicUsize,
    content: UnsafeCell<u32>,
}

// SAFETY: what the model checks: nobody reads the content while it is freed.
unsafe impl Sync for Object {}
// SAFETY: as above.
unsafe impl Send for Object {}

impl Object {
    fn use_and_release(&self) {
        // SAFETY: a reference is held.
        assert_eq!(self.content.with(|content| unsafe { *content }), 1);
        if self.refs.release() {
            // SAFETY: that was the last.
            self.content.with_mut(|content| unsafe { *content = 0 });
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Three holders, one of whom passes another reference on: the object is freed once, when nobody
/// uses it.
#[test]
fn loom_the_last_one_frees() {
    loom::model(|| {
        let object = Arc::new(Object {
            refs: RefCount::new(2),
            freed: AtomicUsize::new(0),
            content: UnsafeCell::new(1),
        });

        let holder = |object: &Arc<Object>| {
            let object = object.clone();
            loom::thread::spawn(move || object.use_and_release())
        };

        let first = holder(&object);
        object.refs.add();
        let second = holder(&object);
        object.use_and_release();
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(object.freed.load(Ordering::Relaxed), 1);
    });
}
