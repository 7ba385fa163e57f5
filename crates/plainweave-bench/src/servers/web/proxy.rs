//! CPU per request of a proxy, beside nginx and HAProxy: all have one thread on CPU 0 and kept
//! connections to one back end, which shares CPU 1 with the client.

use std::net::SocketAddr;
use std::process::Command;

use super::bench::Bench;
use super::requests;
use crate::harness::machine;
use crate::serving::catalog::Catalog;
use crate::serving::closed::Load;
use crate::serving::nginx;
use crate::serving::process::{Conditions, Process, free_address};
use crate::serving::rounds::Costs;
use crate::serving::site::Site;
use crate::serving::web::{Kind, Server};

pub(super) const SMALL: &str = "proxy-1k";
pub(super) const LARGE: &str = "proxy-100k";

const CONNECTIONS: usize = 64;

pub(super) fn small(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, SMALL, Catalog::small())
}

pub(super) fn large(bench: &mut Bench) -> anyhow::Result<()> {
    let catalog = Catalog::of(&bench.site, 20, 100 << 10)?;
    run(bench, LARGE, catalog)
}

fn run(bench: &mut Bench, case: &'static str, catalog: Catalog) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(case, "wrk is not installed");
        return Ok(());
    }
    if let Some(why) = Kind::Epoll.absence() {
        bench.findings.missing(case, why);
        return Ok(());
    }

    let backend = Server::start_beside(Kind::Epoll, &bench.site)?;
    let mut servers = Vec::new();
    for kind in [Kind::Uring, Kind::Epoll] {
        match kind.absence() {
            Some(why) => bench.findings.missing(kind.name(), why),
            None => servers.push((kind.name().to_owned(), ours(kind, bench, backend.address)?)),
        }
    }
    match nginx::absence() {
        Some(why) => bench.findings.missing("nginx", why),
        None => {
            let server = nginx_before(&bench.site, backend.address)?;
            servers.push(("nginx".to_owned(), server));
        }
    }
    match machine::installed("haproxy") {
        false => bench.findings.missing("haproxy", "not installed"),
        true => {
            let server = haproxy_before(&bench.site, backend.address)?;
            servers.push(("haproxy".to_owned(), server));
        }
    }

    let named: Vec<_> = servers
        .iter()
        .map(|(name, server)| (name.clone(), server))
        .collect();
    let load = Load::kept(CONNECTIONS, catalog);
    let costs = requests::measure(bench, case, &named, &load)?;
    let of = |wanted: &str| {
        let place = servers.iter().position(|(name, _)| name == wanted);
        place.map(|place| costs[place].cpu.clone())
    };
    let nginx = of("nginx");
    let haproxy = of("haproxy");
    for ((name, _), Costs { cpu, rate }) in servers.iter().zip(&costs) {
        let findings = &mut bench.findings;
        findings.row(case, name, "cpu_us_per_request", "us", cpu.clone());
        findings.row(case, name, "requests_per_second", "1/s", rate.clone());
        if name != "nginx" {
            findings.ratio(case, name, ("ratio_to_nginx", nginx.as_ref()), cpu);
        }
        if name != "haproxy" {
            findings.ratio(case, name, ("ratio_to_haproxy", haproxy.as_ref()), cpu);
        }
    }

    Ok(())
}

fn ours(kind: Kind, bench: &Bench, backend: SocketAddr) -> anyhow::Result<Server> {
    let file = bench.site.dir().join("proxy.toml");
    let upstream = format!("[[upstream]]\nname = \"app\"\nservers = [\"{backend}\"]\n");
    let site = "[[site]]\nnames = [\"*\"]\nproxy = \"app\"\n";
    std::fs::write(&file, upstream + site)?;
    let file = file.display().to_string();
    let under = Conditions {
        arguments: &["--config", &file],
        ..Conditions::default()
    };
    Server::start(kind, &bench.site, under)
}

fn nginx_before(site: &Site, backend: SocketAddr) -> anyhow::Result<Server> {
    let upstream = format!("upstream app {{ server {backend}; keepalive 64; }}");
    let pass = "location / { proxy_pass http://app; proxy_http_version 1.1; \
                proxy_set_header Connection \"\"; proxy_set_header Host $host; \
                proxy_set_header X-Forwarded-For $remote_addr; \
                proxy_set_header X-Forwarded-Proto $scheme; }";
    let settings = nginx::Settings {
        workers: 1,
        http: &upstream,
        server: pass,
        ..Default::default()
    };
    let (command, address) = nginx::command(site.dir(), &settings)?;
    Server::start_by(Kind::Nginx, &command, Some(address), Conditions::default())
}

fn haproxy_before(site: &Site, backend: SocketAddr) -> anyhow::Result<Server> {
    let address = free_address()?;
    let file = site.dir().join(format!("haproxy-{}.cfg", address.port()));
    let times = "timeout connect 5s\n timeout client 60s\n timeout server 60s";
    let text = format!(
        "global\n nbthread 1\n maxconn 4000\ndefaults\n mode http\n {times}\n http-reuse always\n \
         option forwardfor\nfrontend f\n bind {address}\n default_backend b\n\
         backend b\n server s {backend}\n"
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new("haproxy");
    command.args(["-db", "-q", "-f"]).arg(file);
    // The name tells it from nginx.
    let process = Process::start("haproxy", &command, Some(address), 1, None)?;
    Ok(Server::of(Kind::Nginx, process))
}
