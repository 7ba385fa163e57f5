//! An HTTP client on fibers: ureq, a synchronous crate, over our sockets (`plainweave-ureq`).
//! `client [--ca FILE] URL...` fetches all of them at once, a fiber each; connections are kept for
//! the next call.
#![allow(clippy::print_stdout, reason = "it says what it has fetched")]

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;
use ureq::{Agent, Error};

/// Makes a client whose calls wait as fibers do. It is one for all fibers: clones share its
/// connections.
pub(crate) fn agent(config: ConfigBuilder<AgentScope>) -> Agent {
    plainweave_ureq::agent(config.proxy(None).build())
}

/// Trusts these authorities, in PEM.
pub(crate) fn trusting(pem: &[u8]) -> Result<TlsConfig, Error> {
    let mut roots: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item? {
            roots.push(certificate);
        }
    }
    let provider = Arc::new(ring::default_provider());
    let config = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    Ok(config.root_certs(RootCerts::new_with_certs(&roots)).build())
}

fn main() -> Result<(), Box<dyn StdError + Send + Sync>> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    let mut authorities = "/etc/ssl/certs/ca-certificates.crt".to_owned();
    if urls.len() > 2 && urls[0] == "--ca" {
        authorities = urls.drain(..2).next_back().unwrap_or_default();
    }
    let tls = trusting(&std::fs::read(authorities)?)?;
    let agent = agent(
        Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(Duration::from_secs(10))),
    );
    plainweave::run(move || {
        let fetch = |url: String| {
            let agent = agent.clone();
            plainweave::spawn(move || {
                let fetched = agent
                    .get(&url)
                    .call()
                    .and_then(|mut answer| answer.body_mut().read_to_vec());
                match fetched {
                    Ok(body) => println!("{url}: {} bytes", body.len()),
                    Err(error) => println!("{url}: {error}"),
                }
            })
        };
        let calls: Vec<_> = urls.into_iter().map(fetch).collect();
        calls.into_iter().try_for_each(plainweave::JoinHandle::join)
    })?;
    Ok(())
}
