//! The binary protocol: the same packets to memcached and to `plainweave cache`, and the same bytes
//! back; who may use a cache.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Pid, Signal, kill_process};

use super::differential::{Random, Reference};
use super::packet::{ReplyPacket, RequestPacket, bad, of_key, random, store};
use super::running::{Client, Running, command};
use crate::common::scratch::Scratch;
use crate::common::skip::skip;

/// The opaque of the request behind all others.
const LAST: u32 = 0xffff_ffff;

/// The replies to some packets: up to that of a last one; or all, and then the end.
fn replies(client: &mut Client, packets: &[u8], ends: bool) -> Vec<u8> {
    let last = RequestPacket {
        opcode: 0x0a,
        extras: b"",
        key: b"",
        value: b"",
        cas: 0,
    };
    let last = if ends { vec![] } else { last.bytes(LAST) };
    client.send([packets, &last].concat());
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = client.0.read(&mut buffer).expect("a reply, or the end");
        got.extend_from_slice(&buffer[..read]);
        let mut rest = &got[..];
        while let Some((reply, more)) = ReplyPacket::read(rest) {
            if reply.opaque == LAST {
                return got;
            }
            rest = more;
        }
        if read == 0 {
            assert!(ends, "it has ended behind {packets:?}");
            return got;
        }
    }
}

#[test]
fn packets_are_answered_as_memcached_does() {
    for seed in 1..=20_u64 {
        // Without its thread, which holds items now and then; afresh, so that CAS numbers begin
        // alike.
        let Some(reference) = Reference::start_undisturbed() else {
            return skip("there is no memcached to compare with (apt-get install memcached)");
        };
        let server = Running::start(&["-t", "1"]);
        let mut theirs = Client::to(reference.address());
        let mut ours = server.connect();
        let mut numbers = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut below = |n| numbers.below(n);

        for _ in 0..200 {
            let ends = below(20) == 0;
            let mut packets: Vec<u8> = (0..below(4)).flat_map(|_| random(&mut below)).collect();
            if ends {
                packets.extend(bad(&mut below));
            }
            let expected = replies(&mut theirs, &packets, ends);
            let got = replies(&mut ours, &packets, ends);
            assert_eq!(got, expected, "sequence {seed}: {packets:?}");
            if ends {
                theirs = Client::to(reference.address());
                ours = server.connect();
            }
        }
    }
}

/// Long values, in as many pieces as the network makes of them.
#[test]
fn a_long_value_goes_both_ways() {
    let server = Running::start(&["-t", "1"]);
    let value: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
    let mut client = server.connect();
    let got = replies(&mut client, &store(0x11, b"long", &value), false);
    assert_eq!(got.len(), 24, "a quiet one is not answered");
    let got = replies(&mut client, &of_key(0x00, b"long"), false);
    let (reply, _) = ReplyPacket::read(&got).unwrap();
    assert_eq!(reply.value, value);
}

/// The status of a login by SASL PLAIN.
fn plain(client: &mut Client, name: &str, password: &str) -> u16 {
    let proof = format!("\0{name}\0{password}");
    let request = RequestPacket {
        opcode: 0x21,
        extras: b"",
        key: b"PLAIN",
        value: proof.as_bytes(),
        cas: 0,
    };
    // Who is not known may send nothing else.
    client.send(request.bytes(LAST));
    let mut got = Vec::new();
    loop {
        let mut byte = [0];
        client.0.read_exact(&mut byte).expect("a reply");
        got.extend(byte);
        if let Some((reply, _)) = ReplyPacket::read(&got) {
            return reply.status;
        }
    }
}

/// A client says who it is, in either protocol, and until then gets nothing.
#[test]
fn users_say_who_they_are() {
    let scratch = Scratch::new();
    scratch.file("users", "me:my secret\r\n\nyou:a:b\n");
    let users = scratch.path("users");
    for io in ["epoll", "uring"] {
        let server = Running::start(&["-Y", &users, "--io", io]);
        let mut text = server.connect();
        text.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
        text.ask("gat 0 a b c\r\n", "CLIENT_ERROR unauthenticated\r\n");
        text.ask(
            "set a 0 0 99999\r\n",
            "CLIENT_ERROR auth token too long\r\n",
        );
        text.ask(
            "set a 0 0 2\r\nme\r\n",
            "CLIENT_ERROR bad authentication token format\r\n",
        );
        text.ask(
            "set a 0 0 5\r\nme myxx",
            "CLIENT_ERROR bad command line termination\r\n",
        );
        text.ask(
            "set a 0 0 5\r\nme my\r\n",
            "CLIENT_ERROR authentication failure\r\n",
        );
        // Nobody unknown may hold memory that others need.
        let mut long = server.connect();
        long.send("get ".to_owned() + &"x ".repeat(2000));
        assert_eq!(long.rest(), "");
        // In pieces.
        text.send("set x 0 0 12\r\nme my ");
        std::thread::sleep(std::time::Duration::from_millis(20));
        text.ask("secret\r\n", "STORED\r\n");
        text.ask(
            "set a 0 0 1\r\n1\r\nget a\r\n",
            "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
        );

        let mut packets = server.connect();
        assert_eq!(plain(&mut packets, "me", "wrong"), 0x20);
        assert_eq!(plain(&mut packets, "you", "a:b"), 0);
        let got = replies(&mut packets, &of_key(0x00, b"a"), false);
        assert_eq!(ReplyPacket::read(&got).unwrap().0.value, b"1");
        assert_eq!((text.stat("auth_cmds"), text.stat("auth_errors")), (4, 2));

        let mut nobody = server.connect();
        let asked = [of_key(0x20, b""), of_key(0x00, b"a"), of_key(0x0a, b"")];
        let got = replies(&mut nobody, &asked.concat(), true);
        let (reply, rest) = ReplyPacket::read(&got).unwrap();
        assert_eq!(reply.value, b"PLAIN");
        let (reply, rest) = ReplyPacket::read(rest).unwrap();
        assert_eq!((reply.status, rest), (0x20, &b""[..]));
    }
}

/// Who is wrong too often is wrong for a while, others are not; the file is read again when asked.
#[test]
fn wrong_passwords_have_a_bound() {
    let scratch = Scratch::new();
    scratch.file("users", "me:one\n");
    let users = scratch.path("users");
    let server = Running::start(&["-Y", &users]);
    let mut client = server.connect();
    for _ in 0..10 {
        client.ask(
            "set a 0 0 5\r\nme no\r\n",
            "CLIENT_ERROR authentication failure\r\n",
        );
    }
    client.ask(
        "set a 0 0 6\r\nme one\r\n",
        "CLIENT_ERROR authentication failure\r\n",
    );
    drop(server);

    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&users, private).unwrap();
    let mut server = Running::start(&["-Y", &users]);
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let mut read_again = |text: &str| {
        scratch.file("users", text);
        kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    let line = read_again("me one\n");
    assert!(
        line.contains("line 1 is not NAME:PASSWORD; the users stay"),
        "{line}"
    );
    let login = "set a 0 0 6\r\nme one\r\n";
    server.connect().ask(login, "STORED\r\n");
    let line = read_again("me:two\n");
    assert!(line.contains("one user may log in from now on"), "{line}");
    server
        .connect()
        .ask(login, "CLIENT_ERROR authentication failure\r\n");
    server
        .connect()
        .ask("set a 0 0 6\r\nme two\r\n", "STORED\r\n");
}

/// What is wrong is said before anything is listened on.
#[test]
fn files_of_users_are_checked() {
    let scratch = Scratch::new();
    scratch.file("empty", "\n");
    scratch.file("twice", "me:a\nme:b\n");
    scratch.file("blank", "m e:a\n");
    let [empty, missing, twice, blank] =
        ["empty", "missing", "twice", "blank"].map(|name| scratch.path(name));
    let cases = [
        (vec!["-Y", &empty], "no line says NAME:PASSWORD"),
        (
            vec!["-Y", &twice],
            "line 2 has a name that another line has",
        ),
        (vec!["-Y", &blank], "line 1 has a name with a blank"),
        (vec!["-Y", "/dev/zero"], "it is no file"),
        (vec!["-Y", &missing], "cannot read the users of"),
        (vec!["-S"], "name a file of NAME:PASSWORD with -Y"),
        (vec!["-S", "-B", "auto", "-Y", &empty], "leave -B out"),
    ];
    for (args, why) in cases {
        let mut command = command(&args);
        let done = crate::common::child::output(&mut command).unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.code() == Some(1) && said.contains(why),
            "{said}"
        );
    }
}
