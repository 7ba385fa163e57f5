//! `-u`: root becomes another user, for good. A server that stays root and that any machine can
//! reach warns of it.
//!
//! As in memcached it happens before anything is opened: the files of `-s` and `-P` are the user's,
//! and a port below 1024 is out of reach. No thread has been started by then, so none is left that
//! is root.

use std::ffi::CString;
use std::io;

use anyhow::{Context, anyhow};
use nix::unistd::{User, initgroups, setgid, setuid};
use rustix::process::geteuid;

use super::listen::Listeners;
use crate::console::say;

/// Makes the process that of user `name`, with the groups that the user has. Without root's rights
/// it stays what it is and says so.
pub(super) fn assume(name: &str) -> anyhow::Result<()> {
    if !geteuid().is_root() {
        say(
            io::stderr(),
            &format!("plainweave cache: -u {name} is ignored: only root can change the user"),
        );
        return Ok(());
    }
    let user =
        User::from_name(name).with_context(|| format!("cannot look up the user {name} of -u"))?;
    let user = user.ok_or_else(|| {
        anyhow!("there is no user {name}: create it, or give another one with -u")
    })?;
    let become_user = || -> io::Result<()> {
        // The groups first: afterwards the process is no longer allowed to.
        initgroups(&CString::new(name)?, user.gid)?;
        setgid(user.gid)?;
        Ok(setuid(user.uid)?)
    };
    become_user().with_context(|| format!("cannot become the user {name} of -u"))
}

/// Warns if the server runs as root and any client that reaches the machine may use it.
pub(super) fn warn_of_root(listeners: &Listeners) {
    let everywhere = listeners.tcp.iter().any(|listener| {
        listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_unspecified())
    });
    if everywhere && geteuid().is_root() {
        let text = "plainweave cache: warning: it runs as root, listens on all addresses and has no authentication";
        say(
            io::stderr(),
            &format!("{text}: give -u USER, and -l 127.0.0.1 if only this machine needs it"),
        );
    }
}
