//! Pools as text, for a program's flags: `web:fifo/2,disk:priority/4`.
//!
//! A pool is `NAME:POLICY/WORKERS`, perhaps with `/MOVEMENT/STORAGE` behind it, and commas stand
//! between pools. The policy is written as [`RuntimeBuilder::policy`] takes it, with its own colon
//! and commas if it has parameters; it ends at the first slash, which occurs in no policy.

#![expect(unsafe_code, reason = "the same settings, chosen by text")]

use std::error::Error;
use std::fmt;
use std::io;
use std::str::FromStr;

use super::spec::{PoolSpec, invalid, is_name};
use crate::builder::RuntimeBuilder;
use crate::fiber::Movement;
use crate::policy::Choice;
use crate::runtime::Runtime;

/// The most workers of a pool, as a runtime's.
const MOST_WORKERS: usize = 1024;

const FORM: &str =
    "NAME:POLICY/WORKERS[/MOVEMENT/STORAGE], as in 'web:fifo/2,disk:priority/4/before-start/own'";

/// The modes: movement and storage as `plainweave web --mode` names them.
const MODES: [(&str, Movement, Storage); 6] = [
    ("anytime/own", Movement::Anytime, Storage::Own),
    ("before-start/own", Movement::BeforeStart, Storage::Own),
    ("never/own", Movement::Never, Storage::Own),
    (
        "before-start/shared",
        Movement::BeforeStart,
        Storage::Shared,
    ),
    ("never/shared", Movement::Never, Storage::Shared),
    ("anytime/shared", Movement::Anytime, Storage::Shared),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    Own,
    Shared,
}

/// What is wrong with a text that describes pools, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTextError {
    position: usize,
    what: String,
}

impl PoolTextError {
    /// Returns where it is, in bytes from the beginning of the text.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }
}

impl fmt::Display for PoolTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pools, at byte {}: {}", self.position, self.what)
    }
}

impl Error for PoolTextError {}

impl From<PoolTextError> for io::Error {
    fn from(error: PoolTextError) -> Self {
        invalid(error.to_string())
    }
}

/// What remains of the text, and how much of it has been read.
struct Rest<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Rest<'a> {
    /// Takes what comes before the first of these characters, or everything; the character stays.
    fn until(&mut self, ends: &[char]) -> Part<'a> {
        let (text, rest) = self
            .text
            .split_at(self.text.find(ends).unwrap_or(self.text.len()));
        let part = Part {
            text,
            position: self.position,
        };

        *self = Rest {
            text: rest,
            position: self.position + text.len(),
        };
        part
    }

    /// Takes this character, if it comes next.
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.text.strip_prefix(wanted);
        if let Some(text) = rest {
            *self = Rest {
                text,
                position: self.position + wanted.len_utf8(),
            };
        }
        rest.is_some()
    }

    fn expect(&mut self, wanted: char, what: &str) -> Result<(), PoolTextError> {
        if self.take(wanted) {
            return Ok(());
        }
        Part {
            text: "",
            position: self.position,
        }
        .wrong(format!("{what} is missing: write {FORM}"))
    }
}

/// A part of the text, and where it begins.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    position: usize,
}

impl Part<'_> {
    fn wrong<T>(self, what: String) -> Result<T, PoolTextError> {
        Err(PoolTextError {
            position: self.position,
            what,
        })
    }
}

impl PoolSpec {
    /// Reads the description of one or more pools: `NAME:POLICY/WORKERS`, with commas between
    /// pools. The policy may have parameters, as for [`RuntimeBuilder::policy`].
    /// `/MOVEMENT/STORAGE` may follow: `anytime/own` (the default), `before-start/own` or
    /// `never/own`.
    ///
    /// ```
    /// use plainweave::pools::{PoolSpec, Pools};
    ///
    /// let pools = Pools::build(PoolSpec::parse("web:fifo/2,disk:lifo:capacity=128,poll=61/1/before-start/own")?)?;
    /// assert_eq!(pools.runtime("disk").unwrap().policy(), "lifo:capacity=128,poll=61");
    ///
    /// let wrong = PoolSpec::parse("web:fifo/2,disk:prio/4").unwrap_err();
    /// assert_eq!(wrong.position(), 16);
    /// assert!(wrong.to_string().contains("no scheduling policy is called 'prio'; there are: fifo, "));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The text is none, with where it is wrong and what is valid there. Shared storage is one of
    /// these errors: it is unsafe to choose ([`Self::parse_with_shared_storage`]).
    pub fn parse(text: &str) -> Result<Vec<Self>, PoolTextError> {
        read(text, |mode, movement, storage| match storage {
            Storage::Own => Ok(Runtime::builder().own_storage().movement(movement)),
            Storage::Shared => Err(format!(
                "'{mode}' is unsafe to choose here; there are: {}",
                names(&MODES[..3])
            )),
        })
    }

    /// Reads what [`Self::parse`] does, and the modes `before-start/shared` and `never/shared` too.
    ///
    /// # Safety
    /// The contract of [`RuntimeBuilder::shared_storage`] holds for the fibers of all pools that
    /// share storage.
    ///
    /// # Errors
    /// As for [`Self::parse`]. `anytime/shared`, whose contract is wider
    /// ([`RuntimeBuilder::movement_anytime`]), is among these errors.
    pub unsafe fn parse_with_shared_storage(text: &str) -> Result<Vec<Self>, PoolTextError> {
        read(text, |mode, movement, storage| match (storage, movement) {
            (Storage::Own, _) => Ok(Runtime::builder().own_storage().movement(movement)),
            (Storage::Shared, Movement::Anytime) => Err(format!(
                "'{mode}' is unsafe to choose here; there are: {}",
                names(&MODES[..5])
            )),
            (Storage::Shared, _) => {
                // SAFETY: the caller's promise.
                let builder = unsafe { Runtime::builder().shared_storage() };
                Ok(builder.movement(movement))
            }
        })
    }
}

impl FromStr for PoolSpec {
    type Err = PoolTextError;

    fn from_str(text: &str) -> Result<Self, PoolTextError> {
        let mut specs = Self::parse(text)?;
        match (specs.pop(), specs.is_empty()) {
            (Some(spec), true) => Ok(spec),
            _ => Part { text, position: 0 }.wrong("more than one pool".to_owned()),
        }
    }
}

fn names(modes: &[(&str, Movement, Storage)]) -> String {
    modes
        .iter()
        .map(|(name, ..)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Reads all pools; `builder` returns the settings for a mode, or what is wrong with it.
fn read(
    text: &str,
    builder: impl Fn(&str, Movement, Storage) -> Result<RuntimeBuilder, String>,
) -> Result<Vec<PoolSpec>, PoolTextError> {
    let mut rest = Rest { text, position: 0 };
    let mut specs: Vec<PoolSpec> = Vec::new();
    loop {
        let name = rest.until(&[':', ',', '/']);
        if !is_name(name.text) {
            let what = format!(
                "'{}' is no name of a pool: use ASCII letters, digits, '-' and '_'; {FORM}",
                name.text
            );
            return name.wrong(what);
        }
        if specs.iter().any(|spec| spec.name() == name.text) {
            return name.wrong(format!("two pools are called '{}'", name.text));
        }
        rest.expect(':', "the policy")?;
        let policy = rest.until(&['/']);
        if let Err(what) = Choice::parse(policy.text) {
            return policy.wrong(what);
        }
        rest.expect('/', "the number of workers")?;
        let workers = rest.until(&['/', ',']);
        let count = workers
            .text
            .parse()
            .ok()
            .filter(|count| (1..=MOST_WORKERS).contains(count));
        let Some(count) = count else {
            return workers.wrong(format!(
                "'{}' is not a number of workers from 1 to {MOST_WORKERS}",
                workers.text
            ));
        };
        let settings = if rest.take('/') {
            mode(rest.until(&[',']), &builder)?
        } else {
            Runtime::builder()
        };
        specs.push(PoolSpec::new(name.text).runtime(settings.workers(count).policy(policy.text)));
        if !rest.take(',') {
            return Ok(specs);
        }
    }
}

fn mode(
    part: Part<'_>,
    builder: impl Fn(&str, Movement, Storage) -> Result<RuntimeBuilder, String>,
) -> Result<RuntimeBuilder, PoolTextError> {
    let Some((name, movement, storage)) = MODES.iter().find(|(name, ..)| *name == part.text) else {
        return part.wrong(format!(
            "'{}' is no mode; there are: {}",
            part.text,
            names(&MODES[..3])
        ));
    };
    builder(name, *movement, *storage).or_else(|what| part.wrong(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, String) {
        let error = PoolSpec::parse(text).expect_err(text);
        (error.position(), error.to_string())
    }

    #[test]
    fn pools_with_and_without_parameters_and_modes() {
        let text =
            "web:fifo/2,disk:lifo:capacity=128,victim=near:13/4/never/own,b_2:global-fifo/1024";
        let specs = PoolSpec::parse(text).expect("valid");
        assert_eq!(
            specs.iter().map(PoolSpec::name).collect::<Vec<_>>(),
            ["web", "disk", "b_2"]
        );
        let shown = format!("{:?}", specs[1]);

        for part in [
            "workers: Some(4)",
            "\"lifo:capacity=128,victim=near:13\"",
            "movement: Some(Never)",
        ] {
            assert!(shown.contains(part), "{shown}");
        }

        assert!(
            format!("{:?}", specs[0]).contains("movement: None"),
            "the runtime's default"
        );
        assert_eq!(
            "web:fifo/2".parse::<PoolSpec>().expect("valid").name(),
            "web"
        );
        assert_eq!(
            text.parse::<PoolSpec>().expect_err("three").to_string(),
            "pools, at byte 0: more than one pool"
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("", 0, "'' is no name of a pool"),
            ("web", 3, "the policy is missing: write NAME:POLICY/WORKERS"),
            ("web/2", 3, "the policy is missing"),
            ("web:fifo", 8, "the number of workers is missing"),
            (
                "web:/2",
                4,
                "no scheduling policy is called ''; there are: fifo",
            ),
            ("web:fifo/2,", 11, "'' is no name of a pool"),
            ("web:fifo/2,,a:fifo/1", 11, "'' is no name of a pool"),
            (
                "web:fifo/2, disk:fifo/1",
                11,
                "' disk' is no name of a pool",
            ),
            ("a:fifo/1,a:fifo/1", 9, "two pools are called 'a'"),
            (
                "web:fifo/2,disk:prio/4",
                16,
                "no scheduling policy is called 'prio'; there are: fifo",
            ),
            (
                "web:fifo:speed=9/2",
                4,
                "policy 'fifo' has no parameter 'speed'; it has: ",
            ),
            (
                "web:fifo/0",
                9,
                "'0' is not a number of workers from 1 to 1024",
            ),
            ("web:fifo/1025", 9, "'1025' is not a number of workers"),
            ("web:fifo/-1", 9, "'-1' is not a number of workers"),
            ("web:fifo/", 9, "'' is not a number of workers"),
            (
                "web:fifo/99999999999999999999",
                9,
                "is not a number of workers",
            ),
            (
                "web:fifo/2/",
                11,
                "'' is no mode; there are: anytime/own, before-start/own, never/own",
            ),
            ("web:fifo/2/never", 11, "'never' is no mode"),
            ("web:fifo/2/never/own/x", 11, "'never/own/x' is no mode"),
            (
                "web:fifo/2/never/shared",
                11,
                "'never/shared' is unsafe to choose here; there are: anytime/own",
            ),
            ("wéb:fifo/2", 0, "'wéb' is no name of a pool"),
            (
                "web:fifo/2,a:fifö/1",
                13,
                "no scheduling policy is called 'fifö'",
            ),
        ];
        for (text, position, what) in cases {
            let (at, said) = wrong(text);
            assert_eq!(at, position, "{text}: {said}");
            assert!(
                said.starts_with(&format!("pools, at byte {position}: ")) && said.contains(what),
                "{text}: {said}"
            );
        }
    }

    #[test]
    fn shared_storage_takes_a_promise() {
        // SAFETY: nothing is built from it.
        let parse = |text| unsafe { PoolSpec::parse_with_shared_storage(text) };
        let shown = format!(
            "{:?}",
            parse("web:fifo/2/before-start/shared").expect("promised")
        );
        assert!(
            shown.contains("storage: Shared") && shown.contains("movement: Some(BeforeStart)"),
            "{shown}"
        );
        let error = parse("web:fifo/2/anytime/shared")
            .expect_err("a wider contract")
            .to_string();
        let all = "anytime/own, before-start/own, never/own, before-start/shared, never/shared";

        assert!(error.ends_with(all), "{error}");
    }

    /// No text makes it panic, and each position lies on a character within the text.
    #[test]
    fn any_text() {
        let parts = [
            "web",
            ":",
            "fifo",
            "/",
            "2",
            ",",
            "é",
            "never/own",
            "=",
            "",
            " ",
        ];
        let mut state = 1_u32;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                text.push_str(parts[(state >> 16) as usize % parts.len()]);
            }

            if let Err(error) = PoolSpec::parse(&text) {
                assert!(text.is_char_boundary(error.position()), "{text}: {error}");
            }
        }
    }
}
