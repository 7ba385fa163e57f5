//! The file of the configuration: its flags, its tables, and what is wrong with it.

mod flags; // The flags of the configuration itself.
mod mistake; // What is wrong with a file, and where.
mod tables; // The tables of the file: sites and their rules.

pub(super) use flags::ConfigFlags;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use mistake::MistakeAt;
pub(super) use mistake::{Mistake, nearest};
pub(super) use tables::{
    Compress, CorsTable, RuleTable, SiteTable, Tables, Text, Texts, UpstreamTable, beside,
    log_beside,
};
