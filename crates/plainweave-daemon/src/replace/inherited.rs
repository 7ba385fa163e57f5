//! What a server finds open when it starts: sockets of a service manager (`LISTEN_FDS`), and those
//! of the server that it replaces.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use listenfd::ListenFd;
use plainweave_serve::Address;
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_acceptconn;
use socket2::{SockAddr, SockRef};

use super::channel::Channel;
use crate::architecture::Architecture;
use crate::console::say;
use crate::service_manager;
use crate::sharing::Sharing;
use crate::socket_file::{self, SocketFile};

/// What the two servers call their language.
pub(super) const GREETING: &str = "plainweave 1 ";
/// The words of the old one and of the new one.
pub(super) const CONTROL: &str = "control";
pub(super) const SOCKET: &str = "socket";
pub(super) const MANAGED: &str = "managed ";
pub(super) const WATCHDOG: &str = "watchdog ";
pub(super) const ALL: &str = "all";
pub(super) const READY: &str = "ready";
pub(super) const YOURS: &str = "yours";
pub(super) const CONNECTION: &str = "connection";
/// How long the old one may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is found, until it is taken.
#[derive(Debug, Default)]
pub struct Inherited {
    managed: Vec<Managed>,
    sockets: Vec<OwnedFd>,
    /// Addresses that are asked for exactly: not for port 0.
    reserved: Vec<SocketAddr>,
    from: Option<Predecessor>,
    sharing: Sharing,
}

/// A socket of the service manager.
#[derive(Debug)]
struct Managed {
    /// As `FileDescriptorName=` says.
    name: String,
    socket: OwnedFd,
    place: Address,
}

#[derive(Debug)]
struct Predecessor {
    channel: Channel,
    process: i32,
    control: OwnedFd,
}

/// What a service manager has opened that no flag asks for, by what its names say that it is for.
#[derive(Debug, Default)]
pub struct Unasked {
    /// Without TLS.
    pub plain: Vec<SocketAddr>,
    /// With TLS: of the names `https` and `tls`.
    pub tls: Vec<SocketAddr>,
    /// A Unix socket.
    pub unix: Option<PathBuf>,
    /// Of the name `admin`.
    pub admin: Option<SocketAddr>,
}

impl Unasked {
    fn add(&mut self, name: &str, place: &Address) -> anyhow::Result<()> {
        match (name, place) {
            ("https" | "tls", Address::Tcp(address)) => self.tls.push(*address),
            ("admin", Address::Tcp(address)) if self.admin.is_none() => self.admin = Some(*address),
            (_, Address::Unix(path)) if self.unix.is_none() => self.unix = Some(path.clone()),
            ("admin", _) | (_, Address::Unix(_)) => bail!(
                "the service manager has two sockets of one kind, the second is {place}: there can \
                 be one Unix socket and one that is named admin"
            ),
            (_, Address::Tcp(address)) => self.plain.push(*address),
            (_, other) => bail!("the service manager has a socket of another kind, {other}"),
        }
        Ok(())
    }

    fn tcp(&self) -> impl Iterator<Item = SocketAddr> {
        let all = self.plain.iter().chain(&self.tls).chain(&self.admin);
        all.copied()
    }

    /// Returns whether any of it is for clients.
    pub fn has_clients(&self) -> bool {
        self.unix.is_some() || !self.plain.is_empty() || !self.tls.is_empty()
    }

    /// Returns the admin address, if there is one; `asked`: what a flag says.
    ///
    /// # Errors
    /// There are two.
    pub fn admin_or(&self, asked: Option<SocketAddr>) -> anyhow::Result<Option<SocketAddr>> {
        match (self.admin, asked) {
            (Some(managed), Some(asked)) => bail!(
                "the service manager has {managed} as the admin address, and --admin is {asked}: \
                 leave one out"
            ),
            (managed, asked) => Ok(managed.or(asked)),
        }
    }
}

/// Where sockets are offered to the next server.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) listener: OwnedFd,
    /// Removed with this.
    pub(super) _file: SocketFile,
    /// By which connections come.
    pub(super) from: Option<Channel>,
}

impl Inherited {
    /// Looks for the sockets of a service manager, and asks the server that listens at `replace`
    /// for its own. `program`: which of the servers this is; `architecture`: how it will accept.
    ///
    /// # Errors
    /// A descriptor of the service manager is no listening socket; `replace` is another kind of
    /// file, or the server there does not give its sockets away; the architecture has fibers that
    /// wait in `accept`, and that could take a connection after all has ended.
    pub fn find(
        program: &str,
        replace: Option<&Path>,
        architecture: Architecture,
    ) -> anyhow::Result<Self> {
        let managed = managed()?;
        let is_shared = !managed.is_empty() || replace.is_some();
        ensure!(
            !is_shared || !matches!(architecture, Architecture::Acceptors(_)),
            "--architecture {architecture} shares its sockets neither with a service manager nor \
             by --replace: choose another one"
        );
        let mut inherited = Self {
            managed,
            ..Self::default()
        };

        if let Some(path) = replace {
            inherited.ask(program, path).with_context(|| {
                format!(
                    "cannot take over from a server at {} (give another file with --replace)",
                    path.display()
                )
            })?;
        }

        let managed = inherited.managed.iter();
        let managed = managed.map(|one| (one.name.clone(), one.place.clone()));
        inherited.sharing = Sharing::new(managed.collect());
        // What is open is the other one's until it says otherwise: nothing of it goes with this one.
        let is_lent = inherited.from.is_some();
        inherited.sharing.set_handed_over(is_lent);
        Ok(inherited)
    }

    /// Returns what a service manager has opened beside what flags ask for, which is at the
    /// addresses `asked` and at the file `unix`.
    ///
    /// # Errors
    /// There are too many of a kind, and which to use is not clear.
    pub fn unasked(
        &mut self,
        asked: &[SocketAddr],
        unix: Option<&Path>,
    ) -> anyhow::Result<Unasked> {
        let mut unasked = Unasked::default();
        for one in &self.managed {
            match &one.place {
                Address::Tcp(address) if asked.contains(address) => {}
                Address::Unix(path) if unix.is_some_and(|unix| is_one_file(path, unix)) => {}
                place => unasked.add(&one.name, place)?,
            }
        }
        ensure!(
            unix.is_none() || unasked.unix.is_none(),
            "the service manager has another Unix socket than the flags ask for: leave one out"
        );
        self.reserved = asked.iter().copied().chain(unasked.tcp()).collect();
        Ok(unasked)
    }

    /// Returns who else uses the sockets that are opened here.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Takes the socket that listens on this address, if there is one; for port 0 one of any port.
    pub fn tcp(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let reserved = std::mem::take(&mut self.reserved);
        let is_any = |local: SocketAddr| {
            address.port() == 0 && local.ip() == address.ip() && !reserved.contains(&local)
        };
        let is_it = |place: &Address| {
            let local = place.tcp();
            local.is_some_and(|local| local == address || is_any(local))
        };
        let found = self.take(is_it);
        self.reserved = reserved;
        found.map(TcpListener::from)
    }

    /// Takes the socket of this file, if there is one.
    pub fn unix(&mut self, path: &Path) -> Option<UnixListener> {
        let is_it = |place: &Address| matches!(place, Address::Unix(at) if is_one_file(at, path));
        self.take(is_it).map(UnixListener::from)
    }

    fn take(&mut self, is_it: impl Fn(&Address) -> bool) -> Option<OwnedFd> {
        if let Some(n) = self.managed.iter().position(|one| is_it(&one.place)) {
            return Some(self.managed.remove(n).socket);
        }
        let mut sockets = self.sockets.iter();
        let n = sockets.position(|socket| place(socket).is_some_and(|place| is_it(&place)))?;
        Some(self.sockets.remove(n))
    }

    /// Asks the server that listens at `path`, if one does. If it is killed meanwhile, this one goes
    /// on with what it has.
    fn ask(&mut self, program: &str, path: &Path) -> anyhow::Result<()> {
        let channel = match Channel::connect(path, PATIENCE) {
            Ok(channel) => channel,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // Of a server that was killed; `open` makes another one.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(error.into()),
        };

        let process = channel.trusted_peer(true)?;
        let process = process.ok_or_else(|| anyhow!("it is another user's"))?;
        // If it has ended, the next line says so.
        let _ = channel.send(&format!("{GREETING}{program}"), None);
        let mut control = None;
        loop {
            let received = unless_ended(channel.receive(Some(PATIENCE), None))?;
            let Some((text, socket)) = received else {
                if control.is_none() {
                    say_ended(program, process);
                    return Ok(());
                }
                // `succeed` finds it, too.
                break;
            };
            match (&*text, socket) {
                (CONTROL, Some(socket)) => control = Some(socket),
                (SOCKET, Some(socket)) => self.sockets.push(socket),
                (ALL, None) => break,
                (text, Some(socket)) if text.starts_with(MANAGED) => {
                    self.add_managed(&text[MANAGED.len()..], socket);
                }
                (text, None) if text.starts_with(WATCHDOG) => {
                    service_manager::expect_watchdog(text[WATCHDOG.len()..].parse()?);
                }
                (refusal, _) => bail!("process {process} refuses: {refusal}"),
            }
        }

        let control = control.ok_or_else(|| anyhow!("process {process} says nothing"))?;
        self.from = Some(Predecessor {
            channel,
            process,
            control,
        });
        Ok(())
    }

    /// Adds a socket of the service manager that the other server had, unless this one has it too.
    fn add_managed(&mut self, name: &str, socket: OwnedFd) {
        let Some(place) = place(&socket) else { return };
        if self.managed.iter().all(|one| one.place != place) {
            self.managed.push(Managed {
                name: name.to_owned(),
                socket,
                place,
            });
        }
    }

    /// Has the other server stop, if there is one. From here on this one is all there is.
    /// Returns where it offers its sockets at `replace`, in turn.
    ///
    /// # Errors
    /// The other one is gone, or does not answer; the file cannot be made.
    pub(super) fn succeed(
        self,
        program: &str,
        replace: Option<&Path>,
    ) -> anyhow::Result<Option<Control>> {
        let Some(path) = replace else {
            return Ok(None);
        };
        let remedy = || {
            format!(
                "cannot listen on {} (give another file with --replace)",
                path.display()
            )
        };

        let own_file = || SocketFile::own(path, &self.sharing).with_context(remedy);
        let Some(from) = self.from else {
            let listener = open(path).with_context(remedy)?;
            let file = own_file()?;
            discard(&self.sockets);
            return Ok(Some(Control {
                listener,
                _file: file,
                from: None,
            }));
        };

        // Before the other one ends, for it may fail.
        let file = own_file()?;
        let process = from.process;
        // If it has ended, the next line says so.
        let _ = from.channel.send(READY, None);
        let answer = unless_ended(from.channel.receive(Some(PATIENCE), None));
        let answer = answer.with_context(|| format!("process {process} goes on"))?;

        let is_alive = answer.is_some();
        if let Some((answer, _)) = answer {
            ensure!(answer == YOURS, "process {process} goes on: {answer}");
        }
        self.sharing.set_handed_over(false);
        discard(&self.sockets);

        if is_alive {
            let line = format!("took over from process {process}, which answers what it has begun");
            say(io::stderr(), &format!("plainweave {program}: {line}"));
        } else {
            say_ended(program, process);
        }

        let listener = from.control;
        // Without it the next one names the wrong process.
        let _ = Channel::own(&listener);
        Ok(Some(Control {
            listener,
            _file: file,
            from: Some(from.channel).filter(|_| is_alive),
        }))
    }
}

/// Returns what has been received; nothing if the other process has ended, for one that goes on
/// says why.
fn unless_ended<T>(received: io::Result<T>) -> io::Result<Option<T>> {
    match received {
        Ok(received) => Ok(Some(received)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn say_ended(program: &str, process: i32) {
    let line = format!("process {process} has ended meanwhile; this one goes on with its sockets");
    say(io::stderr(), &format!("plainweave {program}: {line}"));
}

/// Ends sockets that this server does not use, and that nobody accepts from any more: whoever comes
/// is to be refused.
fn discard(sockets: &[OwnedFd]) {
    for socket in sockets {
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
        let Some(Address::Unix(path)) = place(socket) else {
            continue;
        };

        // The file, unless it is another server's by now.
        let there = UnixStream::connect(&path);
        if there.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns whether two paths name one file.
fn is_one_file(a: &Path, b: &Path) -> bool {
    let same = socket_file::id(a).ok().zip(socket_file::id(b).ok());
    match same {
        Some((a, b)) => a == b,
        None => a == b,
    }
}

/// Opens the socket of a file, in place of one that a server left behind when it was killed.
fn open(path: &Path) -> anyhow::Result<OwnedFd> {
    check(path)?;
    match Channel::connect(path, PATIENCE) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
        Ok(_) => bail!("another server has just been started there"),
        Err(_) => {}
    }
    Ok(Channel::listen(path)?)
}

/// Refuses a file of `--replace` that cannot be one.
///
/// # Errors
/// It is something else than a socket, or its directory is not there.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let there = std::fs::symlink_metadata(path);
    if there.is_ok_and(|file| !file.file_type().is_socket()) {
        bail!("the file is there and is not a socket; it stays as it is");
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    ensure!(parent.is_dir(), "{} is no directory", parent.display());
    SockAddr::unix(path).context("the path of a socket has 107 bytes at most")?;
    Ok(())
}

/// Takes the descriptors that a service manager has passed.
fn managed() -> anyhow::Result<Vec<Managed>> {
    let mut passed = ListenFd::from_env();
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let remedy = |n: usize| {
        format!(
            "descriptor {n} of the service manager (LISTEN_FDS) is not usable: give sockets of \
             TCP, or Unix sockets with a path, with ListenStream= and Accept=no"
        )
    };

    (0..passed.len())
        .map(|n| {
            let name = names.next().unwrap_or_default().to_owned();
            let tcp = passed.take_tcp_listener(n).ok().flatten();
            let socket = match tcp {
                Some(listener) => OwnedFd::from(listener),
                None => match passed.take_unix_listener(n).ok().flatten() {
                    Some(listener) => listener.into(),
                    None => bail!(remedy(n)),
                },
            };

            ensure!(socket_acceptconn(socket.as_fd())?, remedy(n));
            let place = place(&socket).with_context(|| remedy(n))?;
            Ok(Managed {
                name,
                socket,
                place,
            })
        })
        .collect()
}

/// Returns where a socket of TCP, or a Unix socket with a path, listens.
pub(super) fn place(socket: &OwnedFd) -> Option<Address> {
    let local = SockRef::from(socket).local_addr().ok()?;
    let tcp = local.as_socket().map(Address::Tcp);
    tcp.or_else(|| Some(Address::Unix(local.as_pathname()?.to_owned())))
}
