//! Datagrams, over UDP and Unix sockets; descriptors and credentials of Unix sockets. On both
//! drivers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use plainweave::net::{
    Batch, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use plainweave::time::{sleep, with_timeout};
use plainweave::{is_cancelled, select, spawn};

on_every_driver!(
    an_echo_answers_each_peer,
    a_connected_socket_hears_its_peer_alone,
    what_is_cut_is_said,
    empty_datagrams_are_datagrams,
    nobody_there_is_an_error_of_a_later_call,
    a_receive_ends_early,
    a_select_waits_for_a_datagram,
    many_go_in_one_call,
    a_flood_leaves_others_their_turn,
    segments_arrive_one_by_one,
    segments_arrive_together_where_asked,
    a_group_hears_what_is_sent_to_it,
    peeking_takes_nothing,
    std_sockets_become_ours_and_back,
    unix_datagrams_have_names_and_wait_for_room,
    descriptors_are_passed,
    peers_are_known,
    tcp_has_what_std_has,
    the_address_that_answers_is_taken,
);

fn here() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a port")
}

fn an_echo_answers_each_peer(setup: Setup) {
    setup.runtime().run(|| {
        let server = here();
        let address = server.local_addr().expect("bound");
        let echo = spawn(move || {
            let mut buf = [0; 100];
            loop {
                match server.recv_from(&mut buf) {
                    Ok((len, peer)) => {
                        server.send_to(&buf[..len], peer).expect("sent");
                    }
                    Err(error) => return error,
                }
            }
        });
        let clients: Vec<_> = (0..20u8)
            .map(|n| {
                spawn(move || {
                    let socket = here();
                    for round in 0..20 {
                        socket.send_to(&[n, round], address).expect("sent");
                        let mut buf = [0; 10];
                        let (len, from) = socket.recv_from(&mut buf).expect("an answer");
                        assert_eq!((&buf[..len], from), (&[n, round][..], address));
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("no panic");
        }
        echo.cancel();
        assert!(is_cancelled(&echo.join().expect("no panic")));
    });
}

fn a_connected_socket_hears_its_peer_alone(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other, third) = (here(), here(), here());
        let address = one.local_addr().expect("bound");
        one.connect(other.local_addr().expect("bound"))
            .expect("connected");
        assert_eq!(one.peer_addr().unwrap(), other.local_addr().unwrap());
        third.send_to(b"not heard", address).expect("sent");
        other.send_to(b"heard", address).expect("sent");
        let mut buf = [0; 100];
        let len = one.recv(&mut buf).expect("received");
        assert_eq!(&buf[..len], b"heard");
        assert_eq!(one.send(b"back").expect("sent"), 4);
        assert_eq!(other.recv(&mut buf).expect("received"), 4);
        assert!(other.send(b"to whom?").is_err());
    });
}

fn what_is_cut_is_said(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other) = (here(), here());
        for len in [4, 5] {
            other
                .send_to(&b"12345"[..len], one.local_addr().unwrap())
                .expect("sent");
            let mut buf = [0; 4];
            let datagram = one.receive(&mut buf).expect("received");
            assert_eq!((datagram.len, datagram.is_truncated), (4, len == 5));
            assert_eq!(datagram.from, other.local_addr().unwrap());
        }
        let error = other.send_to(&[0; 70_000], one.local_addr().unwrap());
        assert!(error.is_err(), "longer than any datagram");
        let nowhere: &[SocketAddr] = &[];
        let error = other.send_to(b"x", nowhere).expect_err("no address");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

fn empty_datagrams_are_datagrams(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other) = (here(), here());
        other.connect(one.local_addr().unwrap()).expect("connected");
        assert_eq!(other.send(b"").expect("sent"), 0);
        assert_eq!(other.send(b"x").expect("sent"), 1);
        let mut buf = [0; 4];
        assert_eq!(one.recv(&mut buf).expect("received"), 0);
        assert_eq!(one.recv(&mut buf).expect("received"), 1);
        // Without room for a byte of it, a datagram is taken all the same.
        assert_eq!(other.send(b"xyz").expect("sent"), 3);
        assert!(one.receive(&mut []).expect("received").is_truncated);
        assert!(!one.is_readable());
    });
}

fn nobody_there_is_an_error_of_a_later_call(setup: Setup) {
    setup.runtime().run(|| {
        let gone = here().local_addr().expect("bound");
        let socket = here();
        socket.connect(gone).expect("connected");
        socket.send(b"anybody?").expect("sent");
        let error = socket.recv(&mut [0]).expect_err("nobody");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // And it can be used on.
        socket.send(b"still nobody?").expect("sent");
        sleep(ms(5)).expect("slept");
        let noted = socket.take_error().expect("asked").expect("an error");
        assert_eq!(noted.kind(), ErrorKind::ConnectionRefused);
    });
}

fn a_receive_ends_early(setup: Setup) {
    setup.runtime().run(|| {
        let socket = here();
        let late = with_timeout(ms(5), || socket.recv(&mut [0])).expect_err("nothing comes");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        socket.set_read_timeout(Some(ms(5))).expect("set");
        let late = socket.recv_from(&mut [0]).expect_err("nothing comes");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert!(socket.set_read_timeout(Some(Duration::ZERO)).is_err());
        socket.set_read_timeout(None).expect("set");
        let waits = {
            let socket = socket.try_clone().expect("cloned");
            spawn(move || socket.recv(&mut [0]).map_err(|error| is_cancelled(&error)))
        };
        pause();
        waits.cancel();
        assert_eq!(waits.join().expect("no panic"), Err(true));
        socket.close();
        assert_eq!(
            socket.recv(&mut [0]).expect_err("closed").kind(),
            ErrorKind::NotConnected
        );
    });
}

fn a_select_waits_for_a_datagram(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other) = (here(), here());
        let address = one.local_addr().unwrap();
        let sends = spawn(move || {
            sleep(ms(5)).expect("slept");
            other.send_to(b"x", address)
        });
        let came = select! {
            readable(one) => true,
            after(HANG) => false,
        };
        assert!(came.expect("not cancelled") && one.is_readable());
        sends.join().expect("no panic").expect("sent");
    });
}

fn many_go_in_one_call(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other, third) = (here(), here(), here());
        let address = one.local_addr().unwrap();
        let texts: Vec<Vec<u8>> = (0..50u8).map(|n| vec![n; usize::from(n) + 1]).collect();
        let all: Vec<(&[u8], Option<SocketAddr>)> = texts
            .iter()
            .map(|text| (&text[..], Some(address)))
            .collect();
        let mut sent = 0;
        while sent < all.len() {
            sent += other.send_many(&all[sent..]).expect("sent");
        }
        third.connect(address).expect("connected");
        assert_eq!(third.send_many(&[(b"alone", None)]).expect("sent"), 1);
        assert_eq!(third.send_many(&[]).expect("nothing"), 0);

        let mut batch = Batch::new(16, 40);
        let mut heard = Vec::new();
        while heard.len() < 51 {
            let count = one.recv_many(&mut batch).expect("received");
            assert!((1..=16).contains(&count) && batch.iter().count() == count);
            heard.extend(batch.iter().map(|(bytes, datagram)| {
                assert_eq!(bytes.len(), datagram.len);
                (bytes.to_vec(), datagram.is_truncated, datagram.from)
            }));
        }
        let (last, rest) = heard.split_last().expect("51");
        assert_eq!(last.0, b"alone");
        assert_eq!(last.2, third.local_addr().unwrap());
        for (text, (bytes, cut, from)) in texts.iter().zip(rest) {
            assert_eq!(&bytes[..], &text[..text.len().min(40)]);
            assert_eq!(
                (*cut, *from),
                (text.len() > 40, other.local_addr().unwrap())
            );
        }
        let late = with_timeout(ms(5), || one.recv_many(&mut batch)).expect_err("no more");
        assert_eq!(
            (late.kind(), batch.iter().count()),
            (ErrorKind::TimedOut, 0)
        );
    });
}

/// One worker, and always another datagram: who receives them is not the only one to run.
fn a_flood_leaves_others_their_turn(setup: Setup) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = socket.local_addr().expect("an address");
    let ends = Arc::new(AtomicBool::new(false));
    let ended = ends.clone();
    let flood = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
        while !ended.load(Ordering::SeqCst) {
            _ = socket.send_to(&[0; 8], address);
        }
    });

    setup.workers(1).run(move || {
        let socket = UdpSocket::from_std(socket).expect("ours");
        let receives = spawn(move || {
            loop {
                if let Err(error) = socket.recv_from(&mut [0; 8]) {
                    return error;
                }
            }
        });
        // Each is a turn beside the flood.
        (0..1000).for_each(|_| plainweave::yield_now());
        receives.cancel();
        let error = receives.join().expect("no panic");
        assert!(is_cancelled(&error), "{error}");
    });
    ends.store(true, Ordering::SeqCst);
    flood.join().expect("no panic");
}

fn segments_arrive_one_by_one(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other) = (here(), here());
        let bytes: Vec<u8> = (0..25).collect();
        let to = one.local_addr().unwrap();
        assert_eq!(other.send_segments(&bytes, 10, Some(to)).expect("sent"), 25);
        let mut heard = Vec::new();
        for len in [10, 10, 5] {
            let mut buf = [0; 100];
            assert_eq!(one.recv(&mut buf).expect("received"), len);
            heard.extend_from_slice(&buf[..len]);
        }
        assert_eq!(heard, bytes);
        assert!(other.send_segments(&bytes, 0, Some(to)).is_ok(), "0: whole");
        assert!(
            other.send_segments(&[0; 1000], 1, Some(to)).is_err(),
            "too many"
        );
    });
}

fn segments_arrive_together_where_asked(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other) = (here(), here());
        one.set_gro(true).expect("since Linux 5.0");
        let to = one.local_addr().unwrap();
        let bytes: Vec<u8> = (0..25).collect();
        let mut buf = [0; 65536];
        let mut several = false;
        for _ in 0..100 {
            assert_eq!(other.send_segments(&bytes, 10, Some(to)).expect("sent"), 25);
            let mut heard = Vec::new();
            while heard.len() < 3 {
                let got = one.recv_segments(&mut buf).expect("received");
                assert_eq!(got.datagram.from, other.local_addr().unwrap());
                assert!(!got.datagram.is_truncated);
                heard.extend(got.iter(&buf).map(<[u8]>::to_vec));
                several |= got.datagram.len > got.each;
            }
            assert_eq!(heard, [&bytes[..10], &bytes[10..20], &bytes[20..]]);
        }
        assert!(several, "some come together");

        // One by itself, an empty one, and one that is cut off.
        for (sent, room) in [(&b"alone"[..], 100), (b"", 100), (b"too long", 3)] {
            other.send_to(sent, to).expect("sent");
            let got = one.recv_segments(&mut buf[..room]).expect("received");
            let all: Vec<_> = got.iter(&buf).collect();
            assert_eq!(all, [&sent[..sent.len().min(room)]]);
            assert_eq!(got.datagram.is_truncated, sent.len() > room);
        }

        one.set_gro(false).expect("off");
        other.send_segments(&bytes, 10, Some(to)).expect("sent");
        let got = one.recv_segments(&mut buf).expect("received");
        assert_eq!((got.datagram.len, got.each), (10, 10));
    });
}

fn a_group_hears_what_is_sent_to_it(setup: Setup) {
    setup.runtime().run(|| {
        let group = Ipv4Addr::new(239, 255, 77, 1);
        let member = UdpSocket::bind("0.0.0.0:0").expect("a port");
        if let Err(error) = member.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST) {
            assert_ne!(error.kind(), ErrorKind::InvalidInput, "{error}");
            return; // No groups on this machine.
        }
        let sender = here();
        assert!(sender.set_multicast_ttl_v4(1).is_ok() && sender.multicast_ttl_v4().unwrap() == 1);
        assert!(sender.multicast_loop_v4().expect("asked"));
        let to = (group, member.local_addr().unwrap().port());
        sender
            .send_to(b"all of you", (std::net::IpAddr::V4(to.0), to.1))
            .expect("sent");
        let mut buf = [0; 20];
        let heard = with_timeout(ms(2000), || member.recv(&mut buf));
        assert_eq!(heard.expect("heard"), 10);
        member
            .leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST)
            .expect("left");
    });
}

fn peeking_takes_nothing(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other) = (here(), here());
        let address = one.local_addr().unwrap();
        let sends = spawn(move || {
            pause();
            other.send_to(b"look", address).expect("sent");
            other.local_addr().unwrap()
        });
        let mut buf = [0; 10];
        let (len, from) = one.peek_from(&mut buf).expect("seen");
        assert_eq!(one.peek(&mut buf).expect("seen"), 4);
        assert_eq!((len, from), (4, sends.join().expect("no panic")));
        assert_eq!(one.recv(&mut buf).expect("taken"), 4);
        assert!(!one.is_readable());
    });
}

fn std_sockets_become_ours_and_back(setup: Setup) {
    setup.runtime().run(|| {
        let theirs = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = theirs.local_addr().unwrap();
        let ours = UdpSocket::from_std(theirs).expect("taken over");
        assert_eq!(ours.local_addr().unwrap(), address);
        assert!(ours.set_broadcast(true).is_ok() && ours.broadcast().unwrap());
        assert!(ours.set_ttl(9).is_ok() && ours.ttl().unwrap() == 9);
        let theirs = ours.into_std().expect("given back");
        theirs.send_to(b"x", address).expect("sent");
        theirs.set_read_timeout(Some(HANG)).expect("set");
        assert_eq!(theirs.recv(&mut [0; 2]).expect("in blocking mode"), 1);
    });
}

fn unix_datagrams_have_names_and_wait_for_room(setup: Setup) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("here");
    setup.runtime().run(|| {
        let named = UnixDatagram::bind(&path).expect("bound");
        let sender = UnixDatagram::bind(folder.path().join("there")).expect("bound");
        sender.send_to(b"by path", &path).expect("sent");
        let mut buf = [0; 4];
        let datagram = named.receive(&mut buf).expect("received");
        assert_eq!((datagram.len, datagram.is_truncated), (4, true));
        assert_eq!(
            datagram.from.as_pathname(),
            Some(&*folder.path().join("there"))
        );
        let nameless = UnixDatagram::unbound().expect("a socket");
        nameless.connect(&path).expect("connected");
        nameless.send(b"x").expect("sent");
        assert!(named.recv_from(&mut buf).expect("received").1.is_unnamed());
        assert!(UnixDatagram::bind(&path).is_err(), "taken");
        assert!(
            nameless
                .send_to(b"x", folder.path().join("nobody"))
                .is_err()
        );

        // None is lost: senders wait for room.
        let sends = spawn(move || {
            for n in 0..1000u32 {
                nameless.send(&n.to_ne_bytes()).expect("sent");
            }
        });
        pause();
        for n in 0..1000u32 {
            assert_eq!(named.recv(&mut buf).expect("received"), 4);
            assert_eq!(u32::from_ne_bytes(buf), n);
        }
        sends.join().expect("no panic");
        let (one, other) = UnixDatagram::pair().expect("a pair");
        one.send(b"!").expect("sent");
        assert_eq!(other.peek(&mut buf).expect("seen"), 1);
    });
}

fn descriptors_are_passed(setup: Setup) {
    setup.runtime().run(|| {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (mut reader, writer) = plainweave::pipe::pipe().expect("a pipe");
        let (also, _) = plainweave::pipe::pipe().expect("a pipe");
        let takes = spawn(move || {
            let mut buf = [0; 10];
            let (len, descriptors) = other.recv_with_descriptors(&mut buf, 4).expect("received");
            assert_eq!((&buf[..len], descriptors.len()), (&b"two"[..], 2));
            let [first, _]: [OwnedFd; 2] = descriptors.try_into().expect("two");
            let mut writer = plainweave::pipe::PipeWriter::from_fd(first).expect("a pipe's");
            writer.write_all(b"through it").expect("written");
            drop(writer);
            other.recv_with_descriptors(&mut buf, 4).expect("the end")
        });
        let both = [writer.as_fd(), also.as_fd()];
        assert_eq!(one.send_with_descriptors(b"two", &both).expect("sent"), 3);
        assert!(one.send_with_descriptors(b"", &both).is_err(), "no bytes");
        assert!(
            one.send_with_descriptors(b"x", &[also.as_fd(); 254])
                .is_err()
        );
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "through it");
        drop(one);
        let (len, none) = takes.join().expect("no panic");
        assert_eq!((len, none.len()), (0, 0));
    });
}

fn peers_are_known(setup: Setup) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("here");
    setup.runtime().run(|| {
        let listener = UnixListener::bind(&path).expect("bound");
        let client = UnixStream::connect(&path).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        for end in [&client, &server] {
            let peer = end.peer_credentials().expect("known");
            assert_eq!(peer.pid, std::process::id());
            assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
            assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        }
    });
}

fn tcp_has_what_std_has(setup: Setup) {
    setup.runtime().run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        client.write_all(b"hello").expect("written");
        let mut buf = [0; 10];
        assert_eq!(server.peek(&mut buf).expect("seen"), 5);
        assert_eq!(server.read(&mut buf).expect("read"), 5);
        assert!(client.set_ttl(7).is_ok() && client.ttl().unwrap() == 7);
        assert_eq!(client.linger().expect("asked"), None);
        client.set_linger(Some(Duration::ZERO)).expect("set");
        assert_eq!(client.linger().expect("asked"), Some(Duration::ZERO));
        assert!(client.take_error().expect("asked").is_none());
        drop(client);
        let error = server.read(&mut buf).expect_err("reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

/// Of addresses that do not answer, refuse, or cannot be reached.
fn the_address_that_answers_is_taken(setup: Setup) {
    setup.runtime().run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let answers = listener.local_addr().unwrap();
        let refuses = {
            let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
            gone.local_addr().unwrap()
        };
        // A listener whose queue is full does not answer.
        let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let full = full.expect("a socket");
        full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .expect("bound");
        full.listen(0).expect("listening");
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let fill: Vec<_> = (0..3)
            .map(|_| {
                let socket =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
                let socket = socket.expect("a socket");
                socket.set_nonblocking(true).expect("set");
                let _ = socket.connect(&silent.into());
                socket
            })
            .collect();

        let all = [silent, refuses, answers];
        let stream = TcpStream::connect(&all[..]).expect("the last one answers");
        assert_eq!(stream.peer_addr().unwrap(), answers);
        let error = TcpStream::connect(&[refuses, refuses][..]).expect_err("nobody");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let late = with_timeout(ms(400), || TcpStream::connect(&[silent, silent][..]));
        assert_eq!(late.expect_err("silence").kind(), ErrorKind::TimedOut);
        let none: &[SocketAddr] = &[];
        assert!(TcpStream::connect(none).is_err());
        let waits = spawn(move || {
            TcpStream::connect(&[silent, silent][..]).map_err(|error| is_cancelled(&error))
        });
        pause();
        waits.cancel();
        assert!(matches!(waits.join().expect("no panic"), Err(true)));
        drop(fill);
    });
}
