//! The binary protocol.

use super::super::exec::After;
use super::super::reply::OUTPUT;
use super::super::settings::Settings;
use super::Rig;
use super::fuzz::{Random, inputs, mutate};
use super::packet::{ReplyPacket, RequestPacket, bad, of_key, random, store};

/// Reads replies to the last byte; `None`: something else is among them.
fn replies(mut bytes: &[u8]) -> Option<Vec<ReplyPacket<'_>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (reply, rest) = ReplyPacket::read(bytes)?;
        all.push(reply);
        bytes = rest;
    }
    Some(all)
}

#[test]
fn items_are_those_of_the_text_protocol() {
    let mut rig = Rig::new();
    let set = RequestPacket {
        opcode: 0x01,
        extras: &[0, 0, 0, 5, 0, 0, 0, 0],
        key: b"a",
        value: b"value",
        cas: 0,
    };
    let got = rig.feed(&set.bytes(77));
    let got = replies(&got).unwrap();
    assert_eq!(
        (got[0].status, got[0].opaque, got[0].value),
        (0, 77, &b""[..])
    );
    assert!(got[0].cas > 0);
    let cas = got[0].cas;
    rig.reconnect();
    let text = rig.feed(b"gets a\r\n");
    let expected = format!("VALUE a 5 5 {cas}\r\nvalue\r\nEND\r\n");
    assert_eq!(String::from_utf8_lossy(&text), expected);

    // Whether found or not, with its key if that was asked for; a quiet one only if it is found.
    rig.reconnect();
    let gets = [
        of_key(0x0c, b"a"),
        of_key(0x0c, b"none"),
        of_key(0x0d, b"none"),
        of_key(0x09, b"a"),
    ];
    let got = rig.feed(&gets.concat());
    let got = replies(&got).unwrap();
    assert_eq!(got.len(), 3);
    let found = (got[0].extras, got[0].key, got[0].value, got[0].cas);
    assert_eq!(found, (&[0, 0, 0, 5][..], &b"a"[..], &b"value"[..], cas));
    assert_eq!(
        (got[1].status, got[1].key, got[1].value),
        (1, &b"none"[..], &b""[..])
    );
    assert_eq!(
        (got[2].opcode, got[2].key, got[2].value),
        (0x09, &b""[..], &b"value"[..])
    );
}

/// A value that is too large is refused and dropped, one that ends the connection answered.
#[test]
fn refusals_are_packets() {
    let mut rig = Rig::new();
    let large = store(0x01, b"a", &[b'x'; 65 << 10]);
    let got = rig.feed(&[large, of_key(0x0a, b"")].concat());
    let got = replies(&got).unwrap();
    let seen: Vec<_> = got
        .iter()
        .map(|reply| (reply.opcode, reply.status))
        .collect();
    assert_eq!(seen, [(0x01, 3), (0x0a, 0)]);

    for opcode in 0x20..=0x22 {
        // Nobody has to say who it is.
        let key = if opcode == 0x20 { &b""[..] } else { b"PLAIN" };
        let got = rig.feed(&of_key(opcode, key));
        assert_eq!(replies(&got).unwrap()[0].status, 0x81);
    }
    let mut random = Random(1);
    for _ in 0..100 {
        rig.reconnect();
        let got = rig.feed(&bad(&mut |n| random.below(n)));
        let got = replies(&got).unwrap();
        assert!(
            matches!(
                got[..],
                [ReplyPacket {
                    status: 4 | 0x81,
                    ..
                }]
            ),
            "{got:?}"
        );
        assert_eq!(rig.ended, Some(After::Close));
    }
    rig.reconnect();
    assert_eq!(
        rig.feed(b"\x80 is no head, but twenty-four bytes")[..2],
        [0x81, b' ']
    );
}

#[test]
fn figures_come_as_packets() {
    let mut rig = Rig::new();
    let got = rig.feed(&of_key(0x10, b""));
    let got = replies(&got).unwrap();
    let (last, figures) = got.split_last().unwrap();
    assert!(last.key.is_empty() && last.value.is_empty());
    let uptime = figures.iter().find(|figure| figure.key == b"uptime");
    assert_eq!(uptime.unwrap().value, b"0");
    let statuses = |rig: &mut Rig, words: &[u8]| {
        let got = rig.feed(&of_key(0x10, words));
        let got = replies(&got).unwrap();
        let all = got.iter().map(|reply| (reply.status, reply.key.to_vec()));
        all.collect::<Vec<_>>()
    };
    assert_eq!(statuses(&mut rig, b"reset"), [(0, vec![])]);
    assert_eq!(statuses(&mut rig, b"detail on"), [(0, vec![])]);
    let dump = statuses(&mut rig, b"detail dump");
    assert_eq!(dump.last(), Some(&(0, vec![])));
    assert_eq!(statuses(&mut rig, b"nothing"), [(1, vec![])]);
}

/// Each protocol is for its own clients, where one is asked for.
#[test]
fn a_protocol_may_be_the_only_one() {
    let only = |protocol| {
        Rig::with(Settings {
            protocol: Some(protocol),
            ..Settings::default()
        })
    };
    let mut rig = only(super::super::proto::Protocol::Binary);
    assert_eq!(
        rig.feed(b"get a, which is longer than the head of a packet\r\n"),
        b""
    );
    assert_eq!(rig.ended, Some(After::Close));
    let mut rig = only(super::super::proto::Protocol::Text);
    let text = [&of_key(0x00, b"a")[..], b"\r\n"].concat();
    assert_eq!(rig.feed(&text), b"ERROR\r\n");
}

/// Fills up what is left of a packet, until all that comes is answered.
fn in_step(rig: &mut Rig) -> bool {
    const NOOPS: usize = 100;
    for _ in 0..200 {
        let got = rig.feed(&of_key(0x0a, b"").repeat(NOOPS));
        let Some(got) = replies(&got) else {
            return false;
        };
        if rig.ended.is_some() || got.iter().filter(|reply| reply.opcode == 0x0a).count() == NOOPS {
            return true;
        }
    }
    // A value so long that this did not fill it; `held` is bounded all the same.
    true
}

/// Where the input is cut makes no difference, nothing is answered but packets, and after any of it
/// the connection is in step, or has ended.
#[test]
fn no_packet_is_too_strange() {
    let mut random_number = Random(0x9e37_79b9_7f4a_7c15);
    let mut rigs = [Rig::new(), Rig::new()];
    for number in 0..inputs() / 2 {
        let mut input = of_key(0x0a, b"");
        for _ in 0..random_number.below(6) {
            input.extend(random(&mut |n| random_number.below(n)));
        }
        if random_number.below(3) == 0 {
            let first = input[0];
            mutate(&mut random_number, &mut input);
            if let Some(byte) = input.first_mut() {
                *byte = first;
            }
        }

        let cut = random_number.below(input.len() + 1);
        let whole = rigs[0].feed(&input);
        let parts = [&input[..cut], &input[cut..]]
            .map(|part| rigs[1].feed(part))
            .concat();
        assert_eq!(whole, parts, "input {number}: {input:?} cut at {cut}");
        assert!(replies(&whole).is_some(), "input {number}: {input:?}");
        for rig in &mut rigs {
            assert!(rig.piled <= OUTPUT + (80 << 10), "input {number}");
            let held = rig.ended.is_none().then(|| rig.held());
            assert!(held < Some(24 + 255 + 250), "input {number}");
        }

        assert_eq!(rigs[0].ended, rigs[1].ended, "input {number}");
        for rig in &mut rigs {
            assert!(in_step(rig), "input {number}: {input:?}");
            rig.reconnect();
            assert_eq!(rig.cache.memory_budget.used(), 0, "input {number}");
        }
        if number % 50 == 0 {
            rigs = [Rig::new(), Rig::new()];
        }
    }
}
