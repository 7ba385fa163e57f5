//! Loom models of [shared queues](super): tasks that a ring has no room for go behind it, and in
//! order.

use loom::thread;

use super::Sharded;
use crate::queue::ring::ring;
use crate::shim::Arc;

#[test]
fn loom_sharded_keeps_a_producers_order_past_a_full_ring() {
    loom::model(|| {
        let queue = Arc::new(Sharded::lock_free(1));
        (1..=2).for_each(|task| queue.push(0, task));
        let producer = queue.clone();
        let producer = thread::spawn(move || [3, 4].map(|task| producer.push(0, task)));
        let mut seen: Vec<u32> = [queue.pop(0), queue.pop(0)].into_iter().flatten().collect();
        producer.join().unwrap();
        let mut own = ring(2);

        seen.extend(queue.pop_batch_into(0, &mut own, 2));
        seen.extend(std::iter::from_fn(|| own.pop()));
        seen.extend(std::iter::from_fn(|| queue.pop(0)));
        assert_eq!(seen, [1, 2, 3, 4]);
        assert!(queue.is_empty());
    });
}

/// The ring fills and spills between a consumer's look into it and its look behind it.
#[test]
fn loom_sharded_keeps_a_producers_order_while_a_ring_fills() {
    for batch in [false, true] {
        loom::model(move || {
            let queue = Arc::new(Sharded::lock_free(1));
            let consumer = queue.clone();
            let consumer = thread::spawn(move || {
                let mut own = ring(2);
                let mut seen = Vec::new();
                for _ in 0..2 {
                    seen.extend(if batch {
                        consumer.pop_batch_into(0, &mut own, 2)
                    } else {
                        consumer.pop(0)
                    });
                    seen.extend(std::iter::from_fn(|| own.pop()));
                }

                seen
            });

            (1..=3).for_each(|task| queue.push(0, task));
            let mut seen: Vec<u32> = consumer.join().unwrap();
            seen.extend(std::iter::from_fn(|| queue.pop(0)));
            assert_eq!(seen, [1, 2, 3]);
        });
    }
}

/// One worker moves a batch to its ring; a look at the queue and then at that ring finds the task
/// that nobody runs yet.
#[test]
fn loom_a_batch_is_never_out_of_sight() {
    loom::model(|| {
        let queue = Arc::new(Sharded::lock_free(1));
        let mut own = ring(2);
        (1..=2).for_each(|task| queue.push(0, task));
        let looked_at = queue.clone();
        let stealer = own.stealer();
        let look = thread::spawn(move || !looked_at.is_empty() || !stealer.is_empty());

        assert_eq!(queue.pop_batch_into(0, &mut own, 2), Some(1));
        assert!(look.join().unwrap(), "out of sight");
        assert_eq!(own.pop(), Some(2));
        assert!(queue.is_empty());
    });
}
