//! The family of published policies, compiled outside of the runtime: what it is made of is public.
//!
//! These are the runtime's own files, by their paths, over the public `Policy` and `queue`. (Only
//! what makes parameters of text is the runtime's: its registry, in which outsiders have no rows.)

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the files have more than is tried here"
)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plainweave::{FiberTask, Runtime};

mod queue {
    pub(crate) use plainweave::queue::*;
}

mod shim {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::{Arc, Mutex, atomic};

    /// A simulation charges it as time.
    pub(crate) fn look_at_victim() {}
}

mod policy;

use policy::Policy;
use policy::thesis::{Ends, Fifo, InBatches, LifoSlot, Ordered, StealingParams};

/// Fibers that yield and fibers that spawn, on two workers.
fn runs<P: Policy<FiberTask, Params = StealingParams>>(change: impl Fn(&mut StealingParams)) {
    let mut params = StealingParams::default();
    change(&mut params);
    let runtime = Runtime::builder()
        .workers(2)
        .build_with::<P>(params)
        .unwrap();
    static RAN: AtomicU32 = AtomicU32::new(0);
    let before = RAN.load(Relaxed);

    runtime.run(|| {
        plainweave::scope(|s| {
            for _ in 0..100 {
                s.spawn(|| {
                    plainweave::yield_now();
                    plainweave::spawn(|| RAN.fetch_add(1, Relaxed))
                        .join()
                        .unwrap();
                });
            }
        });
    });
    assert_eq!(RAN.load(Relaxed) - before, 100);
}

#[test]
fn each_order_runs_outside() {
    runs::<Fifo<FiberTask>>(|_| {});
    runs::<LifoSlot<FiberTask>>(|params| params.slot.in_a_row = 3);
    runs::<InBatches<FiberTask>>(|params| params.publish = 8);
    runs::<Ordered<FiberTask>>(|params| params.ends = Ends::Lifo);
}
