//! More clients than there is time for, and more than the connection limit allows: what the server
//! does and what it says, on both drivers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::group::raise_descriptors;
use crate::common::{Running, admin, eventually, figure};

const DRIVERS: [&str; 2] = ["epoll", "uring"];
const GET: &[u8] = b"GET /Cargo.toml HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
/// How long a burst waits: twice what a connection may, and so short that the server, which forgets
/// in a second what it knew, sees the next one in time.
const HELD: Duration = Duration::from_millis(400);
const KEEP: &[u8] = b"GET /none HTTP/1.1\r\nHost: h\r\n\r\n";

/// The bound of the kernel's queue, as the admin address tells it.
fn bound(server: &Running) -> f64 {
    figure(
        admin(server),
        &format!(
            "plainweave_connections_backlog{{listener=\"{}\"}}",
            server.address
        ),
    )
}

/// Clients that connect and ask; fewer, where the kernel's queue is full.
fn crowd(server: &Running, count: usize, request: &[u8]) -> Vec<TcpStream> {
    // Other tests have theirs at the same time.
    raise_descriptors(4096).unwrap();
    let client = |_| {
        let mut stream =
            TcpStream::connect_timeout(&server.address, Duration::from_millis(500)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream.write_all(request).ok().map(|()| stream)
    };
    (0..count).map_while(client).collect()
}

/// Clients that come while the server stands still, time and again, until it has shortened its
/// queue.
///
/// A burst is held for longer than a connection may wait (200 ms), whatever the machine. The server
/// looks at its queue when it accepts the first of them: what it has accepted since the burst
/// before is that burst, in `HELD` or more, so what is left of this one is too long. Two such looks
/// in a row are overload. A machine that needs more than a tenth of a second for a burst is looked
/// at in the middle of it as well, and may be just fast enough: the bursts grow.
fn overload(server: &Running) {
    for count in [100, 200, 400, 800] {
        for _ in 0..4 {
            let start = Instant::now();
            let burst = {
                let _paused = server.paused();
                let burst = crowd(server, count, GET);
                thread::sleep(HELD.saturating_sub(start.elapsed()));
                burst
            };

            // Fewer, if the queue is short already. Its bound comes back within a second, so it is
            // asked for as soon as the first one has its answer: before that comes the look.
            let mut burst = burst.into_iter();
            answered(burst.by_ref().take(1));
            let shortened = bound(server) < 4096.0;
            answered(burst);
            if shortened {
                return;
            }
        }
    }
    panic!("the queue was never shortened");
}

/// Each of them gets an answer.
fn answered(clients: impl IntoIterator<Item = TcpStream>) {
    for mut stream in clients {
        assert_eq!(stream.read(&mut [0; 12]).unwrap(), 12, "an answer");
    }
}

#[test]
fn overload_shortens_the_queue_for_as_long_as_it_lasts() {
    for driver in DRIVERS {
        let server = Running::start(&["--io", driver, "--admin", "127.0.0.1:0"]);
        assert_eq!(bound(&server), 4096.0);
        overload(&server);

        // Nobody comes any more: neither the figure nor the kernel waits for somebody to.
        eventually("the longest queue", || bound(&server) == 4096.0);
        let paused = server.paused();
        let burst = crowd(&server, 600, GET);
        assert_eq!(burst.len(), 600, "the kernel holds them all");
        drop(paused);
        answered(burst);
        server.signal();
        let (code, said) = server.end();

        assert!(
            code == Some(0) && said.contains("more clients come than can be served"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "said once: {said}");
    }
}

#[test]
fn a_reached_connection_limit_is_no_overload() {
    for style in [&[][..], &["--architecture", "fibers"]] {
        for driver in DRIVERS {
            let flags = [
                &[
                    "--io",
                    driver,
                    "--max-connections",
                    "20",
                    "--admin",
                    "127.0.0.1:0",
                ],
                style,
            ]
            .concat();
            let server = Running::start(&flags);
            let mut admitted: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
            for stream in &mut admitted {
                stream.write_all(KEEP).unwrap();
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            }

            let mut waiting = crowd(&server, 200, KEEP).into_iter();
            // A permit now and then, taken at once.
            for _ in 0..6 {
                drop(admitted.pop());
                let mut next = waiting.next().unwrap();
                assert!(next.read(&mut [0; 4096]).unwrap() > 0);
                admitted.insert(0, next);

                // Time for a look, which would shorten the queue if this were overload.
                thread::sleep(Duration::from_millis(150));
                assert_eq!(bound(&server), 4096.0);
            }

            drop(admitted);
            for mut stream in waiting {
                assert!(
                    stream.read(&mut [0; 4096]).unwrap() > 0,
                    "served, once there are permits"
                );
            }

            server.signal();
            let (code, said) = server.end();
            assert!(
                code == Some(0)
                    && said.contains("limit of 20 connections")
                    && said.contains("--max-conn"),
                "{said}"
            );
            assert_eq!(said.lines().count(), 1, "said once: {said}");
        }
    }
}
