//! A server, one of whose requests in a hundred takes 50 ms of computing: what becomes of the others? A measurement, to
//! be run alone in release mode:
//!
//!     cargo test --release -p plainweave --test mixed_latency -- --ignored --nocapture

mod common;

use std::io::{Read, Write};
use std::net::TcpStream as OsStream;
use std::time::{Duration, Instant};

use common::*;
use plainweave::{Movement, Runtime};

const CONNECTIONS: u64 = 32;
const REQUESTS: usize = 60;
const THINK: Duration = Duration::from_millis(100);
const SLOW: Duration = Duration::from_millis(50);

/// Answers each byte; to an `S` after computing for a while.
fn serve(mut stream: plainweave::net::TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        let start = Instant::now();
        while byte == *b"S" && start.elapsed() < SLOW {
            std::hint::spin_loop();
        }
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

/// One connection's requests, each `one_in`-th a slow one; the times of the others, in microseconds.
fn client(address: std::net::SocketAddr, seed: u64, one_in: u64) -> Vec<u64> {
    let (mut stream, mut random) = (OsStream::connect(address).expect("connected"), Random::new(seed));
    stream.set_nodelay(true).expect("set");
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        std::thread::sleep(THINK / 2 + THINK.mul_f64(random.below(1000) as f64 / 1000.0));
        let slow = one_in > 0 && random.below(one_in) == 0;
        let start = Instant::now();
        stream.write_all(if slow { b"S" } else { b"F" }).expect("sent");
        stream.read_exact(&mut [0]).expect("answered");
        if !slow {
            times.push(start.elapsed().as_micros() as u64);
        }
    }
    times
}

fn measure(policy: &str, movement: Movement, one_in: u64) -> Vec<u64> {
    let runtime = Runtime::builder().policy(policy).workers(2).movement(movement).build().expect("a runtime");
    let listener = listener();
    let address = listener.local_addr().expect("address");
    let acceptor = runtime.spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            plainweave::spawn(move || serve(stream));
        }
    });
    let clients: Vec<_> = (1..=CONNECTIONS).map(|n| std::thread::spawn(move || client(address, n, one_in))).collect();
    let mut times: Vec<_> = clients.into_iter().flat_map(|c| c.join().expect("no panic")).collect();
    acceptor.cancel();
    times.sort_unstable();
    times
}

#[test]
#[ignore = "a measurement"]
fn measure_the_others_of_a_slow_request() {
    for (policy, movement) in
        [("fifo", Movement::BeforeStart), ("fifo", Movement::Anytime), ("helping", Movement::Anytime)]
    {
        for one_in in [0, 100] {
            let times = measure(policy, movement, one_in);
            let at = |share: f64| times[(times.len() as f64 * share) as usize];
            let _ = writeln!(
                std::io::stderr(),
                "{policy} {movement:?}, one slow in {one_in}: p50 {} us, p99 {} us, greatest {} us of {}",
                at(0.5),
                at(0.99),
                times[times.len() - 1],
                times.len()
            );
        }
    }
}
