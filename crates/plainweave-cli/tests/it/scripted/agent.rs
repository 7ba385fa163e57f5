//! Agents that do as a script says, and what they and coordinators say to each other.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Of the protocol.
pub(crate) const VERSION: u64 = 4;
/// How long anything may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// The next message, but for those that say that an agent is there.
pub(crate) fn line(stream: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        if message["alive"] != true {
            return message;
        }
    }
}

/// An agent that greets and then does as the script says. Its address.
pub(crate) fn scripted_agent(
    script: impl FnOnce(&mut BufReader<TcpStream>) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
        say(
            &mut stream,
            &json!({ "plainweave_agent": VERSION, "challenge": "x", "secret": false }),
        );
        line(&mut stream);
        say(&mut stream, &json!({ "proof": null }));
        assert!(line(&mut stream)["prepare"].is_object());
        script(&mut stream);

        // Until the coordinator has gone.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    address
}

pub(crate) fn say(stream: &mut BufReader<TcpStream>, message: &Value) {
    // The coordinator may have had enough.
    let _ = stream
        .get_mut()
        .write_all(format!("{message}\n").as_bytes());
}

/// Says that it is prepared, and reads the order to run.
pub(crate) fn prepared(stream: &mut BufReader<TcpStream>) {
    say(
        stream,
        &json!({ "prepared": { "workers": 1, "addresses": [] } }),
    );
    assert!(line(stream)["run"].is_object());
}
