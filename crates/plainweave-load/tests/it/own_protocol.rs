//! A protocol of one's own: the example that speaks RESP, against small servers and Redis.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plainweave_load::{Load, Measured};

#[path = "../../examples/redis.rs"]
#[allow(dead_code, reason = "its `main`")]
mod redis;

const SHORT: Duration = Duration::from_millis(400);

/// Starts a server that hands each connection to `serve`; it ends with the process.
fn server(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads a command: an array of strings.
fn command(reader: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let words: usize = line.trim().strip_prefix('*')?.parse().ok()?;
    (0..words)
        .map(|_| {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let len: usize = line.trim().strip_prefix('$')?.parse().ok()?;
            let mut word = vec![0; len + 2];
            reader.read_exact(&mut word).ok()?;
            String::from_utf8(word[..len].to_vec()).ok()
        })
        .collect()
}

/// Answers each command on a connection.
fn answer(stream: TcpStream, mut reply: impl FnMut(&[String]) -> String) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(words) = command(&mut reader) {
        if writer.write_all(reply(&words).as_bytes()).is_err() {
            return;
        }
    }
}

/// A store for each connection.
fn stores(stream: TcpStream) {
    let mut values = HashMap::new();
    answer(stream, |words| match words {
        [set, key, value] if set == "SET" => {
            values.insert(key.clone(), value.clone());
            "+OK\r\n".to_owned()
        }
        [_, key] => values.get(key).map_or("$-1\r\n".to_owned(), |value| {
            format!("${}\r\n{value}\r\n", value.len())
        }),
        _ => "-ERR what?\r\n".to_owned(),
    });
}

fn measured(address: SocketAddr, require: &str) -> Measured {
    Load::speaking(redis::Resp, address.to_string())
        .connections(4)
        .duration(SHORT)
        .with("workers", 1)
        .require(require)
        .run()
        .unwrap()
}

#[test]
fn answers_and_misses_are_counted() {
    let measured = measured(server(stores), "errors<=0,misses<=100%");
    measured.check().unwrap();
    assert!(measured.answers() > 100, "{measured:?}");
    assert_eq!(measured.failures(), 0);
    assert!(measured.latency(50.0).unwrap() > Duration::ZERO);
}

#[test]
fn what_the_server_refuses_fails_and_the_connection_goes_on() {
    let address = server(|stream| answer(stream, |_| "-ERR no\r\n".to_owned()));
    let measured = measured(address, "errors<=100%");
    assert_eq!(measured.answers(), 0);
    assert!(measured.failures() > 100, "{measured:?}");
}

#[test]
fn garbage_and_cut_answers_fail_and_are_told() {
    let garbage = server(|stream| answer(stream, |_| "HTTP/1.1 400\r\n\r\n".to_owned()));
    // It ends in the middle of an answer.
    let cut = server(|mut stream| {
        let mut asked = [0; 256];
        let _ = stream.read(&mut asked);
        let _ = stream.write_all(b"$7\r\na v");
    });
    let silent = server(drop);

    for address in [garbage, cut, silent] {
        let measured = measured(address, "errors<=0");
        assert!(
            measured.answers() == 0 && measured.failures() > 0,
            "{measured:?}"
        );
        let missed = measured.check().unwrap_err();
        assert!(!missed.missed().is_empty(), "{missed}");
    }
}

#[test]
fn a_flag_that_there_is_not_is_wrong() {
    let load = || Load::speaking(redis::Resp, "127.0.0.1:1");
    let error = load().with("no-such-flag", 1).run().unwrap_err();
    assert!(
        error.is_wrong() && error.to_string().contains("no-such-flag"),
        "{error}"
    );
    let error = Load::speaking(redis::Resp, "no port").run().unwrap_err();
    assert!(
        error.is_wrong() && error.to_string().contains("HOST:PORT"),
        "{error}"
    );
    let error = load().duration(SHORT).run().unwrap_err();
    assert!(
        !error.is_wrong() && error.to_string().contains("cannot reach"),
        "{error}"
    );
}

struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_is_asked() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let port_text = port.to_string();
    let mut command = Command::new("redis-server");
    command
        .args([
            "--port",
            &port_text,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .current_dir(std::env::temp_dir())
        .stdout(Stdio::null());
    let Ok(child) = command.spawn() else {
        let _ = writeln!(std::io::stderr(), "skipped: redis-server is not installed");
        return;
    };

    let _redis = Redis(child);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < end, "it does not answer");
        thread::sleep(Duration::from_millis(20));
    }
    // Half of the keys may not be there yet; all commands are understood.
    let measured = measured(address, "errors<=0,misses<=100%");
    measured.check().unwrap();
    assert!(measured.answers() > 100, "{measured:?}");
}
