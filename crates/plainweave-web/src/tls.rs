//! TLS: its flags, and what they make of the library's acceptor.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use plainweave_http::tls::{Acceptor, Config, TlsListener};
use plainweave_http::{HeaderValue, Limits, Listener, Transport};
use plainweave_serve::accept::InProgress;

use super::https::Https;
use plainweave_daemon::admin::Figures;
use plainweave_daemon::flag::{address, time};

/// Where TLS is served unless told otherwise.
const LISTEN: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8443);

/// Certificates, and where they are used.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsFlags {
    /// File with a certificate and its chain (PEM); goes with --tls-key; may be repeated: a client
    /// gets the certificate for the name that it asks for, otherwise the first. SIGHUP reloads them
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,

    /// File with the key of that certificate (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,

    /// Address and port for TLS, or a port on 127.0.0.1; may be repeated [default with --tls-cert:
    /// 127.0.0.1:8443]
    #[arg(long, value_name = "ADDR", value_parser = address, requires = "tls_cert")]
    tls_listen: Vec<SocketAddr>,

    /// Serve only clients with a certificate from one of the authorities in this file (PEM);
    /// sessions are not resumed. Nothing is served without TLS, so --listen needs --https-redirect
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Maximum handshakes computed at once; others wait [default: as many as workers]
    #[arg(long, value_name = "N", requires = "tls_cert")]
    tls_handshakes: Option<NonZeroUsize>,

    /// Time for a TLS handshake, from the opening of the connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    handshake_timeout: Duration,

    /// Redirect all requests without TLS to HTTPS; name the port if clients see another one
    /// [default port: that of the first --tls-listen]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    #[arg(requires = "tls_cert")]
    https_redirect: Option<u16>,

    /// Tell browsers to use HTTPS only, for this many seconds from each answer
    /// (Strict-Transport-Security)
    #[arg(long, value_name = "SECONDS", requires = "tls_cert")]
    hsts: Option<u64>,
}

impl TlsFlags {
    /// Returns where TLS is served; `unasked`: also where no flag says so.
    pub(super) fn addresses(&self, unasked: bool) -> Vec<SocketAddr> {
        match self.tls_listen.is_empty() && self.is_on() && unasked {
            true => vec![LISTEN.into()],
            false => self.tls_listen.clone(),
        }
    }

    /// Returns whether nothing is served without TLS unless a flag says where.
    pub(super) fn is_alone(&self) -> bool {
        !self.tls_listen.is_empty() || self.tls_client_ca.is_some()
    }

    /// Refuses addresses without TLS where nobody is asked for a certificate that all have to show.
    pub(super) fn check(&self, plain: &[SocketAddr]) -> anyhow::Result<()> {
        let unasked = plain
            .first()
            .filter(|_| self.tls_client_ca.is_some() && self.https_redirect.is_none());
        match unasked {
            None => Ok(()),
            Some(address) => bail!(
                "--listen {address} would serve clients without the certificate that --tls-client-ca asks for \
                 (leave --listen out, or redirect its clients by --https-redirect)"
            ),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        !self.tls_cert.is_empty()
    }

    pub(super) fn apply(&self, limits: Limits) -> Limits {
        Limits {
            handshake_timeout: self.handshake_timeout,
            ..limits
        }
    }

    /// Reads the files. `workers`: those that connections are served by; `http2`: it is offered.
    pub(super) fn load(&self, workers: usize, http2: bool) -> anyhow::Result<Option<Tls>> {
        let certificates = self.tls_cert.len();
        let keys = self.tls_key.len();
        ensure!(
            certificates == keys,
            "--tls-cert is given {certificates} times and --tls-key {keys} times (give a key for each certificate)"
        );
        let mut pairs = self.tls_cert.iter().zip(&self.tls_key);
        let Some((chain, key)) = pairs.next() else {
            return Ok(None);
        };
        let config = Config::new(chain, key);
        let config = pairs.fold(config, |config, (chain, key)| {
            config.with_certificate(chain, key)
        });
        let config = match &self.tls_client_ca {
            Some(file) => config.with_required_client_certificates(file),
            None => config,
        };

        let workers = NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN);
        let config = config.with_handshakes_at_once(self.tls_handshakes.unwrap_or(workers));
        let config = if http2 {
            config.with_alpn(["h2", "http/1.1"])
        } else {
            config
        };

        Ok(Some(Tls(
            Acceptor::new(config).context("TLS is not possible with these files")?
        )))
    }

    /// Returns what answers say of HTTPS; `port`: where TLS is served.
    pub(super) fn https(&self, port: Option<u16>) -> Https {
        let redirect = self
            .https_redirect
            .and_then(|named| if named == 0 { port } else { Some(named) });
        let hsts = self
            .hsts
            .and_then(|seconds| HeaderValue::from_str(&format!("max-age={seconds}")).ok());
        Https { redirect, hsts }
    }
}

/// The certificates, for all listeners.
#[derive(Clone, Debug)]
pub(super) struct Tls(Acceptor);

impl Tls {
    /// Has a listener's connections speak TLS.
    pub(super) fn listen<L: Listener<Stream: Transport>>(&self, listener: L) -> TlsListener<L> {
        self.0.listen(listener)
    }

    /// Loads the files again; says what came of it.
    pub(super) fn reload(&self) -> String {
        match self.0.reload() {
            Ok(()) => "the certificates are loaded again".to_owned(),
            Err(error) => format!("the certificates stay as they were: {error}"),
        }
    }

    /// For the admin address.
    pub(super) fn figures(&self, mut figures: Figures, handshakes: &InProgress) -> Figures {
        let counts = self.0.counts();
        let counts = [counts.completed, counts.resumed, counts.failed];
        figures.handshakes(counts, self.0.expires());
        figures.one(
            "plainweave_tls_handshakes_shed_total",
            "counter",
            "Those for which there was no memory beside others.",
            handshakes.shed(),
        );
        figures
    }
}
