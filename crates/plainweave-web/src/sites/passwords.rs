//! Who may ask, by name and password (RFC 7617), from a file as `htpasswd -B` writes it.
//!
//! A hash is made to be slow: some 50 ms. So it is computed on the pool for blocking work, for a
//! few requests at once, and what was right is remembered for a while, by a digest: a browser sends
//! its password with each request, and many at once. Those with one password wait for each other.
//! Who is wrong too often has to wait for longer.
//!
//! For a name that is unknown the dearest hash is computed. Where users' hashes cost different
//! times, an answer's time tells those with a cheaper one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex as ThreadMutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use argon2::{Argon2, PasswordHash, PasswordVerifier};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plainweave::sync::Mutex;
use plainweave_http::{HeaderValue, Request, Response, StatusCode, header};
use sha2::{Digest, Sha256};

use super::wait::wait;
use plainweave_daemon::rate::Rate;

/// Hashes computed at once, each of the passwords that fall to it in turn.
const AT_ONCE: usize = 4;
/// For how long a password that was right is taken for right.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Passwords remembered.
const MOST: usize = 1024;
/// Wrong passwords of one address, at once and in a minute.
const WRONG: u32 = 10;

/// Users and their hashes.
#[derive(Debug)]
pub(super) struct Passwords {
    users: Arc<HashMap<String, Hash>>,
    challenge: HeaderValue,
    /// What was right, and when.
    right: ThreadMutex<HashMap<[u8; 32], Instant>>,
    wrong: Rate,
    turns: [Mutex<()>; AT_ONCE],
}

/// A hash in the notation of its algorithm.
#[derive(Debug)]
enum Hash {
    Bcrypt(String),
    Argon2(String),
}

impl Hash {
    fn parse(text: &str) -> anyhow::Result<Self> {
        if text.starts_with("$argon2") {
            let parsed = PasswordHash::new(text);
            return match parsed {
                Ok(_) => Ok(Self::Argon2(text.to_owned())),
                Err(error) => bail!("not a hash of argon2: {error}"),
            };
        }

        let parts = text.parse::<bcrypt::HashParts>().ok();
        let parts = parts.context("not a hash of bcrypt or argon2 (write it by htpasswd -B)")?;
        ensure!(
            (4..=31).contains(&parts.get_cost()),
            "bcrypt has costs from 4 to 31"
        );

        Ok(Self::Bcrypt(text.to_owned()))
    }

    /// Returns what it costs, to be compared with others of its kind.
    fn cost(&self) -> u64 {
        match self {
            Self::Bcrypt(hash) => {
                let parts = hash.parse::<bcrypt::HashParts>();
                parts.map_or(0, |parts| 1 << parts.get_cost())
            }
            Self::Argon2(hash) => {
                let hash = PasswordHash::new(hash);
                let of = |name| hash.as_ref().ok()?.params.get_decimal(name);
                u64::from(of("m").unwrap_or(0)) * u64::from(of("t").unwrap_or(1))
            }
        }
    }

    /// Takes long.
    fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2(hash) => {
                let hash = PasswordHash::new(hash);
                hash.is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
            }
        }
    }
}

impl Passwords {
    /// Reads a file.
    pub(super) fn read(file: &Path, realm: &str) -> anyhow::Result<Self> {
        let shown = file.display();
        let text =
            std::fs::read_to_string(file).with_context(|| format!("{shown} cannot be read"))?;
        let mut users = HashMap::new();
        for (line, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let place = || format!("{shown}:{}", line + 1);
            let (name, hash) = text
                .split_once(':')
                .with_context(|| format!("{}: write NAME:HASH", place()))?;
            let hash = Hash::parse(hash).with_context(place)?;
            users.insert(name.to_owned(), hash);
        }

        ensure!(!users.is_empty(), "{shown} has no users");

        let plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
        ensure!(
            realm.bytes().all(plain),
            "the realm is for browsers: ASCII without quotes"
        );

        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        Ok(Self {
            users: Arc::new(users),
            challenge: HeaderValue::from_str(&challenge)?,
            right: ThreadMutex::default(),
            wrong: Rate::new(WRONG, Duration::from_secs(60), WRONG).context("a rate")?,
            turns: Default::default(),
        })
    }

    /// Returns the answer to a request that shows no right password; `None`: it does.
    pub(super) fn refusal(&self, request: &Request<'_>) -> Option<Response> {
        let Some((name, password)) = credentials(request) else {
            return Some(self.asked());
        };

        let digest = digest(&name, &password);
        let now = Instant::now();
        if self.remembers(&digest, now) {
            return None;
        }

        if let Err(time) = self.wrong.look(request.peer(), now) {
            return Some(wait(StatusCode::TOO_MANY_REQUESTS, time));
        }

        let turn = &self.turns[usize::from(digest[0]) % AT_ONCE];
        let Ok(_turn) = turn.lock() else {
            return Some(Response::plain(StatusCode::SERVICE_UNAVAILABLE)); // Cancelled.
        };

        // Another request may have found out meanwhile.
        if self.remembers(&digest, now) {
            return None;
        }

        if let Err(time) = self.wrong.look(request.peer(), now) {
            return Some(wait(StatusCode::TOO_MANY_REQUESTS, time));
        }

        let users = self.users.clone();
        let is_right = plainweave::blocking(move || {
            // For an unknown name, too: how long it takes says nothing of who is known.
            let known = users.get(&name);
            let hash = known.or_else(|| users.values().max_by_key(|hash| hash.cost()));
            hash.is_some_and(|hash| hash.is_of(&password)) && known.is_some()
        });

        match is_right {
            Ok(true) => {
                self.remember(digest, now);
                None
            }
            Ok(false) => {
                // What comes too often was looked at above.
                let _ = self.wrong.take(request.peer(), now);
                Some(self.asked())
            }
            // Cancelled.
            Err(_) => Some(Response::plain(StatusCode::SERVICE_UNAVAILABLE)),
        }
    }

    fn asked(&self) -> Response {
        Response::plain(StatusCode::UNAUTHORIZED)
            .with_header(header::WWW_AUTHENTICATE, self.challenge.clone())
    }

    fn remembers(&self, digest: &[u8; 32], now: Instant) -> bool {
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right
            .get(digest)
            .is_some_and(|since| now.duration_since(*since) < REMEMBERED)
    }

    fn remember(&self, digest: [u8; 32], now: Instant) {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        if right.len() >= MOST {
            right.retain(|_, since| now.duration_since(*since) < REMEMBERED);
            if right.len() >= MOST {
                right.clear();
            }
        }

        right.insert(digest, now);
    }
}

/// Returns name and password; `None` if the request has none that can be read.
fn credentials(request: &Request<'_>) -> Option<(String, Vec<u8>)> {
    let mut values = request.head().header_all("authorization");
    let value = values.next().filter(|_| values.next().is_none())?;
    let value = str::from_utf8(value).ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }

    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let name = str::from_utf8(&decoded[..colon]).ok()?.to_owned();
    Some((name, decoded[colon + 1..].to_vec()))
}

fn digest(name: &str, password: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update((name.len() as u64).to_be_bytes());
    digest.update(name);
    digest.update(password);
    digest.finalize().into()
}
