//! A server takes over from another one, or from a service manager: nobody is refused, and nothing
//! that was begun is lost.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::cache::running as cache;
use crate::common::scratch::Scratch;
use crate::common::{Running, admin, command, eventually, get, output, output_of};

const LIMIT: Duration = Duration::from_secs(60);

/// A site, and what its servers are started with: always the same.
struct Site {
    scratch: Scratch,
    more: Vec<String>,
}

impl Site {
    fn new(more: &[&str]) -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.root().join("www")).unwrap();
        scratch.file("www/index.html", "a page");
        scratch.file("www/large", vec![b'x'; 16 << 20]);
        let more = more.iter().map(|&arg| arg.to_owned()).collect();
        Self { scratch, more }
    }

    fn command(&self, address: SocketAddr) -> Command {
        let www = self.scratch.path("www");
        let replace = self.scratch.path("replace");
        let address = address.to_string();
        let mut command = command(&[&www, "--listen", &address, "--replace", &replace]);
        command.args(&self.more);
        command
    }

    fn start(&self) -> Running {
        Running::spawn(self.command(([127, 0, 0, 1], 0).into()))
    }

    /// Starts the next one. It serves by the time that this returns.
    fn next(&self, old: &Running) -> Running {
        Running::spawn(self.command(old.address))
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Reads one answer of `index.html`; true: the connection goes on.
fn one_answer(stream: &mut (impl Read + Write)) -> bool {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .expect("a request");
    let mut text = Vec::new();
    while !text.ends_with(b"a page") {
        let mut piece = [0; 512];
        let len = stream.read(&mut piece).expect("an answer");
        assert!(len > 0, "the connection has ended without an answer");
        text.extend_from_slice(&piece[..len]);
    }

    let text = String::from_utf8(text).unwrap().to_lowercase();
    assert!(text.starts_with("http/1.1 200 ok\r\n"), "{text}");
    !text.contains("connection: close")
}

/// Sets it when dropped, if only by a panic.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has clients ask all the time while servers take over from each other. The old ones go on beside
/// the new ones for a while.
fn replaced_under_load(site: &Site, times: usize) {
    let mut server = site.start();
    let address = server.address;
    let done = AtomicBool::new(false);
    let answers = AtomicU32::new(0);
    let mut download = connect(address);
    let request = b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    download.write_all(request).unwrap();

    thread::scope(|scope| {
        let end = Ended(&done);
        let load = || {
            let mut stream = connect(address);
            while !done.load(Ordering::Relaxed) {
                if !one_answer(&mut stream) {
                    stream = connect(address);
                }
                // Connections that begin are lost as little as those that are kept.
                assert!(get(address, "/").ends_with("a page"));
                answers.fetch_add(1, Ordering::Relaxed);
            }
        };
        let loads: Vec<_> = (0..3).map(|_| scope.spawn(load)).collect();
        let mut ends = Vec::new();
        for _ in 0..times {
            let next = site.next(&server);
            let before = answers.load(Ordering::Relaxed);
            let old = std::mem::replace(&mut server, next);
            let process = server.child.id();
            ends.push(scope.spawn(move || {
                let (code, said) = old.end();
                assert_eq!(code, Some(0), "{said}");
                assert!(
                    said.contains(&format!("process {process} takes over")),
                    "{said}"
                );
            }));
            while answers.load(Ordering::Relaxed) < before + 3 {
                assert!(!loads.iter().any(|load| load.is_finished()), "a loss");
                thread::sleep(Duration::from_millis(1));
            }
        }

        // Meanwhile the first one waits for the download.
        let mut body = Vec::new();
        download.read_to_end(&mut body).unwrap();
        let head = body.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        assert_eq!(body.len() - head.unwrap() - 4, 16 << 20);
        drop(end);
        for load in loads {
            load.join().expect("no loss");
        }
        for end in ends {
            end.join().expect("an end as it should be");
        }
    });
}

#[test]
fn a_hundred_replacements_lose_nothing() {
    replaced_under_load(&Site::new(&["--grace", "60s"]), 100);
}

#[test]
fn replacements_on_epoll_lose_nothing() {
    replaced_under_load(&Site::new(&["--grace", "60s", "--io", "epoll"]), 10);
}

/// A client that is silent meanwhile keeps its connection for half of the time of grace.
#[test]
fn a_silent_client_has_a_last_answer() {
    let site = Site::new(&["--admin", "127.0.0.1:0"]);
    let old = site.start();
    let mut silent = connect(old.address);
    assert!(one_answer(&mut silent));
    let pages = admin(&old);
    let new = site.next(&old);
    assert_eq!(pages, admin(&new), "the admin address is taken over, too");
    for _ in 0..20 {
        // Whichever of them it is: the service is there.
        assert!(get(pages, "/health").ends_with("ok\n"));
    }
    // It may have heard of the new one a moment later than this.
    while one_answer(&mut silent) {}
    let (code, said) = old.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(get(new.address, "/").ends_with("a page"));
}

/// Whatever fails before it can serve, the one that runs goes on.
#[test]
fn a_replacement_that_cannot_start_changes_nothing() {
    let site = Site::new(&[]);
    let mut old = site.start();
    let mut said = BufReader::new(old.child.stderr.take().unwrap());
    let www = site.scratch.path("www");
    let replace = site.scratch.path("replace");
    let address = old.address.to_string();
    let missing = site.scratch.path("missing/socket");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let faults = [
        (["--unix-socket", &missing], "cannot listen on"),
        (["--admin", &taken], "is another server on it?"),
    ];

    for (fault, why) in faults {
        let args = ["--listen", &address, "--replace", &replace];
        let (code, text) = output(&[&[&*www], &args[..], &fault].concat());
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(why), "{text}");
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("not replaced, it goes on: process"), "{line}");
        assert!(get(old.address, "/").ends_with("a page"));
    }

    // The file of a Unix socket stays with the server that goes on.
    let path = site.scratch.path("socket");
    let mut with_file = site.command(old.address);
    with_file.args(["--unix-socket", &path]);
    let holder = Running::spawn(with_file);
    let args = [
        "--listen",
        &address,
        "--replace",
        &replace,
        "--unix-socket",
        &path,
    ];
    let (code, text) = output(&[&[&*www], &args[..], &["--admin", &taken]].concat());
    assert_eq!(code, Some(1), "{text}");
    one_answer(&mut UnixStream::connect(&path).expect("the file is there"));
    assert_eq!(old.child.wait().unwrap().code(), Some(0));
    let old = holder;

    // Without FILE there is nothing to take over, and nothing is lost.
    fs::rename(&replace, site.scratch.path("elsewhere")).unwrap();
    let (code, text) = output_of(site.command(old.address));
    assert_eq!(code, Some(1), "{text}");
    assert!(get(old.address, "/").ends_with("a page"));
    fs::rename(site.scratch.path("elsewhere"), &replace).unwrap();

    // A server of another kind, and one of another version.
    let other = cache::command(&[
        "-p",
        "0",
        "-s",
        &site.scratch.path("cache"),
        "--replace",
        &replace,
    ]);
    let (code, text) = output_of(other);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("refuses: here is plainweave 1 web"), "{text}");
    let new = site.next(&old);
    assert!(get(new.address, "/").ends_with("a page"));
}

/// One that was killed leaves its file; other files stay as they are.
#[test]
fn what_stands_at_the_file() {
    let site = Site::new(&[]);
    let file = site.scratch.root().join("replace");
    let mut killed = site.start();
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert!(file.exists());
    let server = site.start();
    assert!(get(server.address, "/").ends_with("a page"));
    server.signal();
    assert_eq!(server.end().0, Some(0));
    assert!(!file.exists(), "a server that ends removes it");

    fs::write(&file, "mine").unwrap();
    let (code, text) = output_of(site.command(([127, 0, 0, 1], 0).into()));
    assert_eq!(code, Some(1));
    assert!(
        text.contains("is not a socket") || text.contains("give another file"),
        "{text}"
    );
    assert_eq!(fs::read(&file).unwrap(), b"mine");

    // A server of another kind answers at it, in another language.
    fs::remove_file(&file).unwrap();
    let _other = UnixListener::bind(&file).unwrap();
    let (code, text) = output_of(site.command(([127, 0, 0, 1], 0).into()));
    assert_eq!(code, Some(1));
    assert!(text.contains("give another file with --replace"), "{text}");
    assert!(text.contains("another program's"), "{text}");

    let config = site.scratch.path("web.toml");
    fs::write(&config, "").unwrap();
    let check = |file: &str| output(&["--config", &config, "--check", "--replace", file]);
    let (code, text) = check(&config);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is not a socket"), "{text}");
    let (code, text) = check(&site.scratch.path("missing/replace"));
    assert!(
        code == Some(1) && text.contains("is no directory"),
        "{text}"
    );
}

/// The file of a Unix socket is there all the time, and the last server removes it.
#[test]
fn a_unix_socket_is_taken_over() {
    let site = Site::new(&[]);
    let path = site.scratch.path("socket");
    let start = || {
        let mut command = site.command(([127, 0, 0, 1], 0).into());
        command.args(["--unix-socket", &path]);
        Running::spawn(command)
    };
    // The old one may have accepted it, and says then that it is the last.
    let ask = || _ = one_answer(&mut UnixStream::connect(&path).unwrap());

    let first = start();
    ask();
    let second = start();
    ask();
    assert_eq!(first.end().0, Some(0));
    ask();
    let process = second.child.id();
    let third = start();
    assert_eq!(second.end().0, Some(0));
    third.signal();
    let (code, said) = third.end();
    assert_eq!(code, Some(0));
    let line = format!("took over from process {process}, ");
    assert!(said.contains(&line), "{said}");
    assert!(!fs::exists(&path).unwrap());
}

/// Files are the same by any spelling, get the new one's mask, and go with the flag.
#[test]
fn files_of_unix_sockets() {
    let site = Site::new(&[]);
    let path = site.scratch.path("socket");
    let start = |more: &[&str]| {
        let mut command = site.command(([127, 0, 0, 1], 0).into());
        command.args(more);
        Running::spawn(command)
    };
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let first = start(&["--unix-socket", &path]);
    assert_eq!(mode(), 0o700);
    let other = site.scratch.path("www/../socket");
    let second = start(&["--unix-socket", &other, "--unix-mask", "666"]);
    assert_eq!(first.end().0, Some(0));
    assert_eq!(mode(), 0o666);
    one_answer(&mut UnixStream::connect(&path).unwrap());
    let third = start(&[]);
    assert_eq!(second.end().0, Some(0));
    assert!(!fs::exists(&path).unwrap(), "nobody listens there");
    drop(third);
}

/// One that chooses its port gets none that another flag asks for.
#[test]
fn a_free_port_is_not_another_one() {
    let site = Site::new(&[]);
    let any = ([127, 0, 0, 1], 0).into();
    let mut command = site.command(any);
    command.args(["--listen", "127.0.0.1:0"]);
    let first = Running::spawn(command);
    let mut command = site.command(any);
    command.args(["--listen", &first.address.to_string()]);
    let second = Running::spawn(command);
    assert_eq!(first.end().0, Some(0));
    let asked = second.line.matches("http://").count();
    assert_eq!(asked, 2, "{}", second.line);
}

/// Plays an old server, which is killed after these messages. The new one goes on.
fn killed_after(texts: &[&str]) {
    let site = Site::new(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let control = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    let path = site.scratch.path("replace");
    control.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    control.listen(1).unwrap();

    let new = thread::scope(|scope| {
        let new = scope.spawn(|| Running::spawn(site.command(address)));
        let (mut channel, _) = control.accept().unwrap();
        channel.set_read_timeout(Some(LIMIT)).unwrap();
        let mut said = [0; 64];
        let len = channel.read(&mut said).unwrap();
        assert_eq!(&said[..len], b"plainweave 1 web");
        for text in texts {
            let fd = match *text {
                "control" => Some(control.as_fd()),
                "socket" => Some(listener.as_fd()),
                _ => None,
            };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(fd.as_slice()));
            let text = [IoSlice::new(text.as_bytes())];
            sendmsg(&channel, &text, &mut ancillary, SendFlags::empty()).unwrap();
        }
        if texts.last() == Some(&"all") {
            let len = channel.read(&mut said).unwrap();
            assert_eq!(&said[..len], b"ready");
        }
        // The connection last: that is what the new one looks at.
        drop((control, listener));
        // Other tests' children may have it for a moment, before they are other programs. Where it
        // was given away, it is the new one's.
        eventually("nobody listens there", || {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let connected = socket.connect(&SockAddr::unix(&path).unwrap());
            let is_gone =
                connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            is_gone || texts.contains(&"control")
        });
        drop(channel);
        new.join().unwrap()
    });
    assert!(get(address, "/").ends_with("a page"));
    let next = site.next(&new);
    assert!(get(address, "/").ends_with("a page"));
    let (code, said) = new.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("has ended meanwhile"), "{said}");
    drop(next);
}

#[test]
fn one_that_is_killed_meanwhile_is_replaced() {
    killed_after(&["control", "socket", "all"]);
    killed_after(&["control", "socket"]);
    killed_after(&["socket"]);
}

/// Runs a command with descriptors from 3 on, as a service manager does.
fn activated(command: &Command, sockets: &[OwnedFd], names: &str) -> Command {
    let mut script = String::new();
    for (n, socket) in sockets.iter().enumerate() {
        // They are given away: other tests' children may get them too, which does no harm.
        rustix::io::fcntl_setfd(socket, FdFlags::empty()).unwrap();
        script.push_str(&format!("exec {}<&{}; ", 53 + n, socket.as_raw_fd()));
    }
    for n in 0..sockets.len() {
        script.push_str(&format!("exec {}<&{}; exec {}<&-; ", 3 + n, 53 + n, 53 + n));
    }
    script.push_str("export LISTEN_PID=$$; exec \"$0\" \"$@\"");

    // The descriptors have two digits.
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).arg(command.get_program());
    shell.args(command.get_args()).env_remove("PLAINWEAVE_IO");
    shell.env("LISTEN_FDS", sockets.len().to_string());
    shell.env("LISTEN_FDNAMES", names);
    shell
}

/// The sockets of a service manager go on listening when the server ends: who comes in between
/// waits.
#[test]
fn sockets_of_a_service_manager() {
    let site = Site::new(&[]);
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let pages = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap();
    let sockets: Vec<OwnedFd> = vec![web.into(), pages.into()];
    let www = site.scratch.path("www");
    let start = || Running::spawn(activated(&command(&[&www]), &sockets, "http:admin"));
    let first = start();
    assert_eq!(first.address, address, "and the default port is not opened");
    assert!(get(admin(&first), "/health").ends_with("ok\n"));
    assert!(get(address, "/").ends_with("a page"));
    first.signal();
    assert_eq!(first.end().0, Some(0));

    let mut between = connect(address);
    let second = start();
    assert!(one_answer(&mut between));

    // By --replace they are the service manager's, too, and have the same names.
    let replace = site.scratch.path("replace");
    let replacing = command(&[&www, "--replace", &replace]);
    let third = Running::spawn(activated(&replacing, &sockets, "http:admin"));
    let fourth = Running::spawn(command(&[&www, "--replace", &replace]));
    assert_eq!(fourth.address, address);
    assert!(get(admin(&fourth), "/health").ends_with("ok\n"));
    assert_eq!(third.end().0, Some(0));
    for server in [second, fourth] {
        server.signal();
        assert_eq!(server.end().0, Some(0));
    }
    let mut between = connect(address);
    let fifth = Running::spawn(activated(&replacing, &sockets, "http:admin"));
    let sixth = Running::spawn(activated(&replacing, &sockets, "http:admin"));
    one_answer(&mut between);
    assert!(get(address, "/").ends_with("a page"));
    drop((fifth, sixth));

    // What is not a socket of a listener is refused.
    let (stream, _peer) = UnixStream::pair().unwrap();
    let (code, text) = output_of(activated(&command(&[&www]), &[stream.into()], ""));
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("descriptor 0 of the service manager"),
        "{text}"
    );
    let architecture = ["--architecture", "acceptors"];
    let (code, text) = output_of(activated(
        &command(&[&[&*www], &architecture[..]].concat()),
        &sockets,
        "",
    ));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("choose another one"), "{text}");
}

/// What a service manager hears, by its socket.
struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new(scratch: &Scratch) -> Self {
        let path = scratch.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, path }
    }

    fn hear(&self) -> String {
        let mut text = [0; 256];
        let len = self.socket.recv(&mut text).expect("a message");
        String::from_utf8(text[..len].to_vec()).unwrap()
    }
}

#[test]
fn a_service_manager_hears_of_it() {
    let site = Site::new(&[]);
    let manager = Manager::new(&site.scratch);
    let start = |watched: Option<&str>| {
        let mut command = site.command(([127, 0, 0, 1], 0).into());
        command.env("NOTIFY_SOCKET", &manager.path);
        command.envs(watched.map(|micros| ("WATCHDOG_USEC", micros)));
        Running::spawn(command)
    };
    let ready = |server: &Running| {
        let text = manager.hear();
        assert!(text.contains("READY=1"), "{text}");
        assert!(
            text.contains(&format!("MAINPID={}", server.child.id())),
            "{text}"
        );
    };

    let first = start(Some("3600000000"));
    ready(&first);
    kill_process(Pid::from_child(&first.child), Signal::HUP).unwrap();
    let text = manager.hear();
    assert!(
        text.contains("RELOADING=1") && text.contains("MONOTONIC_USEC="),
        "{text}"
    );
    ready(&first);

    // The old one does not say that the service stops: it does not.
    let second = start(Some("200000"));
    ready(&second);
    assert_eq!(first.end().0, Some(0));
    // A service manager says what it expects to the first one that it starts.
    let third = start(None);
    assert_eq!(second.end().0, Some(0));
    let id = third.child.id();
    while manager.hear() != format!("READY=1\nMAINPID={id}\n") {}
    for _ in 0..3 {
        assert_eq!(manager.hear().trim_end(), "WATCHDOG=1");
    }
    third.signal();
    let mut text = manager.hear();
    while text.trim_end() == "WATCHDOG=1" {
        text = manager.hear();
    }
    assert_eq!(text.trim_end(), "STOPPING=1");
    assert_eq!(third.end().0, Some(0));
}

/// A cache, and what its servers are started with.
struct Caches {
    scratch: Scratch,
    more: Vec<String>,
}

impl Caches {
    fn new(more: &[&str]) -> Self {
        let scratch = Scratch::new();
        let more = more.iter().map(|&arg| arg.to_owned()).collect();
        Self { scratch, more }
    }

    fn start(&self, address: SocketAddr) -> cache::Running {
        cache::Running::spawn(self.command(address))
    }

    fn command(&self, address: SocketAddr) -> Command {
        let port = address.port();
        let port = if port == 0 {
            "-1".to_owned()
        } else {
            port.to_string()
        };
        let replace = self.scratch.path("replace");
        let mut command = cache::command(&["-l", "127.0.0.1", "-p", &port, "--replace", &replace]);
        command.args(&self.more);
        command
    }
}

/// Sends commands and reads the reply, which ends with this.
fn reply(stream: &mut TcpStream, commands: &[u8], end: &str) -> String {
    stream.write_all(commands).expect("a command");
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut piece = [0; 512];
        let len = stream.read(&mut piece).expect("a reply");
        assert!(len > 0, "the connection has ended after {text:?}");
        text.extend_from_slice(&piece[..len]);
    }
    String::from_utf8(text).unwrap()
}

/// Connections go on where they are, in whatever part of a command: their clients notice nothing
/// but that the items are gone.
fn caches_replaced_under_load(caches: &Caches, times: usize) {
    let mut server = caches.start(([127, 0, 0, 1], 0).into());
    let address = server.address;
    let done = AtomicBool::new(false);
    let replies = AtomicU32::new(0);
    let mut silent: Vec<_> = (0..50).map(|_| connect(address)).collect();
    for stream in &mut silent {
        reply(stream, b"set a 0 0 1\r\n1\r\n", "STORED\r\n");
    }

    thread::scope(|scope| {
        let end = Ended(&done);
        let load = || {
            let mut stream = connect(address);
            while !done.load(Ordering::Relaxed) {
                reply(&mut stream, b"set a 0 0 5\r\n", "");
                reply(&mut stream, b"hello\r\nget b\r\n", "STORED\r\nEND\r\n");
                reply(&mut connect(address), b"get b\r\n", "END\r\n");
                replies.fetch_add(1, Ordering::Relaxed);
            }
        };
        let loads: Vec<_> = (0..3).map(|_| scope.spawn(load)).collect();
        for _ in 0..times {
            // In the midst of a value when the next one comes.
            let mut halfway = connect(address);
            reply(&mut halfway, b"get b\r\nset c 0 0 5\r\nhe", "END\r\n");
            let next = caches.start(address);
            let before = replies.load(Ordering::Relaxed);
            let old = std::mem::replace(&mut server, next);
            reply(&mut halfway, b"llo\r\n", "STORED\r\n");
            let (code, said) = old.end();
            assert_eq!(code, Some(0), "{said}");
            reply(
                &mut halfway,
                b"set c 0 0 1\r\n1\r\nget c\r\n",
                "VALUE c 0 1\r\n1\r\nEND\r\n",
            );
            while replies.load(Ordering::Relaxed) < before + 3 {
                assert!(!loads.iter().any(|load| load.is_finished()), "a loss");
                thread::sleep(Duration::from_millis(1));
            }
        }

        drop(end);
        for load in loads {
            load.join().expect("no loss");
        }
    });
    for stream in &mut silent {
        reply(stream, b"get a\r\n", "END\r\n");
    }
    let mut monitor = connect(address);
    let stats = reply(&mut monitor, b"stats\r\n", "END\r\n");
    let open = stats
        .lines()
        .find_map(|line| line.strip_prefix("STAT curr_connections "));
    let open: usize = open.unwrap().parse().unwrap();
    assert!((51..60).contains(&open), "{open} connections are counted");
}

#[test]
fn caches_lose_no_connection() {
    caches_replaced_under_load(&Caches::new(&["-t", "2"]), 50);
}

#[test]
fn caches_on_epoll_lose_no_connection() {
    caches_replaced_under_load(&Caches::new(&["-t", "1", "--io", "epoll"]), 10);
}

/// What the first one still has when it is long replaced goes by way of the second to the third.
#[test]
fn a_value_outlasts_two_replacements() {
    let caches = Caches::new(&[]);
    let first = caches.start(([127, 0, 0, 1], 0).into());
    let address = first.address;
    let mut halfway: Vec<_> = (0..20).map(|_| connect(address)).collect();
    for stream in &mut halfway {
        reply(stream, b"get b\r\nset c 0 0 5\r\nhe", "END\r\n");
    }
    let second = caches.start(address);
    let third = caches.start(address);
    for stream in &mut halfway {
        reply(stream, b"llo\r\n", "STORED\r\n");
    }
    for old in [first, second] {
        let (code, said) = old.end();
        assert_eq!(code, Some(0), "{said}");
    }
    reply(&mut connect(address), b"set a 0 0 1\r\n3\r\n", "STORED\r\n");
    for stream in &mut halfway {
        reply(stream, b"get a\r\n", "VALUE a 0 1\r\n3\r\nEND\r\n");
    }
    drop(third);
}

/// A service manager's sockets are served beside those of the flags, and `--admin` may name one.
#[test]
fn sockets_of_a_service_manager_for_a_cache() {
    let [main, pages, more] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [at, pages_at, more_at] = [&main, &pages, &more].map(|one| one.local_addr().unwrap());
    drop(more);
    let sockets: Vec<OwnedFd> = vec![main.into(), pages.into()];
    let (pages_at, more_at) = (pages_at.to_string(), more_at.to_string());
    let command = cache::command(&["-l", &more_at, "--admin", &pages_at]);
    let server = cache::Running::spawn(activated(&command, &sockets, ""));
    let line = &server.line;
    assert!(
        line.contains(&format!("admin http://{pages_at}/")),
        "{line}"
    );
    for address in [at, more_at.parse().unwrap()] {
        reply(&mut connect(address), b"get a\r\n", "END\r\n");
    }
    assert!(get(pages_at.parse().unwrap(), "/health").ends_with("ok\n"));
}

/// A cache that fails after it has written its number puts the other one's back.
#[test]
fn a_failed_cache_leaves_the_number_of_the_other_one() {
    let scratch = Scratch::new();
    let file = scratch.path("pid");
    fs::write(&file, "1234\n").unwrap();
    let missing = scratch.path("missing/replace");
    let args = [
        "-l",
        "127.0.0.1",
        "-p",
        "-1",
        "-P",
        &file,
        "--replace",
        &missing,
    ];
    let (code, text) = output_of(cache::command(&args));
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "1234\n");
}

/// Says how many connections there is no room for.
#[test]
fn a_cache_with_few_descriptors_says_what_it_closes() {
    let caches = Caches::new(&["-t", "1"]);
    let old = caches.start(([127, 0, 0, 1], 0).into());
    let mut clients: Vec<_> = (0..200).map(|_| connect(old.address)).collect();
    for client in &mut clients {
        reply(client, b"get a\r\n", "END\r\n");
    }
    let whole = caches.command(old.address);
    let mut few = Command::new("bash");
    few.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]);
    few.arg(whole.get_program()).args(whole.get_args());
    let new = cache::Running::spawn(few);
    assert_eq!(old.end().0, Some(0));
    drop(clients);
    reply(&mut connect(new.address), b"get a\r\n", "END\r\n");
    new.signal();
    let (code, said) = new.end();
    assert_eq!(code, Some(0));
    assert!(
        said.contains("connections of the server before were closed"),
        "{said}"
    );
}

/// Users would have to log in again, so they connect again; what they have begun is done.
#[test]
fn users_of_a_cache_connect_again() {
    let users = Scratch::new();
    users.file("users", "me:secret\n");
    let caches = Caches::new(&["-Y", &users.path("users")]);
    let old = caches.start(([127, 0, 0, 1], 0).into());
    let login = b"set x 0 0 9\r\nme secret\r\n";
    let mut user = connect(old.address);
    reply(&mut user, login, "STORED\r\n");
    reply(&mut user, b"get a\r\nset a 0 0 3\r\n1", "END\r\n");
    let mut stranger = connect(old.address);
    reply(
        &mut stranger,
        b"get a\r\n",
        "CLIENT_ERROR unauthenticated\r\n",
    );
    let new = caches.start(old.address);
    reply(&mut user, b"23\r\n", "STORED\r\n");
    assert_eq!(user.read(&mut [0]).unwrap(), 0);
    assert_eq!(old.end().0, Some(0));
    reply(&mut stranger, login, "STORED\r\n");
    drop(new);
}

/// Where each connection has a fiber, its clients have to connect again.
#[test]
fn caches_of_another_architecture_are_replaced() {
    let caches = Caches::new(&["--architecture", "fibers"]);
    let old = caches.start(([127, 0, 0, 1], 0).into());
    let mut client = connect(old.address);
    reply(&mut client, b"set a 0 0 1\r\n1\r\n", "STORED\r\n");
    let new = caches.start(old.address);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    reply(&mut connect(new.address), b"get a\r\n", "END\r\n");
    assert_eq!(old.end().0, Some(0));
}

/// While a cache waits for a client that does not read its replies.
#[test]
fn a_cache_that_stops_is_not_healthy() {
    let server = cache::Running::start(&["--admin", "127.0.0.1:0"]);
    let after = server
        .line
        .split_once("admin http://")
        .expect(&server.line)
        .1;
    let pages: SocketAddr = after.split('/').next().unwrap().parse().unwrap();
    assert!(get(pages, "/health").ends_with("ok\n"));
    let mut stubborn = connect(server.address);
    let value = [b"set a 0 0 1000000\r\n", &[b'x'; 1_000_000][..], b"\r\n"].concat();
    reply(&mut stubborn, &value, "STORED\r\n");
    stubborn.write_all(&b"get a\r\n".repeat(50)).unwrap();
    let mut begun = [0; 1];
    stubborn.read_exact(&mut begun).unwrap();
    server.signal();
    let mut refused = String::new();
    eventually("a refusal", || {
        refused = get(pages, "/health");
        !refused.ends_with("ok\n")
    });
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert_eq!(server.end().0, Some(0));
}
