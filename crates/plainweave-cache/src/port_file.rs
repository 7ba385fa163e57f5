//! The file with the ports that are listened on, for a script that had a free one chosen (`-p -1`).
//!
//! memcached's environment variable and its words, a line for each socket: `TCP INET: 11211`, `TCP
//! INET6: 11211`. It appears under its name when it is complete. Nothing removes it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::{env, fs, io};

use super::certificates::Security;
use plainweave_daemon::console::say;

/// What names the file.
const VARIABLE: &str = "MEMCACHED_PORT_FILENAME";

/// Returns the file that is asked for.
pub(super) fn path() -> Option<PathBuf> {
    let path = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    path.map(PathBuf::from)
}

/// Writes the file, if one is asked for and there are ports. As there, a failure is reported and
/// stops nothing.
pub(super) fn write(listeners: &[(TcpListener, Security)]) {
    let Some(path) = path().filter(|_| !listeners.is_empty()) else {
        return;
    };

    let mut unfinished = path.clone().into_os_string();
    unfinished.push(".lck");
    if let Err(error) =
        fs::write(&unfinished, lines(listeners)).and_then(|()| fs::rename(&unfinished, &path))
    {
        let text = format!(
            "cannot write the ports to {} ({VARIABLE}): {error}",
            path.display()
        );
        say(io::stderr(), &format!("plainweave cache: {text}"));
    }
}

fn lines(listeners: &[(TcpListener, Security)]) -> String {
    let line = |address: std::net::SocketAddr| {
        let family = if address.is_ipv6() { "INET6" } else { "INET" };
        format!("TCP {family}: {}\n", address.port())
    };

    listeners
        .iter()
        .filter_map(|(listener, _)| listener.local_addr().ok())
        .map(line)
        .collect()
}
