//! A server's certificate that vouches for itself, for `localhost`.

use plainweave_http::tls::{Acceptor, Config};
use rcgen::CertifiedKey;
use rustls::pki_types::CertificateDer;

/// Makes one, and what accepts connections by it. `name`: of the test, whose files must not be
/// another's.
pub(crate) fn self_signed(name: &str) -> (Acceptor, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let directory = std::env::temp_dir().join(format!("plainweave-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("made");
    let chain = directory.join("chain.pem");
    let key = directory.join("key.pem");

    std::fs::write(&chain, cert.pem()).expect("written");
    std::fs::write(&key, signing_key.serialize_pem()).expect("written");
    let acceptor = Acceptor::new(Config::new(chain, key)).expect("good files");

    std::fs::remove_dir_all(directory).expect("removed");
    (acceptor, cert.der().clone())
}
