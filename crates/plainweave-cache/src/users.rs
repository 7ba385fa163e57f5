//! Who may use the cache: names and passwords from a file (`-Y`), as memcached has it.
//!
//! A client says who it is by `set ANY 0 0 LEN` with `name password` as its value, or in the binary
//! protocol by SASL PLAIN (RFC 4616). Passwords are compared in a time that says nothing of them,
//! and one address may be wrong ten times at once, and then every six seconds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::BitOr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use plainweave_daemon::console::say;
use plainweave_daemon::rate::Rate;
use subtle::{Choice, ConstantTimeEq};

/// Bytes of the file, and of a password.
const LONGEST_FILE: u64 = 1 << 20;
const LONGEST_PASSWORD: usize = 1024;
/// Wrong passwords of one address, at once and in a minute.
const WRONG: u32 = 10;

/// The users, and who has been wrong.
#[derive(Debug)]
pub(crate) struct Users {
    path: PathBuf,
    list: RwLock<Vec<User>>,
    wrong: Rate,
}

/// What is to be made of a name and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Known,
    Wrong,
    /// Nobody has looked: the address has been wrong too often.
    TooOften,
}

#[derive(Debug)]
struct User {
    name: Vec<u8>,
    password: Vec<u8>,
}

impl Users {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or has no users, or a line is not `NAME:PASSWORD`.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            list: RwLock::new(read(path)?),
            wrong: Rate::new(WRONG, Duration::from_secs(60), WRONG).context("a rate")?,
        })
    }

    /// Reads it again. Returns how many users there are.
    ///
    /// # Errors
    /// As for [`Self::load`]; the users stay as they were.
    pub(crate) fn reload(&self) -> anyhow::Result<usize> {
        let list = read(&self.path)?;
        let len = list.len();
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
        Ok(len)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Judges a client by what it says. Those of a Unix socket count as one address.
    pub(crate) fn judge(
        &self,
        peer: Option<SocketAddr>,
        name: &[u8],
        password: &[u8],
    ) -> Judgement {
        let now = Instant::now();
        let peer = peer.or(Some((Ipv4Addr::UNSPECIFIED, 0).into()));
        if self.wrong.look(peer, now).is_err() {
            return Judgement::TooOften;
        }

        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);

        // All are looked at, also behind the one that is right.
        let is_one = |user: &User| user.name.ct_eq(name) & user.password.ct_eq(password);
        let right = list.iter().map(is_one);
        let knows = bool::from(right.fold(Choice::from(0), BitOr::bitor));
        if knows {
            return Judgement::Known;
        }
        let _ = self.wrong.take(peer, now);
        Judgement::Wrong
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<User>> {
    let remedy = || format!("cannot read the users of {}", path.display());
    let file = std::fs::metadata(path).with_context(remedy)?;
    // A pipe would be waited for.
    ensure!(file.is_file(), "{}: it is no file", remedy());
    ensure!(file.len() <= LONGEST_FILE, "{}: it is too long", remedy());

    let text = std::fs::read(path).with_context(remedy)?;
    if file.mode() & 0o007 != 0 {
        let warning = "can be read or written by everybody on this machine";
        say(
            io::stderr(),
            &format!("plainweave cache: warning: {} {warning}", path.display()),
        );
    }

    let mut users: Vec<User> = Vec::new();
    for (n, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            let user = user(line, &users).map_err(|why| anyhow!("line {} {why}", n + 1));
            users.push(user.with_context(remedy)?);
        }
    }
    ensure!(
        !users.is_empty(),
        "{}: no line says NAME:PASSWORD",
        remedy()
    );
    Ok(users)
}

/// Reads a line, or says what is wrong with it.
fn user(line: &[u8], others: &[User]) -> Result<User, &'static str> {
    let colon = memchr::memchr(b':', line).filter(|at| *at > 0);
    let at = colon.ok_or("is not NAME:PASSWORD")?;

    let name = &line[..at];
    let password = &line[at + 1..];
    if name.contains(&b' ') {
        return Err("has a name with a blank, which the text protocol cannot send");
    }
    if password.is_empty() || password.len() > LONGEST_PASSWORD {
        return Err("has a password without a byte, or of more than 1,024");
    }
    if others.iter().any(|other| other.name == name) {
        return Err("has a name that another line has");
    }
    Ok(User {
        name: name.to_vec(),
        password: password.to_vec(),
    })
}
