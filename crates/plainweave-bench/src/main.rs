//! `plainweave-bench`: runs the experiments, prints a table, writes a CSV and an HTML report.
//!
//! Exit codes: 0 fine, 1 a benchmark did not do its work or could not run, 2 wrong usage.

mod c2c;
mod cache;
mod cache_sweep;
mod cgroup;
mod child;
mod compose;
mod echo;
mod fairness;
mod files;
mod http;
mod limit;
mod line_plot;
mod machine;
mod micro;
mod mode;
mod names;
mod program;
mod queues;
mod report;
mod sample;
mod scatter;
mod serving;
mod shapes;
mod stall;
mod store;
mod storm;
mod trace_svg;
mod web;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Benchmarks of Plainweave beside its peers.
#[derive(Debug, Parser)]
#[command(name = "plainweave-bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Micro(Box<micro::Flags>),
    #[command(hide = true)]
    MicroChild(micro::ChildFlags),
    Queues(queues::Flags),
    #[command(hide = true)]
    QueuesChild(queues::ChildFlags),
    Echo(echo::Flags),
    Fairness(fairness::Flags),
    Shapes(shapes::Flags),
    Stall(stall::Flags),
    Compose(compose::Flags),
    #[command(hide = true)]
    ComposeChild(compose::ChildFlags),
    Storm(storm::Flags),
    #[command(hide = true)]
    StormChild(storm::ChildFlags),
    Cache(cache::Flags),
    CacheSweep(cache_sweep::Flags),
    Store(store::Flags),
    Web(web::Flags),
    Files(files::Flags),
    TraceSvg(trace_svg::Flags),
    #[command(hide = true)]
    FilesChild(files::ChildFlags),
    #[command(hide = true)]
    EchoServer(echo::ServerFlags),
    Http(http::Flags),
    Hello(http::HelloFlags),
    #[command(hide = true)]
    HttpServer(http::ServerFlags),
    #[command(hide = true)]
    Limit(limit::Flags),
}

fn main() -> ExitCode {
    let done = match Cli::parse().experiment {
        Experiment::Micro(flags) => micro::run(&flags),
        Experiment::MicroChild(flags) => micro::run_child(&flags),
        Experiment::Queues(flags) => queues::run(&flags),
        Experiment::QueuesChild(flags) => queues::run_child(&flags),
        Experiment::Echo(flags) => echo::run(&flags),
        Experiment::Fairness(flags) => fairness::run(&flags),
        Experiment::Shapes(flags) => shapes::run(&flags),
        Experiment::Stall(flags) => stall::run(&flags),
        Experiment::Compose(flags) => compose::run(&flags),
        Experiment::ComposeChild(flags) => compose::run_child(&flags),
        Experiment::Storm(flags) => storm::run(&flags),
        Experiment::StormChild(flags) => storm::run_child(&flags),
        Experiment::Cache(flags) => cache::run(&flags),
        Experiment::CacheSweep(flags) => cache_sweep::run(&flags),
        Experiment::Store(flags) => store::run(&flags),
        Experiment::Web(flags) => web::run(&flags),
        Experiment::Files(flags) => files::run(&flags),
        Experiment::TraceSvg(flags) => trace_svg::run(&flags),
        Experiment::FilesChild(flags) => files::run_child(&flags),
        Experiment::EchoServer(flags) => echo::serve(&flags),
        Experiment::Http(flags) => http::run(&flags),
        Experiment::Hello(flags) => http::run_hello(&flags),
        Experiment::HttpServer(flags) => http::serve(&flags),
        Experiment::Limit(flags) => limit::run(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::note(&format!("plainweave-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
