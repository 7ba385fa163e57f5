//! Fibers that are asked, and workers that answer too late.

#![deny(unsafe_code)]

use super::*;
use crate::Runtime;
use crate::sched::pool::current_pool;

/// Workers that begin to answer just when the asker gives up are silent: their fibers are not too
/// many.
#[test]
fn an_asker_without_patience_has_time_left() {
    const FIBERS: usize = 300;
    let builder = Runtime::builder()
        .workers(2)
        .movement(Movement::BeforeStart)
        .stack_size(64 << 10);
    let runtime = builder.report_stalls(false).build().expect("a runtime");
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| runtime.spawn(|| crate::park().is_err()))
        .collect();
    let pool = runtime.run(|| current_pool("inspect"));
    while pool.started() < FIBERS {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut heard = 0;

    for round in 0..20000u64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        let patience = Duration::from_nanos(100 * (round % 1000));
        let ask = Ask {
            stacks: Stacks::Nobodys,
            children: 0,
            deadline,
            patience,
        };

        let mut described = 0;
        let inspected = pool.inspect(&ask, |_| {
            described += 1;
            true
        });

        assert!(!inspected.cut, "{described} described, {inspected:?}");
        heard += described;
    }

    assert!(heard > 0, "nobody ever said anything");
    fibers.iter().for_each(crate::JoinHandle::cancel);
    assert!(
        fibers
            .into_iter()
            .all(|fiber| fiber.join().expect("no panic"))
    );
}
