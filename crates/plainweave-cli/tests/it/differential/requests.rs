//! Requests with ranges and preconditions, made from a seed.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

/// What kind of Range a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    /// A list of ranges, some of them perhaps beyond the file.
    Plain,
    /// With an empty element.
    Gaps,
    /// `-0` is among them.
    ZeroSuffix,
    /// A number that no 64 bits hold.
    Huge,
    /// More than 64 ranges.
    Many,
    /// No list of ranges.
    Malformed,
    /// No range at all behind the unit.
    Nothing,
    /// Not `bytes`.
    OtherUnit,
}

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: bool,
    pub(crate) file: &'static str,
    pub(crate) kind: Kind,
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
    }

    /// On the wire. `etag` is what this server calls the file.
    pub(crate) fn text(&self, etag: &str) -> String {
        let method = if self.head { "HEAD" } else { "GET" };
        let fields: String = self
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        format!(
            "{method} /{} HTTP/1.1\r\nHost: h\r\n{}\r\n",
            self.file,
            fields.replace("{etag}", etag)
        )
    }
}

/// Names and sizes.
pub(crate) const FILES: [(&str, usize); 4] =
    [("empty", 0), ("one", 1), ("small", 1000), ("large", 70_000)];
/// All of them were changed then.
pub(crate) const TIME: u64 = 784_111_777;

const TAGS: [&str; 7] = [
    "{etag}",
    "W/{etag}",
    "\"x\"",
    "*",
    "\"x\", {etag}",
    "W/\"x\" , W/{etag}",
    "{etag},\"x\"",
];
const DATES: [&str; 5] = [
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sun, 06 Nov 1994 08:49:36 GMT",
    "Sun, 06 Nov 1994 08:49:38 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "yesterday",
];
const MALFORMED: [&str; 8] = [
    "bytes=5-3",
    "bytes=a-b",
    "bytes=0-0,5-3",
    "bytes=--1",
    "bytes=1",
    "bytes=0-1-2",
    "bytes=-",
    "bytes=0-0;1-1",
];

pub(crate) struct Requests(SmallRng);

impl Requests {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.random_range(0..choices.len())]
    }

    fn number(&mut self, size: usize) -> u64 {
        let near = self.0.random_range(0..size as u64 + 3);
        self.one_of(&[
            0,
            0,
            1,
            size as u64 / 2,
            (size as u64).saturating_sub(1),
            size as u64,
            near,
            near,
        ])
    }

    fn spec(&mut self, size: usize) -> String {
        let one = self.number(size);
        let two = self.number(size);
        match self.0.random_range(0..4) {
            0 => format!("{one}-"),
            1 => format!("-{}", one.max(1)),
            _ => format!("{}-{}", one.min(two), one.max(two)),
        }
    }

    fn range(&mut self, size: usize) -> (Kind, String) {
        let count = self.one_of(&[1, 1, 1, 2, 3, 5]);
        let mut specs: Vec<String> = (0..count).map(|_| self.spec(size)).collect();
        match self.0.random_range(0..40) {
            0 => (Kind::Malformed, self.one_of(&MALFORMED).to_owned()),
            1 => (Kind::OtherUnit, format!("lines={}", specs.join(","))),
            2 => (
                Kind::Nothing,
                self.one_of(&["bytes=", "bytes=,", "bytes= , "]).to_owned(),
            ),
            3 => (
                Kind::Many,
                format!("bytes={}", vec!["0-0"; 65 + count].join(",")),
            ),
            4 => (Kind::Huge, format!("bytes=0-{}", "9".repeat(30))),
            5 => {
                specs.push("-0".to_owned());
                (Kind::ZeroSuffix, format!("bytes={}", specs.join(",")))
            }
            6 => (Kind::Gaps, format!("bytes=,{}", specs.join(", ,"))),
            n => (
                Kind::Plain,
                format!("bytes={}", specs.join(if n % 2 == 0 { "," } else { " , " })),
            ),
        }
    }
}

impl Iterator for Requests {
    type Item = Asked;

    fn next(&mut self) -> Option<Asked> {
        let (file, size) = self.one_of(&FILES);
        let mut asked = Asked {
            head: self.0.random_range(0..8) == 0,
            file,
            kind: Kind::None,
            fields: Vec::new(),
        };

        if self.0.random_range(0..4) > 0 {
            let (kind, range) = self.range(size);
            asked.kind = kind;
            asked.fields.push(("Range", range));
        }

        for (name, choices, odds) in [
            ("If-Match", &TAGS[..], 5),
            ("If-Unmodified-Since", &DATES[..], 5),
            ("If-None-Match", &TAGS[..], 5),
            ("If-Modified-Since", &DATES[..], 5),
            (
                "If-Range",
                &[
                    TAGS[0], TAGS[0], TAGS[1], TAGS[2], DATES[0], DATES[1], DATES[2], DATES[4],
                ][..],
                3,
            ),
        ] {
            if self.0.next_u32().is_multiple_of(odds) {
                let value = self.one_of(choices);
                asked.fields.push((name, value.to_owned()));
            }
        }

        Some(asked)
    }
}
