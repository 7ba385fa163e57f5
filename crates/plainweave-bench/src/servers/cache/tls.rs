//! CPU per request over TLS 1.3, with one certificate for all. The client is `plainweave load
//! cache`, which trusts that certificate alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use plainweave_report::statistics::ratios;

use crate::harness::report;
use crate::harness::sample::Row;
use crate::serving::cache::{Server, System, plainweave};
use crate::serving::client::{Figures, run_load, to_json};
use crate::serving::process::Conditions;

pub(super) const CASE: (&str, &str) = (
    "tls",
    "20 connections over TLS: values of 200 B and of 10,000 B, and 16 requests of 200 B together",
);
/// By the bytes of a value, and the requests under way on a connection.
const LOADS: [(&str, &str, &str); 3] = [
    ("tls", "200", "1"),
    ("tls-10000", "10000", "1"),
    ("tls-x16", "200", "16"),
];
const KEYS: &str = "200";
/// Sets that store all of them, but for one time in a million.
const SETS: &str = "4000";
/// One of them twice: the second says how far two of the same are apart.
const SYSTEMS: [(&str, System); 4] = [
    ("memcached", System::Memcached),
    ("plainweave epoll", System::IdleConn),
    ("plainweave epoll again", System::IdleConn),
    ("plainweave uring", System::Uring),
];

/// A server, and what each round of a load cost it.
struct Loaded {
    name: &'static str,
    system: System,
    server: Server,
    costs: Vec<f64>,
}

pub(super) fn run(runs: usize, iterations: usize, systems: &[System]) -> anyhow::Result<Vec<Row>> {
    let directory = Directory::new()?;
    let [certificate, key] = directory.certify()?;
    let options = format!("ssl_chain_cert={certificate},ssl_key={key}");
    let json = directory.0.join("figures.json");
    let requests = iterations.to_string();
    let load = |server: &Server, requests: &str, more: &[&str]| -> anyhow::Result<Figures> {
        let address = format!("localhost:{}", server.address.port());
        let mut command = Command::new(plainweave()?);
        command.args(["load", "cache", &address, "--tls", "--ca", &certificate]);
        command.args(["--workers", "1", "--connections", "20", "--keys", KEYS]);
        command.args(["--no-load", "--requests", requests, "--min-rate", "0"]);
        run_load(command.arg(to_json(&json)).args(more), &json)
    };

    let mut servers = Vec::new();
    for (name, system) in SYSTEMS
        .into_iter()
        .filter(|(_, system)| systems.contains(system))
    {
        let under = Conditions {
            arguments: &["-Z", "-o", &options],
            ..Conditions::default()
        };

        let server = match Server::start(system, 64, under) {
            // One that was built without TLS.
            Err(_) if system == System::Memcached => continue,
            server => server.context(name)?,
        };

        servers.push(Loaded {
            name,
            system,
            server,
            costs: Vec::new(),
        });
    }

    let mut rows = Vec::new();
    for (case, value, depth) in LOADS {
        for round in 0..=runs {
            report::progress(&format!("cache: {case}, round {round} of {runs}"));
            for Loaded {
                name,
                server,
                costs,
                ..
            } in &mut servers
            {
                // One set at a time: memcached 1.6.18 cuts long pipelines over TLS.
                let (requests, depth, sets) = match round {
                    0 => (SETS, "1", "1"),
                    _ => (&*requests, depth, "0"),
                };

                let mix = ["--value-size", value, "--depth", depth, "--set-ratio", sets];
                let before = server.cpu_ns()?;
                let figures = load(server, requests, &mix).context(*name)?;
                let spent = (server.cpu_ns()? - before) as f64 / 1000.0;
                ensure!(figures.get("errors")? == 0.0, "{name}: {figures:?}");
                // The first round stores the values.
                costs.extend((round > 0).then_some(spent / figures.get("requests")?));
            }
        }

        let memcached = servers.iter().find(|one| one.system == System::Memcached);
        let memcached = memcached.map(|one| one.costs.clone());
        for Loaded {
            name,
            system,
            costs,
            ..
        } in &mut servers
        {
            let mut row = |metric, unit, values| {
                let row = system.row(case, metric, unit, values);
                rows.push(Row {
                    system: (*name).into(),
                    ..row
                });
            };

            row("cpu_us_per_request", "us", costs.clone());
            if let Some(memcached) = memcached.as_ref().filter(|_| *name != "memcached") {
                row("ratio_to_memcached", "1", ratios(costs, memcached));
            }

            costs.clear();
        }
    }
    Ok(rows)
}

/// Files that go away with it.
struct Directory(PathBuf);

impl Directory {
    fn new() -> anyhow::Result<Self> {
        let name = format!("plainweave-bench-cache-tls-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Writes a certificate of `localhost` and its key.
    fn certify(&self) -> anyhow::Result<[String; 2]> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let files = ["certificate.pem", "key.pem"].map(|name| self.0.join(name));
        fs::write(&files[0], made.cert.pem())?;
        fs::write(&files[1], made.signing_key.serialize_pem())?;
        Ok(files.map(|file| file.display().to_string()))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
