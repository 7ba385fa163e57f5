//! `plainweave cache -Z`: TLS by memcached's options, with rustls and openssl as its clients.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::files::refused;
use super::memory_limit::{fill, within_48_mib};
use super::packet::of_key;
use super::running::{PATIENCE, Running, command, eventually};
use crate::common::authority::{Authority, Client, NOW};
use crate::common::child::output;
use crate::common::skip::skip;

const DRIVERS: [&str; 2] = ["epoll", "uring"];

/// Returns the words of `-o` for a certificate of `localhost`.
fn options(authority: &Authority) -> String {
    let [_, chain, _, key] = authority.certify("localhost", &["localhost"], NOW);
    format!("ssl_chain_cert={chain},ssl_key={key}")
}

fn serve(authority: &Authority, more: &[&str]) -> Running {
    let options = options(authority);
    Running::start(&[&["-Z", "-o", &options], more].concat())
}

/// Returns where the server speaks TLS.
fn secure(server: &Running) -> SocketAddr {
    secure_all(server)[0]
}

fn secure_all(server: &Running) -> Vec<SocketAddr> {
    let words = server.line.split_whitespace();
    let named = words.filter_map(|word| word.trim_end_matches(',').strip_prefix("tls:"));
    named.map(|word| word.parse().expect(word)).collect()
}

/// Sends, and receives exactly this.
#[track_caller]
fn ask(client: &mut Client, text: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
    client.write_all(text.as_ref()).unwrap();
    expect(client, reply);
}

#[track_caller]
fn expect(client: &mut Client, reply: impl AsRef<[u8]>) {
    let reply = reply.as_ref();
    let mut got = vec![0; reply.len()];
    let read = client.read_exact(&mut got);
    assert!(read.is_ok(), "{read:?}: {}", String::from_utf8_lossy(&got));
    assert!(got == reply, "{}", String::from_utf8_lossy(&got));
}

/// Receives up to and with this line.
fn until(client: &mut Client, line: &str) -> String {
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(format!("{line}\r\n").as_bytes()) {
        client.read_exact(&mut byte).unwrap();
        got.push(byte[0]);
    }
    String::from_utf8_lossy(&got).into_owned()
}

/// Whether a handshake and a command succeed.
fn is_let_in(config: &Arc<ClientConfig>, address: SocketAddr) -> bool {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut client = StreamOwned::new(client, stream);
    let mut got = [0; 8];
    let asked = client.write_all(b"version\r\n");
    asked.and_then(|()| client.read_exact(&mut got)).is_ok() && got == *b"VERSION "
}

/// Returns what a client is that has a certificate by that issuer.
fn certified(authority: &Authority, issuer: &Authority) -> Arc<ClientConfig> {
    let [_, chain, _, key] = issuer.certify("client", &["client"], NOW);
    let mut roots = RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(chain).unwrap()];
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let config = builder.with_root_certificates(roots);
    Arc::new(config.with_client_auth_cert(chain, key).unwrap())
}

fn shown(client: &Client) -> CertificateDer<'static> {
    client.conn.peer_certificates().unwrap()[0].clone()
}

#[test]
fn values_of_any_length_come_back() {
    let authority = Authority::new();
    for io in DRIVERS {
        let server = serve(&authority, &["--io", io, "-I", "4m", "-t", "2"]);
        let mut client = authority.connect_to(secure(&server));

        for len in [0, 1, 100, 16 << 10, (16 << 10) + 1, 100_000, 3_000_000] {
            let value: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let set = [
                format!("set k{len} 7 0 {len}\r\n").as_bytes(),
                &value,
                b"\r\n",
            ]
            .concat();
            ask(&mut client, set, "STORED\r\n");
            let head = format!("VALUE k{len} 7 {len}\r\n");
            let reply = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
            ask(&mut client, format!("get k{len}\r\n"), reply);
        }

        // Many commands in few records, and one in many.
        let keys = ["k100"; 500].join(" ");
        let value: Vec<u8> = (0..100).collect();
        let one = [b"VALUE k100 7 100\r\n", &value[..], b"\r\n"].concat();
        let all = [one.repeat(500), b"END\r\n".to_vec()].concat();
        ask(&mut client, format!("get {keys}\r\n"), &all);
        let each = [&one[..], b"END\r\n"].concat();
        ask(&mut client, "get k100\r\n".repeat(1000), each.repeat(1000));
        for byte in b"mn\r\n" {
            client.write_all(&[*byte]).unwrap();
        }

        expect(&mut client, "MN\r\n");

        // The end can be told from a break.
        client.write_all(b"quit\r\n").unwrap();
        let mut rest = Vec::new();
        assert_eq!(client.read_to_end(&mut rest).unwrap(), 0, "{io}");
    }
}

/// They may come in one segment, and nothing follows.
#[test]
fn the_first_command_may_come_with_the_end_of_the_handshake() {
    let authority = Authority::new();
    for architecture in ["driver", "fibers"] {
        let server = serve(&authority, &["--architecture", architecture]);
        for _ in 0..20 {
            let mut client = authority.connect_to(secure(&server));
            client.conn.writer().write_all(b"mn\r\n").unwrap();
            while client.conn.is_handshaking() || client.conn.wants_write() {
                client.conn.complete_io(&mut client.sock).unwrap();
            }

            expect(&mut client, "MN\r\n");
        }
    }
}

#[test]
fn binary_commands_and_users_are_there_too() {
    let authority = Authority::new();
    let users = authority.path("users");
    fs::write(&users, "me:secret\n").unwrap();
    let server = serve(&authority, &["-Y", &users]);
    let mut client = authority.connect_to(secure(&server));
    ask(&mut client, "get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    ask(&mut client, "set x 0 0 9\r\nme secret\r\n", "STORED\r\n");
    ask(&mut client, "get a\r\n", "END\r\n");

    let server = serve(&authority, &["-B", "binary"]);
    let mut client = authority.connect_to(secure(&server));
    client.write_all(&of_key(0x0a, b"")).unwrap();
    let mut head = [0; 24];
    client.read_exact(&mut head).unwrap();
    assert_eq!((head[0], head[1], head[7]), (0x81, 0x0a, 0));
}

#[test]
fn who_reads_nothing_holds_up_nobody_and_gets_all_in_the_end() {
    let authority = Authority::new();
    for io in DRIVERS {
        let server = serve(&authority, &["--io", io, "-t", "1"]);
        let mut client = authority.connect_to(secure(&server));
        let value = "v".repeat(900_000);
        ask(
            &mut client,
            format!("set k 0 0 900000\r\n{value}\r\n"),
            "STORED\r\n",
        );

        let mut slow = authority.connect_to(secure(&server));
        slow.write_all("get k\r\n".repeat(20).as_bytes()).unwrap();
        slow.flush().unwrap();
        eventually("replies are left unread", || {
            client.write_all(b"stats conns\r\n").unwrap();
            until(&mut client, "END").contains("unread_bytes")
        });

        ask(&mut client, "add l 0 0 1\r\nl\r\n", "STORED\r\n");
        let one = format!("VALUE k 0 900000\r\n{value}\r\nEND\r\n");
        for _ in 0..20 {
            expect(&mut slow, &one);
        }

        ask(&mut slow, "mn\r\n", "MN\r\n");
    }
}

#[test]
fn half_a_record_holds_no_turn_and_silence_ends() {
    let authority = Authority::new();
    let options = format!("{},idle_timeout=2", options(&authority));
    let server = Running::start(&["-Z", "-o", &options, "-t", "1"]);
    let mut client = authority.connect_to(secure(&server));
    ask(&mut client, "mn\r\n", "MN\r\n");

    client.conn.writer().write_all(b"mn\r\n").unwrap();
    let mut record = Vec::new();
    client.conn.write_tls(&mut record).unwrap();
    client.sock.write_all(&record[..record.len() / 2]).unwrap();
    let mut other = authority.connect_to(secure(&server));
    ask(&mut other, "mn\r\n", "MN\r\n");
    client.sock.write_all(&record[record.len() / 2..]).unwrap();
    expect(&mut client, "MN\r\n");

    // Another half: its connection is a silent one.
    client.conn.writer().write_all(b"mn\r\n").unwrap();
    record.clear();
    client.conn.write_tls(&mut record).unwrap();
    client.sock.write_all(&record[..record.len() / 2]).unwrap();
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

/// Peers that leave at any byte, speak something else, or say nothing.
#[test]
fn handshakes_that_come_to_nothing() {
    let authority = Authority::new();
    let server = serve(&authority, &["-t", "1", "-vv"]);
    let address = secure(&server);
    let mut hello = Vec::new();
    let mut conn = ClientConnection::new(authority.client(), "localhost".try_into().unwrap());
    conn.as_mut().unwrap().write_tls(&mut hello).unwrap();

    for len in 0..hello.len() {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello[..len]).unwrap();
    }
    for rubbish in [
        "get a\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x7f\x7f\x7f\x7f",
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(rubbish.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let silent: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();

    let mut client = authority.connect_to(address);
    ask(&mut client, "set a 0 0 1\r\na\r\n", "STORED\r\n");
    eventually("failures are counted", || {
        client.write_all(b"stats\r\n").unwrap();
        let stats = until(&mut client, "END");
        let line = stats
            .lines()
            .find(|line| line.contains("ssl_handshake_errors"));
        let errors = line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        errors.is_some_and(|errors| errors >= hello.len())
    });
    drop(silent);
    server.signal();
    let (code, said) = server.end();
    assert_eq!(code, Some(0));
    assert!(said.contains("TLS handshake"), "{said}");
}

#[test]
fn certificates_are_read_again() {
    let authority = Authority::new();
    let server = serve(&authority, &[]);
    let address = secure(&server);
    let mut first = authority.connect_to(address);
    ask(&mut first, "mn\r\n", "MN\r\n");

    authority.certify("localhost", &["localhost", "again"], NOW);
    ask(&mut first, "refresh_certs\r\nmn\r\n", "OK\r\nMN\r\n");
    let mut second = authority.connect_to(address);
    ask(&mut second, "mn\r\n", "MN\r\n");
    assert_ne!(shown(&first), shown(&second));

    fs::write(authority.path("localhost.key"), "rubbish").unwrap();
    first.write_all(b"refresh_certs\r\n").unwrap();
    let said = until(&mut first, "");
    assert!(said.starts_with("SERVER_ERROR"), "{said}");
    assert!(!said.contains("localhost.key"), "{said}");
    let mut third = authority.connect_to(address);
    ask(&mut third, "mn\r\n", "MN\r\n");
    assert_eq!(shown(&second), shown(&third));

    authority.certify("localhost", &["localhost", "once-more"], NOW);
    kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
    eventually("SIGHUP has them read again", || {
        let mut fourth = authority.connect_to(address);
        ask(&mut fourth, "mn\r\n", "MN\r\n");
        shown(&fourth) != shown(&third)
    });
    server.signal();
    let (_, said) = server.end();
    assert!(
        said.contains("localhost.key"),
        "the operator learns why: {said}"
    );
    assert!(said.contains("the certificates are loaded again"), "{said}");
}

#[test]
fn listeners_ask_for_what_their_prefix_says() {
    let authority = Authority::new();
    let other = authority.impostor();
    let options = options(&authority);
    let everybody = authority.client();
    let known = certified(&authority, &authority);
    let unknown = certified(&authority, &other);

    let files = format!("{options},ssl_ca_cert={}", authority.path("ca.pem"));
    for (mode, lets_in) in [
        ("0", [true, true, true]),
        ("1", [true, true, false]),
        ("2", [false, true, false]),
    ] {
        let options = format!("{files},ssl_verify_mode={mode}");
        let listen = "127.0.0.1,btls:127.0.0.1,mtls:127.0.0.1,notls:127.0.0.1";
        let server = Running::start(&["-Z", "-o", &options, "-l", listen]);
        let [_, usual, basic, mutual] = secure_all(&server)[..] else {
            panic!("{}", server.line);
        };

        let configs = [&everybody, &known, &unknown];
        assert_eq!(
            configs.map(|config| is_let_in(config, usual)),
            lets_in,
            "{mode}"
        );

        assert_eq!(configs.map(|config| is_let_in(config, basic)), [true; 3]);
        assert_eq!(
            configs.map(|config| is_let_in(config, mutual)),
            [false, true, false]
        );

        server.connect().ask("mn\r\n", "MN\r\n");
    }
}

#[test]
fn watchers_and_lists_are_there_too() {
    let authority = Authority::new();
    let server = serve(&authority, &["-l", "127.0.0.1,notls:127.0.0.1"]);
    let mut client = authority.connect_to(secure(&server));
    ask(&mut client, "set a 0 0 1\r\na\r\n", "STORED\r\n");

    // What stands behind a list is answered after it.
    client
        .write_all(b"lru_crawler metadump all\r\nmn\r\n")
        .unwrap();
    assert!(until(&mut client, "END").starts_with("key=a exp=-1"));
    expect(&mut client, "MN\r\n");
    let mut plain = server.connect();
    plain.send("lru_crawler metadump all\r\nmn\r\n");
    plain.until("", "END");
    plain.expect("MN\r\n");

    // A list that ends a full record and buffer, with more behind it.
    for list in ["lru_crawler metadump all\r\n", "refresh_certs\r\n"] {
        let around = "set f 0 0 16300 noreply\r\n\r\n".len() + list.len();
        let bytes = (16 << 10) - around;
        let value = "f".repeat(bytes);
        let all = format!("set f 0 0 {bytes} noreply\r\n{value}\r\n{list}mn\r\n");
        client.write_all(all.as_bytes()).unwrap();
        until(&mut client, "MN");
    }

    let mut watcher = authority.connect_to(secure(&server));
    ask(&mut watcher, "watch fetchers\r\n", "OK\r\n");
    ask(&mut client, "get a\r\n", "VALUE a 0 1\r\na\r\nEND\r\n");
    let mut byte = [0];
    let mut line = String::new();
    while !line.ends_with('\n') {
        watcher.read_exact(&mut byte).unwrap();
        line.push(char::from(byte[0]));
    }
    assert!(line.contains("type=item_get key=a status=found"), "{line}");
    drop(watcher);
    eventually("the watcher is gone", || plain.stat("log_watchers") == 0);
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    let authority = Authority::new();
    let [_, chain, _, key] = authority.certify("localhost", &["localhost"], NOW);
    let missing = authority.path("missing.pem");
    let pair = format!("ssl_chain_cert={chain},ssl_key={key}");
    for (args, said) in [
        (&["-Z"][..], "-o ssl_chain_cert=FILE"),
        (
            &["-Z", "-o", &format!("ssl_chain_cert={missing}")],
            "missing.pem",
        ),
        (
            &["-Z", "-o", &format!("ssl_chain_cert={chain}")],
            "no private key",
        ),
        (
            &["-Z", "-o", &format!("{pair},ssl_verify_mode=2")],
            "ssl_ca_cert=FILE",
        ),
        (
            &["-Z", "-o", &format!("{pair},ssl_verify_mode=7")],
            "ssl_verify_mode needs",
        ),
        (&["-Z", "-o", &format!("{pair},ssl_keyformat=2")], "1 (PEM)"),
        (
            &["-Z", "-o", &pair, "-s", &authority.path("socket")],
            "no port to speak TLS on",
        ),
        (
            &["-Z", "-o", &pair, "-l", "notls:127.0.0.1"],
            "no port to speak TLS on",
        ),
        (&["-l", "notls:127.0.0.1"], "give -Z"),
    ] {
        let text = refused(&[&["-p", "-1"], args].concat());
        assert!(text.contains(said), "{args:?}: {text}");
    }

    let server = Running::start(&["-o", &pair]);
    server
        .connect()
        .ask("refresh_certs\r\n", "Error TLS not enabled\r\n");
    server.signal();
    assert!(server.end().1.contains("no effect without -Z"));
}

/// A file with both, TLS 1.3 alone, and the settings as memcached names them.
#[test]
fn options_are_those_of_memcached() {
    let authority = Authority::new();
    let [_, chain, _, key] = authority.certify("localhost", &["localhost"], NOW);
    let both = authority.path("both.pem");
    let text = fs::read_to_string(&chain).unwrap() + &fs::read_to_string(&key).unwrap();
    fs::write(&both, text).unwrap();
    let options =
        format!("ssl_chain_cert={both},ssl_min_version=3,ssl_session_cache,ssl_wbuf_size=32");
    let server = Running::start(&["-Z", "-o", &options]);
    let address = secure(&server);
    let mut client = authority.connect_to(address);
    client.write_all(b"stats settings\r\n").unwrap();
    let settings = until(&mut client, "END");
    for (name, value) in [
        ("ssl_enabled", "yes"),
        ("ssl_chain_cert", &both),
        ("ssl_key", "NULL"),
        ("ssl_verify_mode", "0"),
        ("ssl_min_version", "tlsv1.3"),
    ] {
        let line = format!("STAT {name} {value}\r\n");
        assert!(settings.contains(&line), "{line} of {settings}");
    }

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).unwrap();
    let older = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    assert!(!is_let_in(&older, address));
    assert!(is_let_in(&authority.client(), address));
}

/// As many as are let in, half of them with a part of a record on its way, and all with a large
/// value that they do not read.
#[test]
fn a_crowd_that_does_not_read_does_not_get_the_server_killed() {
    let authority = Authority::new();
    let options = options(&authority);
    for io in DRIVERS {
        let name = format!("cache-tls-{io}");
        let more = ["-l", "notls:127.0.0.1", "-Z", "-o", &options];
        let (_group, server) = match within_48_mib(&name, io, &more) {
            Ok(started) => started,
            Err(why) => return skip(&why),
        };
        fill(&server);
        let address = secure(&server);
        let bounds = server.line.split_once("up to ").unwrap().1;
        let most: usize = bounds.split(' ').next().unwrap().parse().unwrap();
        assert!((20..500).contains(&most), "{}", server.line);
        let mut crowd: Vec<_> = (1..most).map(|_| authority.connect_to(address)).collect();
        crowd
            .iter_mut()
            .for_each(|client| ask(client, "mn\r\n", "MN\r\n"));
        for (n, client) in crowd.iter_mut().enumerate() {
            client.conn.writer().write_all(b"get large\r\n").unwrap();
            let mut records = Vec::new();
            client.conn.write_tls(&mut records).unwrap();
            if n % 2 == 0 {
                client.conn.writer().write_all(&[b'x'; 15_000]).unwrap();
                client.conn.write_tls(&mut records).unwrap();
                records.truncate(records.len() - 1);
            }

            let _ = client.sock.write_all(&records);
        }

        // Each has the beginning of an answer: a value, or that there is no memory for more.
        let served = crowd.iter_mut().filter_map(|client| {
            let mut begun = [0; 6];
            client.read_exact(&mut begun).ok()?;
            (begun == *b"VALUE ").then_some(())
        });

        let served = served.count();
        assert!(served > 0 && served < most - 1, "{served} of {most}");
        drop(crowd);
        eventually("a new client is served", || {
            is_let_in(&authority.client(), address)
        });

        server.signal();
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_load_over_tls_is_answered() {
    let authority = Authority::new();
    let server = serve(&authority, &[]);
    let target = format!("localhost:{}", secure(&server).port());
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
        command.args([
            "load",
            "cache",
            "--tls",
            "--requests",
            "500",
            "--keys",
            "100",
            "--set-ratio",
            "0.1",
        ]);
        output(command.args(more).arg(&target)).unwrap()
    };
    let done = run(&["--ca", &authority.path("ca.pem")]);
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    assert!(
        text.contains("errors    0: none") && text.contains("handshake"),
        "{text}"
    );
    // Nobody that this machine trusts has certified it.
    assert!(!run(&[]).status.success());
}

/// One of another kind than asked for, and a file that is broken: nothing changes on any port.
#[test]
fn certificates_change_on_all_ports_or_none() {
    let authority = Authority::new();
    let ca = authority.path("clients.pem");
    fs::copy(authority.path("ca.pem"), &ca).unwrap();
    let options = format!("{},ssl_ca_cert={ca}", options(&authority));
    let server = Running::start(&["-Z", "-o", &options, "-l", "btls:127.0.0.1,mtls:127.0.0.1"]);
    let [_, basic, mutual] = secure_all(&server)[..] else {
        panic!("{}", server.line);
    };
    let mut client = authority.connect_to(basic);
    ask(&mut client, "mn\r\n", "MN\r\n");
    let before = shown(&client);

    fs::write(&ca, "rubbish").unwrap();
    authority.certify("localhost", &["localhost"], NOW);
    client.write_all(b"refresh_certs\r\n").unwrap();
    assert!(until(&mut client, "").starts_with("SERVER_ERROR"));
    let mut later = authority.connect_to(basic);
    ask(&mut later, "mn\r\n", "MN\r\n");
    assert_eq!(shown(&later), before);
    assert!(is_let_in(&certified(&authority, &authority), mutual));
    fs::copy(authority.path("ca.pem"), &ca).unwrap();
    ask(&mut client, "refresh_certs\r\n", "OK\r\n");
    let mut last = authority.connect_to(basic);
    ask(&mut last, "mn\r\n", "MN\r\n");
    assert_ne!(shown(&last), before);
}

/// A server with TLS takes over from one without: who is connected without it is not in.
#[test]
fn a_replacement_opens_no_way_around_tls() {
    let authority = Authority::new();
    let file = authority.path("replace");
    let options = options(&authority);
    let old = Running::start(&["--replace", &file]);
    let mut client = old.connect();
    client.ask("mn\r\n", "MN\r\n");

    let port = old.address.port().to_string();
    let common = ["-p", &port, "-l", "127.0.0.1", "--replace", &file];
    let new = Running::spawn(command(&[&common[..], &["-Z", "-o", &options]].concat()));
    assert_eq!(old.end().0, Some(0));
    let _ = client.0.write_all(b"version\r\n");
    let mut rest = Vec::new();
    let _ = client.0.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    let mut secured = authority.connect_to(secure(&new));
    ask(&mut secured, "mn\r\n", "MN\r\n");

    // Nor by a Unix socket that the new one has not.
    let socket = authority.path("socket");
    let file = authority.path("replace-unix");
    let old = Running::spawn(command(&["-s", &socket, "--replace", &file]));
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"mn\r\n").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    let common = ["-p", "-1", "-l", "127.0.0.1", "--replace", &file];
    let _next = Running::spawn(command(&[&common[..], &["-Z", "-o", &options]].concat()));
    assert_eq!(old.end().0, Some(0));
    let _ = client.write_all(b"version\r\n");
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));

    // And to one that has a port without.
    let file = authority.path("replace");
    drop(secured);
    let common = [
        "-p",
        &port,
        "-l",
        "notls:127.0.0.1",
        "-l",
        "127.0.0.1:0",
        "--replace",
        &file,
    ];
    let plain = Running::spawn(command(&[&common[..], &["-Z", "-o", &options]].concat()));
    assert_eq!(new.end().0, Some(0));
    let mut client = plain.connect();
    client.ask("set a 0 0 1\r\na\r\n", "STORED\r\n");
    let last = Running::spawn(command(&[&common[..], &["-Z", "-o", &options]].concat()));
    assert_eq!(plain.end().0, Some(0));
    client.ask("get a\r\n", "END\r\n");
    drop(last);
}

/// What stands behind a command that takes its time comes when there is memory for no more turns.
#[test]
fn a_command_that_is_refused_for_memory_keeps_no_worker() {
    let authority = Authority::new();
    let server = serve(
        &authority,
        &[
            "-t",
            "1",
            "-m",
            "64",
            "--max-memory",
            "72m",
            "-l",
            "127.0.0.1,notls:127.0.0.1",
        ],
    );
    let mut plain = server.connect();
    let value = "v".repeat(900_000);
    plain.ask(format!("set k 0 0 900000\r\n{value}\r\n"), "STORED\r\n");
    let mut client = authority.connect_to(secure(&server));
    ask(&mut client, "refresh_certs\r\n", "OK\r\n");
    // It waits for a second.
    client.write_all(b"refresh_certs\r\nmn\r\n").unwrap();
    let mut crowd: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for one in &mut crowd {
        one.send("get k\r\n".repeat(20));
    }

    expect(&mut client, "OK\r\n");
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert!(matches!(&answer, b"MN\r\n" | b"SERV"), "{answer:?}");
    drop(crowd);
    eventually("a new client is served", || {
        let mut client = server.connect();
        let mut answer = [0; 4];
        client.send("mn\r\n");
        client.0.read_exact(&mut answer).is_ok() && answer == *b"MN\r\n"
    });
}
