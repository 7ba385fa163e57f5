//! The example `https`, run with a client of each kind.

#[allow(dead_code, reason = "the example's own `main`")]
#[path = "../examples/https.rs"]
mod https;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use plainweave::Runtime;
use plainweave::net::TcpListener;
use plainweave_http::tls::{Acceptor, Config};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn https() {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let directory = std::env::temp_dir().join(format!("plainweave-https-example-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("made");
    let (chain, key) = (directory.join("chain.pem"), directory.join("key.pem"));
    std::fs::write(&chain, pair.cert.pem()).expect("written");
    std::fs::write(&key, pair.signing_key.serialize_pem()).expect("written");
    let acceptor = Acceptor::new(Config::new(chain, key)).expect("good files");
    std::fs::remove_dir_all(directory).expect("removed");

    let runtime = Runtime::builder().workers(2).max_workers(2).report_stalls(false).build().expect("a runtime");
    let bind = || runtime.run(|| TcpListener::bind("127.0.0.1:0")).expect("bound");
    let (plain, tls) = (bind(), bind());
    let to = [&plain, &tls].map(|listener| listener.local_addr().expect("bound"));
    let (plain_too, tls_too) = (plain.try_clone().expect("cloned"), tls.try_clone().expect("cloned"));
    let serving = runtime.spawn(move || https::serve(&plain, &tls, &acceptor).map_err(|error| error.to_string()));

    let connect = |to| {
        let stream = TcpStream::connect(to).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        stream
    };
    let mut client = connect(to[0]);
    client.write_all(GET).expect("sent");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("answered");
    assert!(
        text.starts_with("HTTP/1.1 308 ") && text.contains(&format!("Location: https://{}/a\r\n", to[1])),
        "{text}"
    );

    let mut roots = RootCertStore::empty();
    roots.add(pair.cert.der().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("TLS");
    let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    let client = ClientConnection::new(config, "localhost".try_into().expect("a name")).expect("a client");
    let mut client = StreamOwned::new(client, connect(to[1]));
    client.write_all(GET).expect("sent");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("answered, and ended as TLS ends");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\r\n\r\n/a by TLSv1.3, TLS13_"), "{text}");

    plain_too.close();
    tls_too.close();
    assert_eq!(serving.join().expect("no panic"), Ok(()));
}
