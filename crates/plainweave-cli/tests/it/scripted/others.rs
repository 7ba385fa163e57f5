//! Servers of others, where they are installed.

#![allow(dead_code, reason = "each test program uses its part")]
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::authority::Authority;
use crate::scripted::child::Kept;

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A free port. It may be taken again before the server binds it, which then fails; the kernel
/// hands ports out in turn.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts another's server, and waits until it listens; `None` if it is not installed.
pub(crate) fn started(mut command: Command, port: u16) -> Option<Kept> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Ok(mut child) = Kept::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())) else {
        crate::common::skip::skip(&format!("{name} is not installed"));
        return None;
    };

    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE,
            "{name} does not listen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }

    Some(child)
}

/// nginx on this package's folder, with the authority's certificate `fine`; `listen` has its
/// `listen` directives.
pub(crate) fn nginx(authority: &Authority, listen: &str, port: u16) -> Option<Kept> {
    let dir = authority.directory.display();
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("{of}_temp_path {dir}/{of};"));
    let config = format!(
        "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log; events {{}}
         http {{ access_log off; {}
           server {{ {listen} root {root};
             ssl_certificate fine.pem; ssl_certificate_key fine.key; }} }}",
        own.concat(),
        root = env!("CARGO_MANIFEST_DIR")
    );
    std::fs::write(authority.path("nginx.conf"), config).unwrap();
    let mut command = Command::new("nginx");

    command
        .arg("-e")
        .arg(authority.path("start.log"))
        .arg("-c")
        .arg(authority.path("nginx.conf"));

    started(command, port)
}
