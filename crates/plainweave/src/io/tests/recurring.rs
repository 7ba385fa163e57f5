//! Waits for reading that recur, as an idle connection's do: a driver may keep something for them
//! from one time to the next.

use std::io::Read;

use socket2::SockRef;

use super::*;

pub(super) fn wait(source: &Source) -> Operation {
    let mut op = poll(source, Interest::Read);
    op.recurs = true;
    op
}

/// Waits until there is something, which comes meanwhile.
#[track_caller]
fn turn(rig: &mut Rig, source: &Source, peer: &TcpStream) {
    let op = wait(source);
    rig.pending(&op);
    rig.settle();
    assert_eq!(op.result.get(), None, "nothing has come yet");

    write(peer, b"x");
    assert_eq!(rig.wait_for(&op), 0);
    let mut buf = [0; 8];
    assert_eq!(rig.finish(&recv(source, &mut buf)), 1);
}

/// Reads what is there, as another thread would.
pub(super) fn read_past_the_driver(source: &Source, buf: &mut [u8]) -> usize {
    let flags = rustix::net::RecvFlags::DONTWAIT;
    rustix::net::recv(source, buf, flags)
        .expect("it is there")
        .0
}

fn connection() -> (Source, TcpStream) {
    let (source, peer) = tcp_pair();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    (source, peer)
}

pub(super) fn each_wait_ends_with_what_comes(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    (0..10).for_each(|_| turn(&mut rig, &source, &peer));
    rig.drop_source(source);
}

/// However the rest was left: by a buffer that was too short, or by somebody who reads past the
/// driver.
pub(super) fn what_was_left_ends_the_next_wait(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    for _ in 0..3 {
        turn(&mut rig, &source, &peer);
        write(&peer, b"abcdef");
        assert_eq!(rig.finish(&wait(&source)), 0);
        let mut buf = [0; 3];
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 3);

        assert_eq!(rig.finish(&wait(&source)), 0);
        assert_eq!(read_past_the_driver(&source, &mut buf[..2]), 2);

        assert_eq!(rig.finish(&wait(&source)), 0);
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 1);
    }
}

/// What came between two waits and was read, past the driver too, is no reason to end the next one,
/// once the driver has had the chance to look.
pub(super) fn what_others_have_read_ends_no_wait(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    let mut buf = [0; 8];
    for _ in 0..3 {
        turn(&mut rig, &source, &peer);
        write(&peer, b"other");
        rig.settle();
        assert_eq!(read_past_the_driver(&source, &mut buf), 5);
        turn(&mut rig, &source, &peer);
    }
}

pub(super) fn a_cancelled_wait_is_followed_by_others(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    for _ in 0..3 {
        turn(&mut rig, &source, &peer);
        let op = wait(&source);
        rig.pending(&op);
        rig.cancel(&op);
        assert_eq!(rig.wait_for(&op), -libc::ECANCELED);
    }
    turn(&mut rig, &source, &peer);
}

/// Two wait for one connection: both hear of it.
pub(super) fn two_waits_at_a_time(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    turn(&mut rig, &source, &peer);

    let (first, second) = (wait(&source), wait(&source));
    rig.pending(&first);
    rig.pending(&second);

    write(&peer, b"x");
    assert_eq!((rig.wait_for(&first), rig.wait_for(&second)), (0, 0));
}

/// The end of the stream, also together with the last bytes.
pub(super) fn a_wait_ends_with_the_stream(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    turn(&mut rig, &source, &peer);
    write(&peer, b"last");
    peer.shutdown(std::net::Shutdown::Write).unwrap();

    let mut buf = [0; 8];
    for expected in [4, 0, 0] {
        assert_eq!(rig.finish(&wait(&source)), 0);
        assert_eq!(rig.finish(&recv(&source, &mut buf)), expected);
    }
}

/// A receive ends at an urgent mark, so a short one does not show that nothing is left.
pub(super) fn a_wait_sees_what_is_behind_an_urgent_mark(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    turn(&mut rig, &source, &peer);
    write(&peer, b"ab");
    SockRef::from(&peer).send_out_of_band(b"!").unwrap();
    write(&peer, b"cd");

    let mut buf = [0; 8];
    for expected in *b"ac" {
        assert_eq!(rig.finish(&wait(&source)), 0);
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 2);
        assert_eq!(buf[0], expected);
    }

    // The mark is reported before what is behind it comes.
    let op = wait(&source);
    rig.pending(&op);
    rig.settle();
    write(&peer, b"ef");
    SockRef::from(&peer).send_out_of_band(b"!").unwrap();
    assert_eq!(rig.wait_for(&op), 0);
    write(&peer, b"gh");
    rig.settle();
    for expected in *b"eg" {
        assert_eq!(rig.finish(&wait(&source)), 0);
        assert_eq!(rig.finish(&recv(&source, &mut buf)), 2);
        assert_eq!(buf[0], expected);
    }
}

/// The peer hears of it although the driver is not polled any more.
pub(super) fn a_source_that_goes_is_closed_at_once(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, mut peer) = connection();
    (0..3).for_each(|_| turn(&mut rig, &source, &peer));
    rig.driver.forget(source.id());
    drop(source);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);

    // What the driver has kept is over, too.
    rig.settle();
    assert!(rig.driver.is_idle());
}

/// Its number is reused while the driver has not heard of the end.
pub(super) fn another_connection_with_its_number(make: &Make) {
    let mut rig = Rig::new(make);
    let (source, peer) = connection();
    turn(&mut rig, &source, &peer);
    let id = source.id();
    drop(source);

    let (next, other) = connection();
    turn(&mut rig, &next, &other);
    rig.driver.forget(id);
    assert_eq!((&peer).read(&mut [0]).unwrap(), 0, "it is closed now");
    turn(&mut rig, &next, &other);
    rig.drop_source(next);
}

/// Two drivers in turn, as when its fibers are stolen.
pub(super) fn a_connection_that_moves(make: &Make) {
    let (mut left, mut right) = (Rig::new(make), Rig::new(make));
    let (source, peer) = connection();
    for rounds in 1..5 {
        (0..rounds).for_each(|_| turn(&mut left, &source, &peer));
        (0..rounds).for_each(|_| turn(&mut right, &source, &peer));
        left.settle();
    }

    let id = source.id();
    left.driver.forget(id);
    right.driver.forget(id);
}
