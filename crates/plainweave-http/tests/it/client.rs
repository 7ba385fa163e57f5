//! The example `client`: ureq on fibers. Calls wait as fibers do, and so do cancellation and
//! deadlines end them.

use std::io::{self, Read, Write};
use std::net::TcpListener as OsListener;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::TcpListener;
use plainweave::sync::Barrier;
use plainweave::time::with_timeout;
use plainweave::{Runtime, is_cancelled};
use plainweave_http::testing::TestServer;
use plainweave_http::{Request, Response, Server};
use ureq::{Agent, Error};

use super::examples::client;
use crate::tls::peer::Authority;

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

fn agent() -> Agent {
    client::agent(Agent::config_builder().timeout_global(Some(HANG)))
}

fn fetch(agent: &Agent, url: &str) -> Result<String, Error> {
    agent.get(url).call()?.body_mut().read_to_string()
}

/// Of the client: a call that held its worker up would hold up all others.
fn one_worker() -> Runtime {
    Runtime::builder()
        .workers(1)
        .max_workers(1)
        .report_stalls(false)
        .build()
        .unwrap()
}

fn paths() -> TestServer<impl plainweave_http::Handler> {
    TestServer::start(Server::new(|request: &mut Request<'_>| {
        Response::ok(request.path().to_owned())
    }))
    .unwrap()
}

/// A server that hears requests and says nothing; and its URL.
fn silent() -> (OsListener, String) {
    let listener = OsListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

/// None is answered before all have come.
#[test]
fn calls_on_one_worker_overlap() {
    const CALLS: usize = 40;
    let all = Arc::new(Barrier::new(CALLS));
    let server = Server::new(move |request: &mut Request<'_>| match all.wait() {
        Ok(_) => Response::ok(request.path().to_owned()),
        Err(_) => Response::plain(plainweave_http::StatusCode::SERVICE_UNAVAILABLE),
    });

    let server = TestServer::start(server).unwrap();
    let agent = agent();
    let runtime = one_worker();
    runtime.run(|| {
        // The second round takes the connections of the first.
        for _ in 0..2 {
            let call = |n: usize| {
                let agent = agent.clone();
                let url = server.url(&format!("/{n}"));
                plainweave::spawn(move || fetch(&agent, &url).unwrap())
            };

            let calls: Vec<_> = (0..CALLS).map(call).collect();
            for (n, call) in calls.into_iter().enumerate() {
                assert_eq!(call.join().unwrap(), format!("/{n}"));
            }
        }
    });
    let accepted = usize::try_from(server.server().counts().accepted).unwrap();

    assert!(
        (CALLS..2 * CALLS).contains(&accepted),
        "{accepted} connections"
    );
}

#[test]
fn a_connection_is_kept_for_the_next_call() {
    let server = paths();
    let agent = agent();
    let url = server.url("/again");
    one_worker().run(|| {
        for _ in 0..5 {
            assert_eq!(fetch(&agent, &url).unwrap(), "/again");
        }
    });
    assert_eq!(server.server().counts().accepted, 1);
}

/// The server may end it meanwhile.
#[test]
fn a_connection_that_has_ended_is_not_used_again() {
    let (listener, url) = silent();
    let server = std::thread::spawn(move || {
        for n in 1..=2 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(HANG)).unwrap();
            assert!(stream.read(&mut [0; 1000]).unwrap() > 0);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}").unwrap();
        }
    });

    let agent = agent();
    one_worker().run(|| {
        assert_eq!(fetch(&agent, &url).unwrap(), "1");
        // What says so is on its way, but not here perhaps.
        plainweave::time::sleep(Duration::from_millis(50)).unwrap();
        assert_eq!(fetch(&agent, &url).unwrap(), "2");
    });
    server.join().unwrap();
}

/// The fiber's own, and ureq's; also where the answer has begun.
#[test]
fn a_deadline_ends_a_call() {
    let (silent, url) = silent();
    let talking = OsListener::bind("127.0.0.1:0").unwrap();
    let half = format!("http://{}/", talking.local_addr().unwrap());
    let talker = std::thread::spawn(move || {
        let (mut stream, _) = talking.accept().unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        assert!(stream.read(&mut [0; 1000]).unwrap() > 0);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            .unwrap();

        // Until the client leaves.
        let _ = stream.read(&mut [0]);
    });

    let short = Duration::from_millis(30);
    one_worker().run(|| {
        let untimed = client::agent(Agent::config_builder());
        let error = with_timeout(short, || fetch(&untimed, &url)).unwrap_err();
        assert!(
            matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::TimedOut),
            "{error:?}"
        );
        let error = with_timeout(short, || fetch(&untimed, &half)).unwrap_err();
        assert!(
            matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::TimedOut),
            "{error:?}"
        );
        let timed = client::agent(Agent::config_builder().timeout_global(Some(short)));
        let error = fetch(&timed, &url).unwrap_err();

        assert!(
            matches!(error, Error::Timeout(ureq::Timeout::Global)),
            "{error:?}"
        );
    });
    talker.join().unwrap();
    drop(silent);
}

#[test]
fn a_cancelled_fiber_ends_its_call() {
    let (listener, url) = silent();
    let runtime = one_worker();
    let calling = runtime.spawn(move || fetch(&agent(), &url).map_err(Error::into_io));
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    assert!(stream.read(&mut [0; 1000]).unwrap() > 0, "its request");
    calling.cancel();
    let error = calling.join().unwrap().unwrap_err();

    assert!(is_cancelled(&error), "{error:?}");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "and its connection");
}

/// A shutdown of the agent reaches a call in another fiber.
#[test]
fn a_shutdown_ends_calls_in_progress() {
    let (listener, url) = silent();
    let agent = agent();
    let runtime = one_worker();
    let caller = agent.clone();
    let calling = runtime.spawn(move || fetch(&caller, &url));
    let (mut stream, _) = listener.accept().unwrap();

    stream.set_read_timeout(Some(HANG)).unwrap();
    assert!(stream.read(&mut [0; 1000]).unwrap() > 0, "its request");
    agent.shutdown();
    assert!(calling.join().unwrap().is_err());
}

/// Names are looked up on the way, and certificates are judged.
#[test]
fn tls_with_an_authority_of_our_own() {
    let authority = Authority::new("authority");
    let other = Authority::new("another");
    let server = Arc::new(Server::new(|_: &mut Request<'_>| Response::ok("over TLS")));
    let runtime = one_worker();
    let address = runtime.run(|| {
        let listener = authority
            .acceptor()
            .listen(TcpListener::bind("127.0.0.1:0").unwrap());
        server.start(listener).unwrap().tcp().unwrap()
    });

    let url = format!("https://localhost:{}/", address.port());
    let agent = |of: &Authority| {
        let tls = client::trusting(&std::fs::read(of.file("ca.pem")).unwrap()).unwrap();
        client::agent(
            Agent::config_builder()
                .tls_config(tls)
                .timeout_global(Some(HANG)),
        )
    };

    let good = agent(&authority);
    let bad = agent(&other);
    runtime.run(|| {
        for _ in 0..3 {
            assert_eq!(fetch(&good, &url).unwrap(), "over TLS");
        }
        assert_eq!(server.counts().accepted, 1, "kept");
        assert!(matches!(
            fetch(&bad, &url),
            Err(Error::Rustls(_) | Error::Io(_))
        ));
        let unknown = format!("https://127.0.0.1:{}/", address.port());
        assert!(
            fetch(&good, &unknown).is_err(),
            "the certificate is for another name"
        );
        assert!(server.shutdown(HANG));
    });
}
