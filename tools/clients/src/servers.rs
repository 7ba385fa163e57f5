//! The servers: Debian's, each in a folder of its own and on a port that was free, and stubs on
//! threads where Debian's would have to be configured more than a page long.

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rcgen::CertifiedKey;
use tempfile::TempDir;

/// How long every server takes for a request that is to be waited for.
pub const DELAY: Duration = Duration::from_millis(200);
/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Servers {
    // First: their files go with the folder.
    _running: Vec<Guard>,
    pub postgres: u16,
    pub redis: u16,
    pub mariadb: u16,
    /// nginx: HTTP/1.1, the same over TLS, and HTTP/2 without TLS. `/slow` takes [`DELAY`].
    pub http: u16,
    pub https: u16,
    pub http2: u16,
    pub websocket: u16,
    pub smtp: u16,
    /// nginx's own, in PEM.
    pub certificate: String,
    pub folder: TempDir,
}

/// Ends a server when it goes, by a signal.
struct Guard(Child, libc::c_int);

impl Drop for Guard {
    fn drop(&mut self) {
        unsafe { libc::kill(self.0.id().cast_signed(), self.1) };
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end && matches!(self.0.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Servers {
    pub fn start() -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::Builder::new()
            .prefix("clients-on-fibers")
            .tempdir()?;
        // Servers that give root's rights up have to get in.
        Command::new("chmod")
            .arg("755")
            .arg(folder.path())
            .status()?;
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        fs::write(folder.path().join("cert.pem"), cert.pem())?;
        fs::write(folder.path().join("key.pem"), signing_key.serialize_pem())?;

        let [postgres, redis, mariadb, http, https, http2] = free_ports()?;
        let running = vec![
            start_postgres(&folder.path().join("postgres"), postgres)?,
            start_redis(&folder.path().join("redis"), redis)?,
            start_mariadb(&folder.path().join("mariadb"), mariadb)?,
            start_nginx(folder.path(), [http, https, http2], stub(slow_http)?)?,
        ];
        Ok(Self {
            postgres,
            redis,
            mariadb,
            http,
            https,
            http2,
            websocket: stub(websocket)?,
            smtp: stub(smtp)?,
            certificate: cert.pem(),
            folder,
            _running: running,
        })
    }
}

/// Ports that nobody listens on at the moment.
fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let listeners: Vec<TcpListener> = (0..N)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<io::Result<_>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Starts a server, and waits until it listens.
fn start(command: &mut Command, log: &Path, port: u16) -> Result<Guard, Box<dyn Error>> {
    let out = fs::File::create(log)?;
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    // What ends this program ends its servers.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let mut guard = Guard(child, libc::SIGTERM);
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if guard.0.try_wait()?.is_some() || Instant::now() > end {
            let said = fs::read_to_string(log)?;
            return Err(format!("{command:?} does not listen: {said}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(guard)
}

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{command:?}: {}: {said}", output.status).into())
}

/// The number of a user, and of a group, as `id` says: `-u` or `-g`.
fn id(which: &str, user: &str) -> Result<u32, Box<dyn Error>> {
    let output = Command::new("id").args([which, user]).output()?;
    let number = String::from_utf8(output.stdout)?;
    Ok(number
        .trim()
        .parse()
        .map_err(|_| format!("there is no user {user}"))?)
}

fn is_root() -> bool {
    // SAFETY: no more than a number.
    unsafe { libc::geteuid() == 0 }
}

/// Gives a folder to the user that [`as_user`] runs a server as.
fn give(folder: &Path, user: &str) -> Result<(), Box<dyn Error>> {
    match is_root() {
        true => run(Command::new("chown").arg(format!("{user}:")).arg(folder)),
        false => Ok(()),
    }
}

/// Databases do not run as root.
fn as_user(program: impl AsRef<Path>, user: &str) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(program.as_ref());
    if is_root() {
        command.uid(id("-u", user)?).gid(id("-g", user)?);
    }
    command.current_dir("/");
    Ok(command)
}

/// Debian keeps the server's programs out of the path, in a folder for each version.
fn postgres_folder() -> Result<std::path::PathBuf, Box<dyn Error>> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .map_err(|e| format!("/usr/lib/postgresql (Debian's postgresql): {e}"))?;
    let newest = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .max();
    newest.ok_or_else(|| "no PostgreSQL is installed".into())
}

fn start_postgres(folder: &Path, port: u16) -> Result<Guard, Box<dyn Error>> {
    let programs = postgres_folder()?;
    fs::create_dir(folder)?;
    give(folder, "postgres")?;
    let mut create = as_user(programs.join("initdb"), "postgres")?;
    run(create
        .args(["--auth=trust", "--no-sync", "--username=postgres", "-D"])
        .arg(folder))?;
    let mut server = as_user(programs.join("postgres"), "postgres")?;
    server.arg("-D").arg(folder).arg("-k").arg(folder);
    server.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
    server.args(["-c", "max_connections=200", "-p", &port.to_string()]);
    let mut guard = start(&mut server, &folder.with_extension("log"), port)?;
    // By which it breaks connections off.
    guard.1 = libc::SIGINT;
    Ok(guard)
}

fn start_redis(folder: &Path, port: u16) -> Result<Guard, Box<dyn Error>> {
    fs::create_dir(folder)?;
    let mut server = Command::new("redis-server");
    server.args([
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--port",
        &port.to_string(),
    ]);
    start(
        server.arg("--dir").arg(folder),
        &folder.with_extension("log"),
        port,
    )
}

fn start_mariadb(folder: &Path, port: u16) -> Result<Guard, Box<dyn Error>> {
    fs::create_dir(folder)?;
    give(folder, "mysql")?;
    let mut create = as_user("/usr/bin/mariadb-install-db", "mysql")?;
    create.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    run(create.arg(format!("--datadir={}", folder.display())))?;
    let mut server = as_user("/usr/sbin/mariadbd", "mysql")?;
    server.args(["--no-defaults", "--bind-address=127.0.0.1"]);
    server.arg(format!("--datadir={}", folder.display()));
    server.arg(format!("--socket={}", folder.join("socket").display()));
    server.arg(format!("--port={port}"));
    start(&mut server, &folder.with_extension("log"), port)
}

fn start_nginx(folder: &Path, ports: [u16; 3], slow: u16) -> Result<Guard, Box<dyn Error>> {
    let [http, https, http2] = ports;
    let place = folder.display();
    let configuration = format!(
        "daemon off; pid {place}/nginx.pid; error_log stderr; worker_processes 1;
        events {{ worker_connections 4096; }}
        http {{
            access_log off;
            client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;
            fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi;
            scgi_temp_path {place}/scgi;
            server {{
                listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl;
                listen 127.0.0.1:{http2} http2;
                ssl_certificate {place}/cert.pem; ssl_certificate_key {place}/key.pem;
                location / {{ return 200 'hello'; }}
                location /slow {{ proxy_pass http://127.0.0.1:{slow}; }}
            }}
        }}"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, configuration)?;
    start(
        Command::new("/usr/sbin/nginx").arg("-c").arg(&file),
        &folder.join("nginx.log"),
        http,
    )
}

/// Serves by a thread for each connection, until the program ends. Returns the port.
fn stub(serve: fn(TcpStream) -> io::Result<()>) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // What goes wrong the client sees.
            thread::spawn(move || drop(serve(stream)));
        }
    });
    Ok(port)
}

fn slow_http(mut stream: TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    thread::sleep(DELAY);
    stream.write_all(b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello")
}

fn websocket(stream: TcpStream) -> io::Result<()> {
    let mut socket = tungstenite::accept(stream).map_err(io::Error::other)?;
    loop {
        let message = socket.read().map_err(io::Error::other)?;
        if message.to_text().is_ok_and(|text| text == "slow") {
            thread::sleep(DELAY);
        }
        if message.is_text() {
            socket.send(message).map_err(io::Error::other)?;
        }
    }
}

/// Takes mail, and takes its time for what is to `slow@`.
fn smtp(mut stream: TcpStream) -> io::Result<()> {
    let lines = BufReader::new(stream.try_clone()?).lines();
    let (mut in_data, mut is_slow) = (false, false);
    stream.write_all(b"220 stub ESMTP\r\n")?;
    for line in lines {
        let line = line?;
        let answer: &[u8] = match line.split([' ', ':']).next().unwrap_or_default() {
            "." if in_data => {
                if is_slow {
                    thread::sleep(DELAY);
                }
                (in_data, is_slow) = (false, false);
                b"250 taken\r\n"
            }
            _ if in_data => continue,
            "EHLO" => b"250 stub\r\n",
            "DATA" => {
                in_data = true;
                b"354 go ahead\r\n"
            }
            "QUIT" => return stream.write_all(b"221 bye\r\n"),
            _ => {
                is_slow |= line.contains("slow@");
                b"250 good\r\n"
            }
        };
        stream.write_all(answer)?;
    }
    Ok(())
}
