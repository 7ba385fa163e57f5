//! What a worker records of its work, as two words.
//!
//! ```text
//!   first word:  time << 8 | kind        second word:  fiber << 16 | detail
//!   a piece of a name:  7 bytes of it << 8 | kind,     8 bytes more
//! ```
//!
//! Times are readings of the recorder's clock, modulo 2^56. Who wakes a fiber is not written: it is
//! the fiber that runs on the worker at that time, or the worker itself.

use crate::atomics::event_ring::Words;
use crate::fiber::{Reason, Switch};
use crate::policy::WorkerId;

/// Bits of a time.
pub(crate) const TIME_BITS: u32 = 56;
/// Bytes of a name in one event.
const PIECE: usize = 15;
/// Bytes of a name that are recorded.
pub(crate) const NAME: usize = 4 * PIECE;

const SPAWNED: u8 = 1;
const WOKEN: u8 = 2;
const RUNS: u8 = 3;
const STOPS: u8 = 4;
const STOLE: u8 = 5;
const SLEEPS: u8 = 6;
const AWAKE: u8 = 7;
const THREAD: u8 = 8;
const NAME_BEGINS: u8 = 9;
const NAME_GOES_ON: u8 = 10;

/// Why a fiber has stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Ended,
    Yielded,
    Suspended(Reason),
}

/// Details below that are not reasons.
const FIRST_REASON: u64 = 2;

impl Stop {
    pub(crate) fn new(how: Switch, reason: Reason) -> Self {
        match how {
            Switch::End => Self::Ended,
            Switch::Suspend => Self::Suspended(reason),
            _ => Self::Yielded,
        }
    }

    fn to_detail(self) -> u64 {
        match self {
            Self::Ended => 0,
            Self::Yielded => 1,
            Self::Suspended(reason) => FIRST_REASON + reason as u64,
        }
    }

    fn from_detail(detail: u64) -> Self {
        match detail {
            0 => Self::Ended,
            1 => Self::Yielded,
            other => {
                Self::Suspended(Reason::ALL[(other - FIRST_REASON) as usize % Reason::ALL.len()])
            }
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A fiber was spawned here.
    Spawned {
        fiber: u64,
    },
    /// A fiber that was suspended was made ready here.
    Woken {
        fiber: u64,
    },
    /// The worker runs a fiber.
    Runs {
        fiber: u64,
    },
    Stops {
        fiber: u64,
        why: Stop,
    },
    /// The fiber that runs next, and others, came from another worker's queue.
    Stole {
        victim: WorkerId,
        fibers: u64,
    },
    Sleeps,
    Awake,
    /// Of threads outside the pool: the kernel's number of the one that the next events are of.
    Thread {
        number: u64,
    },
}

impl Event {
    #[inline]
    pub(crate) fn encode(self, time: u64) -> Words {
        let word = |kind: u8, number: u64, detail: u64| {
            [time << 8 | u64::from(kind), number << 16 | detail]
        };
        match self {
            Self::Spawned { fiber } => word(SPAWNED, fiber, 0),
            Self::Woken { fiber } => word(WOKEN, fiber, 0),
            Self::Runs { fiber } => word(RUNS, fiber, 0),
            Self::Stops { fiber, why } => word(STOPS, fiber, why.to_detail()),
            Self::Stole { victim, fibers } => word(STOLE, fibers, victim as u64 & 0xFFFF),
            Self::Sleeps => word(SLEEPS, 0, 0),
            Self::Awake => word(AWAKE, 0, 0),
            Self::Thread { number } => word(THREAD, number, 0),
        }
    }
}

/// What two words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Event {
        time: u64,
        event: Event,
    },
    /// A piece of the name of the fiber that runs next.
    Name {
        begins: bool,
        piece: [u8; PIECE],
    },
}

/// Returns what an event says; `None` if it is none.
pub(crate) fn decode([first, second]: Words) -> Option<Decoded> {
    let time = first >> 8;
    let kind = first as u8;
    let fiber = second >> 16;
    let detail = second & 0xFFFF;
    let event = match kind {
        SPAWNED => Event::Spawned { fiber },
        WOKEN => Event::Woken { fiber },
        RUNS => Event::Runs { fiber },
        STOPS => Event::Stops {
            fiber,
            why: Stop::from_detail(detail),
        },
        STOLE => Event::Stole {
            victim: detail as WorkerId,
            fibers: fiber,
        },
        SLEEPS => Event::Sleeps,
        AWAKE => Event::Awake,
        THREAD => Event::Thread { number: fiber },
        NAME_BEGINS | NAME_GOES_ON => {
            let mut piece = [0; PIECE];
            piece[..7].copy_from_slice(&first.to_le_bytes()[1..]);
            piece[7..].copy_from_slice(&second.to_le_bytes());
            return Some(Decoded::Name {
                begins: kind == NAME_BEGINS,
                piece,
            });
        }
        _ => return None,
    };

    Some(Decoded::Event { time, event })
}

/// Returns a name as events: as much of it as is recorded, in whole characters.
pub(crate) fn pieces(name: &str) -> impl Iterator<Item = Words> {
    let end = (0..=NAME.min(name.len()))
        .rev()
        .find(|end| name.is_char_boundary(*end))
        .unwrap_or(0);
    name.as_bytes()[..end]
        .chunks(PIECE)
        .enumerate()
        .map(|(i, text)| {
            let mut bytes = [0; 16];
            bytes[0] = if i == 0 { NAME_BEGINS } else { NAME_GOES_ON };
            bytes[1..=text.len()].copy_from_slice(text);
            let word =
                |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * i + byte]));
            [word(0), word(1)]
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let time = (1 << TIME_BITS) - 3;
        let fiber = (1 << 48) - 5;
        let stops = Reason::ALL
            .map(Stop::Suspended)
            .into_iter()
            .chain([Stop::Ended, Stop::Yielded]);
        let stops = stops.map(|why| Event::Stops { fiber, why });
        let others = [
            Event::Spawned { fiber },
            Event::Woken { fiber },
            Event::Runs { fiber },
            Event::Stole {
                victim: 1023,
                fibers: 32_768,
            },
            Event::Sleeps,
            Event::Awake,
            Event::Thread { number: 4_194_304 },
        ];

        for event in others.into_iter().chain(stops) {
            assert_eq!(
                decode(event.encode(time)),
                Some(Decoded::Event { time, event })
            );
        }

        assert_eq!(decode([0, 0]), None);
        Reason::ALL
            .into_iter()
            .enumerate()
            .for_each(|(i, reason)| assert_eq!(reason as usize, i));
    }

    #[test]
    fn names_are_cut_between_characters() {
        let read = |name: &str| -> Vec<u8> {
            let mut begins = Vec::new();
            let mut all = Vec::new();
            for words in pieces(name) {
                let Some(Decoded::Name {
                    begins: first,
                    piece,
                }) = decode(words)
                else {
                    panic!("no name")
                };

                begins.push(first);
                all.extend(piece);
            }

            assert_eq!(begins.iter().position(|first| *first), Some(0));
            assert_eq!(begins.iter().filter(|first| **first).count(), 1);
            let end = all
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            all.truncate(end);
            all
        };

        for name in ["x", "fifteen letters", "one more than that", "\u{1}\"\\\n"] {
            assert_eq!(read(name), name.as_bytes());
        }
        let long = "\u{e4}".repeat(100);
        assert_eq!(read(&long), "\u{e4}".repeat(30).as_bytes());
        assert_eq!(
            read(&format!("x{long}")),
            format!("x{}", "\u{e4}".repeat(29)).as_bytes()
        );
    }
}
