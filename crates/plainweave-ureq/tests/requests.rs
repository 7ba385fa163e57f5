//! Requests by an agent of `plainweave_ureq`, to servers on fibers of the same runtime.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plainweave::net::{TcpListener, TcpStream};
use plainweave::sync::{Barrier, channel};
use plainweave::{Runtime, is_cancelled, spawn, time};
use plainweave_ureq::{FiberConnector, FiberResolver, agent};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::{Agent, Error, Proxy};

/// Far more than any of these takes.
const LONG: Duration = Duration::from_secs(30);

/// Reads a request up to the blank line behind its header. Returns nothing at the end.
fn request(stream: &mut impl Read) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    Ok(Some(String::from_utf8(head).expect("ASCII")))
}

fn answer(stream: &mut impl Write, body: &str) -> io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Serves each connection on a fiber of its own. Returns the address.
fn serve(each: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let each = each.clone();
            spawn(move || each(stream));
        }
    });
    address
}

/// A server that takes requests, says so, and never answers; the peer closes.
fn silence() -> (SocketAddr, channel::Receiver<()>) {
    let (came, has_come) = channel::bounded(1);
    let address = serve(move |mut stream| {
        let _ = request(&mut stream)?;
        let _ = came.send(());
        let _ = stream.read(&mut [0])?;
        Ok(())
    });
    (address, has_come)
}

fn text(agent: &Agent, url: &str) -> Result<String, Error> {
    agent.get(url).call()?.body_mut().read_to_string()
}

fn config() -> Config {
    Config::builder()
        .proxy(None)
        .timeout_global(Some(LONG))
        .build()
}

#[test]
fn many_requests_wait_on_one_worker() -> io::Result<()> {
    const MANY: usize = 50;
    // No spare worker may help.
    let runtime = Runtime::builder().workers(1).max_workers(1).build()?;
    runtime.run(|| {
        let all = Arc::new(Barrier::new(MANY));
        let address = serve(move |mut stream| {
            while request(&mut stream)?.is_some() {
                all.wait()?;
                answer(&mut stream, "hello")?;
            }
            Ok(())
        });
        let agent = agent(config());
        let url = format!("http://localhost:{}/", address.port());
        plainweave::scope(|s| {
            for _ in 0..MANY {
                s.spawn(|| assert_eq!(text(&agent, &url).expect("an answer"), "hello"));
            }
        });
    });
    Ok(())
}

#[plainweave::test]
fn a_connection_is_used_again_while_it_is_open() {
    let connections = Arc::new(AtomicUsize::new(0));
    let (closed, has_closed) = channel::bounded(1);
    let address = serve({
        let connections = Arc::clone(&connections);
        move |mut stream| {
            connections.fetch_add(1, Ordering::SeqCst);
            // Closes after two answers, without a word.
            for _ in 0..2 {
                let _ = request(&mut stream)?;
                answer(&mut stream, "one")?;
            }
            stream.close();
            let _ = closed.send(());
            Ok(())
        }
    });
    let agent = agent(config());
    let url = format!("http://{address}/");
    for _ in 0..2 {
        assert_eq!(text(&agent, &url).unwrap(), "one");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    has_closed.recv().unwrap();
    assert_eq!(text(&agent, &url).unwrap(), "one");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[plainweave::test]
fn a_cancelled_fiber_and_its_deadline_get_errors_of_their_own() {
    let (address, has_come) = silence();
    let url = format!("http://{address}/");

    let waiting = spawn({
        let url = url.clone();
        move || text(&agent(config()), &url)
    });
    has_come.recv().unwrap();
    waiting.cancel();
    match waiting.join().unwrap() {
        Err(Error::Io(error)) => assert!(is_cancelled(&error), "{error}"),
        other => panic!("{other:?}"),
    }

    let late = time::with_timeout(Duration::from_millis(50), || text(&agent(config()), &url));
    match late {
        Err(Error::Io(error)) => assert_eq!(error.kind(), ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }

    let short = Config::builder()
        .proxy(None)
        .timeout_recv_response(Some(Duration::from_millis(50)));
    match text(&agent(short.build()), &url) {
        Err(Error::Timeout(ureq::Timeout::RecvResponse)) => {}
        other => panic!("{other:?}"),
    }
}

#[plainweave::test]
fn an_agent_that_is_shut_down_ends_its_requests() {
    let (address, has_come) = silence();
    let agent = agent(config());
    let waiting = spawn({
        let agent = agent.clone();
        move || text(&agent, &format!("http://{address}/"))
    });
    has_come.recv().unwrap();
    agent.shutdown();
    assert!(waiting.join().unwrap().is_err());
}

#[plainweave::test]
fn https_is_encrypted_or_fails() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let der = cert.der().to_vec();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .map(Arc::new)
        .expect("a certificate with its key");
    let address = serve(move |stream| {
        let session = ServerConnection::new(Arc::clone(&server)).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(session, stream);
        let _ = request(&mut stream)?;
        answer(&mut stream, "in secret")
    });
    let url = format!("https://localhost:{}/", address.port());

    let roots = RootCerts::from(vec![Certificate::from_der(&der).to_owned()]);
    let with = |tls: TlsConfig| agent(Config::builder().proxy(None).tls_config(tls).build());
    let trusting = with(TlsConfig::builder().root_certs(roots).build());
    assert_eq!(text(&trusting, &url).unwrap(), "in secret");
    assert!(
        text(&agent(config()), &url).is_err(),
        "nobody vouches for it"
    );

    let other = with(
        TlsConfig::builder()
            .provider(TlsProvider::NativeTls)
            .build(),
    );
    match text(&other, &url) {
        Err(Error::Tls(why)) => assert!(why.contains("rustls"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[plainweave::test]
fn a_proxy_is_asked_to_connect_and_socks_is_refused() {
    let address = serve(|mut stream| {
        let asked = request(&mut stream)?.unwrap_or_default();
        assert!(asked.starts_with("CONNECT far.test:80 "), "{asked}");
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
        let _ = request(&mut stream)?;
        answer(&mut stream, "from afar")
    });
    let by = |proxy: &str| {
        let proxy = Proxy::new(proxy).expect("a proxy");
        agent(Config::builder().proxy(Some(proxy)).build())
    };
    let through = by(&format!("http://{address}"));
    assert_eq!(text(&through, "http://far.test/").unwrap(), "from afar");

    let error = text(
        &by(&format!("socks5://{address}")),
        &format!("http://{address}/"),
    );
    assert!(error.unwrap_err().to_string().contains("SOCKS"));
}

/// Knows one name, with two addresses.
#[derive(Debug)]
struct TwoAddresses([SocketAddr; 2]);

impl Resolver for TwoAddresses {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addrs = self.empty();
        self.0.iter().for_each(|addr| addrs.push(*addr));
        Ok(addrs)
    }
}

#[plainweave::test]
fn the_next_address_is_tried_and_the_last_failure_is_said() {
    let good = serve(|mut stream| {
        let _ = request(&mut stream)?;
        answer(&mut stream, "second")
    });
    // Bound, and closed again: nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);

    let to = |addrs| Agent::with_parts(config(), FiberConnector, TwoAddresses(addrs));
    assert_eq!(
        text(&to([closed, good]), "http://two.test/").unwrap(),
        "second"
    );
    match text(&to([closed, closed]), "http://two.test/") {
        Err(Error::Io(error)) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        other => panic!("{other:?}"),
    }
    let limit = NextTimeout {
        after: LONG.into(),
        ..NextTimeout::default()
    };
    let resolve = |uri: &str| {
        let uri: Uri = uri.parse().expect("a URI");
        FiberResolver.resolve(&uri, &config(), limit)
    };
    assert_eq!(resolve("https://127.0.0.1/").unwrap()[0].port(), 443);
    assert!(matches!(
        resolve("http://no-such-name.invalid/"),
        Err(Error::Io(_))
    ));
    assert!(matches!(resolve("/no/host"), Err(Error::BadUri(_))));
}

/// ureq asks with its pool's lock held whether a connection is open: a fiber that let others go on
/// there would keep all of them from the pool.
#[test]
fn a_cancelled_fiber_leaves_the_pool_alone() -> io::Result<()> {
    let runtime = Runtime::builder().workers(1).max_workers(1).build()?;
    runtime.run(|| {
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let address = serve(move |mut stream| {
            count.fetch_add(1, Ordering::SeqCst);
            while request(&mut stream)?.is_some() {
                answer(&mut stream, "still here")?;
            }
            Ok(())
        });
        let agent = agent(config());
        let url = format!("http://{address}/");
        assert_eq!(text(&agent, &url).expect("an answer"), "still here");

        for _ in 0..10 {
            let ask = || {
                let (agent, url) = (agent.clone(), url.clone());
                spawn(move || text(&agent, &url))
            };
            let cancelled = ask();
            cancelled.cancel();
            let other = ask();
            assert_eq!(
                other.join().expect("no panic").expect("an answer"),
                "still here"
            );
            assert!(cancelled.join().expect("no panic").is_err());
        }
        // A cancelled call gives its connection up, if it has had one; nothing else is lost.
        assert!(connections.load(Ordering::SeqCst) <= 12);
    });
    Ok(())
}
