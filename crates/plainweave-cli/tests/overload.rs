//! More clients than there is time for, and more than the connection limit allows: what the server does and what it says, on
//! both drivers.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Running, admin, eventually, figure};

const DRIVERS: [&str; 2] = ["epoll", "uring"];
const GET: &[u8] = b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const KEEP: &[u8] = b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n";

/// The bound of the kernel's queue, as the admin address tells it.
fn bound(server: &Running) -> f64 {
    figure(admin(server), &format!("plainweave_connections_backlog{{listener=\"{}\"}}", server.address))
}

/// Clients that connect and ask; fewer, where the kernel's queue is full.
fn crowd(server: &Running, count: usize, request: &[u8]) -> Vec<TcpStream> {
    let client = |_| {
        let mut stream = TcpStream::connect_timeout(&server.address, Duration::from_millis(100)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request).ok().map(|()| stream)
    };
    (0..count).map_while(client).collect()
}

/// Lets the server run for a few milliseconds in a hundred while `f` runs.
fn throttled<T>(server: &Running, f: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                server.pause();
                thread::sleep(Duration::from_millis(96));
                server.resume();
                thread::sleep(Duration::from_millis(4));
            }
        });
        let done = f();
        ended.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn overload_shortens_the_queue_for_as_long_as_it_lasts() {
    for driver in DRIVERS {
        let server = Running::start(&["--io", driver, "--admin", "127.0.0.1:0"]);
        assert_eq!(bound(&server), 4096.0);
        throttled(&server, || {
            let mut before = Vec::new();
            eventually("a shorter queue", || {
                before = crowd(&server, 300, GET);
                bound(&server) < 4096.0
            });
        });
        // Nobody comes any more: neither the figure nor the kernel waits for somebody to.
        eventually("the longest queue", || bound(&server) == 4096.0);
        server.pause();
        let burst = crowd(&server, 600, GET);
        assert_eq!(burst.len(), 600, "the kernel holds them all");
        server.resume();
        for mut stream in burst {
            assert_eq!(stream.read(&mut [0; 12]).unwrap(), 12, "an answer");
        }
        server.signal();
        let (code, said) = server.end();
        assert!(code == Some(0) && said.contains("more clients come than can be served"), "{said}");
        assert_eq!(said.lines().count(), 1, "said once: {said}");
    }
}

#[test]
fn full_seats_are_no_overload() {
    for style in [&[][..], &["--fiber-per-connection"]] {
        for driver in DRIVERS {
            let flags = [&["--io", driver, "--max-connections", "20", "--admin", "127.0.0.1:0"], style].concat();
            let server = Running::start(&flags);
            let mut seated: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
            for stream in &mut seated {
                stream.write_all(KEEP).unwrap();
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            }
            let mut waiting = crowd(&server, 200, KEEP).into_iter();
            // A permit now and then, taken at once.
            for _ in 0..6 {
                drop(seated.pop());
                let mut next = waiting.next().unwrap();
                assert!(next.read(&mut [0; 4096]).unwrap() > 0);
                seated.insert(0, next);
                thread::sleep(Duration::from_millis(150));
                assert_eq!(bound(&server), 4096.0);
            }
            drop(seated);
            for mut stream in waiting {
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0, "served, once there are permits");
            }
            server.signal();
            let (code, said) = server.end();
            assert!(code == Some(0) && said.contains("all 20 connections") && said.contains("--max-conn"), "{said}");
            assert_eq!(said.lines().count(), 1, "said once: {said}");
        }
    }
}
