//! Conversations, both ways as bytes; each is played whole and cut at every place.

use super::super::exec::After;
use super::super::proto::Listing;
use super::super::reply::OUTPUT;
use super::super::settings::Settings;
use super::Rig;

fn long(n: usize) -> String {
    "k".repeat(n)
}

/// What a client sends, and all that it receives: those of the files, and some whose line ends or
/// lengths are special.
fn conversations() -> Vec<(String, String)> {
    let block = |text: &str| {
        let lines = |mark| {
            text.lines()
                .filter_map(move |line| line.strip_prefix(mark))
                .map(|line| format!("{line}\r\n"))
        };

        (
            lines("> ").collect::<String>(),
            lines("< ").collect::<String>(),
        )
    };

    let files = [
        include_str!("conversations.txt"),
        include_str!("same_as_memcached.txt"),
    ];
    let mut all: Vec<_> = files
        .iter()
        .flat_map(|file| file.split("\n\n"))
        .map(block)
        .collect();
    let odd = [
        (
            "set a 5 0 3\nabc\r\nget a\n",
            "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\n",
        ),
        (
            "nonsense\r\n\r\n\n x\r\nx\r\n",
            "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
        ),
        ("get a\0b\r\n", "END\r\n"),
    ];
    all.extend(odd.map(|(sent, received)| (sent.to_owned(), received.to_owned())));
    let bad = "CLIENT_ERROR bad command line format\r\n";
    all.push((
        format!("get {}\r\nget a {}\r\n", long(250), long(251)),
        format!("END\r\n{bad}"),
    ));
    all.push((format!("set {} 0 0 1\r\n", long(251)), bad.to_owned()));
    let opaque = "CLIENT_ERROR opaque token too long\r\n";

    all.push((
        format!("mg {}\r\nmg a O{}\r\n", long(251), long(32)),
        format!("{bad}{opaque}"),
    ));
    // More keys than one turn takes, and what may stand at their end.
    let keys = " a b".repeat(300);
    let values = "VALUE a 0 1\r\n1\r\n".repeat(300);
    let touched = " a".repeat(300);

    for end in ["", "  ", "\0 c"] {
        let sent =
            format!("set a 0 0 1\r\n1\r\nget{keys}{end}\r\nmn\r\ngat 0{touched}{end}\nmn\r\n");
        all.push((
            sent,
            format!("STORED\r\n{values}END\r\nMN\r\n{values}END\r\nMN\r\n"),
        ));
    }

    let flags = "s t c f l h k v O1 q u N1 T1 R1 b F1 C1 I";
    // The longest value that is taken for a number.
    let number = format!("7{}", " ".repeat(1023));
    let more = " ".repeat(1024);
    let not_numeric = "CLIENT_ERROR cannot increment or decrement non-numeric value";
    all.push((
        format!(
            "set n 0 0 1024\r\n{number}\r\nincr n 1\r\nset n 0 0 1025\r\n7{more}\r\nincr n 1\r\n"
        ),
        format!("STORED\r\n8\r\nSTORED\r\n{not_numeric}\r\n"),
    ));
    all.push((
        format!("mg a {flags}\r\n"),
        "CLIENT_ERROR options flags are too long\r\n".to_owned(),
    ));

    all
}

#[test]
fn conversations_go_as_written() {
    for (sent, received) in conversations() {
        let got = Rig::new().feed(sent.as_bytes());
        assert_eq!(String::from_utf8_lossy(&got), received, "{sent:?}");
    }
}

#[test]
fn where_the_input_is_cut_makes_no_difference() {
    for (sent, received) in conversations()
        .iter()
        .filter(|(sent, _)| !sent.contains("watch"))
    {
        for cut in 0..=sent.len() {
            let mut rig = Rig::new();
            let mut got = rig.feed(&sent.as_bytes()[..cut]);
            got.extend(rig.feed(&sent.as_bytes()[cut..]));
            assert_eq!(
                String::from_utf8_lossy(&got),
                *received,
                "{sent:?} cut at {cut}"
            );
        }

        let mut rig = Rig::new();
        let got: Vec<u8> = sent.bytes().flat_map(|byte| rig.feed(&[byte])).collect();
        assert_eq!(
            String::from_utf8_lossy(&got),
            *received,
            "{sent:?} byte by byte"
        );
    }
}

#[test]
fn a_value_too_large_is_swallowed_and_takes_the_old_one_along() {
    let mut rig = Rig::new();
    rig.feed(b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\n");
    let big = "x".repeat(70_000);
    let sent =
        format!("set a 0 0 70000\r\n{big}\r\nadd b 0 0 70000 noreply\r\n{big}\r\nget a b\r\n");
    let got = rig.feed(sent.as_bytes());
    let want = "SERVER_ERROR object too large for cache\r\nVALUE b 0 1\r\n1\r\nEND\r\n";

    assert_eq!(String::from_utf8_lossy(&got), want);
    assert!(
        rig.feed(b"set c 0 0 2000000000\r\n")
            .starts_with(b"SERVER_ERROR object too large")
    );
    assert!(rig.feed(&[b'x'; 100_000]).is_empty());
    assert_eq!(rig.held(), 0);
}

#[test]
fn the_values_of_many_keys_come_in_order_and_do_not_pile_up() {
    for command in ["get", "gets", "gat 0"] {
        let mut rig = Rig::new();
        let value = |n: usize| format!("{n:04}").repeat(500);
        for n in 0..300 {
            rig.feed(format!("set k{n} 0 0 2000\r\n{}\r\n", value(n)).as_bytes());
        }
        let big = "b".repeat(50_000);
        rig.feed(format!("set big 0 0 50000\r\n{big}\r\n").as_bytes());
        let line: String = (0..1500).map(|n| format!(" big k{}", n % 300)).collect();
        let got = rig.feed(format!("{command}{line}\r\nmn\r\n").as_bytes());
        let got = String::from_utf8(got).unwrap();
        let lines: Vec<&str> = got.split("\r\n").collect();

        assert_eq!(lines.len(), 1500 * 4 + 3, "{command}");
        for (n, lines) in lines.chunks_exact(4).enumerate() {
            assert!(
                lines[0].starts_with("VALUE big 0 50000") && lines[1] == big,
                "{command} {n}"
            );
            assert!(
                lines[2].starts_with(&format!("VALUE k{} 0 2000", n % 300)),
                "{command} {n}"
            );
            assert_eq!(lines[3], value(n % 300), "{command} {n}");
        }

        assert_eq!(lines[6000..], ["END", "MN", ""]);
        assert!(rig.piled < OUTPUT + 51_000, "{command}: {}", rig.piled);
    }
}

#[test]
fn joined_values_have_the_limit_of_whole_ones() {
    // The rig's limit is 64 KiB, of which 59 bytes and the key are no value, and 4 more where there
    // are flags.
    for (flags, most) in [(0, 65_476), (5, 65_472)] {
        let whole = |len: usize| format!("set a {flags} 0 {len}\r\n{}\r\n", "x".repeat(len));
        let mut rig = Rig::new();
        assert_eq!(rig.feed(whole(most).as_bytes()), b"STORED\r\n");
        assert!(
            rig.feed(whole(most + 1).as_bytes())
                .starts_with(b"SERVER_ERROR object too large")
        );

        for verb in ["append a 0 0 ", "prepend a 0 0 ", "ms a MA ", "ms a MP "] {
            let mut rig = Rig::new();
            rig.feed(whole(40_000).as_bytes());
            let words: Vec<&str> = verb.split_whitespace().collect();
            let mut join = |len: usize| {
                let bytes = "y".repeat(len);
                let line = match words[0] {
                    "ms" => format!("ms a {len} {}", words[2]),
                    _ => format!("{verb}{len}"),
                };

                String::from_utf8(rig.feed(format!("{line}\r\n{bytes}\r\nmg a s\r\n").as_bytes()))
                    .unwrap()
            };

            let (no, yes) = if words[0] == "ms" {
                ("NS", "HD")
            } else {
                ("NOT_STORED", "STORED")
            };

            assert_eq!(
                join(most - 39_999),
                format!("{no}\r\nHD s40000\r\n"),
                "{verb}"
            );
            assert_eq!(
                join(most - 40_000),
                format!("{yes}\r\nHD s{most}\r\n"),
                "{verb}"
            );
            assert_eq!(join(1), format!("{no}\r\nHD s{most}\r\n"), "{verb}");
        }
    }
}

#[test]
fn a_value_for_which_there_is_no_memory_is_swallowed() {
    let mut rig = Rig::new();
    // Other connections hold nearly all that there is for what is being received.
    let mut others = rig.cache.memory_budget.reserve();
    assert!(others.grow_to((4 << 20) - (20 << 10)));
    let value = "x".repeat(60_000);
    let in_parts = |rig: &mut Rig, head: &str| {
        let sent = format!("{head}\r\n{value}\r\nmg a s\r\n");
        let got: Vec<u8> = sent
            .as_bytes()
            .chunks(999)
            .flat_map(|part| rig.feed(part))
            .collect();
        String::from_utf8(got).unwrap()
    };

    let refused = "SERVER_ERROR out of memory storing object\r\n";
    for (head, said, left) in [
        ("set a 0 0 60000", refused, "EN"),
        ("set a 0 0 60000 noreply", "", "EN"),
        ("ms a 60000 q", refused, "EN"),
        ("replace a 0 0 60000", refused, "HD s3"),
        ("append a 0 0 60000", refused, "HD s3"),
        ("cas a 0 0 60000 1", refused, "HD s3"),
    ] {
        rig.feed(b"set a 0 0 3\r\nold\r\n");
        assert_eq!(
            in_parts(&mut rig, head),
            format!("{said}{left}\r\n"),
            "{head}"
        );
    }

    // What is short, or comes in one piece, is stored nonetheless.
    rig.feed(b"set a 0 0 3\r\nn");
    assert_eq!(
        rig.feed(b"ew\r\nget a\r\n"),
        b"STORED\r\nVALUE a 0 3\r\nnew\r\nEND\r\n"
    );
    assert_eq!(
        rig.feed(format!("set a 0 0 60000\r\n{value}\r\n").as_bytes()),
        b"STORED\r\n"
    );
    drop(others);
    assert_eq!(
        in_parts(&mut rig, "set a 0 0 60000"),
        "STORED\r\nHD s60000\r\n"
    );

    // One that goes in the middle of a value gives back what it held.
    rig.feed(format!("set a 0 0 60000\r\n{}", &value[..30_000]).as_bytes());
    assert!(rig.cache.memory_budget.used() >= 30_000);
    rig.reconnect();
    assert_eq!(rig.cache.memory_budget.used(), 0);
}

#[test]
fn a_long_line_and_a_long_answer_need_memory_too() {
    let mut rig = Rig::new();
    rig.feed(b"stats detail on\r\n");
    for n in 0..1000 {
        rig.feed(format!("get {n}{}:key\r\n", long(100)).as_bytes());
    }
    let line = format!("get {}", "key ".repeat(2000));
    assert!(
        rig.feed(b"stats detail dump\r\n").len() > 100_000 && rig.feed(line.as_bytes()).is_empty()
    );
    assert!(rig.cache.memory_budget.used() >= 2 * line.len());
    assert_eq!(
        (rig.feed(b"\r\n"), rig.cache.memory_budget.used()),
        (b"END\r\n".to_vec(), 0)
    );
    let mut others = rig.cache.memory_budget.reserve();

    assert!(others.grow_to(4 << 20));
    let no_room = "SERVER_ERROR out of memory writing stats\r\n";
    let got = rig.feed(b"mn\r\nstats detail dump\r\nmn\r\n");
    assert_eq!(
        String::from_utf8_lossy(&got),
        format!("MN\r\n{no_room}MN\r\n")
    );
    assert_eq!(
        rig.feed(line.as_bytes()),
        b"SERVER_ERROR out of memory reading request\r\n"
    );
    assert_eq!(rig.ended, Some(After::Close));
}

#[test]
fn a_crawl_is_left_to_the_maintenance() {
    let mut rig = Rig::new();
    rig.feed("set a 0 -1 1\r\nx\r\nset b 0 0 1\r\nx\r\n".as_bytes());
    assert_eq!(rig.feed(b"lru_crawler crawl all\r\n"), b"OK\r\n");
    assert_eq!(
        rig.cache.store.stats().crawler_reclaimed,
        0,
        "not within the client's turn"
    );
    assert!(rig.cache.is_to_crawl() && !rig.cache.is_to_crawl());
}

#[test]
fn ends_of_connections() {
    for (sent, after) in [
        ("quit\r\n", After::Close),
        ("GET / HTTP/1.1\r\n", After::Close),
        ("watch\r\n", After::Watch(1 << 1)),
        (
            "watch mutations connevents\r\n",
            After::Watch(1 << 2 | 1 << 3),
        ),
        ("lru_crawler metadump all\r\n", After::List(Listing::Facts)),
    ] {
        let mut rig = Rig::new();
        assert!(rig.feed(sent.as_bytes()).is_empty());
        assert_eq!(rig.ended, Some(after), "{sent:?}");
        assert!(rig.feed(b"mn\r\n").is_empty());
    }

    let mut rig = Rig::with(Settings {
        shutdown: true,
        ..Settings::default()
    });

    rig.feed(b"shutdown\r\n");
    assert_eq!(rig.ended, Some(After::Stop));
    let mut rig = Rig::new();
    rig.feed(&[b'x'; 4000]);
    assert_eq!(rig.ended, Some(After::Close));
}

#[test]
fn switched_off_commands_say_so() {
    let off = Settings {
        flush: false,
        dump: false,
        watch: false,
        ..Settings::default()
    };

    let got = Rig::with(off)
        .feed(b"flush_all\r\nlru_crawler metadump all\r\nstats cachedump 1 1\r\nwatch\r\n");
    let want = "CLIENT_ERROR flush_all not allowed\r\nERROR metadump not allowed\r\n\
                CLIENT_ERROR stats cachedump not allowed\r\nCLIENT_ERROR watch commands not allowed\r\n";
    assert_eq!(String::from_utf8_lossy(&got), want);
}

/// As there: a second earlier than it says, and never in the past.
#[test]
fn a_flush_may_be_for_later() {
    let mut rig = Rig::new();
    let set = b"set a 0 0 1\r\n1\r\n";
    let mut stays = |flush: &str| {
        rig.feed(set);
        let got = rig.feed(format!("{flush}\r\nget a\r\n").as_bytes());
        got.starts_with(b"OK\r\nVALUE")
    };
    for (flush, expected) in [
        ("flush_all 0", false),
        ("flush_all 1", false),
        ("flush_all -1", false),
        ("flush_all 2", true),
        ("flush_all 2592001", true),
        ("flush_all 1500000000", true),
    ] {
        assert_eq!(stays(flush), expected, "{flush}");
    }
}

#[test]
fn many_keys_in_one_line() {
    let mut rig = Rig::new();
    rig.feed(b"set key9999 0 0 2\r\nhi\r\n");
    let line: String = (0..20_000).map(|n| format!(" key{n}")).collect();
    let mut got = rig.feed(b"get");
    for chunk in line.as_bytes().chunks(16 << 10) {
        got.extend(rig.feed(chunk));
    }
    got.extend(rig.feed(b"\r\n"));

    assert_eq!(
        String::from_utf8_lossy(&got),
        "VALUE key9999 0 2\r\nhi\r\nEND\r\n"
    );
}
