//! An authority that certifies what tests need, and clients that trust it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A connection over TLS.
pub(crate) type Client = StreamOwned<ClientConnection, TcpStream>;

/// Years in which a certificate is valid.
pub(crate) const NOW: (i32, i32) = (2020, 2120);
pub(crate) const PAST: (i32, i32) = (2001, 2002);

/// An authority, and a directory for what it certifies, which goes away with the test.
pub(crate) struct Authority {
    pub(crate) issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) directory: PathBuf,
}

/// Of a server.
fn params(name: &str, names: &[&str], years: (i32, i32)) -> CertificateParams {
    let names = names
        .iter()
        .map(|name| (*name).to_owned())
        .collect::<Vec<_>>();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (
        rcgen::date_time_ymd(years.0, 1, 1),
        rcgen::date_time_ymd(years.1, 1, 1),
    );

    params
}

impl Authority {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "plainweave-tls-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        Self::named(&unique, std::env::temp_dir().join(&unique))
    }

    /// Another one, with another key, of the same name.
    pub(crate) fn impostor(&self) -> Self {
        let name = self.directory.file_name().unwrap().to_str().unwrap();
        Self::named(name, self.directory.with_extension("impostor"))
    }

    fn named(name: &str, directory: PathBuf) -> Self {
        fs::create_dir_all(&directory).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);

        // One of another's name would be tried, and its signature found wrong.
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(directory.join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    /// Writes `NAME.pem` and `NAME.key`; gives the flags for them.
    pub(crate) fn certify(&self, file: &str, names: &[&str], years: (i32, i32)) -> [String; 4] {
        let params = params(names[0], names, years);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let paths = self.write(file, &certificate, &key);

        [
            "--tls-cert".to_owned(),
            paths[0].clone(),
            "--tls-key".to_owned(),
            paths[1].clone(),
        ]
    }

    /// Writes `NAME.pem` and `NAME.key` as `openssl req -x509` does: certified by itself, and an
    /// authority.
    pub(crate) fn self_certified(&self, file: &str, names: &[&str], years: (i32, i32)) {
        let mut params = params(file, names, years);
        let key = KeyPair::generate().unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.write(file, &params.self_signed(&key).unwrap(), &key);
    }

    fn write(&self, file: &str, certificate: &Certificate, key: &KeyPair) -> [String; 2] {
        let paths = [
            self.path(&format!("{file}.pem")),
            self.path(&format!("{file}.key")),
        ];
        fs::write(&paths[0], certificate.pem()).unwrap();
        fs::write(&paths[1], key.serialize_pem()).unwrap();
        paths
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// Connects to an address. The handshake is the first write's.
    pub(crate) fn connect_to(&self, address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let client = ClientConnection::new(self.client(), "localhost".try_into().unwrap()).unwrap();
        StreamOwned::new(client, stream)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
