//! What a server gives to the one that replaces it: the side of the old one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::channel::{Channel, wait};
use super::inherited::{
    ALL, CONNECTION, CONTROL, Control, GREETING, Inherited, MANAGED, READY, SOCKET, WATCHDOG,
    YOURS, place,
};
use crate::console::say;
use crate::service_manager;
use crate::sharing::Sharing;
use crate::signals::Asker;

/// How long the new one may take to say what it is.
const GREETED: Duration = Duration::from_secs(5);
/// How long it may take to start.
const STARTED: Duration = Duration::from_secs(300);

/// How long it may take no connection of those that it is given.
const TAKEN: Duration = Duration::from_secs(1);

/// Serves a connection that the server before this one has accepted.
pub type Adopt = Box<dyn Fn(OwnedFd) + Send>;

/// A thread that gives this server's sockets to the next one, and one that takes connections of the
/// one before, until this is dropped.
#[derive(Debug)]
pub struct Offer {
    offering: Ending,
    adopting: Option<Ending>,
    heir: Heir,
}

/// A thread that ends when this is dropped.
#[derive(Debug)]
struct Ending {
    end: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The server that has taken over, once one has.
#[derive(Clone, Debug, Default)]
pub struct Heir(Arc<OnceLock<Channel>>);

impl Heir {
    /// Gives it a connection, at a point where nothing has been read that is not answered. The
    /// caller need not be asked whether it has arrived: what its client sends does in any case.
    ///
    /// Context: blocks the thread, for a second at most.
    ///
    /// # Errors
    /// There is none, or it takes nothing.
    pub fn give(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        let channel = self.0.get().ok_or(io::ErrorKind::NotConnected)?;
        channel.send(CONNECTION, Some(connection))
    }
}

/// What the thread has.
struct Offered {
    program: &'static str,
    control: Control,
    sockets: Vec<OwnedFd>,
    sharing: Sharing,
    stop: Asker,
    heir: Heir,
    end: OwnedFd,
}

impl Offer {
    /// Has the server stop from which this one has `inherited` sockets, if there is one, and then
    /// offers this one's at `replace`, if a flag says where. To be called when nothing can fail any
    /// more but accepting itself. `sockets`: all that this server listens on; `stop`: asks it to
    /// stop; `adopt`: gets the connections of the other one.
    ///
    /// # Errors
    /// The other one goes on, for it does not answer; the file cannot be made, or no thread.
    pub fn begin(
        program: &'static str,
        inherited: Inherited,
        replace: Option<&Path>,
        sockets: Vec<OwnedFd>,
        stop: Asker,
        adopt: Option<Adopt>,
    ) -> anyhow::Result<Option<Self>> {
        let sharing = inherited.sharing().clone();
        let Some(mut control) = inherited.succeed(program, replace)? else {
            return Ok(None);
        };
        let adopting = control.from.take().zip(adopt);
        let adopting = adopting
            .map(|(from, adopt)| Ending::start(move |end| take_over(program, &from, &adopt, &end)))
            .transpose()?;

        let heir = Heir::default();
        let its_heir = heir.clone();
        let offering = Ending::start(move |end| {
            let offered = Offered {
                program,
                control,
                sockets,
                sharing,
                stop,
                heir: its_heir,
                end,
            };
            offered.run();
        })?;
        Ok(Some(Self {
            offering,
            adopting,
            heir,
        }))
    }

    /// Offers no longer: a server that is started finds none to replace.
    pub fn close(&mut self) {
        self.offering.end();
    }

    /// Returns whether the server before this one may have connections to give.
    pub fn is_adopting(&self) -> bool {
        let thread = self.adopting.as_ref().and_then(|of| of.thread.as_ref());
        thread.is_some_and(|thread| !thread.is_finished())
    }

    /// Returns the server that takes over, for when it has.
    pub fn heir(&self) -> &Heir {
        &self.heir
    }
}

impl Ending {
    /// Starts a thread, which gets what is closed when it is to end.
    fn start(run: impl FnOnce(OwnedFd) + Send + 'static) -> anyhow::Result<Self> {
        let (ended, end) = pipe_with(PipeFlags::CLOEXEC)?;
        let thread = Builder::new().name("replace".to_owned());
        let thread = thread.spawn(move || run(ended));
        Ok(Self {
            end: Some(end),
            thread: Some(thread.context("there is no thread for --replace")?),
        })
    }

    fn end(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes connections until there will be none.
fn take_over(program: &str, from: &Channel, adopt: &Adopt, end: &OwnedFd) {
    let mut lost = 0;
    loop {
        match from.receive(None, Some(end.as_fd())) {
            Ok((text, Some(connection))) if text == CONNECTION => adopt(connection),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => lost += 1,
            Err(_) => break,
        }
    }
    if lost > 0 {
        let remedy = "descriptors are short (raise `ulimit -n`, or LimitNOFILE= of systemd)";
        let line = format!("{lost} connections of the server before were closed: {remedy}");
        say(io::stderr(), &format!("plainweave {program}: {line}"));
    }
}

impl Offered {
    fn run(self) {
        let listener = &self.control.listener;
        while let Ok(true) = wait(listener.as_fd(), Some(self.end.as_fd()), None) {
            let program = self.program;
            let served = Channel::accept(listener).map_err(Into::into);
            match served.and_then(|channel| self.give(channel)) {
                Ok(process) => {
                    let line = format!("plainweave {program}: process {process} takes over");
                    return say(io::stderr(), &line);
                }
                Err(_) if self.is_ending() => return,
                Err(error) => {
                    // Whoever has the sockets already does not use them.
                    self.sharing.set_handed_over(false);
                    let line = format!("plainweave {program}: not replaced, it goes on: {error:#}");
                    say(io::stderr(), &line);
                }
            }
        }
    }

    /// Returns whether this server ends.
    fn is_ending(&self) -> bool {
        wait(self.end.as_fd(), None, Some(Duration::ZERO)).is_ok()
    }

    /// Hands the sockets over. Returns the process that has them now.
    fn give(&self, channel: Channel) -> anyhow::Result<i32> {
        let Some(process) = channel.trusted_peer(false)? else {
            bail!("another user has asked");
        };
        let served = self.serve(&channel, process);
        if let Err(error) = &served
            && !self.is_ending()
        {
            // The other one takes an end without a word for the end of this process.
            let _ = channel.send(&format!("{error:#}"), None);
        }
        served?;
        // First, for the stop looks at it.
        let _ = self.heir.0.set(channel);
        self.stop.ask();
        Ok(process)
    }

    /// Speaks with the process that asks, until it may have the sockets.
    fn serve(&self, channel: &Channel, process: i32) -> anyhow::Result<()> {
        let end = || Some(self.end.as_fd());
        let (greeting, _) = channel.receive(Some(GREETED), end())?;
        let own = format!("{GREETING}{}", self.program);
        ensure!(
            greeting == own,
            "here is {own}, and process {process} is another program, or of another version"
        );

        // Before the other one can have them.
        self.sharing.set_handed_over(true);
        let control = self.control.listener.as_fd();
        channel.send(CONTROL, Some(control))?;
        for socket in &self.sockets {
            let name = place(socket);
            let name = name.and_then(|place| self.sharing.managed_name(&place).map(str::to_owned));
            let text = name.map_or(SOCKET.to_owned(), |name| format!("{MANAGED}{name}"));
            channel.send(&text, Some(socket.as_fd()))?;
        }
        if let Some(limit) = service_manager::watchdog() {
            channel.send(&format!("{WATCHDOG}{}", limit.as_micros()), None)?;
        }
        channel.send(ALL, None)?;

        let said = channel.receive(Some(STARTED), end());
        let (said, _) = said.with_context(|| format!("process {process} has not started"))?;
        ensure!(said == READY, "process {process} has not started: {said}");
        channel.set_patience(TAKEN)?;
        channel.send(YOURS, None)?;
        Ok(())
    }
}
