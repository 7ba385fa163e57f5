//! Requests that two readers could take for different ones (request smuggling), through our proxy
//! to nginx, Apache and Go's net/http, and through nginx and HAProxy to our server: no reader finds
//! a request that the one before it has not found, and no answer goes to another's request.
//!
//! The classes are those of public research: two lengths or a length and a coding (CL.TE, TE.CL),
//! codings that are none (TE.TE), bodies that one of two ignores (TE.0, 0.CL, CL.0), folded lines,
//! odd bytes and line ends, several hosts, chunk extensions, trailers, answers before the end.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::common::scratch::Scratch;
use crate::common::{ask, eventually, skip};
use crate::differential::peers::{self, Peer};

/// What must not be found.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n";

/// Heads behind `POST /x HTTP/1.1`, and what follows them, `@` being [`SMUGGLED`].
const CORPUS: [(&str, &str); 46] = [
    // CL.TE and TE.CL.
    (
        "Host: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "5c\r\n@0\r\n\r\n",
    ),
    (
        "Host: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "@",
    ),
    ("Host: h\r\nContent-Length: 5\r\nContent-Length: 0\r\n", "@"),
    ("Host: h\r\nContent-Length: 0\r\nContent-Length: 5\r\n", "@"),
    ("Host: h\r\nContent-Length: 0, 5\r\n", "@"),
    ("Host: h\r\nContent-Length: 5 5\r\n", "@"),
    ("Host: h\r\nContent-Length: -1\r\n", "@"),
    ("Host: h\r\nContent-Length: +0\r\n", "@"),
    ("Host: h\r\nContent-Length: 0x5\r\n", "@"),
    ("Host: h\r\nContent-Length: 18446744073709551616\r\n", "@"),
    ("Host: h\r\nContent-Length : 5\r\n", "@"),
    ("Host: h\r\nContent\0-Length: 5\r\n", "@"),
    (
        "Host: h\r\nContent_Length: 5\r\n",
        "GET /canary.txt HTTP/1.1\r\nHost: h\r\n\r\n",
    ),
    // TE.TE.
    (
        "Host: h\r\nTransfer-Encoding: xchunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding : chunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding:\tchunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked, identity\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: identity, chunked\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: \"chunked\"\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked;q=1\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: \x0bchunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nX: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    // Line ends.
    (
        "Host: h\r\nX: a\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    (
        "Host: h\r\nX: a\rTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "0\r\n\r\n@",
    ),
    ("Host: h\nContent-Length: 4\n", "0\r\n\r\n@"),
    (" Host: h\r\nContent-Length: 4\r\n", "0\r\n\r\n@"),
    // Hosts.
    ("Host: h\r\nHost: i\r\nContent-Length: 0\r\n", "@"),
    ("Host: h, i\r\nContent-Length: 0\r\n", "@"),
    ("Host: h/x\r\nContent-Length: 0\r\n", "@"),
    ("Content-Length: 0\r\n", "@"),
    // Chunks.
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "3\nabc\r\n0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "3\r\nabcd\r\n0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "-3\r\nabc\r\n0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "3;\nabc\r\n0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "3;a=\"\n\"\r\nabc\r\n0\r\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "0\r\nX: a\n\r\n@",
    ),
    (
        "Host: h\r\nTransfer-Encoding: chunked\r\n",
        "0\r\nContent-Length: 5\r\n X\r\n\r\n@",
    ),
    ("Host: h\r\nTransfer-Encoding: chunked\r\n", "0\r\n\n@"),
    // Bodies that are not read to their end: their bytes are no requests. (46 bytes each.)
    ("Host: h\r\nContent-Length: 45\r\n", "@"),
    (
        "Host: h\r\nExpect: 100-continue\r\nContent-Length: 45\r\n",
        "@",
    ),
];

/// Sends each of them to a server, and between them requests that are to get their own answers.
/// Returns how many of them were answered in a good way.
fn attack(server: SocketAddr) -> usize {
    let mut wrong = Vec::new();
    let mut taken = 0;
    for (fields, rest) in CORPUS {
        let rest = rest.replace('@', SMUGGLED);
        let text = format!("POST /x HTTP/1.1\r\n{fields}\r\n{rest}");
        let answer = sent(server, text.as_bytes());
        taken += usize::from(answer.starts_with("HTTP/1.1 4"));
        for n in 0..2 {
            let path = format!("/canary.txt?{n}");
            let canary = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            let answer = ask(server, &canary);
            let is_own = answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\ncanary");
            if !is_own {
                wrong.push(format!("behind {text:?}: {answer}"));
            }
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    taken
}

/// Sends this, and returns what comes until nothing does.
fn sent(server: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    // Some wait for more, and have no answer.
    stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut piece) {
        answer.extend_from_slice(&piece[..len]);
        let behind = Some(Duration::from_millis(150));
        stream.set_read_timeout(behind).unwrap();
    }
    let _ = stream.shutdown(Shutdown::Both);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A site, which every user may read.
fn site() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.root().join("www")).unwrap();
    scratch.file("www/canary.txt", "canary");
    scratch.file("www/smuggled", "smuggled");
    for folder in ["", "www"] {
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scratch.root().join(folder), open).unwrap();
    }
    scratch
}

/// Attacks a back end through our proxy. `log`: where it says what it was asked.
fn through_ours(scratch: &Scratch, backend: SocketAddr, log: &Path) {
    let upstream = format!("[[upstream]]\nname = \"app\"\nservers = [\"{backend}\"]\n");
    let site = "[[site]]\nnames = [\"*\"]\nproxy = \"app\"\n";
    let file = scratch.file("web.toml", upstream + site);
    let ours = peers::plainweave_by(&file);
    let refused = attack(ours.address());
    assert!(refused > 30, "{refused} of {}", CORPUS.len());
    let last = ask(
        ours.address(),
        "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    );
    assert!(last.starts_with("HTTP/1.1 404 "), "{last}");
    let text = || fs::read_to_string(log).unwrap_or_default();
    eventually("the log has the last request", || text().contains("/last"));
    assert!(!text().contains("smuggled"), "{}", text());
    assert!(text().matches("/canary.txt").count() >= 2 * CORPUS.len());
}

#[test]
fn nothing_is_smuggled_through_ours_to_nginx() {
    let scratch = site();
    let root = scratch.root().display().to_string();
    let servers = |address: SocketAddr| {
        format!("server {{ listen {address}; root {root}/www; access_log {root}/log; }}")
    };
    match peers::nginx_of(servers, scratch.root()) {
        Some(nginx) => through_ours(&scratch, nginx.address(), &scratch.root().join("log")),
        None => skip::skip("nginx is not installed"),
    }
}

#[test]
fn nothing_is_smuggled_through_ours_to_apache() {
    let scratch = site();
    match peers::apache(scratch.root()) {
        Some(apache) => through_ours(&scratch, apache.address(), &scratch.root().join("log")),
        None => skip::skip("apache2 is not installed"),
    }
}

#[test]
fn nothing_is_smuggled_through_ours_to_go() {
    let scratch = site();
    match peers::go(&scratch.root().join("www"), scratch.root()) {
        Some(go) => through_ours(&scratch, go.address(), &scratch.root().join("log")),
        None => skip::skip("Go is not installed"),
    }
}

/// Attacks our server through another proxy. `front` gets our address.
fn to_ours(scratch: &Scratch, front: impl FnOnce(SocketAddr) -> Option<Peer>, theirs: &Path) {
    let log = scratch.root().join("ours.log");
    let settings = "root = \"www\"\naccess-log = \"ours.log\"\n";
    let ours = peers::plainweave_by(&scratch.file("web.toml", settings));
    let Some(front) = front(ours.address()) else {
        skip::skip("the proxy in front is not installed");
        return;
    };

    attack(front.address());
    ask(
        front.address(),
        "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    );
    let text = |log: &Path| fs::read_to_string(log).unwrap_or_default();
    eventually("the logs have the last request", || {
        text(&log).contains("/last") && text(theirs).contains("/last")
    });
    // What a proxy takes for two requests are two for both.
    let found = |log: &Path| text(log).matches("GET /smuggled ").count();
    assert!(
        found(&log) <= found(theirs),
        "{}\n{}",
        text(&log),
        text(theirs)
    );
}

#[test]
fn nothing_is_smuggled_through_nginx_to_ours() {
    let scratch = site();
    let root = scratch.root().display().to_string();
    let log = scratch.root().join("theirs.log");
    let front = |ours: SocketAddr| {
        let servers = |address: SocketAddr| {
            format!(
                "upstream ours {{ server {ours}; keepalive 8; }}
                 server {{ listen {address}; access_log {root}/theirs.log; location / {{
                     proxy_pass http://ours; proxy_http_version 1.1;
                     proxy_set_header Connection \"\"; proxy_request_buffering off; }} }}"
            )
        };
        peers::nginx_of(servers, scratch.root())
    };
    to_ours(&scratch, front, &log);
}

#[test]
fn nothing_is_smuggled_through_haproxy_to_ours() {
    let scratch = site();
    let log = scratch.root().join("haproxy.log");
    let front = |ours: SocketAddr| peers::haproxy(ours, scratch.root());
    to_ours(&scratch, front, &log);
}
