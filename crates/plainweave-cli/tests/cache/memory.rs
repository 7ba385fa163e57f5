//! Resident memory against `-m`, under the sizes that are hardest on an allocator.

use std::io::Write;

use super::running::Running;

/// What docs/cache-store.md promises beside `-m`: the program, buffers, the heap. A debug build needs no more of it.
const OVERHEAD: usize = 16 << 20;

#[test]
fn resident_memory_stays_within_its_bound_under_churn_of_sizes() {
    const LIMIT: usize = 32 << 20;
    let server = Running::start(&["-m", "32", "-t", "1"]);
    let mut client = server.connect();
    let (mut number, mut most) = (0, 0);
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
            assert!(most <= LIMIT + OVERHEAD, "{} MB after values of {size} B", most >> 20);
        }
    }
    // The bound is of a cache that is full.
    assert!(most > LIMIT * 3 / 4 && client.stat("evictions") > 0, "{} MB", most >> 20);
}
