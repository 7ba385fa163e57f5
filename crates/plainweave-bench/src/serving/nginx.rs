//! nginx, in two ways. *Tuned*, as an expert would: epoll, `multi_accept`, `sendfile` with
//! `tcp_nopush`, an open-file cache, no access log, connections of unlimited requests, a queue of
//! 4,096 connections. *With its defaults*: what its own configuration file leaves as it is, a queue
//! of 511 among them; only the access log is off, and it may have as many connections as the
//! benchmark makes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::process::free_address;
use crate::harness::machine;

/// How this server differs from others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) workers: usize,
    /// Directives of `http`, each with its semicolon.
    pub(crate) http: &'a str,
    /// Words behind the address that it listens on, such as `ssl`.
    pub(crate) listen: &'a str,
    /// Directives of `server`.
    pub(crate) server: &'a str,
    /// Without what an expert would change.
    pub(crate) defaults: bool,
}

/// What an expert would set for the requests of a benchmark.
const TUNED: &str = "server_tokens off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_timeout 600s; \
                     keepalive_requests 1000000000; open_file_cache max=4000 inactive=600s; \
                     open_file_cache_valid 60s; open_file_cache_min_uses 1; charset utf-8;";

/// Returns why it cannot be measured here.
pub(crate) fn absence() -> Option<&'static str> {
    (!machine::installed("nginx")).then_some("not installed")
}

pub(crate) fn version() -> String {
    let output = Command::new("nginx").arg("-v").output();
    output.map_or("not installed".to_owned(), |o| {
        String::from_utf8_lossy(&o.stderr).trim().to_owned()
    })
}

/// Returns a command that serves a free port, with everything of nginx's own in a directory below
/// `dir`.
pub(crate) fn command(
    dir: &Path,
    settings: &Settings<'_>,
) -> anyhow::Result<(Command, SocketAddr)> {
    command_with(dir, settings, |_| String::new())
}

/// Does the same with further blocks of `http`, such as servers at the same address.
pub(crate) fn command_with(
    dir: &Path,
    settings: &Settings<'_>,
    others: impl FnOnce(SocketAddr) -> String,
) -> anyhow::Result<(Command, SocketAddr)> {
    let address = free_address()?;
    let own = dir.join(format!("nginx-{}", address.port()));
    std::fs::create_dir_all(&own)?;
    let file = own.join("nginx.conf");
    std::fs::write(&file, config(&own, address, settings, &others(address)))?;
    let mut command = Command::new("nginx");

    command
        .arg("-p")
        .arg(&own)
        .arg("-c")
        .arg(&file)
        .arg("-e")
        .arg(own.join("error.log"));

    Ok((command, address))
}

fn config(dir: &Path, address: SocketAddr, settings: &Settings<'_>, others: &str) -> String {
    let Settings {
        workers,
        http,
        listen,
        server,
        defaults,
    } = settings;
    let (events, tuned, queue) = match defaults {
        true => ("", "", ""),
        false => ("use epoll; multi_accept on;", TUNED, "backlog=4096"),
    };

    let dir = dir.display();
    let user = if rustix::process::getuid().is_root() {
        "user root;"
    } else {
        ""
    };

    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("{of}_temp_path {dir}/{of};"));
    format!(
        "{user} worker_processes {workers}; worker_rlimit_nofile 20000;
daemon off; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 16000; {events} }}
http {{
  access_log off; {tuned} {http}
  types {{ text/plain txt; }} default_type application/octet-stream;
  {}
  server {{ listen {address} {queue} {listen}; {server} }}
  {others}
}}
",
        own.join(" ")
    )
}
