//! The configuration: a file (TOML), the environment and the flags, which are one set of settings
//! under the same names.
//!
//! What the file says at its top is what flags say: each key is a flag's name, each value is read
//! by that flag's own parser. So the file needs no second list of settings: it becomes arguments in
//! front of those of the command line ([`arguments`]), and the parser of the flags sees no
//! difference. For each setting the command line goes before the environment, and that before the
//! file. Paths in the file are meant from the file's directory.
//!
//! What flags cannot say are tables, `[[site]]` and `[[rule]]` (`config`). They are read when the
//! server starts, and again when it reloads.
//!
//! Rejected: a second set of structures by `serde` for the flags' settings. It would say every
//! default, bound and conflict twice.

mod gathered; // Settings of the file and of the environment become arguments.
mod schema; // `--print-schema`: the JSON schema of the file.
mod shown; // `--print-config`: each setting, its value and where that comes from.

use std::ffi::OsString;

use anyhow::Context;
use clap::FromArgMatches;

use super::flags::Flags;
pub(super) use gathered::Gathered;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use gathered::read_text;
use gathered::{SUBCOMMAND, command, first_line};
pub(super) use schema::schema;
pub(super) use shown::shown;

/// The arguments of a program that has `web`, with what its file and its environment add.
#[derive(Debug)]
pub struct Arguments {
    /// To be parsed.
    pub all: Vec<OsString>,
    /// For [`run`](super::run).
    pub settings: GivenSettings,
}

/// Settings, and where they come from.
#[derive(Debug, Default)]
pub struct GivenSettings(pub(super) Option<Gathered>);

/// Returns the program's arguments with those that the file and the environment add, if they are
/// for `web`.
///
/// # Errors
/// The file cannot be read or has a mistake, whose line and column are named; a variable names no
/// setting.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> anyhow::Result<Arguments> {
    let mut all: Vec<_> = given.into_iter().collect();
    let Some(own) = own(&all) else {
        let settings = GivenSettings::default();
        return Ok(Arguments { all, settings });
    };

    let gathered = Gathered::of(&all[own..])?;
    all.splice(own.., gathered.arguments.clone());
    let settings = GivenSettings(Some(gathered));
    Ok(Arguments { all, settings })
}

/// Returns where the arguments of `web` begin: behind its name, which is the first.
fn own(given: &[OsString]) -> Option<usize> {
    (given.get(1)? == SUBCOMMAND).then_some(2)
}

/// Returns what this program was started with, as its file and the environment are now.
///
/// # Errors
/// As [`arguments`]; and if the flags refuse what they say together.
pub(super) fn reread() -> anyhow::Result<(Gathered, Flags)> {
    let given: Vec<_> = std::env::args_os().collect();
    let own = own(&given).context("the program was not started by 'plainweave web'")?;
    let gathered = Gathered::of(&given[own..])?;
    let parsed = command()
        .try_get_matches_from(&gathered.arguments)
        .and_then(|mut matches| Flags::from_arg_matches_mut(&mut matches));
    let flags = parsed.map_err(|error| anyhow::Error::msg(first_line(&error)))?;
    Ok((gathered, flags))
}
