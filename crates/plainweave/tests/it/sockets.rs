//! What streams and listeners of every family do: one list of tests, for TCP, Unix sockets by path
//! and by abstract name, on both drivers and on plain threads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as os, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{HANG, Setup, listener, ms, pause};
use plainweave::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use plainweave::time::with_timeout;
use plainweave::{is_cancelled, thread};

/// A family of sockets, or a kind of its addresses.
trait Family: Send + Sync + 'static {
    type Listener: Send + Sync;
    type Stream: Read + Write + AsFd + Send + Sync;
    /// What a client connects to, and what must stay meanwhile.
    type Address: Clone + Send + Sync;

    fn bind() -> (Self::Listener, Self::Address);
    fn connect(address: &Self::Address) -> io::Result<Self::Stream>;
    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;
    fn close_listener(listener: &Self::Listener);
    fn set_backlog(listener: &Self::Listener) -> io::Result<()>;
    fn close(stream: &Self::Stream);
    fn shutdown(stream: &Self::Stream, how: Shutdown) -> io::Result<()>;
    fn clone_of(stream: &Self::Stream) -> Self::Stream;
    fn set_read_timeout(stream: &Self::Stream, limit: Option<Duration>) -> io::Result<()>;
    fn wait_readable(stream: &Self::Stream) -> io::Result<()>;

    fn pair() -> (Self::Stream, Self::Stream) {
        let (listener, address) = Self::bind();
        let client = Self::connect(&address).expect("connected");
        (Self::accept(&listener).expect("accepted"), client)
    }
}

macro_rules! family {
    ($family:ident, $listener:ty, $stream:ty, $address:ty, $bind:expr, $connect:expr) => {
        struct $family;

        impl Family for $family {
            type Listener = $listener;
            type Stream = $stream;
            type Address = $address;

            fn bind() -> (Self::Listener, Self::Address) {
                $bind()
            }

            fn connect(address: &Self::Address) -> io::Result<Self::Stream> {
                $connect(address)
            }

            fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
                listener.accept().map(|(stream, _)| stream)
            }

            fn close_listener(listener: &Self::Listener) {
                listener.close();
            }

            fn set_backlog(listener: &Self::Listener) -> io::Result<()> {
                listener.set_backlog(7)
            }

            fn close(stream: &Self::Stream) {
                stream.close();
            }

            fn shutdown(stream: &Self::Stream, how: Shutdown) -> io::Result<()> {
                stream.shutdown(how)
            }

            fn clone_of(stream: &Self::Stream) -> Self::Stream {
                stream.try_clone().expect("a clone")
            }

            fn set_read_timeout(stream: &Self::Stream, limit: Option<Duration>) -> io::Result<()> {
                stream.set_read_timeout(limit)
            }

            fn wait_readable(stream: &Self::Stream) -> io::Result<()> {
                stream.wait_readable()
            }
        }
    };
}

family!(
    Tcp,
    TcpListener,
    TcpStream,
    std::net::SocketAddr,
    bind_tcp,
    TcpStream::connect
);
family!(
    ByPath,
    UnixListener,
    UnixStream,
    SocketFile,
    bind_path,
    |file: &SocketFile| UnixStream::connect(&file.0.0)
);
family!(
    ByName,
    UnixListener,
    UnixStream,
    SocketAddr,
    bind_name,
    UnixStream::connect_addr
);

fn bind_tcp() -> (TcpListener, std::net::SocketAddr) {
    let listener = listener();
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn bind_path() -> (UnixListener, SocketFile) {
    let file = SocketFile::new();
    (UnixListener::bind(&file.0.0).expect("bound"), file)
}

fn bind_name() -> (UnixListener, SocketAddr) {
    let address =
        SocketAddr::from_abstract_name(format!("plainweave-{}", unique())).expect("a name");
    (UnixListener::bind_addr(&address).expect("bound"), address)
}

/// The path of a socket, removed with its last user.
#[derive(Clone)]
struct SocketFile(std::sync::Arc<Remove>);

struct Remove(PathBuf);

impl AsRef<Path> for Remove {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl SocketFile {
    fn new() -> Self {
        Self(std::sync::Arc::new(Remove(
            std::env::temp_dir().join(format!("plainweave-{}.sock", unique())),
        )))
    }
}

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Runs every test for every family on every driver, and on plain threads.
macro_rules! for_families {
    ($($test:ident),+ $(,)?) => {
        mod tcp { for_families!(@ Tcp, $($test),+); }
        mod unix_path { for_families!(@ ByPath, $($test),+); }
        mod unix_name { for_families!(@ ByName, $($test),+); }
    };
    (@ $family:ident, $($test:ident),+) => {
        $(fn $test(setup: crate::common::Setup) {
            setup.runtime().run(super::$test::<super::$family>);
        })+
        crate::common::on_every_driver!($($test),+);

        mod threads {
            $(#[test]
            fn $test() {
                let test = crate::sockets::$test::<crate::sockets::$family>;
                crate::common::unless_it_hangs(stringify!($test), test);
            })+
        }
    };
}

for_families! {
    bytes_go_both_ways, a_long_write_waits_for_its_reader, vectored_calls_use_all_buffers,
    a_peer_that_vanishes_is_noticed, a_clone_is_the_same_stream, half_of_a_stream_ends, a_close_ends_a_read,
    a_close_ends_every_accept, deadlines_end_calls, a_closed_listener_refuses, many_connections_at_once,
}

/// Runs `others` beside `main`: on fibers if called on one, else on threads.
fn beside<T: Send>(other: impl FnOnce() + Send, main: impl FnOnce() -> T) -> T {
    if plainweave::on_fiber() {
        plainweave::scope(|scope| {
            scope.spawn(other);
            main()
        })
    } else {
        std::thread::scope(|scope| {
            scope.spawn(other);
            main()
        })
    }
}

fn bytes_go_both_ways<F: Family>() {
    let (mut ours, mut theirs) = F::pair();
    for round in 0..20u8 {
        ours.write_all(&[round; 5]).unwrap();
        let mut buf = [0; 5];
        theirs.read_exact(&mut buf).unwrap();
        theirs.write_all(&buf).unwrap();
        ours.read_exact(&mut buf).unwrap();
        assert_eq!(buf, [round; 5]);
    }
}

fn a_long_write_waits_for_its_reader<F: Family>() {
    let (mut ours, mut theirs) = F::pair();
    let sent: Vec<u8> = (0..4 << 20).map(|n| (n % 251) as u8).collect();
    let copy = sent.clone();
    beside(
        move || {
            theirs.write_all(&copy).unwrap();
            F::shutdown(&theirs, Shutdown::Write).unwrap();
        },
        || {
            let mut got = Vec::new();
            ours.read_to_end(&mut got).unwrap();
            assert!(got == sent);
        },
    );
}

fn vectored_calls_use_all_buffers<F: Family>() {
    let (mut ours, mut theirs) = F::pair();
    let sent = ours
        .write_vectored(&[io::IoSlice::new(b"head "), io::IoSlice::new(b"body")])
        .unwrap();
    let mut first = [0; 3];
    let mut second = [0; 16];
    let mut parts = [
        io::IoSliceMut::new(&mut first),
        io::IoSliceMut::new(&mut second),
    ];

    assert_eq!((sent, theirs.read_vectored(&mut parts).unwrap()), (9, 9));
    assert_eq!((&first[..], &second[..6]), (&b"hea"[..], &b"d body"[..]));
}

fn a_peer_that_vanishes_is_noticed<F: Family>() {
    let (mut ours, mut theirs) = F::pair();
    theirs.write_all(b"last").unwrap();
    drop(theirs);
    let mut got = Vec::new();
    ours.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last");

    // TCP learns of it by the answer to the first write.
    let error = loop {
        if let Err(error) = ours.write(b"to nobody") {
            break error;
        }
    };

    assert!(
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        ),
        "{error:?}"
    );
}

fn a_clone_is_the_same_stream<F: Family>() {
    let (ours, mut theirs) = F::pair();
    let mut copy = F::clone_of(&ours);
    drop(ours);
    copy.write_all(b"still there").unwrap();
    let mut buf = [0; 11];
    theirs.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"still there");
}

fn half_of_a_stream_ends<F: Family>() {
    let (mut ours, mut theirs) = F::pair();
    F::shutdown(&ours, Shutdown::Write).unwrap();
    assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0);
    theirs.write_all(b"back").unwrap();
    let mut buf = [0; 4];
    ours.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"back");
}

fn a_close_ends_a_read<F: Family>() {
    let (mut ours, _theirs) = F::pair();
    let other = F::clone_of(&ours);
    let error = beside(
        move || {
            plainweave::time::sleep(ms(5)).unwrap();
            F::close(&other);
        },
        || ours.read(&mut [0; 8]).unwrap_err(),
    );
    assert_eq!(error.kind(), ErrorKind::NotConnected);

    assert_eq!(
        F::wait_readable(&ours).unwrap_err().kind(),
        ErrorKind::NotConnected
    );
}

fn a_close_ends_every_accept<F: Family>() {
    let (listener, _address) = F::bind();
    let fail = || assert!(F::accept(&listener).is_err());
    beside(
        || beside(fail, fail),
        || {
            plainweave::time::sleep(ms(5)).unwrap();
            F::close_listener(&listener);
        },
    );
    assert!(F::accept(&listener).is_err());
}

fn deadlines_end_calls<F: Family>() {
    let (listener, _address) = F::bind();
    let late = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
    late(with_timeout(ms(5), || F::accept(&listener).map(drop)));
    let (mut ours, _theirs) = F::pair();
    late(with_timeout(ms(5), || ours.read(&mut [0; 8]).map(drop)));
    late(with_timeout(ms(5), || F::wait_readable(&ours)));
    late(with_timeout(ms(5), || ours.write_all(&vec![0; 64 << 20])));
    F::set_read_timeout(&ours, Some(ms(5))).unwrap();
    late(ours.read(&mut [0; 8]).map(drop));

    assert_eq!(
        F::set_read_timeout(&ours, Some(Duration::ZERO))
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidInput
    );
}

fn a_closed_listener_refuses<F: Family>() {
    let (listener, address) = F::bind();
    let refused = || {
        assert_eq!(
            F::connect(&address).err().map(|e| e.kind()),
            Some(ErrorKind::ConnectionRefused)
        )
    };

    F::close_listener(&listener);
    refused();
    assert_eq!(
        F::set_backlog(&listener).unwrap_err().kind(),
        ErrorKind::NotConnected
    );
    refused();
}

/// More than one look at the listener takes.
fn many_connections_at_once<F: Family>() {
    const MANY: usize = 100;
    let (listener, address) = F::bind();
    beside(
        || {
            let mut clients: Vec<_> = (0..MANY).map(|_| F::connect(&address).unwrap()).collect();
            clients
                .iter_mut()
                .for_each(|client| client.write_all(b"x").unwrap());
            // Until the other side has read.
            clients
                .iter_mut()
                .for_each(|client| assert_eq!(client.read(&mut [0]).unwrap(), 0));
        },
        || {
            for _ in 0..MANY {
                let mut buf = [0];
                F::accept(&listener).unwrap().read_exact(&mut buf).unwrap();
            }
        },
    );
}

on_every_driver! {
    blocked_calls_on_unix_sockets_are_cancelled,
    a_connect_waits_for_room_in_the_queue,
    a_listener_of_tcp_stays_closed,
    addresses,
    a_peer_has_the_longest_path,
    pairs_and_conversions,
}

fn blocked_calls_on_unix_sockets_are_cancelled(setup: Setup) {
    setup.runtime().run(|| {
        let (listener, file) = bind_path();
        let reader = plainweave::spawn(|| {
            UnixStream::pair().and_then(|(mut ours, _theirs)| ours.read(&mut [0]))
        });
        let accepter = plainweave::spawn(move || listener.accept().map(drop));
        pause();
        reader.cancel();
        accepter.cancel();
        assert!(is_cancelled(&reader.join().unwrap().unwrap_err()));
        assert!(is_cancelled(&accepter.join().unwrap().unwrap_err()));

        // Cancelled before it began: it does not begin.
        let path = file.0.0.clone();
        let late = plainweave::spawn(move || {
            let _ = thread::park();
            UnixStream::connect(path).map(drop)
        });

        late.cancel();
        assert!(is_cancelled(&late.join().unwrap().unwrap_err()));
    });
}

fn a_connect_waits_for_room_in_the_queue(setup: Setup) {
    setup.runtime().run(|| {
        let (listener, file) = bind_path();
        listener.set_backlog(0).unwrap();
        let path = file.0.0.clone();
        let first = UnixStream::connect(&path).unwrap();
        let full = with_timeout(ms(10), || UnixStream::connect(&path).map(drop));
        assert_eq!(full.unwrap_err().kind(), ErrorKind::TimedOut);
        let third = plainweave::spawn(move || UnixStream::connect(path));

        pause();
        drop(listener.accept().unwrap());
        let third = with_timeout(HANG / 2, || third.join()).unwrap();
        assert!(third.is_ok());
        drop(first);
    });
}

fn addresses(setup: Setup) {
    setup.runtime().run(|| {
        let (listener, file) = bind_path();
        assert_eq!(
            listener.local_addr().unwrap().as_pathname(),
            Some(&*file.0.0)
        );
        let client = UnixStream::connect(&file.0.0).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert!(peer.is_unnamed() && client.local_addr().unwrap().is_unnamed());
        assert_eq!(client.peer_addr().unwrap().as_pathname(), Some(&*file.0.0));
        assert_eq!(server.local_addr().unwrap().as_pathname(), Some(&*file.0.0));
        let (listener, address) = bind_name();

        assert_eq!(
            listener.local_addr().unwrap().as_abstract_name(),
            address.as_abstract_name()
        );
        assert_eq!(
            UnixListener::bind_addr(&peer).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            UnixStream::connect("x".repeat(108)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            UnixStream::connect("/nowhere/at.all").unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}

/// `listen(2)` has a socket of TCP that was shut down listen again, at another port if the kernel
/// chose the first.
fn a_listener_of_tcp_stays_closed(setup: Setup) {
    setup.runtime().run(|| {
        let (listener, _address) = bind_tcp();
        let listens = || rustix::net::sockopt::socket_acceptconn(&listener).unwrap();
        listener.close();
        assert!(listener.set_backlog(7).is_err() && !listens());
        rustix::net::listen(&listener, 7).unwrap();
        assert!(listens(), "as the kernel has it");
        listener.close();
        assert!(!listens());
    });
}

/// `std` has no address for a path of 108 bytes, for which the kernel needs no zero at its end.
fn a_peer_has_the_longest_path(setup: Setup) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, socket};

    setup.runtime().run(|| {
        let (listener, file) = bind_path();
        let path = format!("{}-", file.0.0.display());
        let longest = Remove(PathBuf::from(format!("{path:x<108}")));
        let client = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&client, &SocketAddrUnix::new(&longest.0).unwrap()).unwrap();
        connect(&client, &SocketAddrUnix::new(&file.0.0).unwrap()).unwrap();
        let (mut accepted, peer) = listener.accept().unwrap();

        assert!(peer.is_unnamed());
        rustix::io::write(&client, b"x").unwrap();
        accepted.read_exact(&mut [0]).unwrap();
    });
}

fn pairs_and_conversions(setup: Setup) {
    setup.runtime().run(|| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut plain = theirs.into_std().unwrap();
        (&ours).write_all(b"ping").unwrap();
        let mut buf = [0; 4];
        plain.read_exact(&mut buf).unwrap();
        let mut theirs = UnixStream::from_std(plain).unwrap();

        theirs.write_all(&buf).unwrap();
        (&ours).read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"ping");
        let (listener, file) = bind_path();
        let listener = UnixListener::from_std(listener.into_std().unwrap()).unwrap();
        let _client = UnixStream::connect(&file.0.0).unwrap();

        assert!(
            listener
                .incoming()
                .next()
                .is_some_and(|accepted| accepted.is_ok())
        );
    });
}

#[test]
fn a_file_that_was_left_behind_is_taken_over() {
    let SocketFile(file) = SocketFile::new();
    drop(os::UnixListener::bind(&file.0).unwrap());
    let refused = UnixStream::connect(&file.0).unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::ConnectionRefused,
        "nobody listens"
    );
    assert_eq!(
        UnixListener::bind(&file.0).unwrap_err().kind(),
        ErrorKind::AddrInUse,
        "as with std"
    );
    let listener = UnixListener::bind_over_stale(&file.0).unwrap();
    let _client = UnixStream::connect(&file.0).unwrap();

    listener.accept().unwrap();
    // One that listens, or a file that is no socket, stays.
    assert_eq!(
        UnixListener::bind_over_stale(&file.0).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    drop(listener);
    std::fs::remove_file(&file.0).unwrap();
    std::fs::write(&file.0, "precious").unwrap();
    assert_eq!(
        UnixListener::bind_over_stale(&file.0).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    assert_eq!(std::fs::read(&file.0).unwrap(), b"precious");
}
