//! The servers that are compared, and a client for them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::child::{self, Kept};

/// A server in a child process; it ends with the value.
pub(crate) struct Peer {
    child: Kept,
    address: SocketAddr,
    stream: Option<TcpStream>,
}

/// An answer, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// nginx on `site`, if it is installed. `scratch` is for its files.
pub(crate) fn nginx(site: &Path, scratch: &Path) -> Option<Peer> {
    let site = site.display();
    let servers = |address| format!("server {{ listen {address}; root {site}; }}");
    nginx_of(servers, scratch)
}

/// nginx with these blocks for an address, if it is installed. `scratch` is for its files.
pub(crate) fn nginx_of(servers: impl FnOnce(SocketAddr) -> String, scratch: &Path) -> Option<Peer> {
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"]
        .into_iter()
        .find(|p| Path::new(p).exists())?;
    let address = free_address();
    let at = |name: &str| scratch.join(name).display().to_string();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {};", at(kind)));
    let config = format!(
        "daemon off; master_process off; pid {pid}; error_log {log};
         events {{}}
         http {{
             access_log off; default_type application/octet-stream; if_modified_since before;
             keepalive_requests 1000000; {temporary}
             {servers}
         }}",
        pid = at("pid"),
        log = at("error.log"),
        temporary = temporary.concat(),
        servers = servers(address),
    );

    fs::write(scratch.join("nginx.conf"), config).unwrap();
    let mut command = Command::new(program);

    command
        .arg("-e")
        .arg(at("start.log"))
        .arg("-c")
        .arg(at("nginx.conf"));
    Some(listening("nginx", &mut command, address, &at("start.log")))
}

/// Caddy with this configuration for an address, if it is installed. `scratch` is for its files.
pub(crate) fn caddy_of(config: impl FnOnce(SocketAddr) -> String, scratch: &Path) -> Option<Peer> {
    let program = ["/usr/bin/caddy", "/usr/local/bin/caddy"];
    let program = program.into_iter().find(|path| Path::new(path).exists())?;
    let address = free_address();
    let file = scratch.join("Caddyfile");
    fs::write(&file, config(address)).unwrap();
    let log = scratch.join("caddy.start");
    let mut command = Command::new(program);
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(file)
        .env("HOME", scratch)
        .stderr(fs::File::create(&log).unwrap());
    let log = log.display().to_string();
    Some(listening("caddy", &mut command, address, &log))
}

/// Apache on the folder `www` of `scratch`, which has its log, if it is installed.
pub(crate) fn apache(scratch: &Path) -> Option<Peer> {
    let program = Path::new("/usr/sbin/apache2");
    let modules = "/usr/lib/apache2/modules";
    if !program.exists() {
        return None;
    }

    let address = free_address();
    let root = scratch.display();
    let loaded = ["mpm_event", "authz_core"];
    let loaded = loaded.map(|name| format!("LoadModule {name}_module {modules}/mod_{name}.so\n"));
    let config = format!(
        "{loaded}
         ServerRoot {root}
         ServerName h
         Listen {address}
         User www-data
         Group www-data
         PidFile {root}/apache.pid
         DefaultRuntimeDir {root}
         ErrorLog {root}/apache.err
         LogFormat \"%r %s\" plain
         CustomLog {root}/log plain
         KeepAlive On
         DocumentRoot {root}/www
         <Directory {root}/www>
             Require all granted
         </Directory>\n",
        loaded = loaded.concat()
    );
    let file = scratch.join("apache.conf");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    // One process, which ends with the test.
    command.args(["-X", "-f"]).arg(file);
    let errors = scratch.join("apache.err").display().to_string();
    Some(listening("apache2", &mut command, address, &errors))
}

/// HAProxy in front of a server, if it is installed; its log is in `scratch`.
pub(crate) fn haproxy(server: SocketAddr, scratch: &Path) -> Option<Peer> {
    let program = Path::new("/usr/sbin/haproxy");
    if !program.exists() {
        return None;
    }

    let address = free_address();
    let log = scratch.join("haproxy.log");
    let config = format!(
        "global\n log stdout format raw local0\n nbthread 1\n\
         defaults\n mode http\n log global\n option httplog\n timeout connect 5s\n \
         timeout client 30s\n timeout server 30s\n http-reuse always\n\
         frontend f\n bind {address}\n default_backend b\n\
         backend b\n server s {server}\n"
    );
    let file = scratch.join("haproxy.cfg");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    command
        .args(["-db", "-f"])
        .arg(file)
        .stdout(fs::File::create(&log).unwrap());
    let log = log.display().to_string();
    Some(listening("haproxy", &mut command, address, &log))
}

/// An address that nobody listens on.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Starts a server, and waits until it listens.
fn listening(name: &str, command: &mut Command, address: SocketAddr, log: &str) -> Peer {
    let mut peer = Peer {
        child: Kept::spawn(command).unwrap(),
        address,
        stream: None,
    };

    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(
            peer.child.try_wait().unwrap().is_none(),
            "{name} ended: {}",
            fs::read_to_string(log).unwrap_or_default()
        );
        assert!(Instant::now() < end, "{name} does not listen");
        thread::sleep(Duration::from_millis(20));
    }

    peer
}

/// Go's file server on `site`, if Go is installed. Its log is in `scratch`.
pub(crate) fn go(site: &Path, scratch: &Path) -> Option<Peer> {
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok())?;
    let source =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/differential/fileserver.go");
    let program = scratch.join("fileserver");
    let mut build = Command::new(go);
    build
        .args(["build", "-o"])
        .arg(&program)
        .arg(source)
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off");
    let built = child::output(&mut build).unwrap();

    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let mut command = Command::new(program);
    command.arg(site).arg(scratch.join("log"));
    Some(Peer::saying_its_address(&mut command, |line| {
        line.trim().to_owned()
    }))
}

/// Our server on `site`; it streams the largest of the files.
pub(crate) fn plainweave(site: &Path) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command
        .arg("web")
        .arg(site)
        .args(["--listen", "127.0.0.1:0", "--cache-file", "16k"])
        .env_remove("PLAINWEAVE_IO");
    of_command(&mut command)
}

/// Our server by a configuration.
pub(crate) fn plainweave_by(config: &str) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plainweave"));
    command
        .args(["web", "--config", config, "--listen", "127.0.0.1:0"])
        .env_remove("PLAINWEAVE_IO");
    of_command(&mut command)
}

fn of_command(command: &mut Command) -> Peer {
    let address = |line: &str| {
        line.split_once("http://")
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap()
            .to_owned()
    };

    Peer::saying_its_address(command, address)
}

impl Peer {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn saying_its_address(command: &mut Command, address: impl Fn(&str) -> String) -> Self {
        let mut child = Kept::spawn(command.stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::<&mut ChildStdout>::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = address(&line).parse().unwrap();

        Self {
            child,
            address,
            stream: None,
        }
    }

    /// Sends a request, on a fresh connection where the last one was closed.
    pub(crate) fn ask(&mut self, request: &str) -> Answer {
        for _ in 0..2 {
            let mut stream = self.stream.take().unwrap_or_else(|| {
                let stream = TcpStream::connect(self.address).unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_secs(30)))
                    .unwrap();
                stream.set_nodelay(true).unwrap();
                stream
            });

            if stream.write_all(request.as_bytes()).is_err() {
                continue;
            }
            if let Some(answer) = read(&mut stream, request.starts_with("HEAD ")) {
                if answer.field("connection") != Some("close") {
                    self.stream = Some(stream);
                }
                return answer;
            }
        }
        panic!("no answer to {request:?}");
    }
}

/// The content of a body in chunks, whose first bytes have come. No trailers are expected.
fn chunks(stream: &mut TcpStream, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut content = Vec::new();
    let mut more = |bytes: &mut Vec<u8>| {
        let mut buf = [0; 16 << 10];
        let len = stream.read(&mut buf).unwrap();
        assert!(len > 0, "cut off in a chunk");
        bytes.extend_from_slice(&buf[..len]);
    };

    loop {
        let parsed = httparse::parse_chunk_size(&bytes).expect("a chunk's size");
        let httparse::Status::Complete((line, size)) = parsed else {
            more(&mut bytes);
            continue;
        };
        let size = size as usize;
        while bytes.len() < line + size + 2 {
            more(&mut bytes);
        }
        content.extend_from_slice(&bytes[line..line + size]);
        bytes.drain(..line + size + 2);
        if size == 0 {
            return content;
        }
    }
}

/// One answer with a length or in chunks, or without content. `None`: the connection was closed
/// before it.
fn read(stream: &mut TcpStream, to_head: bool) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut buf = [0; 16 << 10];
    loop {
        let mut slots = [httparse::EMPTY_HEADER; 32];
        let mut raw = httparse::Response::new(&mut slots);
        if let httparse::Status::Complete(head) = raw.parse(&bytes).unwrap() {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            let fields = raw
                .headers
                .iter()
                .map(|field| (field.name.to_owned(), text(field.value)))
                .collect();
            let mut answer = Answer {
                status: raw.code.unwrap(),
                fields,
                body: bytes.split_off(head),
            };

            let is_empty = to_head || matches!(answer.status, 204 | 304);
            if !is_empty && answer.field("transfer-encoding") == Some("chunked") {
                answer.body = chunks(stream, std::mem::take(&mut answer.body));
                return Some(answer);
            }
            let len = match is_empty {
                true => 0,
                false => answer
                    .field("content-length")
                    .expect("a length")
                    .parse()
                    .unwrap(),
            };

            let had = answer.body.len();
            assert!(had <= len, "more than the answer");
            answer.body.resize(len, 0);
            stream.read_exact(&mut answer.body[had..]).unwrap();
            return Some(answer);
        }

        match stream.read(&mut buf) {
            Ok(len) if len > 0 => bytes.extend_from_slice(&buf[..len]),
            _ if bytes.is_empty() => return None,
            _ => panic!("cut off: {}", String::from_utf8_lossy(&bytes)),
        }
    }
}
