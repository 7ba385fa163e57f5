//! The parameters of work stealing, typed and as text.

use super::order::Ends;
use super::overflow::WhenFull;
use super::victim::{Amount, Victim};
use super::{SlotFor, SlotParams};
use crate::policy::settings::{Key, Settings, key, number, with, word};
use crate::policy::{Conservation, WorkStealingParams};

/// Where tasks go that yield and do not ask for a place themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yields {
    /// They stay with their worker (a soft yield).
    Local,
    /// The shared queue, unless they are pinned or there is one worker (a hard yield).
    Shared,
    /// Each takes the place of a random other task of its worker, pinned or not as itself, which
    /// runs next. A negative control, for experiments: how long a task waits is up to chance.
    Swap,
}

/// What the shared queues are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// Each behind a lock.
    Locked,
    /// Each a lock-free ring; what finds it full, and batches, go behind a lock.
    Mpmc,
}

/// What distinguishes stealing policies with the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StealingParams {
    /// From which end a worker takes; used by [`Deque`](super::Deque).
    pub ends: Ends,
    /// Used by [`Slot`](super::Slot).
    pub slot: SlotParams,
    /// Tasks that a worker holds for thieves to find, at most 32,768; rounded up to a power of two.
    pub capacity: usize,
    /// How many pops it takes until the shared queue comes first, at least 1.
    pub poll: u32,
    /// Whom to steal from.
    pub victim: Victim,
    /// How much to take.
    pub amount: Amount,
    /// What to do without room.
    pub full: WhenFull,
    /// Attempts to find room before that.
    pub spin: u32,
    /// How many tasks of its own a worker shows to thieves at a time, at least 1: used by
    /// [`Batches`](super::Batches).
    pub publish: usize,
    /// Shared queues, at least 1.
    pub shards: usize,
    /// What they are.
    pub shared: Shards,
    /// Where tasks go that yield and do not ask for a place themselves.
    pub yields: Yields,
}

impl Default for StealingParams {
    /// What [`WorkStealing`](crate::policy::WorkStealing) does.
    fn default() -> Self {
        let WorkStealingParams { capacity, poll } = WorkStealingParams::default();
        Self {
            capacity,
            poll,
            ends: Ends::Fifo,
            slot: SlotParams {
                in_a_row: 0,
                takes: SlotFor::Woken,
                stealable: true,
            },
            victim: Victim::Uniform,
            amount: Amount::Half,
            full: WhenFull::Spill,
            spin: 0,
            publish: 1,
            shards: 1,
            shared: Shards::Mpmc,
            yields: Yields::Local,
        }
    }
}

impl Settings for StealingParams {
    const KEYS: &'static [Key] = &[
        key(
            "order",
            "fifo|lifo|stochastic:P|alternate:N|reverse:N",
            "from which end a worker takes; P in percent",
        ),
        key(
            "slot",
            "0..1000000",
            "times in a row that what became ready last goes first; 0: no slot",
        ),
        key(
            "slot-for",
            "woken|all",
            "what goes there: what was woken, or new tasks too",
        ),
        key("slot-steal", "yes|no", "whether thieves may empty it"),
        key(
            "capacity",
            "1..32768",
            "tasks that a worker holds, rounded up to a power of two",
        ),
        key(
            "poll",
            "1..65535",
            "pops until the shared queue comes first",
        ),
        key(
            "victim",
            "uniform|near:K|only:K|group|biased",
            "whom an idle worker steals from",
        ),
        key(
            "amount",
            "half|one|atleast:N|passover:N:P",
            "how much it takes; P in percent",
        ),
        key(
            "full",
            "spill|spin|grow|horizontal|overflow[:P]|request|sticky|announce",
            "what to do without room; P in percent",
        ),
        key("spin", "0..1000000", "attempts to find room before that"),
        key(
            "publish",
            "1..1024",
            "tasks that a worker hides from thieves until there are that many",
        ),
        key("shards", "1..256", "shared queues"),
        key(
            "shared",
            "mpmc|locked",
            "what they are: lock-free with a lock behind, or locked",
        ),
        key("yields", "local|shared|swap", "where tasks that yield go"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "order" => self.ends = ends(value)?,
            "slot" => self.slot.in_a_row = number(value, 0..=1_000_000)?,
            "slot-for" => {
                self.slot.takes = word(value, &[("woken", SlotFor::Woken), ("all", SlotFor::All)])?
            }
            "slot-steal" => self.slot.stealable = word(value, &[("yes", true), ("no", false)])?,
            "capacity" => self.capacity = number(value, 1..=32_768)?,
            "poll" => self.poll = number(value, 1..=65_535)?,
            "victim" => self.victim = victim(value)?,
            "amount" => self.amount = amount(value)?,
            "full" => self.full = full(value)?,
            "spin" => self.spin = number(value, 0..=1_000_000)?,
            "publish" => self.publish = number(value, 1..=1024)?,
            "shards" => self.shards = number(value, 1..=256)?,
            "shared" => {
                self.shared = word(value, &[("mpmc", Shards::Mpmc), ("locked", Shards::Locked)])?
            }
            _ => self.yields = yields(value)?,
        }
        Some(())
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.slot.in_a_row > 0 && !self.fits_ring() {
            return Err(
                "a slot goes with order=fifo and a bounded structure: set slot=0, or change order, full and yields",
            );
        }
        if self.publish > 1 && (self.slot.in_a_row > 0 || !self.fits_ring()) {
            return Err(
                "publish goes with order=fifo, a bounded structure and no slot: set publish=1, or change the others",
            );
        }
        if self.full == WhenFull::Horizontal && matches!(self.ends, Ends::Reverse { .. }) {
            return Err(
                "full=horizontal has two structures, which order=reverse cannot turn round: change one of them",
            );
        }
        if self.yields == Yields::Swap
            && (self.ends != Ends::Fifo || self.full == WhenFull::Horizontal)
        {
            return Err(
                "yields=swap goes with order=fifo and one structure: change yields, or order and full",
            );
        }
        Ok(())
    }
}

impl StealingParams {
    /// Returns what a search may pass over, and whether some tasks are where no search looks.
    pub(in crate::policy) fn conservation(&self) -> Conservation {
        let closed_slot = self.slot.in_a_row > 0 && !self.slot.stealable;
        if closed_slot || self.publish > 1 || matches!(self.victim, Victim::Only { .. }) {
            return Conservation::Never;
        }
        let looks_everywhere = matches!(self.victim, Victim::Uniform | Victim::Group);

        let passes_over = matches!(self.amount, Amount::PassOver { .. });
        if looks_everywhere && !passes_over {
            Conservation::Always
        } else {
            Conservation::AfterSearches
        }
    }

    /// Returns whether a bounded ring does what they say; else it takes a [`Deque`](super::Deque).
    pub(in crate::policy) fn fits_ring(&self) -> bool {
        let bounded = !matches!(self.full, WhenFull::Grow | WhenFull::Horizontal);
        self.ends == Ends::Fifo && bounded && self.yields != Yields::Swap
    }
}

fn yields(text: &str) -> Option<Yields> {
    word(
        text,
        &[
            ("local", Yields::Local),
            ("shared", Yields::Shared),
            ("swap", Yields::Swap),
        ],
    )
}

fn ends(text: &str) -> Option<Ends> {
    word(text, &[("fifo", Ends::Fifo), ("lifo", Ends::Lifo)])
        .or_else(|| with(text, "stochastic", 0..=100).map(|percent| Ends::Stochastic { percent }))
        .or_else(|| with(text, "alternate", 1..=65_535).map(|n| Ends::Alternate { n }))
        .or_else(|| with(text, "reverse", 1..=65_535).map(|n| Ends::Reverse { n }))
}

fn victim(text: &str) -> Option<Victim> {
    let words = [
        ("uniform", Victim::Uniform),
        ("group", Victim::Group),
        ("biased", Victim::Biased),
    ];
    word(text, &words)
        .or_else(|| with(text, "near", 1..=1024).map(|k| Victim::Nearest { k }))
        .or_else(|| with(text, "only", 1..=1024).map(|k| Victim::Only { k }))
}

fn amount(text: &str) -> Option<Amount> {
    let words = [("half", Amount::Half), ("one", Amount::One)];
    let pass_over = || {
        let (text, percent) = text.rsplit_once(':')?;
        let percent = number(percent, 0..=100)?;
        with(text, "passover", 1..=32_768).map(|n| Amount::PassOver { n, percent })
    };

    word(text, &words)
        .or_else(|| with(text, "atleast", 1..=32_768).map(|n| Amount::AtLeast { n }))
        .or_else(pass_over)
}

fn full(text: &str) -> Option<WhenFull> {
    let words = [
        ("spill", WhenFull::Spill),
        ("spin", WhenFull::Spin),
        ("grow", WhenFull::Grow),
        ("horizontal", WhenFull::Horizontal),
        ("overflow", WhenFull::Overflow { early: 0 }),
        ("request", WhenFull::Request { sticky: false }),
        ("sticky", WhenFull::Request { sticky: true }),
        ("announce", WhenFull::Announce),
    ];
    word(text, &words)
        .or_else(|| with(text, "overflow", 0..=100).map(|early| WhenFull::Overflow { early }))
}
