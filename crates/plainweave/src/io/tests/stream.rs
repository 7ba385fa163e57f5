//! How operations behave without cancellation.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::io::Read;
use std::net::{Shutdown, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};

use super::*;

pub(super) fn receives_what_is_there(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    write(&peer, b"hello");
    let mut buf = [0; 16];
    assert_eq!(rig.finish(&recv(&source, &mut buf)), 5);
    assert_eq!(&buf[..5], b"hello");
    assert_eq!(rig.driver.in_flight(), 0);
}

pub(super) fn receives_what_comes_later(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    for round in 0..50u8 {
        let mut buf = [0; 16];
        let op = recv(&source, &mut buf);
        rig.pending(&op);
        assert_eq!(rig.driver.in_flight(), 1);
        if round % 2 == 0 {
            rig.poll(Wait::No);
        }
        write(&peer, &[round; 3]);
        assert_eq!(rig.wait_for(&op), 3);
        assert_eq!(buf[..3], [round; 3]);
        assert_eq!(rig.driver.in_flight(), 0);
    }
}

/// Sends until there is no room left, even after the peer's window has grown. Returns the bytes
/// sent and the operation that waits.
fn fill(rig: &mut Rig, source: &Source, block: &[u8]) -> (usize, Box<Operation>) {
    let mut sent = 0;
    loop {
        let op = Box::new(send(source, block));
        rig.submit(&op);
        if op.result.get().is_none() {
            rig.settle();
        }
        match op.result.get() {
            Some(n) => sent += usize::try_from(n).expect("bytes"),
            None => return (sent, op),
        }
    }
}

pub(super) fn sends_and_waits_for_room(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, mut peer) = tcp_pair();
    let block: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
    let (sent, op) = fill(&mut rig, &source, &block);
    let mut got = vec![0; sent];
    peer.read_exact(&mut got).unwrap();
    let more = rig.wait_for(&op) as usize;

    assert!(more > 0);
    let mut rest = vec![0; more];
    peer.read_exact(&mut rest).unwrap();
    assert_eq!(
        rest,
        block[..more],
        "the bytes that were reported, no others"
    );
    source.close();
    assert_eq!(peer.read(&mut rest).unwrap(), 0);
}

pub(super) fn vectored_calls_use_all_buffers(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, mut peer) = tcp_pair();
    let a = b"head ".to_vec();
    let b = b"body".to_vec();
    let mut parts = [
        libc::iovec {
            iov_base: a.as_ptr() as *mut _,
            iov_len: a.len(),
        },
        libc::iovec {
            iov_base: b.as_ptr() as *mut _,
            iov_len: b.len(),
        },
    ];

    // SAFETY: a message header of zero bytes is one without buffers.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    (msg.msg_iov, msg.msg_iovlen) = (parts.as_mut_ptr(), 2);
    assert_eq!(
        rig.finish(&Operation::new(Op::SendVectored { msg: &msg }, &source)),
        9
    );
    let mut got = [0; 9];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"head body");

    let mut x = [0u8; 3];
    let mut y = [0u8; 8];
    let mut parts = [
        libc::iovec {
            iov_base: x.as_mut_ptr().cast(),
            iov_len: 3,
        },
        libc::iovec {
            iov_base: y.as_mut_ptr().cast(),
            iov_len: 8,
        },
    ];
    msg.msg_iov = parts.as_mut_ptr();
    let op = Operation::new(Op::RecvVectored { msg: &mut msg }, &source);

    rig.pending(&op);
    write(&peer, b"scatter");
    assert_eq!(rig.wait_for(&op), 7);
    assert_eq!((&x, &y[..4]), (b"sca", &b"tter"[..]));
}

pub(super) fn accepts_with_the_peers_address(make: &Make) {
    let mut rig = Rig::new(make);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let source = source(listener);

    for early in [true, false, false, true] {
        let mut from = Address::empty();
        let op = from.accept(&source);
        let peer = if early {
            let peer = TcpStream::connect(address).unwrap();
            rig.submit(&op);
            peer
        } else {
            rig.pending(&op);
            rig.poll(Wait::No);
            TcpStream::connect(address).unwrap()
        };

        let fd = rig.wait_for(&op);
        // SAFETY: accept gave us the descriptor.
        let accepted = unsafe { TcpStream::from_raw_fd(fd) };
        assert_eq!(accepted.peer_addr().unwrap(), peer.local_addr().unwrap());
        let expected = Address::of(peer.local_addr().unwrap());

        // SAFETY: both hold an IPv4 address.
        let ports = [&from, &expected]
            .map(|a| unsafe { (*(&raw const a.storage).cast::<libc::sockaddr_in>()).sin_port });
        assert_eq!(ports[0], ports[1]);
        assert_eq!(from.len as usize, size_of::<libc::sockaddr_in>());
        assert!(
            rustix::io::fcntl_getfd(&accepted)
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
        assert!(
            rustix::fs::fcntl_getfl(&accepted)
                .unwrap()
                .contains(rustix::fs::OFlags::NONBLOCK)
        );
    }
}

pub(super) fn connects(make: &Make) {
    let mut rig = Rig::new(make);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = Address::of(listener.local_addr().unwrap());
    let source = new_socket();
    assert_eq!(rig.finish(&to.connect(&source)), 0);
    let (peer, _) = listener.accept().unwrap();

    assert_eq!(rig.finish(&send(&source, b"x")), 1);
    let mut buf = [0];

    (&peer).read_exact(&mut buf).unwrap();
    let op = recv(&source, &mut buf);
    rig.pending(&op);
    write(&peer, b"y");
    assert_eq!(rig.wait_for(&op), 1);
}

pub(super) fn reports_a_refused_connection(make: &Make) {
    let mut rig = Rig::new(make);
    let (_bound, address) = refused_address();
    let to = Address::of(address);

    for _ in 0..3 {
        let source = new_socket();
        assert_eq!(rig.finish(&to.connect(&source)), -libc::ECONNREFUSED);
        rig.drop_source(source);
    }
}

pub(super) fn poll_tells_both_directions(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    assert_eq!(rig.finish(&poll(&source, Interest::Write)), 0);

    for _ in 0..3 {
        let op = poll(&source, Interest::Read);
        rig.pending(&op);
        rig.settle();
        assert_eq!(op.result.get(), None);
        write(&peer, b"abc");
        assert_eq!(rig.wait_for(&op), 0);
        assert_eq!(
            rig.finish(&poll(&source, Interest::Read)),
            0,
            "still readable"
        );
        let mut buf = [0; 2];

        assert_eq!(rig.finish(&recv(&source, &mut buf)), 2);
        assert_eq!(
            rig.finish(&poll(&source, Interest::Read)),
            0,
            "one byte is left"
        );
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 1);
    }

    let op = poll(&source, Interest::Read);
    rig.pending(&op);
    drop(peer);
    assert_eq!(rig.wait_for(&op), 0, "the end of the stream is readable");
}

/// Not all reads pass through the driver: a plain thread's do not, nor those of async code.
pub(super) fn a_poll_sees_what_others_have_read(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    for _ in 0..3 {
        let op = poll(&source, Interest::Read);
        rig.pending(&op);
        rig.settle();
        assert_eq!(op.result.get(), None, "all has been read");
        write(&peer, b"x");
        assert_eq!(rig.wait_for(&op), 0);
        let mut buf = [0; 8];
        let read =
            rustix::net::recv(&source, &mut buf, rustix::net::RecvFlags::DONTWAIT).expect("bytes");

        assert_eq!(read.0, 1);
    }
}

pub(super) fn end_of_stream_after_queued_data(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    let mut buf = [0; 16];
    let op = recv(&source, &mut buf);
    rig.pending(&op);
    rig.poll(Wait::No);

    // Data and FIN are reported by one edge; the receive is short, and nothing will ever happen
    // again.
    write(&peer, b"bye");
    drop(peer);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(rig.wait_for(&op), 3);
    assert_eq!(rig.finish(&recv(&source, &mut buf)), 0);
    assert_eq!(rig.finish(&recv(&source, &mut buf)), 0, "and again");
}

pub(super) fn a_short_read_then_the_end(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    let mut buf = [0; 16];
    let op = recv(&source, &mut buf);
    rig.pending(&op);
    write(&peer, b"one");
    assert_eq!(rig.wait_for(&op), 3);
    let op = recv(&source, &mut buf);

    rig.pending(&op);
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rig.wait_for(&op), 0);
}

pub(super) fn urgent_data_cuts_no_stream_short(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    let mut buf = [0; 16];
    let op = recv(&source, &mut buf);
    rig.pending(&op);
    rig.poll(Wait::No);
    let peer = socket2::SockRef::from(&peer);

    peer.send(b"before").unwrap();
    peer.send_out_of_band(b"!").unwrap();
    peer.send(b"after").unwrap();
    std::thread::sleep(Duration::from_millis(5));

    let mut total = rig.wait_for(&op);
    while total < 11 {
        let n = rig.finish(&recv(&source, &mut buf));
        assert!(n > 0);
        total += n;
    }

    assert_eq!(total, 11);
}

pub(super) fn close_wakes_a_receive(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, _peer) = tcp_pair();
    let mut buf = [0; 16];
    let op = recv(&source, &mut buf);
    rig.pending(&op);
    rig.settle();
    source.close();
    assert_eq!(rig.wait_for(&op), 0);
}

pub(super) fn close_wakes_an_accept(make: &Make) {
    let mut rig = Rig::new(make);
    let source = source(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let mut from = Address::empty();
    let op = from.accept(&source);
    rig.pending(&op);
    rig.settle();
    source.close();
    assert_eq!(rig.wait_for(&op), -libc::EINVAL);
}

pub(super) fn close_wakes_a_connect(make: &Make) {
    let mut rig = Rig::new(make);
    let (_listener, address, _fill) = hanging_listener();
    let to = Address::of(address);
    let source = new_socket();
    let op = to.connect(&source);
    rig.pending(&op);
    rig.settle();
    source.close();
    assert!(rig.wait_for(&op) < 0, "shut down before it was connected");
}

pub(super) fn reading_and_writing_at_once(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, mut peer) = tcp_pair();
    let block = vec![1u8; 1 << 20];
    let mut buf = [0; 4];
    let reader = recv(&source, &mut buf);
    rig.pending(&reader);
    let (sent, writer) = fill(&mut rig, &source, &block);

    assert_eq!(rig.driver.in_flight(), 2);
    write(&peer, b"ping");
    assert_eq!(rig.wait_for(&reader), 4);
    assert_eq!(writer.result.get(), None);
    peer.read_exact(&mut vec![0; sent]).unwrap();
    assert!(rig.wait_for(&writer) > 0);
}

pub(super) fn two_readers_share_what_comes(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    let mut a = [0; 2];
    let mut b = [0; 2];
    let first = recv(&source, &mut a);
    let second = recv(&source, &mut b);

    rig.pending(&first);
    rig.pending(&second);
    rig.settle();
    write(&peer, b"1234");
    assert_eq!((rig.wait_for(&first), rig.wait_for(&second)), (2, 2));

    // The kernel's wait queues are last in, first out.
    let (early, late) = if rig.driver.name() == "epoll" {
        (&a, &b)
    } else {
        (&b, &a)
    };

    assert_eq!((early, late), (b"12", b"34"));
    let first = recv(&source, &mut a);
    let second = recv(&source, &mut b);
    rig.pending(&first);
    rig.pending(&second);
    drop(peer);
    assert_eq!((rig.wait_for(&first), rig.wait_for(&second)), (0, 0));
}

pub(super) fn datagrams_are_not_mistaken_for_a_drained_stream(make: &Make) {
    let mut rig = Rig::new(make);
    let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    peer.connect(ours.local_addr().unwrap()).unwrap();
    let source = source(ours);
    let mut buf = [0; 64];
    let op = recv(&source, &mut buf);

    rig.pending(&op);
    rig.poll(Wait::No);
    for n in 1..=3 {
        peer.send(&vec![n as u8; n]).unwrap();
    }
    assert_eq!(rig.wait_for(&op), 1);
    assert_eq!(rig.finish(&recv(&source, &mut buf)), 2);
    assert_eq!(rig.finish(&recv(&source, &mut buf)), 3);
}

pub(super) fn a_reused_descriptor_is_a_new_source(make: &Make) {
    // Other tests run in parallel: whether this test gets the number again is a matter of luck.
    assert!(
        (0..1_000).any(|_| reuse_a_descriptor(make)),
        "no number was ever reused"
    );
}

/// Returns whether the number was reused.
fn reuse_a_descriptor(make: &Make) -> bool {
    let mut rig = Rig::new(make);
    let mut buf = [0; 8];
    let (first, peer) = unix_pair();
    let (spare, mut spare_peer) = unix_pair();
    let number = first.raw();
    let op = recv(&first, &mut buf);

    rig.pending(&op);
    write(&peer, b"x");
    assert_eq!(rig.wait_for(&op), 1);

    // A duplicate keeps the old registration alive in the kernel: its events must match no slot.
    // SAFETY: the number is the source's own.
    let duplicate =
        rustix::io::dup(unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }).unwrap();
    rig.drop_source(first);
    // SAFETY: as above.
    let second = source(
        rustix::io::dup(unsafe { std::os::fd::BorrowedFd::borrow_raw(spare.raw()) }).unwrap(),
    );
    if second.raw() != number {
        return false;
    }
    let op = poll(&second, Interest::Read);

    rig.pending(&op);
    write(&peer, b"stale");
    rig.settle();
    assert_eq!(op.result.get(), None, "an event of the old registration");
    write(&mut spare_peer, b"fresh");
    assert_eq!(rig.wait_for(&op), 0);
    assert_eq!(rig.finish(&recv(&second, &mut buf)), 5);
    assert_eq!(&buf[..5], b"fresh");
    drop(duplicate);

    true
}

pub(super) fn a_source_under_a_new_name_takes_over(make: &Make) {
    let mut rig = Rig::new(make);
    let mut buf = [0; 8];
    let (first, peer) = tcp_pair();
    let old = first.id();
    let op = recv(&first, &mut buf);
    rig.pending(&op);
    write(&peer, b"x");
    assert_eq!(rig.wait_for(&op), 1);

    // SAFETY: the first source is forgotten, so the second alone owns the descriptor.
    let second = Source::new(unsafe { OwnedFd::from_raw_fd(first.raw()) });
    std::mem::forget(first);
    let op = recv(&second, &mut buf);
    rig.pending(&op);

    // The notice that the old source is gone comes late, and must not affect the new one.
    rig.driver.forget(old);
    write(&peer, b"yz");
    assert_eq!(rig.wait_for(&op), 2);
}
