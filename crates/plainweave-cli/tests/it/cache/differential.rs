//! The same commands to memcached and to `plainweave cache`, and the same bytes back.
//!
//! Left out of the generated commands is what docs/cache-compat.md lists as different, the clock
//! (seconds that have passed or remain, and ends that a sequence on a busy machine could live to
//! see: memcached's seconds begin when it was started), and numbers that become shorter: whether
//! memcached pads them depends on a thread of its own. `PLAINWEAVE_CACHE_SEQUENCES` says how many
//! sequences of 200 commands.

use std::io::Read;
use std::process::{Command, Stdio};

use super::running::{Client, Running, eventually};
use crate::common::child::Kept;
use crate::common::scratch::Scratch;
use crate::common::skip::skip;

/// memcached in its process; ends with this value.
pub(crate) struct Reference {
    _child: Kept,
    address: std::net::SocketAddr,
}

impl Reference {
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Without the thread that holds items now and then: a number that is counted up meanwhile is a
    /// new item.
    pub(crate) fn start_undisturbed() -> Option<Self> {
        Self::start_with(&["-o", "no_lru_maintainer"])
    }

    fn start_with(args: &[&str]) -> Option<Self> {
        let directory = Scratch::new();
        let ports = directory.path("ports");
        let mut command = Command::new("memcached");
        command.args([
            "-u",
            "root",
            "-U",
            "0",
            "-l",
            "127.0.0.1",
            "-t",
            "1",
            "-p",
            "-1",
        ]);
        command
            .args(args)
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = Kept::spawn(&mut command).ok()?;
        let mut port = None;

        eventually("memcached says its port", || {
            let said = std::fs::read_to_string(&ports).unwrap_or_default();
            port = said
                .trim_end()
                .strip_prefix("TCP INET: ")
                .and_then(|n| n.parse().ok());
            port.is_some()
        });
        Some(Self {
            _child: child,
            address: (std::net::Ipv4Addr::LOCALHOST, port.unwrap()).into(),
        })
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.address
    }
}

/// Xorshift64*.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const KEYS: &[&str] = &["a", "b", "p:c", "Zm9v", "n"];
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
    "+5",
    "1x",
];
/// Seconds to live: none that passes while the test runs, nor comes down to the bound of an `R`.
const ENDS: &[&str] = &[
    "0",
    "900",
    "-1",
    "2592001",
    "4294967295",
    "18446744073709551615",
    "x",
    "+500",
    "1x",
];
const FLAGS: &[&str] = &[
    "v", "s", "c", "k", "q", "f", "h", "u", "O7", "N300", "T600", "R450", "F5", "C1", "C7", "MA",
    "MI", "ME", "MP", "MR", "MS", "J9", "D3", "!", "Fx", "Cx", "S", "MM", "M",
];
const VALUES: &[&str] = &["", "5", "12", "abc", "a value that is somewhat longer"];

fn command(random: &mut Random) -> String {
    let key = random.pick(KEYS);
    let number = random.pick(NUMBERS);
    let end = random.pick(ENDS);
    let mut flags = String::new();
    for _ in 0..random.below(5) {
        flags += " ";
        flags += random.pick(FLAGS);
    }

    let noreply = random.pick(&["", "", "", " noreply"]);
    let value = random.pick(VALUES);
    let len = if random.below(20) == 0 {
        random.below(value.len() + 1)
    } else {
        value.len()
    };

    let expiry = random.pick(&["0", "0", "900", "-1", end]);
    match random.below(20) {
        0 if random.below(4) == 0 => {
            let keys: String = (0..random.below(400))
                .map(|_| format!(" {}", random.pick(KEYS)))
                .collect();
            format!(
                "{} {end}{keys}\r\n",
                random.pick(&["get", "gets", "gat", "gats"])
            )
        }
        0..=3 => format!("get {key} {}\r\n", random.pick(KEYS)),
        4 => format!("gets {key}\r\n"),
        5 => format!("{} {end} {key}\r\n", random.pick(&["gat", "gats"])),
        6..=8 => {
            let verb = random.pick(&["set", "add", "replace", "append", "prepend"]);
            format!("{verb} {key} {number} {expiry} {len}{noreply}\r\n{value}\r\n")
        }
        9 => format!(
            "cas {key} 0 0 {len} {}{noreply}\r\n{value}\r\n",
            random.below(30)
        ),
        10 => format!("delete {key}{noreply}\r\n"),
        11 => format!(
            "incr {key} {}{noreply}\r\n",
            random.pick(&["1", "3", "+5", "100", "x", "1x"])
        ),
        // What later versions make of them.
        12..=13 => format!("mg {key}{}\r\n", without(&flags, "C")),
        14..=15 => {
            let flags = without(&flags, "s");
            let flags = without(&flags, "N");
            format!("ms {key} {len}{flags}\r\n{value}\r\n")
        }
        16 => format!("touch {key} {end}{noreply}\r\n"),
        17 => format!(
            "{}\r\n",
            random.pick(&[
                "md a q",
                "md b T600",
                "md n k O7",
                "md p:c C5",
                "ma n v",
                "ma n N0 J9 q",
                "ma b MX"
            ])
        ),
        18 => format!(
            "{}\r\n",
            random.pick(&[
                "verbosity 1",
                "verbosity x",
                "delete",
                "incr a",
                "flush_all x",
                "gat",
                "me"
            ])
        ),
        _ => format!(
            "{}\r\n",
            random.pick(&[
                "bogus", "", "set", "get", "gets ", "mg", "ms", "md", "ma", "mx", "x", "stats x"
            ])
        ),
    }
}

/// Leaves out the flags that begin so.
fn without(flags: &str, letter: &str) -> String {
    let words = flags.split(' ').filter(|word| !word.starts_with(letter));
    words.collect::<Vec<_>>().join(" ")
}

/// The replies to some commands: all before that of the `mn` behind them.
fn replies(client: &mut Client, commands: &str) -> String {
    client.send(format!("{commands}mn\r\n"));
    let mut got = Vec::new();
    let mut buffer = [0; 4096];

    while !got.ends_with(b"MN\r\n") {
        let read = client.0.read(&mut buffer);
        let n = *read.as_ref().unwrap_or(&0);
        let text = String::from_utf8_lossy(&got);
        assert!(
            n > 0,
            "no reply to {commands:?} of {:?} but {text:?}: {read:?}",
            client.0.peer_addr()
        );
        got.extend_from_slice(&buffer[..n]);
    }

    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn replies_are_those_of_memcached() {
    let sequences = std::env::var("PLAINWEAVE_CACHE_SEQUENCES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(40);
    for seed in 1..=sequences {
        // Afresh each time, so that CAS numbers begin alike.
        let Some(reference) = Reference::start() else {
            return skip("there is no memcached to compare with (apt-get install memcached)");
        };
        let ours = Running::start(&["-t", "1"]);
        let mut theirs = Client::to(reference.address);
        let mut ours = ours.connect();
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let mut before = String::new();

        for _ in 0..200 {
            let commands: String = (0..=random.below(3))
                .map(|_| command(&mut random))
                .collect();
            let expected = replies(&mut theirs, &commands);
            let got = replies(&mut ours, &commands);
            assert_eq!(
                got, expected,
                "sequence {seed}: {commands:?} after {before}"
            );
            before += &commands;
        }
    }
}

/// The list whose other player is `cache::tests::script`, which needs no memcached.
#[test]
fn conversations_go_alike() {
    let rounded = |replies: &str| {
        // Each clock may tick between two commands.
        let word = |word: &str| match word
            .trim_end()
            .strip_prefix('t')
            .and_then(|left| left.parse::<u32>().ok())
        {
            Some(left) => format!(
                "t{}{}",
                left.next_multiple_of(10),
                &word[word.trim_end().len()..]
            ),
            None => word.to_owned(),
        };
        replies
            .split_inclusive([' ', '\r'])
            .map(word)
            .collect::<String>()
    };

    let blocks = include_str!("../../../../plainweave-cache/src/tests/same_as_memcached.txt");
    for block in blocks.split("\n\n") {
        let lines = |mark| {
            block
                .lines()
                .filter_map(move |line| line.strip_prefix(mark))
        };

        let text = |mark| {
            lines(mark)
                .map(|line| format!("{line}\r\n"))
                .collect::<String>()
        };

        let sent = text("> ");
        let received = text("< ");
        let play = |mut client: Client| {
            client.send(format!("{sent}quit\r\n"));
            rounded(&client.rest())
        };

        let Some(reference) = Reference::start_undisturbed() else {
            return skip("there is no memcached to compare with (apt-get install memcached)");
        };
        assert_eq!(
            play(Client::to(reference.address)),
            received,
            "memcached on {sent:?}"
        );
        let ours = Running::start(&["-t", "1"]);
        assert_eq!(play(ours.connect()), received, "{sent:?}");
    }
}

#[test]
fn limits_of_whole_and_joined_values_are_those_of_memcached() {
    let Some(reference) = Reference::start() else {
        return skip("there is no memcached to compare with (apt-get install memcached)");
    };
    let ours = Running::start(&["-t", "1"]);
    let mut theirs = Client::to(reference.address);
    let mut ours = ours.connect();
    let mut same = |line: &str, len: usize| {
        let commands = format!("{line}\r\n{}\r\nmg a s f\r\nmg b s\r\n", "x".repeat(len));
        let expected = replies(&mut theirs, &commands);
        let got = replies(&mut ours, &commands);
        assert_eq!(got, expected, "{line}");
    };

    same("set b 0 0 10", 10);
    for len in [700_000, (1 << 20) - 70, 1 << 20] {
        for flags in [0, 5] {
            for verb in ["append", "prepend"] {
                same(&format!("set a {flags} 0 300000"), 300_000);
                for _ in 0..3 {
                    same(&format!("{verb} a 0 0 {len}"), len);
                    same(&format!("{verb} a 0 0 348000"), 348_000);
                }
            }

            for mode in ["MA", "MP"] {
                same(&format!("ms a 300000 F{flags}"), 300_000);
                same(&format!("ms a {len} {mode} k O1"), len);
            }

            for line in [
                format!("set b 0 0 {len}"),
                format!("replace b 0 0 {len}"),
                format!("cas b 0 0 {len} 1"),
            ] {
                same("set b 0 0 10", 10);
                same(&line, len);
            }

            same(&format!("ms b {len} MR"), len);
        }
    }
}
