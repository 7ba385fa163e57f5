//! Numbers beyond the sizes of queues, and descriptors that refuse.

#![deny(unsafe_code)]

use super::*;

/// Receives on `sockets` sockets, with `each` waiting receives per socket.
fn many(rig: &mut Rig, sockets: usize, each: usize) {
    let pairs: Vec<_> = (0..sockets).map(|_| unix_pair()).collect();
    let mut bufs = vec![[0u8; 1]; sockets * each];
    let ops: Vec<Operation> = bufs
        .iter_mut()
        .enumerate()
        .map(|(n, buf)| recv(&pairs[n / each].0, buf))
        .collect();
    ops.iter().for_each(|op| rig.pending(op));
    assert_eq!(rig.driver.in_flight(), sockets * each);
    rig.poll(Wait::No);
    for (n, (_, peer)) in pairs.iter().enumerate() {
        write(peer, &vec![n as u8; each]);
    }

    // Never asleep: the kernel is entered only for work that is visible without a system call.
    let limit = Instant::now() + Duration::from_secs(5);
    while rig.driver.in_flight() > 0 && Instant::now() < limit {
        rig.poll(Wait::No);
    }
    ops.iter()
        .for_each(|op| assert_eq!(op.result.get(), Some(1)));
    assert_eq!(rig.driver.in_flight(), 0);
    drop(ops);

    assert!(
        bufs.iter()
            .enumerate()
            .all(|(n, buf)| buf[0] == (n / each) as u8)
    );
}

pub(super) fn five_thousand_in_flight(make: &Make) {
    let mut rig = Rig::new(make);
    many(&mut rig, 500, 10);
}

/// The wake-up must also survive: an overflow ends multishot requests.
pub(super) fn more_completions_than_the_queue_holds(make: &Make) {
    let mut rig = Rig::new(make);
    for _ in 0..3 {
        many(&mut rig, 300, 1);
        for _ in 0..3 {
            rig.driver.wakeup().wake();
            rig.poll(Wait::Until(u64::MAX));
        }
    }
}

/// Regular files are always ready, and epoll refuses them.
pub(super) fn a_file_that_cannot_wait_is_its_own_error(make: &Make) {
    let mut rig = Rig::new(make);
    let source = source(std::fs::File::open("/proc/self/exe").unwrap());
    let result = rig.finish(&poll(&source, Interest::Read));
    assert!(result == 0 || result == -libc::EPERM, "{result}");
    let mut buf = [0; 4];
    assert_eq!(rig.finish(&recv(&source, &mut buf)), -libc::ENOTSOCK);
    let (good, peer) = tcp_pair();

    write(&peer, b"ok");
    assert_eq!(rig.finish(&recv(&good, &mut buf)), 2, "the driver goes on");
}
