//! Random and mutated input. `PLAINWEAVE_CACHE_INPUTS` says how many; the default keeps the suite
//! short.

use super::super::reply::OUTPUT;
use super::Rig;

/// Xorshift64*.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const KEYS: &[&str] = &[
    "a",
    "b",
    "p:c",
    "Zm9v",
    "n",
    "a-key-that-is-a-little-longer",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "3",
    "9",
    "100",
    "-1",
    "2592001",
    "4294967295",
    "18446744073709551615",
    "x",
    "",
];
const FLAGS: &[&str] = &[
    "v",
    "t",
    "s",
    "c",
    "k",
    "q",
    "f",
    "h",
    "l",
    "u",
    "b",
    "I",
    "O7",
    "N30",
    "T60",
    "R30",
    "F5",
    "C1",
    "C7",
    "MA",
    "MI",
    "MD",
    "ME",
    "MP",
    "MR",
    "MS",
    "J9",
    "D3",
    "!",
    "Ox",
    "E1",
    "E18446744073709551615",
    "Ex",
];

/// A command that makes sense, more or less.
fn command(random: &mut Random) -> Vec<u8> {
    let key = random.pick(KEYS);
    let number = random.pick(NUMBERS);
    let other = random.pick(NUMBERS);
    let flags: String = (0..random.below(5))
        .map(|_| format!(" {}", random.pick(FLAGS)))
        .collect();
    let noreply = random.pick(&["", "", "", " noreply"]);
    let value = "v".repeat(random.below(12) * random.below(200));
    let len = if random.below(20) == 0 {
        random.below(40)
    } else {
        value.len()
    };

    let text = match random.below(20) {
        0..=2 => format!("get {key} {}\r\n", random.pick(KEYS)),
        3 if random.below(4) == 0 => {
            let keys: String = (0..random.below(700))
                .map(|_| format!(" {}", random.pick(KEYS)))
                .collect();
            format!("{}{keys}\r\n", random.pick(&["get", "gets", "gat 60"]))
        }
        3 => format!("gets {key}\r\n"),
        4 => format!("{} {number} {key}\r\n", random.pick(&["gat", "gats"])),
        5..=7 => {
            let verb = random.pick(&["set", "add", "replace", "append", "prepend"]);
            format!("{verb} {key} {number} {other} {len}{noreply}\r\n{value}\r\n")
        }
        8 => format!("cas {key} 0 0 {len} {number}{noreply}\r\n{value}\r\n"),
        9 => format!("delete {key}{noreply}\r\n"),
        10 => format!(
            "{} {key} {number}{noreply}\r\n",
            random.pick(&["incr", "decr", "touch"])
        ),
        11..=12 => format!("mg {key}{flags}\r\n"),
        13..=14 => format!("ms {key} {len}{flags}\r\n{value}\r\n"),
        15 => format!("{} {key}{flags}\r\n", random.pick(&["md", "ma", "me"])),
        16 => "mn\r\n".to_owned(),
        17 => format!(
            "{}\r\n",
            random.pick(&[
                "flush_all",
                "flush_all 10",
                "version",
                "verbosity 1",
                "stats reset"
            ])
        ),
        18 => format!(
            "{}\r\n",
            random.pick(&[
                "stats",
                "stats items",
                "stats settings",
                "stats detail on",
                "stats sizes"
            ])
        ),
        _ => format!(
            "{}\r\n",
            random.pick(&[
                "slabs automove 1",
                "lru_crawler crawl all",
                "bogus",
                "",
                "set",
                "get"
            ])
        ),
    };

    text.into_bytes()
}

/// Values near the limit on items, joined and cut off: the commands that make memory scarce.
fn large(random: &mut Random) -> Vec<u8> {
    let key = random.pick(KEYS);
    let len = [1_000, 20_000, 40_000, 65_470, 65_477, 66_000][random.below(6)];
    let head = match random.below(6) {
        0 => format!("append {key} 0 0 {len}"),
        1 => format!("prepend {key} 0 0 {len}"),
        2 => format!(
            "ms {key} {len} {}",
            random.pick(&["MA", "MP", "MR", "ME", "F5"])
        ),
        3 => format!("cas {key} 0 0 {len} 1"),
        _ => format!("set {key} {} 0 {len}", random.pick(&["0", "5"])),
    };

    let end = random.pick(&["\r\n", "\r\n", "\r\n", "", "xx"]);
    format!("{head}\r\n{}{end}", "l".repeat(len)).into_bytes()
}

/// Damages some bytes.
pub(super) fn mutate(random: &mut Random, input: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let place = random.below(input.len());
        match random.below(5) {
            0 if place < input.len() => input[place] = random.next() as u8,
            1 => input.insert(place, b" \r\n\0x-19"[random.below(8)]),
            2 if place < input.len() => drop(input.remove(place)),
            3 => input.truncate(place),
            _ => {
                let piece = input[place..].to_vec();
                input.splice(place..place, piece.into_iter().take(30));
            }
        }
    }
}

/// Reads replies as a client would; whether they are well formed to the last byte.
fn well_formed(mut replies: &[u8]) -> bool {
    while let Some(end) = memchr::memmem::find(replies, b"\r\n") {
        let line = &replies[..end];
        replies = &replies[end + 2..];
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let len = match words[0] {
            b"VALUE" => words.get(3),
            b"VA" => words.get(1),
            _ => None,
        };

        if let Some(len) = len {
            let Some(len) = std::str::from_utf8(len)
                .ok()
                .and_then(|len| len.parse::<usize>().ok())
            else {
                return false;
            };

            if replies.get(len..len + 2) != Some(b"\r\n") {
                return false;
            }
            replies = &replies[len + 2..];
            continue;
        }

        const FIRST: &[&[u8]] = &[
            b"END",
            b"ERROR",
            b"CLIENT_ERROR",
            b"SERVER_ERROR",
            b"STORED",
            b"NOT_STORED",
            b"EXISTS",
            b"NOT_FOUND",
            b"DELETED",
            b"TOUCHED",
            b"OK",
            b"VERSION",
            b"HD",
            b"EN",
            b"NF",
            b"NS",
            b"EX",
            b"MN",
            b"ME",
            b"STAT",
            b"RESET",
            b"PREFIX",
            b"MEMLIMIT_TOO_SMALL",
            b"MEMLIMIT_ADJUST_FAILED",
            b"BADCLASS",
            b"ERROR:",
            b"ITEM",
        ];
        let number =
            !words[0].is_empty() && words[0].iter().all(u8::is_ascii_digit) && words.len() == 1;
        if !number && !FIRST.contains(&words[0]) {
            return false;
        }
    }
    replies.is_empty()
}

/// Brings the connection to the beginning of a command, wherever it was; then it must answer `mn`
/// and nothing else.
fn in_step(rig: &mut Rig) -> bool {
    for _ in 0..1000 {
        if rig.ended.is_some() {
            return true;
        }
        // Ends a line, or fills a value: in the end this is an empty line, which is an error of one
        // line.
        let got = rig.feed(&b"\r\n".repeat(200));
        if got == b"ERROR\r\n".repeat(200) {
            return rig.feed(b"mn\r\n") == b"MN\r\n";
        }

        if got.first() == Some(&0x81) {
            // What came first was the beginning of a packet, which these bytes have completed:
            // `packets` is about those.
            return true;
        }

        if !well_formed(&got) {
            return false;
        }
    }
    // A value so long that this did not fill it; its length is bounded by the reply that it must
    // get.
    true
}

/// How many inputs there are.
pub(super) fn inputs() -> usize {
    let asked = std::env::var("PLAINWEAVE_CACHE_INPUTS").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

#[test]
fn no_input_is_too_strange() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut rig = Rig::new();

    for number in 0..inputs() {
        // Now and then other connections hold all that there is for what is being received.
        let mut others = rig.cache.memory_budget.reserve();
        others.grow_to(if random.below(4) == 0 { 4 << 20 } else { 0 });
        let mut input = Vec::new();

        if random.below(10) == 0 {
            input.extend((0..random.below(300)).map(|_| random.next() as u8));
        } else {
            (0..=random.below(6)).for_each(|_| input.extend(command(&mut random)));
            if random.below(20) == 0 {
                input.extend(large(&mut random));
                input.extend(command(&mut random));
            }
            mutate(&mut random, &mut input);
        }

        let one = random.below(input.len() + 1);
        let two = random.below(input.len() + 1);
        let (one, two) = (one.min(two), one.max(two));
        let parts = [&input[..one], &input[one..two], &input[two..]];
        let got: Vec<u8> = parts.into_iter().flat_map(|part| rig.feed(part)).collect();
        let text = String::from_utf8_lossy(&input);
        let binary = got.first() == Some(&0x81);

        assert!(
            binary || well_formed(&got),
            "input {number}: {text:?}\nanswered {:?}",
            String::from_utf8_lossy(&got)
        );
        assert!(
            rig.piled <= OUTPUT + (80 << 10) && rig.held() <= 1 << 20,
            "input {number}"
        );
        drop(others);
        assert!(rig.cache.memory_budget.used() <= 2 << 20, "input {number}");
        assert!(
            in_step(&mut rig),
            "input {number} left the connection out of step: {text:?}"
        );
        rig.reconnect();
        assert_eq!(rig.cache.memory_budget.used(), 0, "input {number}");

        for key in KEYS {
            let len = rig
                .cache
                .store
                .get(key.as_bytes(), rig.cache.clock.now())
                .map_or(0, |item| item.len());
            assert!(
                len < 64 << 10,
                "input {number}: {text:?} has left {len} bytes"
            );
        }
    }

    assert!(rig.cache.store.stats().memory_used <= 9 << 20);
}
