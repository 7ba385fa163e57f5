//! Loom models of [shared queues](super): tasks that a ring has no room for go behind it, and in order.

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
