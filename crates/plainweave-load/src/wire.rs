//! What a coordinator and its agents say to each other: a line of JSON a message, over TCP.
//!
//! 1. The agent sends a challenge. The coordinator sends one of its own, and if there is a secret,
//!    an HMAC of both that proves that it knows it; the agent answers with its own proof. Neither
//!    sends the secret.
//! 2. The coordinator sends its arguments, the files they name, and which part of the load this is
//!    (`prepare`).
//! 3. For each run: `run`; the agent opens its connections and says `ready`; when all have, the
//!    coordinator says `go`. Each second the agent sends what it has counted (`piece`), at the end
//!    `done`. The coordinator may say `stop`.
//! 4. From step 2 on the agent says each second that it is there (`alive`): what it prepares may
//!    take long.
//!
//! No clock is compared with another host's: an agent measures its latencies itself, and counts
//! seconds from when it was let go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use socket2::{SockRef, TcpKeepalive};

/// Longest message of a coordinator: bodies and lists of URLs are files.
const LONGEST_ORDER: u64 = 512 << 20;
/// Longest message of an agent: what one worker counted in a second, histograms included.
const LONGEST_NEWS: u64 = 2 << 20;
/// Longest message of a peer that has not proved who it is.
const LONGEST_GREETING: u64 = 4096;
/// How long a greeting may take.
pub(super) const GREETING: Duration = Duration::from_secs(10);
/// Bytes of a secret, at least.
const SECRET: usize = 16;
const VERSION: u64 = 4;

/// What both sides know, if there is anything.
pub(super) type Secret = Option<Vec<u8>>;

/// Reads a secret: a file's text without blanks around it.
pub(super) fn read_secret(path: Option<&Path>) -> anyhow::Result<Secret> {
    let Some(path) = path else { return Ok(None) };
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let secret = bytes.trim_ascii().to_vec();
    ensure!(
        secret.len() >= SECRET,
        "{}: a secret has at least {SECRET} bytes",
        path.display()
    );
    Ok(Some(secret))
}

/// One end of a connection.
pub(super) struct Link {
    input: BufReader<Timed>,
    output: Sender,
}

/// A stream that is read until a deadline, if it has one.
struct Timed {
    stream: TcpStream,
    until: Option<Instant>,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the other side has not greeted in time",
                ));
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(into)
    }
}

/// The half that sends; clones share it.
#[derive(Clone)]
pub(super) struct Sender(Arc<Mutex<TcpStream>>);

impl Sender {
    /// Sends a message.
    pub(super) fn send(&self, message: &Value) -> io::Result<()> {
        let line = format!("{message}\n");
        // A thread that panicked meanwhile has left at most part of a line, which the other side
        // refuses.
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes())
    }
}

/// The half that receives.
pub(super) struct Receiver(BufReader<Timed>);

impl Receiver {
    /// Receives a coordinator's message; `None` at the end of the connection.
    pub(super) fn order(&mut self) -> anyhow::Result<Option<Value>> {
        line(&mut self.0, LONGEST_ORDER)?
            .map(|line| parse(&line))
            .transpose()
    }

    /// Receives an agent's message, which is not parsed: as JSON it takes many times the memory.
    pub(super) fn news(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        line(&mut self.0, LONGEST_NEWS)
    }
}

fn line(input: &mut BufReader<Timed>, longest: u64) -> anyhow::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = input.take(longest).read_until(b'\n', &mut line)?;
    ensure!(
        read == 0 || line.ends_with(b"\n"),
        "a message ends early, or is longer than {longest} bytes"
    );
    Ok((read > 0).then_some(line))
}

/// Parses a message.
pub(super) fn parse(line: &[u8]) -> anyhow::Result<Value> {
    serde_json::from_slice(line).context("a message is no JSON")
}

impl Link {
    /// Takes a new connection. The greeting must be over within [`GREETING`].
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        // A host that has gone silently is noticed within half a minute.
        let alive = TcpKeepalive::new()
            .with_time(Duration::from_secs(10))
            .with_interval(Duration::from_secs(5));
        SockRef::from(&stream).set_tcp_keepalive(&alive.with_retries(3))?;
        let output = Sender(Arc::new(Mutex::new(stream.try_clone()?)));

        Ok(Self {
            output,
            input: BufReader::new(Timed {
                stream,
                until: Some(Instant::now() + GREETING),
            }),
        })
    }

    pub(super) fn send(&self, message: &Value) -> io::Result<()> {
        self.output.send(message)
    }

    fn receive_greeting(&mut self) -> anyhow::Result<Value> {
        let line = line(&mut self.input, LONGEST_GREETING)?
            .context("the other side closed the connection")?;
        parse(&line)
    }

    /// Splits it, with no limit on how long a message may take from now on.
    pub(super) fn split(mut self) -> io::Result<(Sender, Receiver)> {
        self.input.get_mut().until = None;
        self.input.get_ref().stream.set_read_timeout(None)?;
        Ok((self.output, Receiver(self.input)))
    }

    /// Greets as the agent.
    pub(super) fn greet_coordinator(&mut self, secret: &Secret) -> anyhow::Result<()> {
        let own = challenge()?;
        self.send(
            &json!({ "plainweave_agent": VERSION, "challenge": own, "secret": secret.is_some() }),
        )?;
        let greeting = self.receive_greeting()?;
        let theirs = greeting["challenge"]
            .as_str()
            .context("no challenge")?
            .to_owned();
        if let Some(secret) = secret {
            verify(secret, "coordinator", &own, &theirs, &greeting["proof"])?;
        }
        let proof = secret
            .as_ref()
            .map(|secret| proof(secret, "agent", &own, &theirs));

        Ok(self.send(&json!({ "proof": proof }))?)
    }

    /// Greets as the coordinator.
    pub(super) fn greet_agent(&mut self, secret: &Secret) -> anyhow::Result<()> {
        let greeting = self
            .receive_greeting()
            .context("this is no agent of plainweave load")?;
        if let Some(error) = greeting["error"].as_str() {
            bail!("{error}");
        }
        ensure!(
            greeting["plainweave_agent"] == VERSION,
            "this is no agent of plainweave load, or one of another version"
        );
        let theirs = greeting["challenge"]
            .as_str()
            .context("no challenge")?
            .to_owned();
        let asks = greeting["secret"] == true;

        ensure!(
            !asks || secret.is_some(),
            "it asks for a secret: give --agent-secret-file"
        );
        ensure!(
            asks || secret.is_none(),
            "it has no secret, and --agent-secret-file is given"
        );
        let own = challenge()?;
        let proof = secret
            .as_ref()
            .map(|secret| proof(secret, "coordinator", &theirs, &own));

        self.send(&json!({ "challenge": own, "proof": proof }))?;
        let answer = self.receive_greeting().context("it has another secret")?;
        if let Some(secret) = secret {
            verify(secret, "agent", &theirs, &own, &answer["proof"])?;
        }
        Ok(())
    }
}

/// Returns 32 random bytes, as text.
fn challenge() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(STANDARD.encode(bytes))
}

fn mac(secret: &[u8], role: &str, agent: &str, coordinator: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::new_from_slice(secret)
        .unwrap_or_else(|_| unreachable!("a key of any length will do"));
    mac.update(format!("{role} {agent} {coordinator}").as_bytes());
    mac
}

fn proof(secret: &[u8], role: &str, agent: &str, coordinator: &str) -> String {
    STANDARD.encode(
        mac(secret, role, agent, coordinator)
            .finalize()
            .into_bytes(),
    )
}

fn verify(
    secret: &[u8],
    role: &str,
    agent: &str,
    coordinator: &str,
    proof: &Value,
) -> anyhow::Result<()> {
    let proof = STANDARD
        .decode(proof.as_str().unwrap_or_default())
        .unwrap_or_default();
    ensure!(
        mac(secret, role, agent, coordinator)
            .verify_slice(&proof)
            .is_ok(),
        "the other side has another secret"
    );
    Ok(())
}

/// Writes files as a message's part.
pub(super) fn files_json(files: &BTreeMap<String, Vec<u8>>) -> Value {
    files
        .iter()
        .map(|(path, bytes)| (path.clone(), json!(STANDARD.encode(bytes))))
        .collect()
}

/// Reads files from a message's part.
pub(super) fn files_of(value: &Value) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let files = value.as_object().context("no files")?;
    let decoded = files.iter().map(|(path, text)| {
        let bytes = STANDARD
            .decode(text.as_str().unwrap_or("?"))
            .with_context(|| format!("{path}: not in base64"))?;
        Ok((path.clone(), bytes))
    });
    decoded.collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn greet(
        agent: Option<&str>,
        coordinator: Option<&str>,
    ) -> (anyhow::Result<()>, anyhow::Result<()>) {
        let secret = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        let agent = secret(agent);
        let coordinator = secret(coordinator);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = thread::spawn(move || {
            let mut link = Link::new(listener.accept().unwrap().0).unwrap();
            link.greet_coordinator(&agent)
        });

        let result = Link::new(TcpStream::connect(address).unwrap())
            .unwrap()
            .greet_agent(&coordinator);
        (other.join().unwrap(), result)
    }

    #[test]
    fn both_sides_prove_that_they_know_the_secret() {
        let one = Some("a secret of theirs");
        let other = Some("another secret");
        for (agent, coordinator, fine) in [
            (None, None, true),
            (one, one, true),
            (one, other, false),
            (one, None, false),
            (None, one, false),
        ] {
            let (a, b) = greet(agent, coordinator);
            assert_eq!(
                a.is_ok() && b.is_ok(),
                fine,
                "{agent:?} {coordinator:?}: {a:?} {b:?}"
            );
            assert!(
                b.is_ok() == fine,
                "the coordinator says nothing more: {b:?}"
            );
        }
    }

    #[test]
    fn a_greeting_has_one_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Each byte comes in time, but the message has no end.
        let drips = thread::spawn(move || {
            while peer.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });

        let mut link = Link::new(listener.accept().unwrap().0).unwrap();
        link.input.get_mut().until = Some(Instant::now() + Duration::from_millis(300));
        let error = link.greet_coordinator(&None).unwrap_err();
        drop(link);
        drips.join().unwrap();
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);

        assert!(
            matches!(
                kind,
                Some(io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
            ),
            "{error:#}"
        );
    }

    #[test]
    fn a_proof_is_of_one_role_and_one_greeting() {
        let of = |role, agent, coordinator| proof(b"secret", role, agent, coordinator);
        let all = [
            of("agent", "1", "2"),
            of("coordinator", "1", "2"),
            of("agent", "1", "3"),
            of("agent", "3", "2"),
        ];
        assert!(
            all.iter()
                .enumerate()
                .all(|(n, proof)| !all[n + 1..].contains(proof))
        );
        assert!(verify(b"secret", "agent", "1", "2", &json!(all[0])).is_ok());

        for wrong in [json!(all[1]), json!(""), Value::Null, json!("%"), json!(7)] {
            assert!(
                verify(b"secret", "agent", "1", "2", &wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn files_survive() {
        let files = BTreeMap::from([
            ("a/b".to_owned(), vec![0, 255, b'\n']),
            ("c".to_owned(), Vec::new()),
        ]);
        assert_eq!(files_of(&files_json(&files)).unwrap(), files);
        assert!(files_of(&json!({ "a": "%" })).is_err() && files_of(&json!(1)).is_err());
    }
}
