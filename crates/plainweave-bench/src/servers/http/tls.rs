//! Files of 1 KiB over TLS 1.3, connections kept alive: `plainweave web` beside nginx, one
//! certificate for both.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::bench::{Bench, Others};
use super::kind::NO_PROGRAM;
use crate::harness::machine;
use crate::serving::nginx;
use crate::serving::process::Process;
use crate::serving::rounds::Rounds;
use crate::serving::site::{self, Checker, SILENCE_LIMIT, SIZE, Site};
use crate::serving::web::plainweave_program;
use crate::serving::wrk;

const CASE: &str = "tls";
/// The name that the certificate is for.
const HOST: &str = "localhost";

pub(super) const OTHERS: &Others = &[("nginx", "ratio_to_nginx")];

pub(super) fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !machine::installed("wrk") {
        bench.findings.missing(CASE, "wrk is not installed");
        return Ok(());
    }

    let certificate = Certificate::new(&bench.site)?;
    let servers = start(bench, CASE, &certificate)?;
    let body = site::content(0, SIZE);
    let mut checkers = Vec::new();

    for (name, server) in &servers {
        let mut checker = certificate.connect(server.address).context(*name)?;
        checker.check(&site::path(0), &body).context(*name)?;
        // Noted for each server: with another cipher the comparison would be one of ciphers.
        let session = &checker.get_ref().conn;
        let version = session.protocol_version();
        let suite = session.negotiated_cipher_suite();
        let suite = suite.map(|suite| suite.suite());

        bench.findings.facts.push((
            "session",
            format!("{name}: {version:?}, {suite:?}").replace("Some", ""),
        ));
        checkers.push((*name, checker));
    }

    // A server in turn, between two slices: content is checked without costing the load.
    let sample = |count: usize| {
        let among = checkers.len();
        let Some((name, checker)) = checkers.get_mut(count % among.max(1)) else {
            return Ok(());
        };
        checker
            .check(&site::path(0), &body)
            .map(|_| ())
            .context(*name)
    };

    let connections = bench.sizes.connections;
    let load = |server: &Process, length| {
        wrk::command(
            &format!("https://{}{}", server.address, site::path(0)),
            connections,
            length,
        )
    };

    let rounds = Rounds {
        name: &format!("{}: {CASE}", bench.findings.origin().name()),
        runs: bench.runs,
        turn: bench.turn,
    };

    let processes: Vec<_> = servers.iter().map(|(_, server)| server).collect();
    let costs = rounds.run(&processes, load, wrk::requests, sample)?;
    let named: Vec<_> = servers.iter().map(|(name, _)| *name).zip(costs).collect();
    bench.compare(
        CASE,
        ["cpu_us_per_request", "requests_per_second"],
        &named,
        OTHERS,
    );

    Ok(())
}

/// A certificate with its key (ECDSA P-256), as files for the servers and as what a client trusts.
pub(super) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    trusting: Arc<ClientConfig>,
}

impl Certificate {
    pub(super) fn new(site: &Site) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([HOST.to_owned()])?.self_signed(&key)?;
        let files = Self::files(site);
        fs::write(&files.0, certificate.pem())?;
        fs::write(&files.1, key.serialize_pem())?;
        let mut roots = RootCertStore::empty();

        roots.add(certificate.der().clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let mut client = client.with_root_certificates(roots).with_no_client_auth();

        // Each handshake is a full one.
        client.resumption = Resumption::disabled();
        Ok(Self {
            chain: files.0,
            key: files.1,
            trusting: Arc::new(client),
        })
    }

    fn files(site: &Site) -> (PathBuf, PathBuf) {
        (site.dir().join("chain.pem"), site.dir().join("key.pem"))
    }

    /// Returns a client that has not said anything yet.
    pub(super) fn client(&self) -> anyhow::Result<ClientConnection> {
        Ok(ClientConnection::new(
            self.trusting.clone(),
            ServerName::try_from(HOST)?,
        )?)
    }

    /// Connects for requests; the handshake comes with the first.
    pub(super) fn connect(
        &self,
        address: SocketAddr,
    ) -> anyhow::Result<Checker<StreamOwned<ClientConnection, TcpStream>>> {
        Ok(Checker::over(StreamOwned::new(
            self.client()?,
            open(address)?,
        )))
    }
}

/// Connects, with a bound on reads.
pub(super) fn open(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).context("a connection for TLS")?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Starts ours on both drivers, and nginx, as far as they are there.
pub(super) fn start(
    bench: &mut Bench,
    case: &str,
    certificate: &Certificate,
) -> anyhow::Result<Vec<(&'static str, Process)>> {
    let chain = certificate.chain.display().to_string();
    let key = certificate.key.display().to_string();
    let mut servers = Vec::new();
    for (name, driver) in [("plainweave epoll", "epoll"), ("plainweave uring", "uring")] {
        let arguments = [
            "--tls-cert",
            &chain,
            "--tls-key",
            &key,
            "--tls-listen",
            "127.0.0.1:0",
        ];
        let Some(command) = web(&bench.site, driver, &arguments) else {
            bench.findings.missing(case, NO_PROGRAM);
            break;
        };

        match Process::start(name, &command, None, 1, None) {
            Ok(server) => servers.push((name, server)),
            Err(error) if driver == "uring" => bench.findings.missing(name, format!("{error:#}")),
            Err(error) => return Err(error),
        }
    }

    match nginx::absence() {
        Some(why) => bench.findings.missing("nginx", why),
        None => {
            let root = bench.site.root();
            let server = format!(
                "root {}; ssl_certificate {chain}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;",
                root.display()
            );
            let settings = nginx::Settings {
                workers: 1,
                listen: "ssl",
                server: &server,
                ..Default::default()
            };

            let (command, address) = nginx::command(bench.site.dir(), &settings)?;
            servers.push((
                "nginx",
                Process::start("nginx", &command, Some(address), 1, None)?,
            ));
        }
    }

    Ok(servers)
}

/// Returns a command that runs `plainweave web` on a driver; `None`: the program is not there.
pub(super) fn web(site: &Site, driver: &str, arguments: &[&str]) -> Option<Command> {
    let mut command = Command::new(plainweave_program()?);
    command.arg("web").arg(site.root()).args([
        "--workers",
        "1",
        "--open-files",
        "4000",
        "--io",
        driver,
    ]);
    command.args(arguments).env_remove("PLAINWEAVE_IO");
    Some(command)
}
