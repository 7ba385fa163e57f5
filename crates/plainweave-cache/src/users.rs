//! Who may use the cache: names and passwords from a file (`-Y`), as memcached has it.
//!
//! A client says who it is by `set ANY 0 0 LEN` with `name password` as its value, or in the binary
//! protocol by SASL PLAIN (RFC 4616). Passwords are compared in a time that says nothing of them,
//! and one address may be wrong ten times in a minute.

use std::net::SocketAddr;
use std::ops::BitOr;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use plainweave_daemon::rate::Rate;
use subtle::{Choice, ConstantTimeEq};

/// Wrong passwords of one address, at once and in a minute.
const WRONG: u32 = 10;

/// The users, and who has been wrong.
#[derive(Debug)]
pub(crate) struct Users {
    path: PathBuf,
    list: RwLock<Vec<User>>,
    wrong: Rate,
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

    /// Returns whether a client is who it says, unless it has been wrong too often.
    pub(crate) fn knows(&self, peer: Option<SocketAddr>, name: &[u8], password: &[u8]) -> bool {
        let now = Instant::now();
        if self.wrong.look(peer, now).is_err() {
            return false;
        }

        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        // All are looked at, also behind the one that is right.
        let is_one = |user: &User| user.name.ct_eq(name) & user.password.ct_eq(password);
        let right = list.iter().map(is_one);
        let knows = bool::from(right.fold(Choice::from(0), BitOr::bitor));
        if !knows {
            let _ = self.wrong.take(peer, now);
        }
        knows
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<User>> {
    let remedy = || format!("cannot read the users of {}", path.display());
    let text = std::fs::read(path).with_context(remedy)?;

    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.map(|(n, line)| (n + 1, line.strip_suffix(b"\r").unwrap_or(line)));
    let users = lines.filter(|(_, line)| !line.is_empty()).map(|(n, line)| {
        let colon = memchr::memchr(b':', line).filter(|at| *at > 0);
        let at = colon.ok_or_else(|| anyhow!("line {n} is not NAME:PASSWORD"))?;
        Ok(User {
            name: line[..at].to_vec(),
            password: line[at + 1..].to_vec(),
        })
    });

    let users: Vec<_> = users.collect::<anyhow::Result<_>>().with_context(remedy)?;
    ensure!(
        !users.is_empty(),
        "{}: it has none (write NAME:PASSWORD, one to a line)",
        remedy()
    );
    Ok(users)
}
