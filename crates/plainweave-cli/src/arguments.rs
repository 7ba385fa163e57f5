//! The arguments of the program: a subcommand and its flags.

use clap::{Parser, Subcommand};

use plainweave_cache as cache;
use plainweave_load as load;
use plainweave_web as web;

use crate::{bench, generated, policies, sim};

/// Servers on user-level threads.
#[derive(Debug, Parser)]
#[command(name = "plainweave", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Web(Box<web::Flags>),
    Cache(Box<cache::Flags>),
    Load(load::Flags),
    Policies(policies::Flags),
    Bench(bench::Flags),
    Sim(sim::Flags),
    Generate(generated::Flags),
}
