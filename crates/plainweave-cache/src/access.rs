//! The flags that say who may use the cache, and in which language.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};

use super::proto::Protocol;
use super::users::Users;

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Clients")]
pub(super) struct Access {
    /// Who may use the cache: a file of NAME:PASSWORD, one to a line; clients send "set ANY 0 0 LEN"
    /// with "NAME PASSWORD" as the value, or SASL PLAIN. An address that is wrong ten times has to
    /// wait. SIGHUP has the file read again, for clients to come
    #[arg(short = 'Y', long, value_name = "FILE")]
    auth_file: Option<PathBuf>,

    /// Only SASL PLAIN, in the binary protocol; without -Y the file is what the environment's
    /// MEMCACHED_SASL_PWDB names
    #[arg(short = 'S', long)]
    enable_sasl: bool,

    /// Protocol: ascii, binary, or auto, which takes either by its first byte [default: auto, or
    /// binary with -S]
    #[arg(short = 'B', long, value_name = "NAME")]
    protocol: Option<Spoken>,
}

/// What clients may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Spoken {
    Auto,
    Ascii,
    Binary,
}

impl Access {
    /// Returns the only protocol, if there is one.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        match self.protocol {
            Some(Spoken::Binary) => Some(Protocol::Binary),
            Some(Spoken::Ascii) => Some(Protocol::Text),
            None if self.enable_sasl => Some(Protocol::Binary),
            None | Some(Spoken::Auto) => None,
        }
    }

    /// Reads who may use it, if not everybody may.
    pub(super) fn users(&self) -> anyhow::Result<Option<Users>> {
        ensure!(
            !self.enable_sasl || self.protocol() == Some(Protocol::Binary),
            "-S is for the binary protocol: leave -B out, or -S, for -Y is for both protocols"
        );
        let named = || std::env::var_os("MEMCACHED_SASL_PWDB").filter(|name| !name.is_empty());
        let file = match &self.auth_file {
            None if self.enable_sasl => PathBuf::from(named().context(
                "-S needs to know who may use the cache: name a file of NAME:PASSWORD with -Y",
            )?),
            None => return Ok(None),
            Some(file) => file.clone(),
        };
        Users::load(&file).map(Some)
    }
}
