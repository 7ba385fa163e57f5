//! Loom models of the [SPSC ring](super), two positions before the wrap at 2^64.

use loom::thread;

use super::spsc_at;

#[test]
fn loom_spsc_goes_round() {
    for capacity in [1, 2] {
        loom::model(move || {
            let (mut producer, mut consumer) = spsc_at(capacity, u64::MAX - 1);
            let producer = thread::spawn(move || [1, 2, 3, 4].map(|task| producer.push(task).err()));
            let mut seen: Vec<u32> = [consumer.pop(), consumer.pop(), consumer.pop()].into_iter().flatten().collect();
            let refused: Vec<u32> = producer.join().unwrap().into_iter().flatten().collect();
            seen.extend(std::iter::from_fn(|| consumer.pop()));
            assert!(consumer.is_empty() && seen.is_sorted(), "out of order: {seen:?}");
            let mut all = [seen, refused].concat();
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4]);
        });
    }
}
