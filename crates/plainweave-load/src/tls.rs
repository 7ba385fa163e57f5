//! TLS, by rustls: what is trusted, handshakes, and why they fail.
//!
//! rustls's own buffered stream serves here: unlike a server, a load generator has few idle
//! connections to keep small. A fiber that reads or writes suspends within it, and deadlines end it
//! as they end any read.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    Error, HandshakeKind, RootCertStore, SignatureScheme, StreamOwned,
};

use super::files::Files;
use super::socket::Socket;
use super::tally::Failure;

/// What is trusted, and how handshakes go.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsFlags {
    /// Trust the authorities, and the servers' own certificates, in this file (PEM) [default: those
    /// that this host trusts]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,

    /// Take any certificate
    #[arg(long)]
    insecure: bool,

    /// Make each handshake a full one
    #[arg(long)]
    no_resumption: bool,
}

/// What all connections over TLS share: the sessions that they resume, too.
#[derive(Debug)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    /// What is spoken, by its name for ALPN, if it has one.
    protocol: Option<&'static str>,
}

impl Tls {
    /// Reads what is trusted, if some server is asked over TLS.
    pub(super) fn new(
        flags: &TlsFlags,
        files: &Files,
        secure: bool,
        protocol: Option<&'static str>,
    ) -> anyhow::Result<Option<Self>> {
        let given = flags.ca.is_some() || flags.insecure || flags.no_resumption;
        ensure!(
            secure || !given,
            "--ca, --insecure and --no-resumption are of TLS, and nothing asks for that (a URL of \
             https://, or --tls for a cache)"
        );
        if !secure {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let trust = if flags.insecure {
            Trust::Any
        } else {
            let (roots, own) = authorities(flags.ca.as_deref(), files)?;
            let by_authority =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()?;
            Trust::Some { by_authority, own }
        };

        // The verifier of our own trusts more than rustls' (see `Trust`), never less than was asked
        // for.
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { trust, provider }));
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = protocol
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        if flags.no_resumption {
            config.resumption = Resumption::disabled();
        }

        Ok(Some(Self {
            config: Arc::new(config),
            protocol,
        }))
    }

    /// Shakes hands with the server of this name, which is checked. Returns whether a session was
    /// resumed, too.
    pub(super) fn connect(
        &self,
        host: &str,
        mut stream: Socket,
    ) -> Result<(Session, bool), Failure> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Failure::CertificateName)?;
        let mut rustls =
            ClientConnection::new(self.config.clone(), name).map_err(|error| failure(&error))?;
        // Here, not with the first request: what it takes is a figure of its own.
        while rustls.is_handshaking() {
            rustls
                .complete_io(&mut stream)
                .map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof => Failure::TlsCut,
                    _ => classified(error).into(),
                })?;
        }
        // A server that knows no ALPN speaks what it always has.
        let agreed = rustls.alpn_protocol().unwrap_or(b"http/1.1");
        if self
            .protocol
            .is_some_and(|protocol| agreed != protocol.as_bytes())
        {
            return Err(Failure::NoAlpn);
        }
        let resumed = rustls.handshake_kind() == Some(HandshakeKind::Resumed);
        Ok((Session(Box::new(StreamOwned::new(rustls, stream))), resumed))
    }
}

/// Checks that certificates can be for a host.
pub(super) fn check_host(host: &str) -> anyhow::Result<()> {
    let name = ServerName::try_from(host);
    name.map(drop)
        .with_context(|| format!("{host}: no certificate can be for this name"))
}

/// Returns the authorities that are trusted, and the certificates of a file that are, too.
fn authorities(
    file: Option<&Path>,
    files: &Files,
) -> anyhow::Result<(RootCertStore, Vec<CertificateDer<'static>>)> {
    let mut roots = RootCertStore::empty();
    let mut own = Vec::new();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        let why = found
            .errors
            .first()
            .map_or(String::new(), |error| format!(" ({error})"));
        ensure!(
            !roots.is_empty(),
            "this host trusts no authorities{why}: give --ca FILE, or --insecure"
        );
        return Ok((roots, own));
    };

    for certificate in CertificateDer::pem_slice_iter(&files.read(file)?) {
        let bad = |error: &dyn std::fmt::Display| {
            anyhow!("{}: not a certificate: {error}", file.display())
        };
        let certificate = certificate.map_err(|error| bad(&error))?;
        roots
            .add(certificate.clone())
            .map_err(|error| bad(&error))?;
        own.push(certificate);
    }

    ensure!(
        !roots.is_empty(),
        "{}: there is no certificate in it (write it in PEM)",
        file.display()
    );
    Ok((roots, own))
}

/// A connection after its handshake. Its errors are [`Failure`]s where TLS is at fault.
#[derive(Debug)]
pub(super) struct Session(Box<StreamOwned<ClientConnection, Socket>>);

impl Session {
    /// Parts it from its socket, for a caller that carries the bytes.
    #[cfg(feature = "http2")]
    pub(super) fn into_parts(self) -> (Option<Records>, Socket) {
        let (mut rustls, stream) = self.0.into_parts();
        // Bounded by h2's windows; a limit here would refuse what `seal` is given.
        rustls.set_buffer_limit(None);
        (Some(Records(rustls)), stream)
    }
}

/// What makes records of bytes, and bytes of records.
#[cfg(feature = "http2")]
pub(super) struct Records(ClientConnection);

#[cfg(feature = "http2")]
impl Records {
    /// Takes what has come, and appends what it says.
    pub(super) fn open(&mut self, mut records: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        loop {
            let mut piece = [0; 16 << 10];
            while let Ok(len @ 1..) = self.0.reader().read(&mut piece) {
                plain.extend_from_slice(&piece[..len]);
            }
            if records.is_empty() {
                return Ok(());
            }
            self.0.read_tls(&mut records)?;
            self.0
                .process_new_packets()
                .map_err(|error| failure(&error))?;
        }
    }

    /// Returns whether TLS itself has something to send.
    pub(super) fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Appends the records of what is to be sent.
    pub(super) fn seal(&mut self, plain: &[u8], records: &mut Vec<u8>) {
        // Neither fails: what is written goes into memory.
        let _ = self.0.writer().write_all(plain);
        while self.0.wants_write() && self.0.write_tls(records).is_ok() {}
    }
}

impl Read for Session {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(classified)
    }
}

impl Write for Session {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(classified)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(classified)
    }
}

/// Makes a failure of an error by rustls, and leaves those of the socket.
fn classified(error: io::Error) -> io::Error {
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>())
    {
        Some(inner) => io::Error::other(failure(inner)),
        None => error,
    }
}

fn failure(error: &Error) -> Failure {
    use CertificateError as C;
    match error {
        Error::InvalidCertificate(error) => match error {
            C::UnknownIssuer => Failure::CertificateUntrusted,
            C::Expired
            | C::ExpiredContext { .. }
            | C::NotValidYet
            | C::NotValidYetContext { .. } => Failure::CertificateExpired,
            C::NotValidForName | C::NotValidForNameContext { .. } => Failure::CertificateName,
            _ => Failure::Certificate,
        },
        Error::AlertReceived(AlertDescription::NoApplicationProtocol)
        | Error::NoApplicationProtocol => Failure::NoAlpn,
        Error::AlertReceived(_) => Failure::TlsRefused,
        Error::InvalidMessage(_) => Failure::NoTls,
        Error::PeerIncompatible(_) => Failure::TlsIncompatible,
        _ => Failure::TlsBroken,
    }
}

/// Which certificates are taken. That a server has the key of its own is checked in any case.
#[derive(Debug)]
enum Trust {
    Any,
    /// What an authority has certified, and the very certificates that are trusted: what `openssl
    /// req -x509` makes says that it is an authority itself, and no authority may be a server, so
    /// it could be trusted in no other way.
    Some {
        by_authority: Arc<WebPkiServerVerifier>,
        own: Vec<CertificateDer<'static>>,
    },
}

/// Checks servers' certificates.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// Returns whether a certificate was refused for who has certified it, or for what it is. Its dates
/// come before.
fn is_of_no_authority(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Some { by_authority, own } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let certified = by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match certified {
            Err(error) if is_of_no_authority(&error) && own.iter().any(|own| own == end_entity) => {
                // rustls has stopped before it compared the names.
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            certified => certified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
