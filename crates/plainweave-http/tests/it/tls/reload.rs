//! New certificates for a server that runs, and bad ones that change nothing.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use plainweave_http::Transport;
use plainweave_http::tls::{Acceptor, Error, TlsStream};

use super::peer::{Authority, BOTH, NOW, Peer, Silence};

fn connect(authority: &Authority, acceptor: &Acceptor) -> TlsStream<Peer> {
    let mut peer = Peer::new(&Arc::new(authority.client(BOTH)), "localhost", "hello");
    peer.then = Silence::Stall;
    let mut stream = acceptor.accept(peer);
    stream.set_read_timeout(Duration::from_secs(1)).unwrap();
    stream.handshake().unwrap();
    stream
}

#[test]
fn connections_go_on_and_new_ones_see_the_new_certificate() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let mut before = connect(&authority, &acceptor);
    let mut hello = [0; 5];
    before.read_exact(&mut hello).unwrap();

    authority.write("localhost", &["localhost"], NOW);
    assert_eq!(connect(&authority, &acceptor).get_ref().shown(), before.get_ref().shown());
    acceptor.reload().unwrap();
    assert_ne!(connect(&authority, &acceptor).get_ref().shown(), before.get_ref().shown());

    before.write_all(b"still here").unwrap();
    assert_eq!(before.get_ref().heard, b"still here");
}

#[test]
fn bad_files_are_refused_and_the_old_ones_stay() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let before = connect(&authority, &acceptor).get_ref().shown();
    let (chain, key) = (authority.file("localhost.pem"), authority.file("localhost.key"));
    let good = (fs::read(&chain).unwrap(), fs::read(&key).unwrap());
    let stays = |is: fn(&Error) -> bool, file: &std::path::Path| {
        let error = acceptor.reload().unwrap_err();
        assert!(is(&error) && error.file() == Some(file), "{error}");
        assert_eq!(connect(&authority, &acceptor).get_ref().shown(), before);
    };
    authority.write("localhost", &["localhost"], (2001, 2002));
    stays(Error::is_expired, &chain);
    // The moment between the renewal of the two files.
    authority.write("localhost", &["localhost"], NOW);
    fs::write(&key, &good.1).unwrap();
    stays(Error::is_mismatch, &chain);
    fs::write(&chain, &good.0[..100]).unwrap();
    stays(Error::is_file, &chain);
    fs::write(&chain, &good.0).unwrap();
    fs::remove_file(&key).unwrap();
    stays(Error::is_file, &key);
    fs::write(&key, "").unwrap();
    stays(Error::is_file, &key);
    fs::write(&key, &good.1).unwrap();
    acceptor.reload().unwrap();
}
