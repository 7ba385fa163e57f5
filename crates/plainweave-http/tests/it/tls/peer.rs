//! A client over TLS at the other end of an in-memory stream, and certificates for both.

use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plainweave_http::Transport;
use plainweave_http::tls::{Acceptor, Config};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};

use crate::site::Site;

/// An authority, and a directory for the files of what it certifies.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) site: Site,
}

/// Years of validity, as calendar years from and until.
pub(crate) type Years = (i32, i32);
pub(crate) const NOW: Years = (2020, 2120);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let site = Site::new();
        fs::write(site.root().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, site }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.site.root().join(name)
    }

    fn issue(&self, names: &[&str], years: Years) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(
            DnType::CommonName,
            names.first().map_or("nobody", String::as_str),
        );
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();

        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes `NAME.pem` and `NAME.key` for these DNS names.
    pub(crate) fn write(&self, file: &str, names: &[&str], years: Years) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.issue(names, years);
        let paths = (
            self.file(&format!("{file}.pem")),
            self.file(&format!("{file}.key")),
        );
        fs::write(&paths.0, certificate.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    /// A server with a certificate for `localhost`.
    pub(crate) fn config(&self) -> Config {
        let (chain, key) = self.write("localhost", &["localhost"], NOW);
        Config::new(chain, key)
    }

    pub(crate) fn acceptor(&self) -> Acceptor {
        Acceptor::new(self.config()).unwrap()
    }

    /// Has the client connect to another server of that name, which takes early data and gives a
    /// ticket for it.
    pub(crate) fn give_ticket_for_early_data(&self, client: &Arc<ClientConfig>) {
        let (certificate, key) = self.issue(&["localhost"], NOW);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.max_early_data_size = 1 << 20;
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(client.clone(), name).unwrap();
        let mut wire = Vec::new();

        while client.wants_write() || server.wants_write() {
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut &wire[..]).unwrap();
            server.process_new_packets().unwrap();
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut &wire[..]).unwrap();
            client.process_new_packets().unwrap();
            wire.clear();
        }
    }

    /// Settings of a client that trusts this authority.
    pub(crate) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        self.client_as(versions, None)
    }

    /// The same with a certificate for `name` by `issuer`.
    pub(crate) fn client_as(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<(&Authority, &str)>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((authority, name)) => {
                let (certificate, key) = authority.issue(&[name], NOW);
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder
                    .with_client_auth_cert(vec![certificate.der().clone()], key)
                    .unwrap()
            }
        };

        config.resumption = Resumption::disabled();
        config
    }
}

pub(crate) const BOTH: &[&SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];
pub(crate) const EACH: [&[&SupportedProtocolVersion]; 2] =
    [&[&rustls::version::TLS13], &[&rustls::version::TLS12]];

/// How a client goes silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nothing comes until the timeout.
    Stall,
    /// The end of the stream, without a word.
    Vanish,
    /// The end of TLS, then of the stream.
    Close,
    Reset,
}

/// The server's end of a stream in memory, with the client inside: what is written reaches the
/// client, and what the client then has to say can be read.
pub(crate) struct Peer {
    pub(crate) client: ClientConnection,
    /// What the client says once it can, and what it has heard.
    pub(crate) says: Vec<u8>,
    pub(crate) heard: Vec<u8>,
    /// It has heard that no more is said.
    pub(crate) heard_end: bool,
    /// On its way to the server.
    pub(crate) sent: Vec<u8>,
    /// Bytes that the server has read and written, and the length of each write.
    pub(crate) read: usize,
    pub(crate) written: usize,
    pub(crate) writes: Vec<usize>,
    /// No read goes over this byte, nor does a write.
    pub(crate) split: usize,
    /// What happens once the client has no more to say.
    pub(crate) then: Silence,
    /// After this many bytes the same, whatever the client would say.
    pub(crate) cut: Option<(usize, Silence)>,
    /// After this many bytes the client takes no more.
    pub(crate) deaf: Option<(usize, ErrorKind)>,
    pub(crate) ended: bool,
    /// Why the client has given up.
    pub(crate) gave_up: Option<rustls::Error>,
    said_end: bool,
    pub(crate) read_timeout: Option<Duration>,
}

impl Peer {
    pub(crate) fn new(config: &Arc<ClientConfig>, host: &str, says: impl AsRef<[u8]>) -> Self {
        let host = ServerName::try_from(host.to_owned()).unwrap();
        Self {
            client: ClientConnection::new(config.clone(), host).unwrap(),
            says: says.as_ref().to_vec(),
            heard: Vec::new(),
            heard_end: false,
            sent: Vec::new(),
            read: 0,
            written: 0,
            writes: Vec::new(),
            split: usize::MAX,
            then: Silence::Vanish,
            cut: None,
            deaf: None,
            ended: false,
            gave_up: None,
            said_end: false,
            read_timeout: None,
        }
    }

    /// The certificate that the server has shown.
    pub(crate) fn shown(&self) -> Option<CertificateDer<'static>> {
        self.client
            .peer_certificates()
            .map(|chain| chain[0].clone())
    }

    fn speak(&mut self) {
        if !self.client.is_handshaking() && !self.says.is_empty() {
            let len = self.client.writer().write(&self.says).unwrap();
            self.says.drain(..len);
        }

        while self.client.wants_write() {
            self.client.write_tls(&mut self.sent).unwrap();
        }
    }

    fn silence(&mut self, how: Silence) -> io::Result<usize> {
        match how {
            Silence::Stall => Err(ErrorKind::WouldBlock.into()),
            Silence::Reset => Err(ErrorKind::ConnectionReset.into()),
            Silence::Close if !std::mem::replace(&mut self.said_end, true) => {
                self.client.send_close_notify();
                self.speak();
                Ok(usize::MAX)
            }
            Silence::Vanish | Silence::Close => Ok(0),
        }
    }
}

impl Read for Peer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        assert!(
            !buf.is_empty(),
            "a read without room would look like end of file"
        );
        assert!(self.read_timeout.is_some(), "a read without a timeout");
        self.speak();
        if self.sent.is_empty() && self.silence(self.then)? == 0 {
            return Ok(0);
        }
        let mut len = buf.len().min(self.sent.len());

        if self.read < self.split {
            len = len.min(self.split - self.read);
        }

        if let Some((cut, how)) = self.cut {
            len = len.min(cut - self.read);
            if len == 0 {
                return self.silence(how);
            }
        }

        buf[..len].copy_from_slice(&self.sent[..len]);
        self.sent.drain(..len);
        self.read += len;
        Ok(len)
    }
}

impl Write for Peer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        assert!(!self.ended, "a write after the end");
        let mut len = buf.len();
        if self.written < self.split {
            len = len.min(self.split - self.written);
        }

        if let Some((deaf, kind)) = self.deaf {
            len = len.min(deaf - self.written);
            if len == 0 {
                return Err(kind.into());
            }
        }

        let mut rest = &buf[..len];
        while !rest.is_empty() && self.gave_up.is_none() {
            self.client.read_tls(&mut rest).unwrap();
            self.gave_up = self.client.process_new_packets().err();

            let mut chunk = [0; 20_000];
            while let Ok(len) = self.client.reader().read(&mut chunk) {
                self.heard.extend_from_slice(&chunk[..len]);
                if len == 0 {
                    self.heard_end = true;
                    break;
                }
            }
        }

        self.written += len;
        self.writes.push(len);
        Ok(len)
    }

    fn write_vectored(&mut self, _bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        unreachable!("ciphertext comes in one piece")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Peer {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.read_timeout = Some(timeout);
        Ok(())
    }

    fn set_write_timeout(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.ended = true;
        Ok(())
    }
}
