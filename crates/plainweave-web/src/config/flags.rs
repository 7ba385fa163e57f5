//! The flags of the configuration itself.

use std::path::PathBuf;

use clap::Args;

/// Where the configuration is, and what to do with it but serve.
#[derive(Args, Debug)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct ConfigFlags {
    /// File with settings under the names of these flags, and with sites and rules (TOML); HUP
    /// reloads it. Each setting may also stand in the environment: PLAINWEAVE_WEB_ACCESS_LOG for
    /// --access-log
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Take up changes of the file as HUP does, within a second or two
    #[arg(long, requires = "config")]
    pub(crate) watch_config: bool,

    /// Check the configuration and what it names, and end
    #[arg(long)]
    pub(crate) check: bool,

    /// Print each setting, where its value comes from, and what it means, and end
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_config: bool,

    /// Print the JSON schema of such a file, for editors, and end
    #[arg(long, conflicts_with_all = ["check", "print_config"])]
    pub(crate) print_schema: bool,
}
