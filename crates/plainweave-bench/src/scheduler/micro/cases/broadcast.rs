//! A sender whose every number goes to several receivers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::ensure;

use super::super::repetition::{Figure, Size};
use crate::scheduler::shim::Shim;

const RECEIVERS: u64 = 8;
/// Numbers that the channel keeps. The sender sends as many and waits until all have got them, so
/// that none is lost.
const ROOM: u64 = 16;

struct Shared<S: Shim> {
    sender: S::Signal,
    /// Numbers that receivers have yet to get, over all of them.
    unread: AtomicU64,
    lost: AtomicU64,
    received: AtomicU64,
}

/// Gets all numbers; counts those that it did not get, as if it had got them.
async fn receive<S: Shim>(mut from: S::Subscriber, shared: Arc<Shared<S>>) {
    let mut next = 0;
    while let Some(n) = S::hear(&mut from).await {
        let passed = n + 1 - next;
        shared.lost.fetch_add(passed - 1, Ordering::Relaxed);
        next = n + 1;
        if shared.unread.fetch_sub(passed, Ordering::AcqRel) == passed {
            S::notify(&shared.sender);
        }
    }
    shared.received.fetch_add(next, Ordering::Relaxed);
}

/// `send()` to all, in batches.
pub(super) async fn broadcast<S: Shim>(size: &Size) -> anyhow::Result<Vec<Figure>> {
    let (mut publisher, subscribers) = S::broadcast(ROOM as usize, RECEIVERS as usize)?;
    let zero = || AtomicU64::new(0);
    let shared = Arc::new(Shared::<S> {
        sender: S::signal(),
        unread: zero(),
        lost: zero(),
        received: zero(),
    });

    let receivers: Vec<_> = subscribers
        .into_iter()
        .map(|from| S::spawn(receive::<S>(from, shared.clone())))
        .collect();
    let mut n = 0;

    let started = Instant::now();
    while n == 0 || !size.is_over(n, started) {
        let batch = size.shape.iterations.map_or(ROOM, |all| ROOM.min(all - n));
        shared.unread.store(batch * RECEIVERS, Ordering::Release);
        (n..n + batch).for_each(|n| S::publish(&mut publisher, n));
        n += batch;
        while shared.unread.load(Ordering::Acquire) > 0 {
            S::wait(&shared.sender).await;
        }
    }

    let ns = started.elapsed().as_nanos() as f64;
    drop(publisher);
    for receiver in receivers {
        S::join(receiver).await;
    }
    let lost = shared.lost.load(Ordering::Relaxed);
    let received = shared.received.load(Ordering::Relaxed);

    ensure!(lost == 0, "{lost} numbers were lost");
    ensure!(
        received == n * RECEIVERS,
        "{n} were sent to {RECEIVERS} receivers, which got {received}"
    );

    Ok(vec![
        Figure::new("ns_per_op", ns / n as f64),
        Figure::new("ops", n as f64),
    ])
}
