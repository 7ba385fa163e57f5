//! What the files of the family find at `crate::policy`.

pub(crate) use plainweave::policy::*;

#[path = "../../src/policy/settings.rs"]
pub(crate) mod settings;
#[path = "../../src/policy/thesis/mod.rs"]
pub(crate) mod thesis;

pub(crate) mod registry {
    pub(crate) use plainweave::policy::{FamilyName, Preset};

    pub(crate) const fn row(
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
}
