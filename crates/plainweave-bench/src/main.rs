//! `plainweave-bench`: runs the experiments, prints a table, writes a CSV and an HTML report.
//!
//! Exit codes: 0 fine, 1 a benchmark did not do its work or could not run, 2 wrong usage, 130 and
//! 143 ended by SIGINT and SIGTERM.

mod harness; // What every experiment needs: figures and where they go, children, the machine.
mod pages; // `plainweave bench report`, and a trace as a picture.
mod scheduler; // The experiments on schedulers.
mod servers; // The experiments on servers.
mod serving; // Web and cache servers, ours and their peers, as processes, and what loads them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use harness::{interrupt, quick, report};
use pages::{readme, seeds, trace_svg};
use scheduler::{compose, micro, predict, queues, storm, thesis};
use servers::web_sweep::control;
use servers::{
    cache, cache_sweep, echo, fairness, files, http, load, shapes, stall, std_io, store, web,
    web_sweep,
};
use serving::{hooked, limit};

/// Benchmarks of Plainweave beside its peers.
#[derive(Debug, Parser)]
#[command(name = "plainweave-bench", version, arg_required_else_help = true)]
struct Cli {
    /// Answer within about five minutes: fewer cases, rounds and sizes, where no flags say otherwise
    #[arg(long, global = true)]
    quick: bool,

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
    /// Packets, as the OCaml schedulers' thesis has them: one fiber each, spawned without a pause
    Packets(thesis::Flags<thesis::Packets>),
    /// The thesis's chains of tasks that read a packet: is it still in the cache?
    CacheEffects(thesis::Flags<thesis::CacheEffects>),
    /// The thesis's chains of tasks, few of which sleep for long
    Bimodal(thesis::Flags<thesis::Bimodal>),
    /// The thesis's audio mixer: fibers that yield until their time, and sends that are late
    Mixer(thesis::Flags<thesis::Mixer>),
    /// The thesis's binomial options: a task for each time step
    Options(thesis::Flags<thesis::OptionPricing>),
    /// The thesis's Fibonacci numbers: spawn and join
    Fib(thesis::Flags<thesis::Fib>),
    /// Stages with a pool each against stealing, at loads below and above the capacity
    OverloadStages(thesis::Flags<thesis::OverloadStages>),
    /// How fast one fiber creates others, and how long they take to end
    Creation(thesis::Flags<thesis::Creation>),
    #[command(hide = true)]
    ThesisChild(thesis::ChildFlags),
    Storm(storm::Flags),
    #[command(hide = true)]
    StormChild(storm::ChildFlags),
    Predict(predict::Flags),
    Cache(cache::Flags),
    CacheSweep(cache_sweep::Flags),
    StdIo(std_io::Flags),
    Store(store::Flags),
    Web(web::Flags),
    WebSweep(web_sweep::Flags),
    #[command(hide = true)]
    WebControl(control::Flags),
    Files(files::Flags),
    Load(load::Flags),
    TraceSvg(trace_svg::Flags),
    Seeds(seeds::Flags),
    Readme(readme::Flags),
    Report(pages::Flags),
    #[command(hide = true)]
    FilesChild(files::ChildFlags),
    #[command(hide = true)]
    EchoServer(echo::ServerFlags),
    Http(http::Flags),
    Hello(http::HelloFlags),
    #[command(hide = true)]
    HttpServer(http::ServerFlags),
    Serve(hooked::Flags),
    #[command(hide = true)]
    Limit(limit::Flags),
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(quick::expand(std::env::args_os().collect()));
    // Of the seeds each experiment has a quick form of its own.
    if cli.quick && !matches!(cli.experiment, Experiment::Seeds(_)) {
        report::note("plainweave-bench: --quick is for single experiments, and for seeds");
        return ExitCode::from(2);
    }

    let done = match cli.experiment {
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
        Experiment::Packets(flags) => thesis::run(&flags),
        Experiment::CacheEffects(flags) => thesis::run(&flags),
        Experiment::Bimodal(flags) => thesis::run(&flags),
        Experiment::Mixer(flags) => thesis::run(&flags),
        Experiment::Options(flags) => thesis::run(&flags),
        Experiment::Fib(flags) => thesis::run(&flags),
        Experiment::OverloadStages(flags) => thesis::run(&flags),
        Experiment::Creation(flags) => thesis::run(&flags),
        Experiment::ThesisChild(flags) => thesis::run_child(&flags),
        Experiment::Storm(flags) => storm::run(&flags),
        Experiment::StormChild(flags) => storm::run_child(&flags),
        Experiment::Predict(flags) => predict::run(&flags),
        Experiment::Cache(flags) => cache::run(&flags),
        Experiment::CacheSweep(flags) => cache_sweep::run(&flags),
        Experiment::StdIo(flags) => std_io::run(&flags),
        Experiment::Store(flags) => store::run(&flags),
        Experiment::Web(flags) => web::run(&flags),
        Experiment::WebSweep(flags) => web_sweep::run(&flags),
        Experiment::WebControl(flags) => control::serve(&flags),
        Experiment::Files(flags) => files::run(&flags),
        Experiment::Load(flags) => load::run(&flags),
        Experiment::TraceSvg(flags) => trace_svg::run(&flags),
        Experiment::Readme(flags) => readme::run(&flags),
        Experiment::Seeds(flags) => seeds::run(&flags, cli.quick),
        Experiment::Report(flags) => pages::run(&flags),
        Experiment::FilesChild(flags) => files::run_child(&flags),
        Experiment::EchoServer(flags) => echo::serve(&flags),
        Experiment::Http(flags) => http::run(&flags),
        Experiment::Hello(flags) => http::run_hello(&flags),
        Experiment::HttpServer(flags) => http::serve(&flags),
        Experiment::Serve(flags) => hooked::serve(&flags),
        Experiment::Limit(flags) => limit::run(&flags),
    };

    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::note(&format!("plainweave-bench: {}", report::told(&error)));
            interrupt::came().map_or(ExitCode::FAILURE, |signal| ExitCode::from(128 + signal))
        }
    }
}
