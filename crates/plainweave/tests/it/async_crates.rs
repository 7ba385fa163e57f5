//! Async crates on fibers: the examples, as tests, and tokio's context.

#[path = "../../examples/async_websocket.rs"]
#[allow(dead_code, reason = "its `main`")]
mod async_websocket;
#[path = "../../examples/http_client.rs"]
#[allow(dead_code, reason = "its `main`")]
mod http_client;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use plainweave::net::AsyncTcpStream;
use plainweave::{Movement, block_on, worker_index, yield_shared};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Handle};

on_every_driver!(
    hyper_makes_four_requests_at_once,
    websockets_echo,
    each_fiber_keeps_the_tokio_runtime_that_it_has_entered,
    vectored_writes_and_the_end_by_tokios_traits,
);

fn hyper_makes_four_requests_at_once(setup: Setup) {
    setup.workers(1).run(http_client::run).expect("four pages");
}

fn websockets_echo(setup: Setup) {
    setup
        .runtime()
        .run(async_websocket::run)
        .expect("all messages");
}

/// `Handle::enter` keeps the runtime in a thread-local, which is a fiber's own. So its guard may be
/// held while the fiber moves, and the guards of fibers on one worker may end in any order.
fn each_fiber_keeps_the_tokio_runtime_that_it_has_entered(setup: Setup) {
    const FIBERS: usize = 30;
    let tokios: Vec<_> = (0..3)
        .map(|_| {
            Builder::new_multi_thread()
                .worker_threads(1)
                .build()
                .expect("a tokio runtime")
        })
        .collect();
    let runtime = setup
        .builder()
        .own_storage()
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime");
    let moves = Arc::new(AtomicUsize::new(0));

    for _ in 0..100 {
        let fibers: Vec<_> = (0..FIBERS)
            .map(|n| {
                let handle = tokios[n % 3].handle().clone();
                let moves = moves.clone();
                runtime.spawn(move || keeps(&handle, n, &moves))
            })
            .collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("no panic"));
        if moves.load(Ordering::Relaxed) > 0 {
            break;
        }
    }

    assert!(moves.load(Ordering::Relaxed) > 0, "no fiber has moved");
}

fn keeps(handle: &Handle, n: usize, moves: &AtomicUsize) {
    assert!(Handle::try_current().is_err(), "as on a new thread");
    let guard = handle.enter();
    for round in 0..20 + n % 5 {
        let before = worker_index();
        // Long enough for the other worker to come by.
        Random::new(round as u64).spin(3);
        yield_shared();
        moves.fetch_add(usize::from(worker_index() != before), Ordering::Relaxed);
        assert_eq!(Handle::current().id(), handle.id());
    }

    // What needs the context runs on that runtime, and this fiber waits for it.
    let there = tokio::spawn(async { Handle::current().id() });
    assert_eq!(
        block_on(there).expect("not cancelled").expect("no panic"),
        handle.id()
    );
    drop(guard);
    assert!(Handle::try_current().is_err());
}

fn vectored_writes_and_the_end_by_tokios_traits(setup: Setup) {
    use std::future::poll_fn;
    use std::io::IoSlice;
    use std::pin::Pin;

    let (a, b) = stream_pair();
    setup.workers(1).run(move || {
        let mut sender = AsyncTcpStream::from(a);
        let mut receiver = AsyncTcpStream::from(b);
        assert!(sender.is_write_vectored());

        // More buffers than one call takes.
        let parts: Vec<Vec<u8>> = (0..1500).map(|n| vec![n as u8; 2]).collect();
        let buffers: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let sent =
            poll_fn(|cx| AsyncWrite::poll_write_vectored(Pin::new(&mut sender), cx, &buffers));
        assert_eq!(block_on(sent).expect("not cancelled").expect("room"), 2048);
        let ended = poll_fn(|cx| Pin::new(&mut sender).poll_shutdown(cx));

        block_on(ended).expect("not cancelled").expect("the end");
        let mut got = Vec::new();
        loop {
            let mut room = [0; 700];
            let mut buf = ReadBuf::new(&mut room);
            let read = poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut receiver), cx, &mut buf));
            block_on(read).expect("not cancelled").expect("bytes");
            if buf.filled().is_empty() {
                break;
            }
            got.extend_from_slice(buf.filled());
        }

        assert_eq!(got, parts.concat()[..2048]);
    });
}
