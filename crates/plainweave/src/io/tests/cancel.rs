//! Cancellation: reported once, and never at the cost of data.

#![deny(unsafe_code)]

use std::io::Read;

use super::*;

pub(super) fn a_cancelled_receive_reports_once(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    let mut buf = [0; 16];

    for submitted_to_the_kernel in [false, true] {
        let op = recv(&source, &mut buf);
        rig.pending(&op);
        if submitted_to_the_kernel {
            rig.settle();
        }
        rig.cancel(&op);
        assert_eq!(rig.wait_for(&op), -libc::ECANCELED);
        rig.settle();
        assert_eq!(rig.driver.in_flight(), 0);
    }

    write(&peer, b"later");
    assert_eq!(rig.finish(&recv(&source, &mut buf)), 5);
}

pub(super) fn a_cancelled_accept(make: &Make) {
    let mut rig = Rig::new(make);
    let source = source(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let mut from = Address::empty();
    let op = from.accept(&source);
    rig.pending(&op);
    rig.settle();
    rig.cancel(&op);
    assert_eq!(rig.wait_for(&op), -libc::ECANCELED);
}

pub(super) fn a_cancelled_connect(make: &Make) {
    let mut rig = Rig::new(make);
    let (_listener, address, _fill) = hanging_listener();
    let to = Address::of(address);
    let source = new_socket();
    let op = to.connect(&source);
    rig.pending(&op);
    rig.settle();
    assert_eq!(op.result.get(), None);
    rig.cancel(&op);
    assert_eq!(rig.wait_for(&op), -libc::ECANCELED);
}

pub(super) fn a_cancelled_poll(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, _peer) = tcp_pair();
    let op = poll(&source, Interest::Read);
    rig.pending(&op);
    rig.settle();
    rig.cancel(&op);
    assert_eq!(rig.wait_for(&op), -libc::ECANCELED);
}

/// Completion wins: either the operation has the bytes, or they are still in the socket.
pub(super) fn nothing_is_lost_when_data_meets_a_cancel(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, mut peer) = unix_pair();
    for round in 0..200u8 {
        let mut buf = [0; 4];
        let op = recv(&source, &mut buf);
        rig.pending(&op);
        if round % 2 == 0 {
            rig.poll(Wait::No);
        }
        write(&peer, &[round; 4]);
        rig.cancel(&op);

        match rig.wait_for(&op) {
            4 => {}
            r => {
                assert_eq!(r, -libc::ECANCELED);
                assert_eq!(rig.finish(&recv(&source, &mut buf)), 4);
            }
        }

        assert_eq!(buf, [round; 4]);
    }

    source.close();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

pub(super) fn cancel_of_ten_thousand_waiters_is_quick(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, _peer) = tcp_pair();
    let mut buf = [0; 1];
    let ops: Vec<Operation> = (0..10_000).map(|_| recv(&source, &mut buf)).collect();
    ops.iter().for_each(|op| rig.pending(op));
    assert_eq!(rig.driver.in_flight(), 10_000);
    let start = Instant::now();

    // From the last to the first and from the middle: no order is cheap by chance.
    ops.iter()
        .rev()
        .step_by(2)
        .chain(ops.iter().step_by(2))
        .for_each(|op| rig.cancel(op));
    ops.iter()
        .for_each(|op| assert_eq!(rig.wait_for(op), -libc::ECANCELED));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "took {:?}",
        start.elapsed()
    );
    assert_eq!(rig.driver.in_flight(), 0);
}

/// The kernel may still write into the buffers: they must stay allocated, and the process must not
/// crash.
pub(super) fn dropped_with_operations_in_flight(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    let kept: &'static mut [u8] = Box::leak(Box::new([0; 16]));
    let source: &'static Source = Box::leak(Box::new(source));
    let op: &'static Operation = Box::leak(Box::new(recv(source, kept)));
    rig.pending(op);
    rig.poll(Wait::No);
    drop(rig);
    write(&peer, b"too late");
    std::thread::sleep(Duration::from_millis(5));
}
