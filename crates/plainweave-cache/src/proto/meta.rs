//! The meta commands: a key and flags of one letter, some with an argument.
//!
//! The flags are checked here, once; the answer repeats or fills in some of them in the order in
//! which they were sent, so they are kept as words too.

use super::super::number;
use super::key::{KEY_BYTES, Key};
use super::reject::{BAD_FORMAT, Reject};
use super::storage::{Verb, value_len};
use super::tokens::{Keys, Tokens};

/// Most words after the command.
const MAX_WORDS: usize = 18;
/// Longest opaque, with its letter.
const OPAQUE_BYTES: usize = 32;
const TOO_MANY: &str = "CLIENT_ERROR options flags too long";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_OPAQUE: &str = "CLIENT_ERROR opaque token too long";

/// A meta command.
#[derive(Clone, Debug)]
pub(crate) struct Meta<'a> {
    pub(crate) key: Key<'a>,
    /// The flags as they came.
    words: Keys<'a>,
    /// `q`: no nominal answers.
    pub(crate) quiet: bool,
    /// `v`: with the value.
    pub(crate) value: bool,
    /// `u`: the item is not used by this, for the eviction.
    pub(crate) no_update: bool,
    /// `I`: mark as stale.
    pub(crate) stale: bool,
    /// `x`: remove the value alone.
    pub(crate) empty: bool,
    /// `T`
    pub(crate) exptime: Option<i32>,
    /// `N`: create a missing item, with this expiry.
    pub(crate) vivify: Option<i32>,
    /// `R`: a client that finds less time left than this is to refresh the item.
    pub(crate) recache: Option<i32>,
    /// `F`
    pub(crate) flags: u32,
    /// `C`
    pub(crate) cas: Option<u64>,
    /// `E`: the CAS number that the item gets.
    pub(crate) new_cas: Option<u64>,
    /// `M`
    mode: Option<u8>,
    /// `D`
    pub(crate) delta: u64,
    /// `J`
    pub(crate) initial: u64,
}

/// What the letter behind `M` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Store(Verb),
    Count { up: bool },
}

impl<'a> Meta<'a> {
    /// `mg key flags`
    pub(super) fn get(tokens: &Tokens<'a>) -> Result<Self, Reject> {
        let meta = Self::head(tokens, 2, "CLIENT_ERROR options flags are too long")?;
        let meta = meta.read_flags().map_err(Reject::of)?;
        meta.opaque_fits()?;
        Ok(meta)
    }

    /// `ms key length flags`
    pub(super) fn store(tokens: &Tokens<'a>) -> Result<(Self, usize), Reject> {
        let head = Self::head(tokens, 3, TOO_MANY);
        if head.is_ok() && tokens.len() == 2 {
            return Err(Reject::of(BAD_FORMAT));
        }
        let head = head?;
        let len = number::signed32(tokens.word(2))
            .and_then(value_len)
            .ok_or(Reject::of(BAD_FORMAT))?;
        // From here on the value's length is known, and an error need not take the value for
        // commands.
        let swallow = |reject: Reject| Reject {
            swallow: len + 2,
            ..reject
        };
        let meta = head
            .read_flags()
            .map_err(|text| swallow(Reject::of(text)))?;
        if meta.mode.is_some() && !matches!(meta.mode(), Some(Mode::Store(_))) {
            return Err(swallow(Reject::of(
                "CLIENT_ERROR invalid mode for ms M token",
            )));
        }
        meta.opaque_fits().map_err(swallow)?;
        Ok((meta, len))
    }

    /// `md key flags`, `ma key flags`
    pub(super) fn other(tokens: &Tokens<'a>) -> Result<Self, Reject> {
        let meta = Self::head(tokens, 2, TOO_MANY)?;
        let meta = meta
            .read_flags()
            .map_err(|_| Reject::of("CLIENT_ERROR invalid or duplicate flag"))?;
        if tokens.word(0) == b"ma"
            && meta.mode.is_some()
            && !matches!(meta.mode(), Some(Mode::Count { .. }))
        {
            return Err(Reject::of("CLIENT_ERROR invalid mode for ma M token"));
        }
        meta.opaque_fits()?;
        Ok(meta)
    }

    fn head(tokens: &Tokens<'a>, first: usize, too_many: &'static str) -> Result<Self, Reject> {
        let key = tokens.word(1);
        if tokens.len() < 2 {
            return Err(Reject::of("ERROR"));
        }
        if key.len() > KEY_BYTES {
            return Err(Reject::of(BAD_FORMAT));
        }
        if tokens.len() > MAX_WORDS + 1 {
            return Err(Reject::of(too_many));
        }
        Ok(Self {
            key: Key::Plain(key),
            words: tokens.after(first),
            quiet: false,
            value: false,
            no_update: false,
            stale: false,
            empty: false,
            exptime: None,
            vivify: None,
            recache: None,
            flags: 0,
            cas: None,
            new_cas: None,
            mode: None,
            delta: 1,
            initial: 0,
        })
    }

    /// Reads all flags. An unknown or repeated one ends the reading; else the last error counts.
    fn read_flags(mut self) -> Result<Self, &'static str> {
        let mut seen = 0u128;
        let mut error = None;
        for word in self.words {
            let letter = word[0];
            if letter >= 127 || seen & 1 << letter != 0 {
                return Err("CLIENT_ERROR duplicate flag");
            }
            seen |= 1 << letter;
            match self.read_flag(letter, &word[1..]) {
                Ok(true) => {}
                Ok(false) => return Err("CLIENT_ERROR invalid flag"),
                // The reference forgets to say what is wrong with F; an earlier error's text stays.
                Err("") => error = error.or(Some(BAD_FORMAT)),
                Err(text) => error = Some(text),
            }
        }
        error.map_or(Ok(self), Err)
    }

    /// `Ok(false)`: there is no such flag.
    fn read_flag(&mut self, letter: u8, argument: &[u8]) -> Result<bool, &'static str> {
        match letter {
            b'b' => {
                self.key = Key::decode(self.key.bytes()).ok_or("CLIENT_ERROR error decoding key")?
            }
            b'N' => self.vivify = Some(number::signed32(argument).ok_or(BAD_TOKEN)?),
            b'T' => self.exptime = Some(number::signed32(argument).ok_or(BAD_TOKEN)?),
            b'R' => self.recache = Some(number::signed32(argument).ok_or(BAD_TOKEN)?),
            b'l' | b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' => {}
            b'v' => self.value = true,
            b'u' => self.no_update = true,
            b'q' => self.quiet = true,
            b'F' => self.flags = number::unsigned32(argument).ok_or("")?,
            b'C' => self.cas = Some(number::unsigned64(argument).ok_or(BAD_TOKEN)?),
            b'E' => self.new_cas = Some(number::unsigned64(argument).ok_or(BAD_TOKEN)?),
            b'M' => match argument {
                [mode] => self.mode = Some(*mode),
                _ => return Err("CLIENT_ERROR incorrect length for M token"),
            },
            b'J' => {
                self.initial = number::unsigned64(argument)
                    .ok_or("CLIENT_ERROR invalid numeric initial value")?
            }
            b'D' => {
                self.delta = number::unsigned64(argument)
                    .ok_or("CLIENT_ERROR invalid numeric delta value")?
            }
            b'I' => self.stale = true,
            b'x' => self.empty = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn opaque_fits(&self) -> Result<(), Reject> {
        let long = |word: &[u8]| word[0] == b'O' && word.len() > OPAQUE_BYTES;
        if self.words().any(long) {
            Err(Reject::of(BAD_OPAQUE))
        } else {
            Ok(())
        }
    }

    /// Returns the flags as they came.
    pub(crate) fn words(&self) -> Keys<'a> {
        self.words
    }

    /// Returns whether flag `first` was sent, and flag `second` behind it.
    pub(crate) fn in_order(&self, first: u8, second: u8) -> bool {
        let mut rest = self.words.skip_while(|word| word[0] != first);
        rest.any(|word| word[0] == second)
    }

    /// Returns what `M` asks for, if it is known.
    pub(crate) fn mode(&self) -> Option<Mode> {
        Some(match self.mode? {
            b'E' => Mode::Store(Verb::Add),
            b'A' => Mode::Store(Verb::Append),
            b'P' => Mode::Store(Verb::Prepend),
            b'R' => Mode::Store(Verb::Replace),
            b'S' => Mode::Store(Verb::Set),
            b'I' | b'+' => Mode::Count { up: true },
            b'D' | b'-' => Mode::Count { up: false },
            _ => return None,
        })
    }

    /// Returns how `ms` stores: a set or replace that gives a CAS number is a check-and-set.
    pub(crate) fn verb(&self) -> Verb {
        match (self.mode(), self.cas) {
            (None | Some(Mode::Store(Verb::Set | Verb::Replace)), Some(_)) => Verb::Cas,
            (Some(Mode::Store(verb)), _) => verb,
            _ => Verb::Set,
        }
    }

    /// Returns whether `ma` adds.
    pub(crate) fn up(&self) -> bool {
        !matches!(self.mode(), Some(Mode::Count { up: false }))
    }
}
