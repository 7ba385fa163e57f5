//! TLS (`-Z`), by memcached's options, and what they make of the library's acceptor.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::SystemTime;

use anyhow::{Context, ensure};
use plainweave::net::TcpStream;
use plainweave_daemon::console::say;
use plainweave_http::tls::{Acceptor, Config};

use super::certificates::{Certificates, Security};
use super::store::Time;
use super::stream::Layered;

/// What is asked of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verify {
    Nothing,
    /// A certificate, if it has one.
    Request,
    /// A certificate.
    Require,
}

impl Certificates {
    /// Returns what a listener asks of clients; `None`: it does not speak TLS.
    fn verify(&self, security: Security) -> Option<Verify> {
        match (security, self.mode.unwrap_or(0)) {
            (Security::Plain, _) => None,
            (Security::Basic, _) | (Security::Usual, 0) => Some(Verify::Nothing),
            (Security::Mutual, _) | (Security::Usual, 2) => Some(Verify::Require),
            (Security::Usual, _) => Some(Verify::Request),
        }
    }

    fn chain(&self) -> anyhow::Result<&Path> {
        let chain = self.chain.as_deref();
        chain.context("-Z needs a certificate: -o ssl_chain_cert=FILE,ssl_key=FILE (PEM)")
    }

    fn authorities(&self) -> anyhow::Result<&Path> {
        self.authorities
            .as_deref()
            .context("who issues the clients' certificates is not said: -o ssl_ca_cert=FILE (PEM)")
    }
}

/// Certificates and settings, for all listeners.
#[derive(Debug)]
pub(crate) struct Tls {
    certificates: Certificates,
    /// By what is asked of clients.
    acceptors: BTreeMap<Verify, Acceptor>,
    /// Second of the last reload.
    refreshed: AtomicU32,
    /// A handshake has failed.
    has_failed: AtomicBool,
    /// A connection that was handed over without TLS was closed.
    has_closed: AtomicBool,
}

impl Tls {
    /// Reads the files. `asked`: what listeners ask for.
    pub(super) fn load(
        certificates: &Certificates,
        asked: &[Security],
        workers: NonZeroUsize,
    ) -> anyhow::Result<Self> {
        let config = |verify| {
            let chain = certificates.chain()?;
            let key = certificates.key.as_deref().unwrap_or(chain);
            let config = Config::new(chain, key).with_alpn::<&str>([]);
            let config = match certificates.only_tls13() {
                true => config.with_tls13_only(),
                false => config,
            };

            Ok::<_, anyhow::Error>(match verify {
                Verify::Nothing => config,
                Verify::Request => config.with_client_certificates(certificates.authorities()?),
                Verify::Require => {
                    config.with_required_client_certificates(certificates.authorities()?)
                }
            })
        };

        let asked = asked.iter().filter_map(|one| certificates.verify(*one));
        let asked: BTreeSet<_> = asked.collect();
        // Each has a stage of its own.
        let at_once = workers.get().div_ceil(asked.len().max(1));
        let at_once = NonZeroUsize::new(at_once).unwrap_or(NonZeroUsize::MIN);
        let acceptors = asked.iter().map(|verify| {
            let verify = *verify;
            let acceptor = Acceptor::new(config(verify)?.with_handshakes_at_once(at_once));
            Ok((
                verify,
                acceptor.context("TLS is not possible with these files")?,
            ))
        });

        let acceptors: BTreeMap<_, _> = acceptors.collect::<anyhow::Result<_>>()?;
        if certificates.authorities.is_some() && acceptors.keys().eq(&[Verify::Nothing]) {
            let text = "ssl_ca_cert has no effect without ssl_verify_mode or mtls:";
            say(io::stderr(), &format!("plainweave cache: {text}"));
        }

        ensure!(
            !acceptors.is_empty(),
            "-Z has no port to speak TLS on (leave out -s and notls:, or -Z)"
        );
        Ok(Self {
            certificates: certificates.clone(),
            acceptors,
            refreshed: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            has_closed: AtomicBool::new(false),
        })
    }

    /// Has a connection speak TLS, if its listener does; waits for the handshake.
    ///
    /// # Errors
    /// The handshake has failed.
    pub(super) fn accept(
        &self,
        stream: TcpStream,
        security: Security,
    ) -> Result<Box<dyn Layered>, String> {
        let verify = self.certificates.verify(security);
        let acceptor = verify.and_then(|verify| self.acceptors.get(&verify));
        let acceptor = acceptor.ok_or("there are no certificates for it")?;
        let mut stream = acceptor.accept(stream);
        stream.handshake().map_err(|error| error.to_string())?;
        Ok(Box::new(stream))
    }

    /// Reads the files again; says what came of it.
    ///
    /// Context: may block.
    pub(super) fn reload(&self, now: Time) -> anyhow::Result<()> {
        let reloaded = Acceptor::reload_all(self.acceptors.values());
        reloaded.context("the certificates stay as they were")?;
        self.refreshed.store(now.0, Relaxed);
        Ok(())
    }

    /// Notes that a handshake has failed. Returns whether it is the first.
    pub(super) fn fails_first(&self) -> bool {
        !self.has_failed.swap(true, Relaxed)
    }

    /// Notes that a connection that was handed over is closed. Returns whether it is the first.
    pub(super) fn closes_first(&self) -> bool {
        !self.has_closed.swap(true, Relaxed)
    }

    /// Returns whether sessions are resumed anywhere.
    pub(crate) fn resumes(&self) -> bool {
        self.acceptors.contains_key(&Verify::Nothing)
    }

    /// Returns what it was made from.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Returns the second of the last reload.
    pub(crate) fn refreshed(&self) -> Time {
        Time(self.refreshed.load(Relaxed))
    }

    /// Returns how many handshakes there were: completed, resumed ones among them, and failed.
    pub(crate) fn handshakes(&self) -> [u64; 3] {
        self.acceptors.values().fold([0; 3], |[a, b, c], acceptor| {
            let counts = acceptor.counts();
            [a + counts.completed, b + counts.resumed, c + counts.failed]
        })
    }

    /// Returns when the first certificate expires.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        let expiring = self.acceptors.values().filter_map(Acceptor::expires);
        expiring.min()
    }
}
