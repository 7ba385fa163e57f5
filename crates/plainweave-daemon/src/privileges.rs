//! `-u`: root becomes another user, for good.
//!
//! All threads do: the C library has each of them make the call.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use anyhow::{Context, anyhow};
use nix::unistd::{User, initgroups, setgid, setuid};
use rustix::process::geteuid;

use crate::console::say;

/// Makes the process that of user `name`, if a flag names one, with the groups that the user has,
/// and `files` the user's. Without root's rights it stays what it is and says so.
pub fn assume(program: &str, name: Option<&str>, files: &[&Path]) -> anyhow::Result<()> {
    let Some(name) = name else { return Ok(()) };
    if !geteuid().is_root() {
        say(
            io::stderr(),
            &format!("{program}: -u {name} is ignored: only root can change the user"),
        );
        return Ok(());
    }

    let user = known(name)?;
    let become_user = || -> io::Result<()> {
        for file in files {
            chown(file, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        // The groups first: afterwards the process is no longer allowed to.
        initgroups(&CString::new(name)?, user.gid)?;
        setgid(user.gid)?;
        Ok(setuid(user.uid)?)
    };

    become_user().with_context(|| format!("cannot become the user {name} of -u"))
}

/// Finds out whether there is a user of this name.
pub fn check(name: &str) -> anyhow::Result<()> {
    match geteuid().is_root() {
        true => known(name).map(drop),
        // It is ignored, as the start says.
        false => Ok(()),
    }
}

fn known(name: &str) -> anyhow::Result<User> {
    let user =
        User::from_name(name).with_context(|| format!("cannot look up the user {name} of -u"))?;
    user.ok_or_else(|| anyhow!("there is no user {name}: create it, or give another one with -u"))
}
