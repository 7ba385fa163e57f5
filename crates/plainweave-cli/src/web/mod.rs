//! `plainweave web`: the static web server.

mod flags;
mod serve;

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use plainweave_http::Server;
use plainweave_http::files::StaticFiles;

use crate::stop::Stop;
pub(crate) use flags::Flags;

/// Serves until a signal asks to stop.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let engine = serve::Engine::choose(&flags.runtime)?;
    let root = &flags.root;
    let files = StaticFiles::with_blocking(root, serve::Pool).with_context(|| root_remedy(root))?;
    let files = files.with_caching(flags.caching.caching());
    let server = Server::new(files).with_limits(flags.limits.limits());
    let server = Arc::new(server.with_name(concat!("plainweave/", env!("CARGO_PKG_VERSION")))?);
    let listeners = flags.listen.iter().map(|address| bind(*address)).collect::<anyhow::Result<Vec<_>>>()?;
    let stop = Stop::install().context("the signals could not be caught")?;
    say(io::stdout(), &start_line(root, &listeners, &engine)?);
    let finished = engine.run(&server, listeners, stop, flags.grace)?;
    if !finished {
        say(io::stderr(), "plainweave: stopped with requests in progress; --grace gives them longer");
    }
    Ok(())
}

fn root_remedy(root: &Path) -> String {
    format!("cannot serve {} (give an existing directory: plainweave web DIR)", root.display())
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "is another server on it? choose another with --listen",
            ErrorKind::AddrNotAvailable => "this machine has no such address; choose another with --listen",
            ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another with --listen"
            }
            _ => "choose another address with --listen",
        };
        anyhow::Error::new(error).context(format!("cannot listen on {address} ({remedy})"))
    })
}

fn start_line(root: &Path, listeners: &[TcpListener], engine: &serve::Engine) -> io::Result<String> {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let urls = listeners.iter().map(|listener| Ok(format!("http://{}", listener.local_addr()?)));
    let urls = urls.collect::<io::Result<Vec<_>>>()?.join(" ");
    Ok(format!("plainweave web: serving {} on {urls} ({engine})", root.display()))
}

/// Writes a line; a closed terminal is no reason to stop.
pub(crate) fn say(mut to: impl Write, line: &str) {
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}
