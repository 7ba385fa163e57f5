//! A crowd that comes at once, a connection for each request: 10,000 requests, 1,000 at a time, as
//! the published comparison of a web server on fibers with one on threads had it. There each of
//! them left some requests unanswered.

use anyhow::Context;

use super::bench::Bench;
use super::hello;
use super::kind::{BODY, Coding, NO_PROGRAM};
use super::system::{OTHERS, System};
use crate::harness::descriptors;
use crate::harness::report;
use crate::serving::client::{Figures, run_load, to_json};
use crate::serving::process::Process;
use crate::serving::rounds::Costs;
use crate::serving::site::Checker;
use crate::serving::web::plainweave_program;

const CASE: &str = "seed";

/// What a system cost, and what it failed to do, a value a round.
#[derive(Default)]
struct Found {
    costs: Costs,
    failures: Vec<f64>,
    p99: Vec<f64>,
}

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let Some(program) = plainweave_program() else {
        bench.findings.missing(CASE, NO_PROGRAM);
        return Ok(());
    };

    if !descriptors::at_least(bench.sizes.crowd) {
        bench.findings.missing(CASE, descriptors::TOO_FEW);
        return Ok(());
    }

    let servers = hello::start(bench, CASE, Coding::Length)?;
    let json = bench.site.dir().join("seed.json");
    let turn = |bench: &Bench,
                (system, server): &(System, Process),
                found: &mut Found|
     -> anyhow::Result<()> {
        Checker::connect(server.address)?
            .check("/", BODY.as_bytes())
            .context(system.name)?;
        let mut command = std::process::Command::new(&program);
        command.args([
            "load",
            "http",
            &format!("http://{}/", server.address),
            "--no-keep-alive",
            "--workers",
            "1",
        ]);
        command.args([
            "-n",
            &bench.sizes.requests.to_string(),
            "-c",
            &bench.sizes.crowd.to_string(),
            "--io",
            "epoll",
        ]);
        // Failures are a figure here.
        command.args([
            "--max-errors",
            "1",
            "--min-rate",
            "0",
            "--body-length",
            &BODY.len().to_string(),
        ]);
        command.arg(to_json(&json));
        let before = server.cpu_ns()?;
        let figures = run_load(&mut command, &json)?;
        figures.check(system.name)?;
        found.add(&figures, server.cpu_ns()? - before)
    };

    let mut found: Vec<_> = servers.iter().map(|_| Found::default()).collect();
    for round in 0..=bench.runs {
        for (server, found) in servers.iter().zip(&mut found) {
            report::progress(&format!(
                "{}: {CASE}, round {round} of {}, {}",
                bench.findings.origin().name(),
                bench.runs,
                server.0.name
            ));
            // The first round warms up.
            let mut warm_up = Found::default();
            turn(bench, server, if round > 0 { found } else { &mut warm_up })?;
        }
    }

    let costs: Vec<_> = servers
        .iter()
        .zip(&found)
        .map(|((system, _), of)| (system.name, of.costs.clone()))
        .collect();
    bench.compare(
        CASE,
        ["cpu_us_per_request", "requests_per_second"],
        &costs,
        OTHERS,
    );
    for ((system, _), Found { failures, p99, .. }) in servers.iter().zip(found) {
        bench
            .findings
            .row(CASE, system.name, "failures", "1", failures);
        bench.findings.row(CASE, system.name, "p99_us", "us", p99);
    }

    Ok(())
}

impl Found {
    fn add(&mut self, figures: &Figures, cpu_ns: u64) -> anyhow::Result<()> {
        let errors = figures.get("errors")?;
        self.costs
            .cpu
            .push(cpu_ns as f64 / 1e3 / (figures.get("ok")? + errors));
        self.costs.rate.push(figures.get("rate_per_second")?);
        self.failures.push(errors);
        self.p99
            .push(figures.get("latency_p99_us").unwrap_or(f64::NAN));
        Ok(())
    }
}
