//! From a name to a type: the policies that have a name, their parameters as text, and the one
//! `match` on their types.
//!
//! A preset is a row of a table: a family of policies, and how it differs from the family's
//! defaults. So a published combination costs no code, and a user may change every parameter of the
//! family.
//!
//! One family has two implementations. `stealing` with its defaults is [`WorkStealing`], a file of
//! its own, whatever its capacity and poll interval; any other parameter selects one of the types
//! of [`thesis`](super::thesis), which can do it too. So `fifo` runs the simple code, and
//! `fifo:victim=near:2` works.

use std::fmt;

use super::deadline::DeadlineParams;
use super::helping_params::HelpingParams;
use super::multi_queue::MultiQueueParams;
use super::priority::PriorityParams;
use super::settings::{self, Key, Settings};
use super::thesis::{
    self, Fifo, InBatches, LifoSlot, Ordered, StealingParams, Victim, WhenFull, Yields,
};
use super::{
    Edf, GlobalFifo, Helping, Local, LocalParams, MultiQueue, Policy, Priority, Shares, Task,
    WorkStealing, WorkStealingParams,
};

/// A policy that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name to choose it by.
    pub name: &'static str,
    /// The family it belongs to: which types of policy, which parameters.
    pub family: FamilyName,
    /// How it differs from the family's defaults, as it would be written after the name.
    pub settings: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What speaks for it and what against it.
    pub tradeoff: &'static str,
    /// Whether every ready task runs after a bounded number of pops by workers that may take it,
    /// whatever others do.
    pub bounded: bool,
}

/// The policies that can be chosen by name; the first is the default.
pub const PRESETS: &[Preset] = &table();

const DEFAULT: Preset = row(
    "fifo",
    FamilyName::Stealing,
    "",
    true,
    "Go and Tokio without their slots",
    "fair, good at the tail; woken tasks are cold",
);

/// Those of other families than `stealing`.
const OTHERS: &[Preset] = &[
    row(
        "global-fifo",
        FamilyName::Global,
        "",
        true,
        "Linux before 2.6, Go before 1.1",
        "the fairest; one queue's lines for all",
    ),
    row(
        "local-fifo",
        FamilyName::Local,
        "",
        true,
        "an event loop per core",
        "nothing shared; nobody helps a busy worker",
    ),
    row(
        "local-lifo",
        FamilyName::Local,
        "order=lifo",
        false,
        "an event loop per core",
        "warm data; nobody helps, the oldest may wait for ever",
    ),
    row(
        "local-deal",
        FamilyName::Local,
        "place=deal",
        true,
        "an event loop per core, with connections dealt in turn",
        "even numbers, not even work",
    ),
    row(
        "multi-queue",
        FamilyName::MultiQueue,
        "",
        false,
        "Rihani, Sanders, Dementiev 2015; early CFA: 4 lanes, 3/4 own, 25 draws",
        "nobody holds tasks back; waits are short by chance only",
    ),
    row(
        "helping",
        FamilyName::Helping,
        "",
        false,
        "CFA, late, but helped at twice the age: newest weighs 12/16 of log2",
        "late tasks are helped by busy workers; locks and draws at each pop",
    ),
    row(
        "helping-late",
        FamilyName::Helping,
        "factor=8",
        false,
        "CFA, late: factor 8, newest weighs 12/16 of log2",
        "moves less, helps later",
    ),
    row(
        "helping-early",
        FamilyName::Helping,
        "factor=1.5,average=linear:4",
        false,
        "CFA, early: factor 1.5, newest weighs 4/16",
        "helps sooner, moves more",
    ),
    row(
        "helping-bounded",
        FamilyName::Helping,
        "every=13",
        true,
        "ours: every 13th pop visits the next lane",
        "a hard bound for every lane; a look at a foreign line every 13 pops",
    ),
    row(
        "priority",
        FamilyName::Priority,
        "",
        true,
        "delay-dependent priority, Kleinrock 1964",
        "urgent work overtakes, waiting makes urgent; one lock",
    ),
    row(
        "edf",
        FamilyName::Deadline,
        "",
        true,
        "Liu and Layland 1973",
        "optimal until overload, then nearly everything is late; one lock",
    ),
    row(
        "shares",
        FamilyName::Shares,
        "",
        true,
        "stride scheduling, Waldspurger and Weihl 1995",
        "runs in proportion to weights; a run counts one, however long; one lock",
    ),
];

const fn table() -> [Preset; 1 + thesis::ROWS.len() + OTHERS.len()] {
    let mut all = [DEFAULT; 1 + thesis::ROWS.len() + OTHERS.len()];
    let mut i = 1;
    while i < all.len() {
        let family = i - 1;
        all[i] = if family < thesis::ROWS.len() {
            thesis::ROWS[family]
        } else {
            OTHERS[family - thesis::ROWS.len()]
        };
        i += 1;
    }

    all
}

pub(super) const fn row(
    name: &'static str,
    family: FamilyName,
    settings: &'static str,
    bounded: bool,
    source: &'static str,
    tradeoff: &'static str,
) -> Preset {
    Preset {
        name,
        family,
        settings,
        source,
        tradeoff,
        bounded,
    }
}

/// A family of policies, without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FamilyName {
    /// [`GlobalFifo`].
    Global,
    /// [`Local`].
    Local,
    /// [`MultiQueue`].
    MultiQueue,
    /// [`Helping`].
    Helping,
    /// [`Priority`].
    Priority,
    /// [`Edf`].
    Deadline,
    /// [`Shares`].
    Shares,
    /// [`WorkStealing`], and all that work stealing with other parameters is.
    Stealing,
}

impl FamilyName {
    /// Returns the name in texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Local => "local",
            Self::MultiQueue => "multi-queue",
            Self::Helping => "helping",
            Self::Priority => "priority",
            Self::Deadline => "deadline",
            Self::Shares => "shares",
            Self::Stealing => "stealing",
        }
    }
}

impl fmt::Display for FamilyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A family with its parameters, as chosen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Family {
    /// [`GlobalFifo`].
    Global,
    /// [`Local`].
    Local(LocalParams),
    /// [`MultiQueue`].
    MultiQueue(MultiQueueParams),
    /// [`Helping`].
    Helping(HelpingParams),
    /// [`Priority`].
    Priority(PriorityParams),
    /// [`Edf`].
    Deadline(DeadlineParams),
    /// [`Shares`].
    Shares,
    /// [`WorkStealing`]: the family `stealing` with its defaults, but for these parameters.
    WorkStealing(WorkStealingParams),
    /// [`Fifo`], [`LifoSlot`], [`InBatches`] or [`Ordered`], depending on the parameters.
    Stealing(StealingParams),
}

impl From<StealingParams> for Family {
    fn from(params: StealingParams) -> Self {
        let simple = WorkStealingParams {
            capacity: params.capacity,
            poll: params.poll,
        };

        let same = StealingParams {
            capacity: simple.capacity,
            poll: simple.poll,
            ..StealingParams::default()
        };

        if params == same {
            Self::WorkStealing(simple)
        } else {
            Self::Stealing(params)
        }
    }
}

/// A policy, chosen by name and perhaps changed: what [`PRESETS`] and parameters came to.
#[derive(Clone, Debug)]
pub struct Choice {
    preset: &'static Preset,
    family: Family,
}

/// Whether workers may sleep beside tasks that they could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conservation {
    /// Never: a search finds whatever any worker may take.
    Always,
    /// After a search in vain: that one passes some workers over, the next one looks everywhere.
    AfterSearches,
    /// They may: some tasks wait for one worker, however idle the others are.
    Never,
}

/// Code that needs the type that belongs to a [`Choice`].
pub trait Visitor<T: Task> {
    /// What [`Choice::visit`] returns.
    type Output;

    /// Called once, with the type and its parameters.
    fn visit<P: Policy<T>>(self, params: P::Params) -> Self::Output;
}

impl Preset {
    /// Returns its parameters, which are its family's.
    #[must_use]
    pub fn keys(&self) -> &'static [Key] {
        match self.family {
            FamilyName::Local => LocalParams::KEYS,
            FamilyName::Stealing => StealingParams::KEYS,
            FamilyName::MultiQueue => MultiQueueParams::KEYS,
            FamilyName::Helping => HelpingParams::KEYS,
            FamilyName::Priority => PriorityParams::KEYS,
            FamilyName::Deadline => DeadlineParams::KEYS,
            FamilyName::Global | FamilyName::Shares => <() as Settings>::KEYS,
        }
    }

    fn with(&self, changes: &str) -> Result<Family, String> {
        match self.family {
            FamilyName::Local => self.set(changes).map(Family::Local),
            FamilyName::Stealing => self.set::<StealingParams>(changes).map(Family::from),
            FamilyName::MultiQueue => self.set(changes).map(Family::MultiQueue),
            FamilyName::Helping => self.set(changes).map(Family::Helping),
            FamilyName::Priority => self.set(changes).map(Family::Priority),
            FamilyName::Deadline => self.set(changes).map(Family::Deadline),
            FamilyName::Shares => self.set(changes).map(|()| Family::Shares),
            FamilyName::Global => self.set(changes).map(|()| Family::Global),
        }
    }

    fn set<S: Settings + Default>(&self, changes: &str) -> Result<S, String> {
        let mut params = S::default();
        settings::apply(&mut params, self.name, self.settings)?;
        settings::apply(&mut params, self.name, changes)?;
        Ok(params)
    }
}

impl Choice {
    /// `NAME` or `NAME:param=value,...`.
    ///
    /// # Errors
    /// A message that names what is wrong and what is valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, changes) = text.split_once(':').unwrap_or((text, ""));
        let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) else {
            let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
            return Err(format!(
                "no scheduling policy is called '{name}'; there are: {}",
                names.join(", ")
            ));
        };
        Ok(Self {
            preset,
            family: preset.with(changes)?,
        })
    }

    /// The preset it began with.
    #[must_use]
    pub fn preset(&self) -> &'static Preset {
        self.preset
    }

    /// The family and all parameters.
    #[must_use]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Returns what it promises about ready tasks that wait beside a worker without work. The
    /// simulator holds it to that.
    #[must_use]
    pub fn conservation(&self) -> Conservation {
        match &self.family {
            Family::Local(_) => Conservation::Never,
            Family::Stealing(params) => params.conservation(),
            _ => Conservation::Always,
        }
    }

    /// Returns why it is for experiments only, if it is.
    #[must_use]
    pub fn experiment(&self) -> Option<&'static str> {
        match &self.family {
            Family::Stealing(params) if params.full == WhenFull::Spin => {
                Some("a full queue makes a worker spin without end")
            }
            Family::Stealing(params) if params.yields == Yields::Swap => {
                Some("a fiber that yields changes places with a random other one")
            }
            Family::Stealing(params) if matches!(params.victim, Victim::Only { .. }) => {
                Some("a worker beside tasks out of its reach searches without end")
            }
            _ => None,
        }
    }

    /// Hands the type that was chosen to `visitor`.
    pub fn visit<T: Task + 'static, V: Visitor<T>>(&self, visitor: V) -> V::Output {
        match self.family.clone() {
            Family::Global => visitor.visit::<GlobalFifo<T>>(()),
            Family::Local(params) => visitor.visit::<Local<T>>(params),
            Family::MultiQueue(params) => visitor.visit::<MultiQueue<T>>(params),
            Family::Helping(params) => visitor.visit::<Helping<T>>(params),
            Family::Priority(params) => visitor.visit::<Priority<T>>(params),
            Family::Deadline(params) => visitor.visit::<Edf<T>>(params),
            Family::Shares => visitor.visit::<Shares<T>>(()),
            Family::WorkStealing(params) => visitor.visit::<WorkStealing<T>>(params),
            Family::Stealing(params) if params.slot.in_a_row > 0 => {
                visitor.visit::<LifoSlot<T>>(params)
            }
            Family::Stealing(params) if params.publish > 1 => visitor.visit::<InBatches<T>>(params),
            Family::Stealing(params) if params.fits_ring() => visitor.visit::<Fifo<T>>(params),
            Family::Stealing(params) => visitor.visit::<Ordered<T>>(params),
        }
    }
}
