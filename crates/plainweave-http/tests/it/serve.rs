//! A server that accepts by itself: TCP and Unix sockets, on fibers and on threads, from one list
//! of tests.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as OsTcp};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{
    SocketAddr as UnixAddr, UnixListener as OsUnixListener, UnixStream as OsUnix,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use plainweave::net::{TcpListener, UnixListener};
use plainweave::time::with_timeout;
use plainweave::{Io, Movement, Runtime};
use plainweave_http::accept::Fault;
use plainweave_http::{Address, Handler, Limits, Listener, Request, Response, Server, Transport};
use rustix::net::SocketAddrUnix;

use crate::support::read_answers;

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// A client's end of either family.
trait Client: Read + Write + Send {
    fn patience(&self);
}

impl Client for OsTcp {
    fn patience(&self) {
        self.set_read_timeout(Some(HANG)).unwrap();
    }
}

impl Client for OsUnix {
    fn patience(&self) {
        self.set_read_timeout(Some(HANG)).unwrap();
    }
}

fn connect(address: &Address) -> io::Result<Box<dyn Client>> {
    let client: Box<dyn Client> = match address {
        Address::Tcp(address) => Box::new(OsTcp::connect(address)?),
        Address::Unix(name) => {
            let name = name.to_str().unwrap().strip_prefix('@').unwrap();
            Box::new(OsUnix::connect_addr(
                &UnixAddr::from_abstract_name(name).unwrap(),
            )?)
        }
        other => panic!("{other}"),
    };

    client.patience();
    Ok(client)
}

/// Asks once, and reads one answer.
fn ask(client: &mut (impl Read + Write + ?Sized)) -> io::Result<Vec<u8>> {
    client.write_all(GET)?;
    let mut buf = [0; 1024];
    let len = client.read(&mut buf)?;
    let answer = read_answers(&buf[..len])
        .pop()
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    assert_eq!(answer.status, 200);
    Ok(answer.body)
}

fn name() -> UnixAddr {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    UnixAddr::from_abstract_name(format!("plainweave-http-{}-{n}", std::process::id())).unwrap()
}

/// Where a server can be started: on which listener, and from which fiber or thread.
trait Place {
    fn start<H: Handler>(&self, server: &Arc<Server<H>>) -> Address;
    fn shutdown<H: Handler>(&self, server: &Server<H>, grace: Duration) -> bool;
}

struct Fibers(Runtime);
struct UnixFibers(Runtime);
struct Threads;
struct UnixThreads;
/// The fibers' listeners, on threads.
struct FibersListenerOnThreads;

impl Place for Fibers {
    fn start<H: Handler>(&self, server: &Arc<Server<H>>) -> Address {
        self.0.run(|| {
            server
                .start(TcpListener::bind("127.0.0.1:0").unwrap())
                .unwrap()
        })
    }

    fn shutdown<H: Handler>(&self, server: &Server<H>, grace: Duration) -> bool {
        self.0.run(|| server.shutdown(grace))
    }
}

impl Place for UnixFibers {
    fn start<H: Handler>(&self, server: &Arc<Server<H>>) -> Address {
        self.0.run(|| {
            server
                .start(UnixListener::bind_addr(&name()).unwrap())
                .unwrap()
        })
    }

    fn shutdown<H: Handler>(&self, server: &Server<H>, grace: Duration) -> bool {
        self.0.run(|| server.shutdown(grace))
    }
}

macro_rules! on_threads {
    ($place:ident, $listener:expr) => {
        impl Place for $place {
            fn start<H: Handler>(&self, server: &Arc<Server<H>>) -> Address {
                server.start($listener.unwrap()).unwrap()
            }

            fn shutdown<H: Handler>(&self, server: &Server<H>, grace: Duration) -> bool {
                server.shutdown(grace)
            }
        }
    };
}
on_threads!(Threads, std::net::TcpListener::bind("127.0.0.1:0"));
on_threads!(UnixThreads, OsUnixListener::bind_addr(&name()));
on_threads!(FibersListenerOnThreads, TcpListener::bind("127.0.0.1:0"));

fn runtime(io: Io) -> Runtime {
    Runtime::builder()
        .workers(2)
        .max_workers(2)
        .io(io)
        .report_stalls(false)
        .build()
        .unwrap()
}

macro_rules! everywhere {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            use super::*;

            #[test]
            fn epoll() {
                super::$test(&Fibers(runtime(Io::Epoll)));
            }

            #[test]
            fn uring() {
                super::$test(&Fibers(runtime(Io::Uring)));
            }

            #[test]
            fn unix_epoll() {
                super::$test(&UnixFibers(runtime(Io::Epoll)));
            }

            #[test]
            fn unix_uring() {
                super::$test(&UnixFibers(runtime(Io::Uring)));
            }

            #[test]
            fn threads() {
                super::$test(&Threads);
            }

            #[test]
            fn unix_threads() {
                super::$test(&UnixThreads);
            }

            #[test]
            fn fibers_listener_on_threads() {
                super::$test(&FibersListenerOnThreads);
            }
        })+
    };
}

everywhere! {
    answers_and_counts, at_the_limit_it_accepts_no_more, a_shutdown_waits_for_requests_in_progress,
    a_shutdown_that_is_late_cuts_connections, hooks_are_called, a_veto_closes_without_a_word,
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn hello(_: &mut Request<'_>) -> Response {
    Response::ok("hello")
}

fn answers_and_counts(place: &impl Place) {
    let server = Arc::new(Server::new(hello));
    let address = place.start(&server);
    assert_eq!(server.addresses(), std::slice::from_ref(&address));

    for round in 1..=10 {
        let mut client = connect(&address).unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&mut *client).unwrap(), b"hello");
        }
        eventually("an idle connection is counted", || {
            server.counts().requests == 3 * round
        });
        assert!(server.counts().open >= 1);
    }

    eventually("all have left", || server.counts().open == 0);
    let counts = server.counts();
    assert_eq!(
        (
            counts.accepted,
            counts.requests,
            counts.failed,
            counts.refused
        ),
        (10, 30, 0, 0)
    );
    assert!(place.shutdown(&server, HANG));
    assert!(server.addresses().is_empty() && connect(&address).is_err());
}

/// Whoever holds up the worker at which the server was started: connections are accepted and served
/// by the other one, where started fibers stay with their workers too.
#[test]
fn a_worker_that_is_held_up_holds_up_no_connection() {
    for io in [Io::Epoll, Io::Uring] {
        let runtime = Runtime::builder()
            .workers(2)
            .io(io)
            .movement(Movement::BeforeStart)
            .stall_after(Some(Duration::from_millis(2)))
            .report_stalls(false);
        let runtime = runtime.build().unwrap();
        let server = Arc::new(Server::new(hello));
        let (tell, started) = mpsc::channel();
        let all_answered = Arc::new(AtomicBool::new(false));
        let held = server.clone();
        let is_over = all_answered.clone();
        let holds_up = runtime.spawn(move || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            tell.send(held.start(listener).unwrap()).unwrap();
            let start = Instant::now();
            while !is_over.load(Ordering::SeqCst) && start.elapsed() < HANG {
                std::hint::spin_loop();
            }
            is_over.load(Ordering::SeqCst)
        });

        let address = started.recv_timeout(HANG).unwrap();
        for _ in 0..5 {
            let mut client = connect(&address).unwrap();
            assert_eq!(ask(&mut *client).unwrap(), b"hello");
        }

        all_answered.store(true, Ordering::SeqCst);
        assert!(
            holds_up.join().unwrap(),
            "{io:?}: it was held up all the time"
        );
        assert!(runtime.run(|| server.shutdown(HANG)));
    }
}

/// The next client waits in the kernel, and is served when another one leaves.
fn at_the_limit_it_accepts_no_more(place: &impl Place) {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };

    let server = Arc::new(Server::new(hello).with_limits(limits));
    let address = place.start(&server);
    let mut held: Vec<_> = (0..2).map(|_| connect(&address).unwrap()).collect();
    held.iter_mut()
        .for_each(|client| drop(ask(&mut **client).unwrap()));
    let mut third = connect(&address).unwrap();

    third.write_all(GET).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((server.counts().open, server.counts().accepted), (2, 2));
    held.pop();
    let mut buf = [0; 1024];

    assert!(third.read(&mut buf).unwrap() > 0);
    assert_eq!(server.counts().accepted, 3);
    // A stop at the limit: the accept loop waits for a permit.
    assert!(place.shutdown(&server, HANG));
}

fn a_shutdown_waits_for_requests_in_progress(place: &impl Place) {
    let (entered, inside) = mpsc::channel();
    let entered = Mutex::new(entered);
    let released = Arc::new(AtomicBool::new(true));
    let may_answer = released.clone();
    let server = Arc::new(Server::new(move |_: &mut Request<'_>| {
        entered.lock().unwrap().send(()).unwrap();
        while !may_answer.load(Ordering::SeqCst) {
            plainweave::time::sleep(Duration::from_millis(1)).unwrap();
        }
        Response::ok("slow")
    }));
    let address = place.start(&server);
    let mut idle = connect(&address).unwrap();
    let mut busy = connect(&address).unwrap();

    assert_eq!(ask(&mut *idle).unwrap(), b"slow");
    inside.recv().unwrap();
    released.store(false, Ordering::SeqCst);
    busy.write_all(GET).unwrap();
    inside.recv_timeout(HANG).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("it stops", || server.is_stopping());
            released.store(true, Ordering::SeqCst);
        });
        assert!(place.shutdown(&server, HANG));
    });

    let mut rest = Vec::new();
    busy.read_to_end(&mut rest).unwrap();
    let answers = read_answers(&rest);
    assert_eq!(
        (answers.len(), answers[0].header("connection")),
        (1, Some("close"))
    );
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    assert_eq!(server.counts().open, 0);
}

/// One whose handler waits for a body that never comes.
fn a_shutdown_that_is_late_cuts_connections(place: &impl Place) {
    let (entered, inside) = mpsc::channel();
    let entered = Mutex::new(entered);
    let server = Arc::new(Server::new(move |request: &mut Request<'_>| {
        entered.lock().unwrap().send(()).unwrap();
        Response::ok(request.read_body(100).unwrap_or_default())
    }));
    let address = place.start(&server);
    let mut client = connect(&address).unwrap();

    client
        .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n")
        .unwrap();
    inside.recv_timeout(HANG).unwrap();
    assert!(!place.shutdown(&server, Duration::from_millis(10)));
    let _ = client.read_to_end(&mut Vec::new()); // An end, or a reset: but soon.

    eventually("the connection has ended", || server.counts().open == 0);
}

fn hooks_are_called(place: &impl Place) {
    let (said, heard) = mpsc::channel();
    let said = Arc::new(Mutex::new(said));
    let say = move |what: String| said.lock().unwrap().send(what).unwrap();
    let opened = say.clone();
    let closed = say.clone();
    let answered = say;
    let server = Server::new(hello)
        .on_open(move |peer| {
            opened(format!("open {}", peer.is_some()));
            true
        })
        .on_close(move |of| closed(format!("close {} {}", of.peer.is_some(), of.requests)))
        .on_exchange(move |exchange| answered(format!("exchange {}", exchange.peer.is_some())));
    let server = Arc::new(server);
    let address = place.start(&server);
    let mut client = connect(&address).unwrap();

    ask(&mut *client).unwrap();
    ask(&mut *client).unwrap();
    drop(client);
    let known = address.tcp().is_some();

    for expected in ["open", "exchange", "exchange"] {
        assert_eq!(
            heard.recv_timeout(HANG).unwrap(),
            format!("{expected} {known}")
        );
    }

    assert_eq!(
        heard.recv_timeout(HANG).unwrap(),
        format!("close {known} 2")
    );
    assert!(place.shutdown(&server, HANG));
}

fn a_veto_closes_without_a_word(place: &impl Place) {
    let allowed = Arc::new(AtomicBool::new(false));
    let may = allowed.clone();
    let closed = Arc::new(AtomicUsize::new(0));
    let counted = closed.clone();
    let server = Server::new(hello).on_open(move |_| may.load(Ordering::SeqCst));
    let server = server.on_close(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let server = Arc::new(server.on_error(|error| panic!("a veto is no error: {error}")));
    let address = place.start(&server);

    assert_eq!(connect(&address).unwrap().read(&mut [0]).unwrap(), 0);
    allowed.store(true, Ordering::SeqCst);
    assert_eq!(ask(&mut *connect(&address).unwrap()).unwrap(), b"hello");
    assert!(place.shutdown(&server, HANG));
    assert_eq!(closed.load(Ordering::SeqCst), 1);
}

/// Over TCP on fibers a connection has a fiber only while it is served; its time, the stop and the
/// hooks are as for the others.
#[test]
fn an_idle_connection_has_no_fiber() {
    for io in [Io::Epoll, Io::Uring] {
        let place = Fibers(runtime(io));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let server =
            Server::new(hello).on_close(move |closed| seen.lock().unwrap().push(closed.requests));
        let server = Arc::new(server);
        let address = place.start(&server);
        let mut clients: Vec<_> = (0..50).map(|_| connect(&address).unwrap()).collect();

        for _ in 0..3 {
            clients
                .iter_mut()
                .for_each(|client| assert_eq!(ask(client).unwrap(), b"hello"));
            eventually("only the fiber that accepts is left", || {
                place.0.metrics().live_fibers <= 1
            });
            assert_eq!(server.counts().open, clients.len());
        }

        // One that leaves, and the end of the others.
        drop(clients.pop());
        eventually("it is gone", || server.counts().open == clients.len());
        assert!(place.shutdown(&server, HANG));
        clients
            .iter_mut()
            .for_each(|client| assert_eq!(client.read(&mut [0; 1]).unwrap(), 0));
        assert_eq!(server.counts().requests, 150);
        eventually("all have ended", || *requests.lock().unwrap() == [3; 50]);
    }
}

#[test]
fn a_connection_without_a_fiber_has_its_time() {
    for io in [Io::Epoll, Io::Uring] {
        let place = Fibers(runtime(io));
        let soon = Duration::from_millis(50);
        for limits in [
            Limits {
                header_timeout: soon,
                ..Limits::default()
            },
            Limits {
                idle_timeout: soon,
                ..Limits::default()
            },
        ] {
            let asks = limits.idle_timeout == soon;
            let server = Arc::new(Server::new(hello).with_limits(limits));
            let mut client = connect(&place.start(&server)).unwrap();
            if asks {
                assert_eq!(ask(&mut client).unwrap(), b"hello");
            }
            assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "closed");
            assert!(place.shutdown(&server, HANG));
        }
    }
}

#[test]
fn several_listeners_of_all_kinds() {
    let server = Arc::new(Server::new(hello));
    let runtime = runtime(Io::Auto);
    let addresses = [
        Fibers(runtime).start(&server),
        Threads.start(&server),
        UnixThreads.start(&server),
        FibersListenerOnThreads.start(&server),
    ];

    // That runtime has ended, and with it its listener.
    for address in &addresses[1..] {
        assert_eq!(ask(&mut *connect(address).unwrap()).unwrap(), b"hello");
    }
    assert!(server.shutdown(HANG));
    assert!(addresses.iter().all(|address| connect(address).is_err()));
}

/// What the overload control asks of every listener.
#[test]
fn the_patience_of_an_accept_ends() {
    fn late(listener: &impl Listener) {
        let patience = Some(Duration::from_millis(3));
        assert_eq!(
            listener.accept(patience).err().map(|error| error.kind()),
            Some(io::ErrorKind::TimedOut)
        );
        let address = listener.address().unwrap();
        let _client = connect(&address).unwrap();
        assert!(listener.accept(Some(HANG)).is_ok());
        listener.set_backlog(7).unwrap();
        listener.close();
        assert!(listener.accept(Some(HANG)).is_err() && listener.accept(None).is_err());
    }
    late(&TcpListener::bind("127.0.0.1:0").unwrap());
    late(&std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    late(&UnixListener::bind_addr(&name()).unwrap());
    late(&OsUnixListener::bind_addr(&name()).unwrap());
}

#[test]
fn a_listener_that_is_closed_ends_its_loop() {
    let server = Arc::new(Server::new(hello).on_fault(|fault| panic!("{fault:?}")));
    let fibers = TcpListener::bind("127.0.0.1:0").unwrap();
    let threads = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = fibers.try_clone().unwrap();
    let other = threads.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| server.serve(fibers).unwrap());
        scope.spawn(|| server.serve(threads).unwrap());
        eventually("both listen", || server.addresses().len() == 2);
        Listener::close(&one);
        Listener::close(&other);
    });

    assert!(server.addresses().is_empty());
}

#[test]
fn a_server_that_has_stopped_serves_no_listener() {
    let server = Arc::new(Server::new(hello));
    server.stop();
    let address = Threads.start(&server);
    assert!(server.shutdown(HANG));
    assert!(connect(&address).is_err());
}

/// Whoever else has the listener: the server would have it listen again when it sets the backlog.
#[test]
fn a_server_that_has_stopped_closes_a_shared_listener() {
    let server = Arc::new(Server::new(hello));
    server.stop();
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    server.start(listener.clone()).unwrap();
    assert!(server.shutdown(HANG));

    // Not by its address: it would listen at another port.
    assert!(!rustix::net::sockopt::socket_acceptconn(&listener).unwrap());
}

/// Of the server's own caller, while it accepts and while it waits at the connection limit.
#[test]
fn a_deadline_ends_an_accept_loop() {
    fn serve(server: &Arc<Server<impl Handler>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        with_timeout(Duration::from_millis(20), || server.serve(listener)).unwrap();
    }
    let runtime = runtime(Io::Auto);
    for full in [false, true] {
        let server = Arc::new(Server::new(hello).with_limits(Limits {
            connections: 1,
            ..Limits::default()
        }));
        let elsewhere = Threads.start(&server);
        let mut client = connect(&elsewhere).unwrap();
        ask(&mut *client).unwrap();
        if !full {
            drop(client);
            eventually("it has left", || server.counts().open == 0);
        }

        let on_fiber = server.clone();
        let on_thread = server.clone();
        let fiber = runtime.spawn(move || serve(&on_fiber));
        let thread = std::thread::spawn(move || serve(&on_thread));
        let stop = StopOnDrop(&server);
        eventually("the deadline ends it", || {
            fiber.is_finished() && thread.is_finished()
        });
        fiber.join().unwrap();
        thread.join().unwrap();
        assert_eq!(server.addresses(), [elsewhere]);
        drop(stop);
    }
}

/// Stops a server, so that no loop outlives its test.
struct StopOnDrop<'a, H: Handler>(&'a Arc<Server<H>>);

impl<H: Handler> Drop for StopOnDrop<'_, H> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// `std` has no address for a path of 108 bytes, for which the kernel needs no zero at its end.
#[test]
fn a_peer_with_the_longest_path_is_served() {
    use rustix::net::{AddressFamily, SocketType, bind, socket};

    for io in [Io::Epoll, Io::Uring] {
        let place = UnixFibers(runtime(io));
        let server = Arc::new(Server::new(hello));
        let address = place.start(&server);
        let Address::Unix(name) = &address else {
            panic!("{address}")
        };
        let file = format!(
            "{}/plainweave-http-{}-",
            std::env::temp_dir().display(),
            std::process::id()
        );
        let file = File(format!("{file:x<108}"));
        let client = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();

        bind(&client, &SocketAddrUnix::new(&*file.0).unwrap()).unwrap();
        let name =
            SocketAddrUnix::new_abstract_name(&name.to_str().unwrap().as_bytes()[1..]).unwrap();
        rustix::net::connect(&client, &name).unwrap();
        let mut client = OsUnix::from(client);
        client.patience();
        assert_eq!(ask(&mut client).unwrap(), b"hello");
        assert_eq!(
            ask(&mut *connect(&address).unwrap()).unwrap(),
            b"hello",
            "and the next one"
        );
        drop(client);
        assert!(place.shutdown(&server, HANG));
        assert_eq!(server.counts().failed, 0);
    }
}

/// A file that goes with the test.
struct File(String);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Accepts fail in one way, then go on.
struct Starved {
    listener: std::net::TcpListener,
    fails: AtomicUsize,
    error: fn() -> io::Error,
}

impl Listener for Starved {
    type Stream = std::net::TcpStream;

    fn accept(&self, patience: Option<Duration>) -> io::Result<(Self::Stream, Option<SocketAddr>)> {
        if self
            .fails
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_ok()
        {
            return Err((self.error)());
        }
        Listener::accept(&self.listener, patience)
    }

    fn close(&self) {
        Listener::close(&self.listener);
    }

    fn address(&self) -> Option<Address> {
        Listener::address(&self.listener)
    }

    fn set_backlog(&self, connections: u32) -> io::Result<()> {
        Listener::set_backlog(&self.listener, connections)
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        Listener::spawn(&self.listener, work)
    }
}

/// Without descriptors, or when there was something wrong with one client.
#[test]
fn an_accept_that_fails_is_tried_again() {
    let emfile = || io::Error::from_raw_os_error(24);
    for error in [
        emfile,
        || io::ErrorKind::InvalidInput.into(),
        || io::Error::from_raw_os_error(107),
    ] {
        let faults = Arc::new(AtomicUsize::new(0));
        let counted = faults.clone();
        let server = Server::new(hello).on_fault(move |fault| {
            assert!(
                matches!(fault, Fault::Failed(got) if got.kind() == error().kind()),
                "{fault:?}"
            );
            counted.fetch_add(1, Ordering::SeqCst);
        });

        let server = Arc::new(server);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server
            .start(Starved {
                listener,
                fails: AtomicUsize::new(3),
                error,
            })
            .unwrap();
        assert_eq!(ask(&mut *connect(&address).unwrap()).unwrap(), b"hello");
        assert_eq!(
            (faults.load(Ordering::SeqCst), server.counts().failed),
            (3, 3)
        );
        assert!(server.shutdown(HANG));
    }
}

#[test]
fn an_address_has_its_share_of_connections() {
    let limits = Limits {
        connections_per_address: 1,
        ..Limits::default()
    };

    let server = Arc::new(Server::new(hello).with_limits(limits));
    let address = Threads.start(&server);
    let mut first = connect(&address).unwrap();
    ask(&mut *first).unwrap();
    assert_eq!(connect(&address).unwrap().read(&mut [0]).unwrap(), 0);
    assert_eq!(server.counts().refused, 1);
    drop(first);
    eventually("the first has left", || server.counts().open == 0);
    ask(&mut *connect(&address).unwrap()).unwrap();
    assert!(server.shutdown(HANG));
}

/// The port is free again before `run` binds it: someone else may come first.
#[test]
fn run_serves_until_its_fiber_is_cancelled() {
    fn attempt(runtime: &Runtime) -> io::Result<()> {
        // An address that no other test uses, so that nobody listens there afterwards.
        let listener = std::net::TcpListener::bind("127.0.0.25:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taken = Server::run(address, hello).unwrap_err();
        assert_eq!(
            taken.kind(),
            io::ErrorKind::AddrInUse,
            "on a runtime of its own"
        );
        drop(listener);
        let serving = runtime.spawn(move || Server::run(address, hello));

        eventually("it listens", || {
            serving.is_finished() || OsTcp::connect(address).is_ok()
        });
        if !serving.is_finished() {
            assert_eq!(
                ask(&mut *connect(&Address::Tcp(address)).unwrap()).unwrap(),
                b"hello"
            );
        }

        serving.cancel();
        serving.join().unwrap()?;
        assert!(OsTcp::connect(address).is_err());
        Ok(())
    }
    let runtime = runtime(Io::Auto);
    let taken = |done: &io::Result<()>| {
        done.as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };

    let done = (0..20).map(|_| attempt(&runtime)).find(|done| !taken(done));
    done.expect("a free port").unwrap();
}

/// Bytes that a client sends in pieces, and a client that leaves in the middle, over a stream of
/// each kind.
#[test]
fn streams_of_every_kind_carry_connections() {
    fn serve(stream: impl Transport, mut client: impl Client) {
        let server = Server::new(hello);
        std::thread::scope(|scope| {
            scope.spawn(|| server.serve_stream(stream));
            GET.chunks(3)
                .for_each(|piece| client.write_all(piece).unwrap());
            assert!(client.read(&mut [0; 1024]).unwrap() > 0);
            client.write_all(&GET[..7]).unwrap();
            drop(client);
        });
    }
    let (ours, theirs) = OsUnix::pair().unwrap();
    serve(ours, theirs);
    let (ours, theirs) = OsUnix::pair().unwrap();
    serve(plainweave::net::UnixStream::from_std(ours).unwrap(), theirs);
    let (mut ours, theirs) = OsUnix::pair().unwrap();

    assert!(!Transport::wait_readable(&mut ours, Duration::from_millis(1)).unwrap());
    theirs.shutdown(Shutdown::Write).unwrap();
    assert!(Transport::wait_readable(&mut ours, Duration::from_millis(1)).unwrap());
}
