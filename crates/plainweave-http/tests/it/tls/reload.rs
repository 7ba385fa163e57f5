//! New certificates for a server that runs, and bad ones that change nothing.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plainweave_http::Transport;
use plainweave_http::tls::{Acceptor, Error, TlsStream};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::io::Errno;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::peer::{Authority, BOTH, NOW, Peer, Silence};

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

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
    assert_eq!(
        connect(&authority, &acceptor).get_ref().shown(),
        before.get_ref().shown()
    );
    acceptor.reload().unwrap();
    assert_ne!(
        connect(&authority, &acceptor).get_ref().shown(),
        before.get_ref().shown()
    );

    before.write_all(b"still here").unwrap();
    assert_eq!(before.get_ref().heard, b"still here");
}

#[test]
fn bad_files_are_refused_and_the_old_ones_stay() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let before = connect(&authority, &acceptor).get_ref().shown();
    let chain = authority.file("localhost.pem");
    let key = authority.file("localhost.key");
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

/// The first has read what was there before, the second reads what is there now: that stays in use.
#[test]
fn of_two_reloads_at_once_the_later_one_counts() {
    let authority = Authority::new("authority");
    let acceptor = authority.acceptor();
    let key = authority.file("localhost.key");
    let old = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();

    // Files are read in order: the certificate, then the key, which comes from a pipe here.
    let pipe = authority.file("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::rename(&pipe, &key).unwrap();
    let reload = |acceptor: &Acceptor| {
        let acceptor = acceptor.clone();
        std::thread::spawn(move || acceptor.reload())
    };

    let first = reload(&acceptor);
    let start = Instant::now();
    let mut writer = loop {
        // It has a reader once the first one is there.
        match open(
            &key,
            OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(fd) => break fs::File::from(fd),
            Err(error) => assert!(error == Errno::NXIO && start.elapsed() < HANG, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };

    fs::remove_file(&key).unwrap();
    let (chain, _) = authority.write("localhost", &["localhost"], NOW);
    let second = reload(&acceptor);

    // If it could overtake the first one, it would.
    (0..100)
        .take_while(|_| !second.is_finished())
        .for_each(|_| std::thread::sleep(Duration::from_millis(1)));
    writer.write_all(&old).unwrap();
    drop(writer);
    first.join().unwrap().unwrap();
    second.join().unwrap().unwrap();
    let shown = connect(&authority, &acceptor).get_ref().shown();

    assert_eq!(shown, CertificateDer::from_pem_file(chain).ok());
}
