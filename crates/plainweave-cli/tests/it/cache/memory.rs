//! Resident memory against `-m`, under the sizes that are hardest on an allocator.

use std::io::Write;

use super::running::{Client, Running};

/// What docs/cache-store.md promises beside `-m`: the program, buffers, the heap. A debug build
/// needs no more of it.
const OVERHEAD: usize = 16 << 20;

#[test]
fn resident_memory_stays_within_its_bound_under_churn_of_sizes() {
    const LIMIT: usize = 32 << 20;
    let server = Running::start(&["-m", "32", "-t", "1"]);
    let mut client = server.connect();
    let mut number = 0;
    let mut most = 0;

    for _ in 0..2 {
        for size in [20, 900_000, 64, 100_000, 20, 16_000, 300] {
            let value = vec![b'v'; size];
            let mut written = 0;
            while written < LIMIT * 5 / 4 {
                let mut batch = Vec::new();
                while batch.len() < 1 << 20 {
                    number += 1;
                    write!(batch, "set k{number:x} 0 0 {size} noreply\r\n").unwrap();
                    batch.extend_from_slice(&value);
                    batch.extend_from_slice(b"\r\n");
                    written += size + 60;
                }
                client.send(&batch);
            }

            client.ask("mn\r\n", "MN\r\n");
            most = most.max(server.resident());
            // The other half is for the program's file.
            assert!(
                most <= LIMIT + OVERHEAD / 2,
                "{} MB after values of {size} B",
                most >> 20
            );
        }
    }

    // The bound is of a cache that is full.
    assert!(
        most > LIMIT * 3 / 4 && client.stat("evictions") > 0,
        "{} MB",
        most >> 20
    );
}

#[test]
fn values_that_are_being_received_have_a_bound_too() {
    const REFUSED: &str = "SERVER_ERROR out of memory storing object\r\n";
    let server = Running::start(&["-m", "64", "-t", "1"]);
    let mut other = server.connect();
    other.ask("mn\r\n", "MN\r\n");
    let before = server.resident();
    let value = vec![b'v'; 1_000_000];

    let mut clients: Vec<Client> = (0..150).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("set k{number} 0 0 {}\r\n", value.len()));
        client.send(&value[..999_000]);
        // Received as far as it will be: others are served in between.
        other.ask("mn\r\n", "MN\r\n");
    }

    // A quarter of -m, and as much again for the program as docs/cache-store.md says.
    let most = before + (16 << 20) + OVERHEAD;
    assert!(server.resident() <= most, "{} MB", server.resident() >> 20);
    let mut stored = 0;

    for client in &mut clients {
        client.send(&value[999_000..]);
        client.send("\r\nmn\r\n");
        let line = client.line();
        assert!(line == "STORED\r\n" || line == REFUSED, "{line}");
        stored += usize::from(line == "STORED\r\n");
        client.expect("MN\r\n");
    }

    assert!((1..150).contains(&stored), "{stored}");
    assert_eq!(
        (
            other.stat("memory_budget_used"),
            other.stat("store_no_memory")
        ),
        (0, 150 - stored as u64)
    );
    let last = &mut clients[149];
    last.send(format!("set k 0 0 {}\r\n", value.len()));
    last.send(&value);
    last.ask("\r\n", "STORED\r\n");
}
