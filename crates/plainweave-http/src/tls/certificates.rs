//! Certificates and keys from PEM files, judged before they are used, and found by the name that a
//! client asks for.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::error::{Error, Kind};
use crate::message::encode::http_date;

/// The certificates of a server.
#[derive(Debug)]
pub(super) struct Certificates {
    /// In the order given: the first one answers for names that none is for.
    all: Vec<Arc<CertifiedKey>>,
    /// By lower-case name; `*.example.com` by `example.com` in the second map.
    exact: HashMap<String, Vec<usize>>,
    wildcard: HashMap<String, Vec<usize>>,
    /// When the first of them expires.
    expires: Option<SystemTime>,
}

impl Certificates {
    /// Reads and judges pairs of a chain and its key.
    pub(super) fn load<'a>(
        pairs: impl IntoIterator<Item = (&'a Path, &'a Path)>,
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Result<Self, Error> {
        let all = Vec::new();
        let exact = HashMap::new();
        let wildcard = HashMap::new();
        let mut certificates = Self {
            all,
            exact,
            wildcard,
            expires: None,
        };
        for (chain, key) in pairs {
            let (pair, names, until) = load_pair(chain, key, provider, now)?;
            certificates.expires = Some(
                certificates
                    .expires
                    .map_or(until, |expires| expires.min(until)),
            );
            for name in names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut certificates.wildcard, parent),
                    None => (&mut certificates.exact, name.as_str()),
                };

                map.entry(name.to_owned())
                    .or_insert_with(Vec::new)
                    .push(certificates.all.len());
            }
            certificates.all.push(Arc::new(pair));
        }
        if certificates.all.is_empty() {
            return Err(Error::new(
                Kind::Config,
                "no certificate was given (give a chain and its key)",
            ));
        }
        Ok(certificates)
    }

    /// Returns when the first of them expires.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// Returns the best certificate for a client: by its name, and of those for one name the first
    /// one whose kind of key the client can verify.
    fn find(
        &self,
        name: Option<&str>,
        verifies: impl Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let parent = |name: &'_ str| name.split_once('.').map(|(_, parent)| parent.to_owned());
        let exact = name.and_then(|name| self.exact.get(name));
        let by_name = exact.or_else(|| self.wildcard.get(&parent(name?)?));
        let candidates = || by_name.into_iter().flatten().map(|&index| &self.all[index]);
        let best = candidates()
            .find(|pair| verifies(pair))
            .or_else(|| candidates().next());

        best.or_else(|| self.all.iter().find(|pair| verifies(pair)))
            .or(self.all.first())
            .cloned()
    }
}

/// The certificates as one handshake sees them; notes which name was asked for, which rustls does
/// not tell otherwise.
#[derive(Debug)]
pub(super) struct Resolver {
    certificates: Arc<Certificates>,
    name: Arc<OnceLock<String>>,
}

impl Resolver {
    pub(super) fn new(certificates: Arc<Certificates>, name: Arc<OnceLock<String>>) -> Self {
        Self { certificates, name }
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let schemes = hello.signature_schemes();
        let found = self.certificates.find(name.as_deref(), |pair| {
            pair.key.choose_scheme(schemes).is_some()
        });
        if let Some(name) = name {
            let _ = self.name.set(name);
        }
        found
    }
}

/// Reads the certificates of authorities.
pub(super) fn load_authorities(file: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(file, "authority's certificate")? {
        let bad = "it holds something that is not the certificate of an authority";
        roots
            .add(certificate)
            .map_err(|error| Error::of_file(Kind::Authority, file, bad).because(error))?;
    }
    Ok(roots)
}

/// Returns the subject of a certificate.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    Some(
        x509_cert::Certificate::from_der(certificate)
            .ok()?
            .tbs_certificate
            .subject
            .to_string(),
    )
}

/// Returns a pair, the names it is for, and when it expires.
fn load_pair(
    chain_file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
    now: SystemTime,
) -> Result<(CertifiedKey, Vec<String>, SystemTime), Error> {
    let chain = read_chain(chain_file, "certificate")?;
    let bad = |what: &str| Error::of_file(Kind::Certificate, chain_file, what);
    let first = chain
        .first()
        .ok_or_else(|| bad("there is no certificate in it"))?;
    let parsed = x509_cert::Certificate::from_der(first).map_err(|error| {
        bad(&format!("its first certificate cannot be read: {error}")).because(error)
    })?;
    let key = read_key(key_file)?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| {
        let what = format!("the key cannot be used: {error} (ECDSA P-256 or P-384, Ed25519, or RSA from 2048 bits)");
        Error::of_file(Kind::Key, key_file, &what).because(error)
    })?;
    let pair = CertifiedKey::new(chain.clone(), key);
    match pair.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(error @ rustls::Error::InconsistentKeys(_)) => {
            let what = format!(
                "it does not belong to the key in {} (give the two as a pair)",
                key_file.display()
            );
            return Err(Error::of_file(Kind::Mismatch, chain_file, &what).because(error));
        }
        Err(error) => {
            return Err(
                bad(&format!("its first certificate cannot be used: {error}")).because(error),
            );
        }
    }
    let validity = parsed.tbs_certificate.validity;
    let from = validity.not_before.to_system_time();
    let until = validity.not_after.to_system_time();
    let expired = |what: String| Err(Error::of_file(Kind::Validity, chain_file, &what));
    if now > until {
        return expired(format!("it has expired on {} (renew it)", http_date(until)));
    }
    if now < from {
        return expired(format!(
            "it is not valid before {} (is the clock right?)",
            http_date(from)
        ));
    }
    Ok((pair, names(&parsed), until))
}

/// Returns the DNS names that a certificate is for, in lower case.
fn names(certificate: &x509_cert::Certificate) -> Vec<String> {
    let names = certificate.tbs_certificate.get::<SubjectAltName>();
    let names = names
        .ok()
        .flatten()
        .map(|(_, names)| names.0)
        .unwrap_or_default();
    let dns = names.into_iter().filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        _ => None,
    });

    dns.collect()
}

fn read_chain(file: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&read(file)?)
        .collect::<Result<_, _>>()
        .map_err(|error| {
            Error::of_file(Kind::Certificate, file, &broken_pem(&error)).because(error)
        })?;
    if certificates.is_empty() {
        let none =
            format!("there is no {what} in it (PEM begins with -----BEGIN CERTIFICATE-----)");
        return Err(Error::of_file(Kind::Certificate, file, &none));
    }
    Ok(certificates)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| {
        let what = match error {
            PemError::NoItemsFound => {
                "there is no private key in it (PEM, not encrypted: PKCS #8, PKCS #1 or SEC 1)"
                    .to_owned()
            }
            _ => broken_pem(&error),
        };
        Error::of_file(Kind::Key, file, &what).because(error)
    })
}

fn broken_pem(error: &PemError) -> String {
    format!("it is not PEM, or a part of it is missing: {error}")
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|error| {
        Error::of_file(Kind::File, file, &format!("cannot be read: {error}")).because(error)
    })
}
