//! What a server over TLS is made from: files, protocols, what is asked of clients.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::server::{
    NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, StoresServerSessions,
    WebPkiClientVerifier,
};
use rustls::{ServerConfig, version};

use super::certificates::{Certificates, Resolver, load_authorities};
use super::error::{Error, Kind};

/// Sessions kept for clients of TLS 1.2 that take no tickets.
const SESSIONS: usize = 1024;

/// The settings of an [`Acceptor`](super::Acceptor). Files are PEM, and read again by
/// [`Acceptor::reload`](super::Acceptor::reload).
///
/// ```
/// use plainweave_http::tls::{Acceptor, Config};
///
/// let config = Config::new("chain.pem", "key.pem").with_alpn(["h2", "http/1.1"]);
/// let error = Acceptor::new(config).unwrap_err();
/// assert!(error.to_string().contains("chain.pem"), "{error}");
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pairs: Vec<(PathBuf, PathBuf)>,
    alpn: Vec<Vec<u8>>,
    clients: Clients,
    /// TLS 1.2 is spoken, too.
    speaks_older: bool,
    pub(super) handshakes: usize,
}

/// What is asked of clients.
#[derive(Clone, Debug)]
enum Clients {
    Nothing,
    Certificate {
        authorities: PathBuf,
        required: bool,
    },
}

impl Config {
    /// Makes settings with one certificate: a file with the chain, our own certificate first, and
    /// one with its key.
    pub fn new(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        let handshakes = available_parallelism().map_or(1, NonZeroUsize::get);
        let alpn = vec![b"http/1.1".to_vec()];
        Self {
            pairs: Vec::new(),
            alpn,
            clients: Clients::Nothing,
            speaks_older: true,
            handshakes,
        }
        .with_certificate(chain, key)
    }

    /// Adds a certificate for other names. A client gets the one for the name that it asks for,
    /// `*.` standing for any one label; the first one, if none is for that name or it asks for
    /// none. Of several for one name it gets the first whose kind of key it knows.
    pub fn with_certificate(mut self, chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.pairs
            .push((chain.as_ref().to_owned(), key.as_ref().to_owned()));
        self
    }

    /// Replaces the protocols that are offered by ALPN, the best first. The default is `http/1.1`
    /// alone. `h2` is left out where it cannot be spoken: on threads, and over streams without
    /// [`Transport::non_blocking`](crate::Transport::non_blocking).
    pub fn with_alpn<P: AsRef<[u8]>>(self, protocols: impl IntoIterator<Item = P>) -> Self {
        Self {
            alpn: protocols
                .into_iter()
                .map(|protocol| protocol.as_ref().to_vec())
                .collect(),
            ..self
        }
    }

    /// Asks clients for a certificate by one of the authorities in this file. One that has none is
    /// let in all the same, with an empty
    /// [`TlsSession::client_chain`](crate::TlsSession::client_chain). No session is resumed: each
    /// connection's certificate is judged again.
    pub fn with_client_certificates(self, authorities: impl AsRef<Path>) -> Self {
        Self {
            clients: Clients::Certificate {
                authorities: authorities.as_ref().to_owned(),
                required: false,
            },
            ..self
        }
    }

    /// Does what [`Config::with_client_certificates`] does, and refuses clients without one.
    pub fn with_required_client_certificates(self, authorities: impl AsRef<Path>) -> Self {
        Self {
            clients: Clients::Certificate {
                authorities: authorities.as_ref().to_owned(),
                required: true,
            },
            ..self
        }
    }

    /// Refuses clients that speak TLS 1.2 alone.
    pub fn with_tls13_only(self) -> Self {
        Self {
            speaks_older: false,
            ..self
        }
    }

    /// Replaces the number of handshakes that are computed at once; the default is the number of
    /// processors. A program gives the number of its workers.
    pub fn with_handshakes_at_once(self, handshakes: NonZeroUsize) -> Self {
        Self {
            handshakes: handshakes.get(),
            ..self
        }
    }
}

/// What tickets of the common servers allow is 16 KiB. It takes more to skip that: tlsfuzzer's
/// handshakes with it fail at rustls's default, 16 KiB, and at 17.
const SKIPPED_EARLY_DATA: u32 = 32 << 10;

/// What resumes sessions.
#[derive(Clone)]
pub(super) struct Resumption {
    tickets: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
}

impl Resumption {
    /// Makes fresh keys, which rustls replaces every six hours.
    fn new() -> Result<Self, Error> {
        let tickets = ring::Ticketer::new();
        let tickets = tickets.map_err(|error| {
            Error::new(Kind::Config, "no random numbers for tickets").because(error)
        });
        Ok(Self {
            tickets: tickets?,
            sessions: ServerSessionMemoryCache::new(SESSIONS),
        })
    }
}

/// All that was read and made from a [`Config`].
pub(super) struct Loaded {
    /// Complete, but for the resolver of each handshake.
    template: ServerConfig,
    certificates: Arc<Certificates>,
    /// How sessions are resumed; without it each handshake is a full one.
    resumption: Option<Resumption>,
}

impl Loaded {
    /// Reads the files. Sessions made under `earlier` go on.
    pub(super) fn read(config: &Config, earlier: Option<&Self>) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let pairs = config
            .pairs
            .iter()
            .map(|(chain, key)| (chain.as_path(), key.as_path()));
        let certificates = Arc::new(Certificates::load(pairs, &provider, SystemTime::now())?);
        let verifier = match &config.clients {
            Clients::Nothing => WebPkiClientVerifier::no_client_auth(),
            Clients::Certificate {
                authorities: file,
                required,
            } => {
                let roots = Arc::new(load_authorities(file)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
                let verifier = if *required {
                    verifier
                } else {
                    verifier.allow_unauthenticated()
                };
                let unusable = "its certificates cannot be used to judge clients";
                verifier.build().map_err(|error| {
                    Error::of_file(Kind::Authority, file, unusable).because(error)
                })?
            }
        };
        let resumption = match (earlier, &config.clients) {
            // A session that goes on is not judged again: not by the authorities of today, nor by
            // today's date.
            (_, Clients::Certificate { .. }) => None,
            (Some(earlier), Clients::Nothing) => earlier.resumption.clone(),
            (None, Clients::Nothing) => Some(Resumption::new()?),
        };
        let versions: &[_] = if config.speaks_older {
            &[&version::TLS13, &version::TLS12]
        } else {
            &[&version::TLS13]
        };
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let unusable =
            |error| Error::new(Kind::Config, "TLS 1.2 and 1.3 are not available").because(error);
        let builder = builder
            .map_err(unusable)?
            .with_client_cert_verifier(verifier);
        let mut template = builder.with_cert_resolver(Arc::new(Resolver::new(
            certificates.clone(),
            Arc::default(),
        )));
        template.alpn_protocols.clone_from(&config.alpn);
        match &resumption {
            Some(Resumption { tickets, sessions }) => {
                template.ticketer = tickets.clone();
                template.session_storage = sessions.clone();
                // With a ticketer rustls takes no early data and offers none: this is what it skips
                // of a client that sends some by a ticket of another server's (RFC 8446, 4.2.10).
                template.max_early_data_size = SKIPPED_EARLY_DATA;
            }
            None => {
                // Without a ticketer, which is rustls's default.
                template.session_storage = Arc::new(NoServerSessionStorage {});
                template.send_tls13_tickets = 0;
            }
        }
        Ok(Self {
            template,
            certificates,
            resumption,
        })
    }

    /// Returns when the first certificate expires.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        self.certificates.expires()
    }

    /// Returns the configuration of one handshake, whose resolver notes the name that is asked for.
    /// `multiplexes`: its connection can speak HTTP/2.
    pub(super) fn for_handshake(
        &self,
        name: Arc<OnceLock<String>>,
        multiplexes: bool,
    ) -> Arc<ServerConfig> {
        let mut config = self.template.clone();
        config
            .alpn_protocols
            .retain(|protocol| multiplexes || protocol != b"h2");
        config.cert_resolver = Arc::new(Resolver::new(self.certificates.clone(), name));
        Arc::new(config)
    }
}
