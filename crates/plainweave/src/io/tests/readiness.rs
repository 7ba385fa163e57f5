//! Which states of a peer end which waits: a result is judged by the interest that was asked for,
//! whatever else the kernel reports with it (io_uring adds RDHUP, HUP and ERR to every poll;
//! poll(2) never adds RDHUP). And a state that lasts without ending a wait costs nothing.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::io::Read;

use socket2::SockRef;

use super::*;
use crate::io::op::readable_or_writable;

/// What has become of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// It is silent, and reads nothing.
    Quiet,
    /// It has sent something.
    Data,
    /// It has shut its sending side.
    HalfClose,
    /// It has closed; nothing of ours was under way to it.
    Close,
    /// It has closed over unread bytes.
    Reset,
}

const PEERS: [Peer; 5] = [
    Peer::Quiet,
    Peer::Data,
    Peer::HalfClose,
    Peer::Close,
    Peer::Reset,
];

/// Returns a connection whose peer is in this state; `full`: with no room for another byte to it.
fn connection(peer_state: Peer, full: bool) -> (Source, Option<TcpStream>) {
    let (source, peer) = tcp_pair();
    if full {
        // Set buffers do not grow under the test.
        SockRef::from(&peer).set_recv_buffer_size(16 << 10).unwrap();
        SockRef::from(&source)
            .set_send_buffer_size(16 << 10)
            .unwrap();
        fill(&source);
    }

    match peer_state {
        Peer::Quiet => {}
        Peer::Data => write(&peer, b"data"),
        Peer::HalfClose => peer.shutdown(std::net::Shutdown::Write).unwrap(),
        Peer::Close => return (source, None),
        Peer::Reset => {
            SockRef::from(&peer)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            return (source, None);
        }
    }

    (source, Some(peer))
}

/// Returns a connection without room whose peer has not gone.
fn open_connection(peer_state: Peer) -> (Source, TcpStream) {
    let (source, peer) = connection(peer_state, true);
    (source, peer.expect("a peer that stays"))
}

/// Sends, past the driver, until there is no room even after the kernel has moved what it can.
fn fill(source: &Source) {
    let block = vec![0; 1 << 20];
    let mut refused = 0;
    while refused < 5 {
        match rustix::net::send(source, &block, rustix::net::SendFlags::DONTWAIT) {
            Ok(_) => refused = 0,
            Err(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Returns the CPU time that the calling thread has had.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Has the driver wait for a while, in which the operation does not end and the thread computes
/// next to nothing.
#[track_caller]
fn waits_without_spinning(rig: &mut Rig, op: &Operation) {
    rig.settle();
    let before = processor_time();
    let until = rig.driver.now() + 150_000_000;
    while rig.driver.now() < until {
        rig.poll(Wait::Until(until));
    }
    let took = processor_time() - before;

    assert_eq!(
        op.result.get(),
        None,
        "nothing has happened that it waits for"
    );

    assert!(
        took < Duration::from_millis(50),
        "it took {took:?} of CPU to wait 150 ms"
    );
}

#[track_caller]
fn end(rig: &mut Rig, op: &Operation) {
    rig.cancel(op);
    assert_eq!(rig.wait_for(op), -libc::ECANCELED);
}

/// The table: each interest, in each state of the peer, with and without room to send, agrees with
/// poll(2).
pub(super) fn a_poll_is_judged_by_what_it_waits_for(make: &Make) {
    let mut rig = Rig::new(make);
    for state in PEERS {
        for (interest, full) in [
            (Interest::Read, false),
            (Interest::Write, false),
            (Interest::Write, true),
        ] {
            // Closed over what is under way, which is a reset.
            if full && state == Peer::Close {
                continue;
            }
            let (source, peer) = connection(state, full);
            std::thread::sleep(Duration::from_millis(5));
            let expected = readable_or_writable(std::os::fd::AsFd::as_fd(&source), interest);
            let case = format!("{state:?}, {interest:?}, full: {full}");
            let ready = match (state, interest) {
                (Peer::Quiet, Interest::Read) => false,
                (Peer::Quiet | Peer::Data | Peer::HalfClose, Interest::Write) => !full,
                _ => true,
            };

            assert_eq!(expected, ready, "poll(2): {case}");
            let op = poll(&source, interest);
            rig.submit(&op);

            if ready {
                assert_eq!(rig.wait_for(&op), 0, "{case}");
            } else {
                waits_without_spinning(&mut rig, &op);
                end(&mut rig, &op);
            }

            drop(peer);
        }
    }
}

/// The same states reached while the operation waits, and what it waits for at last.
pub(super) fn a_waiting_write_outlasts_the_peers_half_close(make: &Make) {
    let mut rig = Rig::new(make);
    for send_it in [true, false] {
        let (source, peer) = open_connection(Peer::Quiet);
        let block = [7; 1000];
        let op = if send_it {
            send(&source, &block)
        } else {
            poll(&source, Interest::Write)
        };

        rig.pending(&op);
        rig.poll(Wait::No);
        write(&peer, b"not awaited");
        waits_without_spinning(&mut rig, &op);
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        waits_without_spinning(&mut rig, &op);

        // An honest reader, which only has nothing more to say.
        peer.set_nonblocking(true).unwrap();
        let mut taken = vec![0; 1 << 16];
        let limit = Instant::now() + Duration::from_secs(5);

        while op.result.get().is_none() {
            assert!(
                Instant::now() < limit,
                "there is room, and the writer does not see it"
            );
            let _ = (&peer).read(&mut taken);
            let soon = rig.driver.now() + 1_000_000;
            rig.poll(Wait::Until(soon));
        }

        assert_eq!(op.result.get(), Some(if send_it { 1000 } else { 0 }));
        assert_eq!(rig.driver.in_flight(), 0);
    }
}

/// As above, but the operation begins after the half-close; cancelled, or ended by a reset.
pub(super) fn a_write_to_a_half_closed_peer_waits(make: &Make) {
    let mut rig = Rig::new(make);
    for reset in [false, true] {
        for send_it in [true, false] {
            let (source, peer) = open_connection(Peer::HalfClose);
            let block = [7; 1000];
            let op = if send_it {
                send(&source, &block)
            } else {
                poll(&source, Interest::Write)
            };

            rig.submit(&op);
            waits_without_spinning(&mut rig, &op);
            if !reset {
                end(&mut rig, &op);
                continue;
            }

            // Closed over unread bytes.
            drop(peer);
            let result = rig.wait_for(&op);
            let gone = [-libc::ECONNRESET, -libc::EPIPE];
            assert!(
                if send_it {
                    gone.contains(&result)
                } else {
                    result == 0
                },
                "{result}"
            );
        }
    }
}

/// A receive is not ended by an urgent mark, which is no data. A poll may be, once: io_uring
/// reports what woke it.
pub(super) fn a_waiting_read_outlasts_an_urgent_mark(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = tcp_pair();
    let mut buf = [0; 16];
    let op = recv(&source, &mut buf);
    rig.pending(&op);
    rig.poll(Wait::No);
    SockRef::from(&peer).send_out_of_band(b"!").unwrap();
    waits_without_spinning(&mut rig, &op);
    write(&peer, b"data");
    assert_eq!(rig.wait_for(&op), 4);

    let first = poll(&source, Interest::Read);
    rig.pending(&first);
    rig.poll(Wait::No);
    SockRef::from(&peer).send_out_of_band(b"!").unwrap();
    rig.settle();
    let second = poll(&source, Interest::Read);
    let waiting = if first.result.get().is_some() {
        rig.pending(&second);
        &second
    } else {
        &first
    };

    waits_without_spinning(&mut rig, waiting);
    write(&peer, b"data");
    assert_eq!(rig.wait_for(waiting), 0);
}

/// A listener is waited for like any other descriptor: a connection, a reset one, the listener's
/// end.
pub(super) fn an_accept_waits_for_a_connection_and_nothing_else(make: &Make) {
    let mut rig = Rig::new(make);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let source = source(listener);
    let mut from = Address::empty();
    let op = from.accept(&source);

    rig.pending(&op);
    waits_without_spinning(&mut rig, &op);

    // Data, and then an end, before it is accepted.
    let peer = TcpStream::connect(address).unwrap();
    write(&peer, b"early");
    drop(peer);
    let fd = rig.wait_for(&op);

    // SAFETY: accept gave us the descriptor.
    let mut accepted = unsafe { <TcpStream as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    accepted.set_nonblocking(false).unwrap();
    let mut text = Vec::new();
    accepted.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"early");
    let op = from.accept(&source);

    rig.pending(&op);
    waits_without_spinning(&mut rig, &op);
    source.close();
    assert_eq!(rig.wait_for(&op), -libc::EINVAL);
}

/// A connection attempt waits for its outcome: connected to a peer in any state, refused, shut
/// down.
pub(super) fn a_connect_waits_for_its_outcome(make: &Make) {
    let mut rig = Rig::new(make);
    for state in [Peer::Data, Peer::HalfClose, Peer::Close] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = Address::of(listener.local_addr().unwrap());
        let accepting = std::thread::spawn(move || {
            let (peer, _) = listener.accept().unwrap();
            match state {
                Peer::HalfClose => peer.shutdown(std::net::Shutdown::Write).unwrap(),
                Peer::Close => return None,
                _ => write(&peer, b"early"),
            }
            Some(peer)
        });

        let source = new_socket();
        assert_eq!(rig.finish(&to.connect(&source)), 0, "{state:?}");
        drop(accepting.join().unwrap());
    }

    let (_listener, hanging, _fill) = hanging_listener();
    let to = Address::of(hanging);
    let source = new_socket();
    let op = to.connect(&source);
    rig.pending(&op);
    waits_without_spinning(&mut rig, &op);
    source.close();
    assert!([-libc::ECONNABORTED, -libc::ECONNRESET].contains(&rig.wait_for(&op)));
}
