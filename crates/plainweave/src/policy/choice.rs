//! From a name to a type: a family of policies with parameters, chosen by text, and the one `match` on it.
//!
//! A preset is a line of the table in `presets`: a family's defaults and what differs. So a published combination costs
//! no code, and what a user may change is what the family's parameters are.

use super::deadline::DeadlineParams;
use super::helping_params::HelpingParams;
use super::multi_queue::MultiQueueParams;
use super::presets::{PRESETS, Preset};
use super::priority::PriorityParams;
use super::settings::{self, Key, Settings};
use super::thesis::{Ends, Fifo, LifoSlot, Ordered, StealingParams, WhenFull};
use super::{Edf, GlobalFifo, Helping, Local, LocalParams, MultiQueue, Policy, Priority, Shares, Task};

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
    /// [`Fifo`], [`LifoSlot`] or [`Ordered`], as the parameters want it.
    Stealing(StealingParams),
}

/// A policy, chosen by name and perhaps changed: what [`PRESETS`] and parameters came to.
#[derive(Clone, Debug)]
pub struct Choice {
    preset: &'static Preset,
    family: Family,
}

/// Somebody who wants the type that belongs to a [`Choice`].
pub trait Visitor<T: Task> {
    /// What comes of it.
    type Output;

    /// Called once, with the type and its parameters.
    fn visit<P: Policy<T>>(self, params: P::Params) -> Self::Output;
}

impl Preset {
    /// The parameters that it has, those of its family.
    #[must_use]
    pub fn keys(&self) -> &'static [Key] {
        match self.family {
            "local" => LocalParams::KEYS,
            "stealing" => StealingParams::KEYS,
            "multi-queue" => MultiQueueParams::KEYS,
            "helping" => HelpingParams::KEYS,
            "priority" => PriorityParams::KEYS,
            "deadline" => DeadlineParams::KEYS,
            _ => <() as Settings>::KEYS,
        }
    }

    fn with(&self, changes: &str) -> Result<Family, String> {
        match self.family {
            "local" => self.set(changes).map(Family::Local),
            "stealing" => self.set(changes).map(Family::Stealing),
            "multi-queue" => self.set(changes).map(Family::MultiQueue),
            "helping" => self.set(changes).map(Family::Helping),
            "priority" => self.set(changes).map(Family::Priority),
            "deadline" => self.set(changes).map(Family::Deadline),
            "shares" => self.set(changes).map(|()| Family::Shares),
            _ => self.set(changes).map(|()| Family::Global),
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
            return Err(format!("no scheduling policy is called '{name}'; there are: {}", names.join(", ")));
        };
        Ok(Self { preset, family: preset.with(changes)? })
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
            Family::Stealing(params) if params.slot.in_a_row > 0 => visitor.visit::<LifoSlot<T>>(params),
            Family::Stealing(params) if params.ends == Ends::Fifo && params.full != WhenFull::Grow => {
                visitor.visit::<Fifo<T>>(params)
            }
            Family::Stealing(params) => visitor.visit::<Ordered<T>>(params),
        }
    }
}
