//! The cost of the queues without contention, on one thread. A measurement, not a test.

use super::inbox::Inbox;
use super::inbox::tests::Boxed;
use super::ring::ring;
use super::shared::Injector;

/// `cargo test -p plainweave --release --lib queue::cost -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr)]
fn cost_of_each_operation() {
    const N: u32 = 20_000_000;
    let time = |what: &str, body: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        body();
        eprintln!(
            "{what}: {:.1} ns",
            start.elapsed().as_nanos() as f64 / f64::from(N)
        );
    };

    let mut owner = ring(256);
    let mut thief = ring(256);
    let inbox = Inbox::new();
    let injector = Injector::new();
    (0..100).for_each(|i| owner.push(i).unwrap());
    time("ring, push and pop", &mut || {
        for i in 0..N {
            let _ = std::hint::black_box((owner.push(i), owner.pop()));
        }
    });
    let stealer = owner.stealer();

    time(
        "ring, push alone and half a batch taken by a thief on this thread, per task",
        &mut || {
            for i in 0..N {
                if owner.push(i).is_err() {
                    std::hint::black_box(stealer.steal_half_into(&mut thief));
                    while std::hint::black_box(thief.pop()).is_some() {}
                }
            }
        },
    );
    let mut tasks: Vec<_> = (0..16).map(Boxed::new).collect();

    time(
        "inbox, push and take in batches of 16, per task",
        &mut || {
            for _ in 0..N / 16 {
                tasks.drain(..).for_each(|task| _ = inbox.push(task));
                tasks.extend(inbox.take_all());
            }
        },
    );
    time("injector, push and pop", &mut || {
        for i in 0..N {
            injector.push(i);
            std::hint::black_box(injector.pop());
        }
    });
    time("injector, pop of an empty one", &mut || {
        (0..N).for_each(|_| assert!(injector.pop().is_none()))
    });
}
